-- Disputed matches of a user: matches whose sides reported different results. Rulesets can filter by their share. Servers of
-- earlier versions keep the number as it is: they name their columns.

-- At least 0.
alter table rating add column disputed_matches bigint not null default 0 check (0 <= disputed_matches);

-- As in rating.
alter table keyed_rating add column disputed_matches bigint not null default 0 check (0 <= disputed_matches);
