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
    set_id     integer primary key check (set_id between 0 and 4294967295),
    -- First 8 bytes of a SHA-256 over set and scale, with the highest bit set.
    rating_key integer not null check (rating_key < 0),
    -- First 8 bytes of a SHA-256 over the columns above.
    checksum   integer not null
) strict;

-- Ratings of users that are not on the first scale of a set, or are in a pool. Columns as in `rating`.
create table keyed_rating
(
    user_key          blob    not null check (length(user_key) = 16),
    -- First 8 bytes of a SHA-256 over pool and scale, with the highest bit set.
    rating_key        integer not null check (rating_key < 0),
    rating            real    not null,
    deviation         real    not null,
    volatility        real    not null,
    match_count       integer not null check (0 <= match_count),
    last_match_ms     integer not null,
    streak            integer not null,
    abandoned_matches integer not null check (0 <= abandoned_matches),
    feedback_count    integer not null check (0 <= feedback_count),
    feedback_sum      integer not null check (0 <= feedback_sum),
    active_periods    integer not null check (0 <= active_periods),
    -- Over the columns above, as in `rating`, with the key in place of the set.
    checksum          integer not null,
    primary key (user_key, rating_key)
) strict, without rowid;

-- For the highest count of active periods of a key. Empty if no ruleset counts them.
create index keyed_rating_by_active_periods on keyed_rating (rating_key, active_periods, last_match_ms)
 where 0 < active_periods;

-- Latest changes of the ratings in `keyed_rating`. Columns as in `rating_change`.
create table keyed_rating_change
(
    user_key           blob    not null check (length(user_key) = 16),
    rating_key         integer not null check (rating_key < 0),
    slot               integer not null check (0 <= slot),
    rated_match_number integer not null,
    match_id           blob    not null check (length(match_id) = 16),
    reported_ms        integer not null,
    rank               integer not null,
    side_count         integer not null,
    rating_before      real    not null,
    deviation_before   real    not null,
    rating_after       real    not null,
    deviation_after    real    not null,
    -- Over the columns above.
    checksum           integer not null,
    primary key (user_key, rating_key, slot)
) strict, without rowid;
