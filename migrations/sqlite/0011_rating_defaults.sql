-- Default constants of each set's rating system. They changed after version 0.2.0; a set with ratings, results or matches from
-- before keeps the former ones. No checksum covers the column.

-- 0: those of version 0.2.0. 1: the present ones.
alter table first_rating_scale add column rating_defaults integer not null default 0 check (0 <= rating_defaults);
