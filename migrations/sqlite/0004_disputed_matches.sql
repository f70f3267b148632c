-- Disputed matches of a user: matches whose sides reported different results. Rulesets can filter by their share. The
-- checksum of a row covers the number if it is not 0.

-- At least 0.
alter table rating add column disputed_matches integer not null default 0 check (0 <= disputed_matches);

-- As in rating.
alter table keyed_rating add column disputed_matches integer not null default 0 check (0 <= disputed_matches);
