-- What comes of matches: results, what they made of ratings, and what players thought of them.
--
-- Conventions are those of 0002. Code before this one names the columns that it reads and writes, and never misses the new ones.

alter table rating
    -- Matches won in a row, above 0, or lost, below.
    add column streak    integer not null default 0,
    -- Matches left before their end.
    add column abandoned bigint  not null default 0 check (0 <= abandoned),
    -- Matches that the user has scored.
    add column scores    bigint  not null default 0 check (0 <= scores),
    -- The sum of those scores.
    add column score_sum bigint  not null default 0 check (0 <= score_sum);

-- What came of a match. The primary key is the rule: once, however often it is reported, and at whichever servers.
create table result
(
    match_id    uuid   primary key,
    silo_id     bigint not null,
    set_id      bigint not null check (set_id between 0 and 4294967295),
    -- When it was taken.
    reported_ms bigint not null,
    -- A digest of what was said; the same match with another digest is refused.
    payload     uuid   not null,
    -- The rest, as JSON; src/store/rows/result_body.rs documents the keys.
    body        text   not null
);

-- For exporting in order, and for forgetting.
create index result_by_age on result (reported_ms, match_id);

-- The latest changes of each user's rating. Places go round, so a user has no more of them than there are places.
create table rating_change
(
    user_key         uuid             not null,
    set_id           bigint           not null,
    slot             bigint           not null check (0 <= slot),
    -- Matches that count in the rating after it.
    number           bigint           not null,
    match_id         uuid             not null,
    at_ms            bigint           not null,
    -- Where the user's side came in, of how many.
    rank             bigint           not null,
    sides            bigint           not null,
    rating_before    double precision not null,
    deviation_before double precision not null,
    rating_after     double precision not null,
    deviation_after  double precision not null,
    primary key (user_key, set_id, slot)
) with (fillfactor = 80);

-- What players thought of matches, 1 to 5. The primary key is the rule: once for each player and match.
create table score
(
    match_id uuid     not null,
    user_key uuid     not null,
    score    smallint not null check (score between 1 and 5),
    at_ms    bigint   not null,
    primary key (match_id, user_key)
);

-- For forgetting.
create index score_by_age on score (at_ms);

alter table rating_change set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1);
