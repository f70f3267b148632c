-- Disputed matches of a user: matches whose sides reported different results. Rulesets can filter by their share. No
-- checksum covers the number: after a rollback, an older server writes the rest of the row with its own checksum.

-- At least 0.
alter table rating add column disputed_matches integer not null default 0 check (0 <= disputed_matches);

-- As in rating.
alter table keyed_rating add column disputed_matches integer not null default 0 check (0 <= disputed_matches);
