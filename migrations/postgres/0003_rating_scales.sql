-- Ratings by pool and scale. The scale of a set is its rating system with the constants that place its numbers. A
-- ruleset that changes it, or names a pool, gets other rows, and the old ones stay.
--
-- A set's own ratings on its first scale stay in `rating` and `rating_change`, where servers from before this migration
-- read and write them too. All other ratings are in `keyed_rating` and `keyed_rating_change`.

-- First scale of each set, the scale of its rows in `rating`.
--
-- The scale is only known to the server. It adds the row of a set when it first uses a ruleset with ratings of the set,
-- so that the rows that exist then are on the scale in use then. A row never changes.
create table first_rating_scale
(
    set_id     bigint primary key,
    -- First 8 bytes of a SHA-256 over set and scale, with the highest bit set.
    rating_key bigint not null check (rating_key < 0)
);

-- Ratings of users that are not on the first scale of a set, or are in a pool. Columns as in `rating`.
create table keyed_rating
(
    user_key          uuid             not null,
    -- First 8 bytes of a SHA-256 over pool and scale, with the highest bit set.
    rating_key        bigint           not null check (rating_key < 0),
    rating            double precision not null,
    deviation         double precision not null,
    volatility        double precision not null,
    match_count       bigint           not null check (0 <= match_count),
    last_match_ms     bigint           not null,
    streak            integer          not null,
    abandoned_matches bigint           not null check (0 <= abandoned_matches),
    feedback_count    bigint           not null check (0 <= feedback_count),
    feedback_sum      bigint           not null check (0 <= feedback_sum),
    active_periods    bigint           not null check (0 <= active_periods),
    primary key (user_key, rating_key)
) with (fillfactor = 80);

-- For the highest count of active periods of a key. Empty if no ruleset counts them.
create index keyed_rating_by_active_periods on keyed_rating (rating_key, active_periods, last_match_ms)
 where 0 < active_periods;

-- Latest changes of the ratings in `keyed_rating`. Columns as in `rating_change`.
create table keyed_rating_change
(
    user_key           uuid             not null,
    rating_key         bigint           not null check (rating_key < 0),
    slot               bigint           not null check (0 <= slot),
    rated_match_number bigint           not null,
    match_id           uuid             not null,
    reported_ms        bigint           not null,
    rank               bigint           not null,
    side_count         bigint           not null,
    rating_before      double precision not null,
    deviation_before   double precision not null,
    rating_after       double precision not null,
    deviation_after    double precision not null,
    primary key (user_key, rating_key, slot)
) with (fillfactor = 80);

-- Rows are rewritten often: vacuum early, as for `rating_change`.
alter table keyed_rating_change set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1);
