-- Default constants of each set's rating system. They changed after version 0.2.0; a set with ratings, results or matches from
-- before keeps the former ones.

-- 0: those of version 0.2.0. 1: the present ones.
alter table first_rating_scale add column rating_defaults smallint not null default 0 check (0 <= rating_defaults);
