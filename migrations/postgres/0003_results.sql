-- Match results, their effect on ratings, and players' feedback.
--
-- Conventions as in 0002. Older servers name the columns that they read and write, so new columns do not affect them.

alter table rating
    -- Matches won in a row if positive, lost in a row if negative.
    add column streak    integer not null default 0,
    -- Matches that the user left before the end.
    add column abandoned bigint  not null default 0 check (0 <= abandoned),
    -- Matches that the user gave feedback on.
    add column scores    bigint  not null default 0 check (0 <= scores),
    -- Sum of the stars given.
    add column score_sum bigint  not null default 0 check (0 <= score_sum);

-- Results of matches. The primary key enforces one result per match, for all servers.
create table result
(
    match_id    uuid   primary key,
    silo_id     bigint not null,
    set_id      bigint not null check (set_id between 0 and 4294967295),
    -- Time of the report.
    reported_ms bigint not null,
    -- Digest of the report; the same match with another digest is rejected.
    payload     uuid   not null,
    -- Other values as JSON; src/store/rows/result_body.rs documents the keys.
    body        text   not null
);

-- For exports in order, and for purging.
create index result_by_age on result (reported_ms, match_id);

-- Latest changes of each user's rating: a ring buffer with a fixed number of slots.
create table rating_change
(
    user_key         uuid             not null,
    set_id           bigint           not null,
    slot             bigint           not null check (0 <= slot),
    -- Number of rated matches after the change.
    number           bigint           not null,
    match_id         uuid             not null,
    at_ms            bigint           not null,
    -- Rank of the user's side, and number of sides.
    rank             bigint           not null,
    sides            bigint           not null,
    rating_before    double precision not null,
    deviation_before double precision not null,
    rating_after     double precision not null,
    deviation_after  double precision not null,
    primary key (user_key, set_id, slot)
) with (fillfactor = 80);

-- Players' feedback on matches, 1 to 5 stars. The primary key enforces one per player and match.
create table score
(
    match_id uuid     not null,
    user_key uuid     not null,
    score    smallint not null check (score between 1 and 5),
    at_ms    bigint   not null,
    primary key (match_id, user_key)
);

-- For purging.
create index score_by_age on score (at_ms);

alter table rating_change set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1);
