-- Match results, their effect on ratings, and players' feedback.
--
-- Conventions as in 0002. The new columns of `rating` count in its checksum only if they are not zero, so that existing
-- rows keep their checksums.

-- Matches won in a row if positive, lost in a row if negative.
alter table rating add column streak integer not null default 0;
-- Matches that the user left before the end.
alter table rating add column abandoned integer not null default 0;
-- Matches that the user gave feedback on.
alter table rating add column scores integer not null default 0;
-- Sum of the stars given.
alter table rating add column score_sum integer not null default 0;

-- Results of matches. The primary key enforces one result per match.
create table result
(
    match_id    blob    primary key check (length(match_id) = 16),
    silo_id     integer not null,
    set_id      integer not null check (set_id between 0 and 4294967295),
    -- Time of the report.
    reported_ms integer not null,
    -- Digest of the report; the same match with another digest is rejected.
    payload     blob    not null check (length(payload) = 16),
    -- Other values as JSON; src/store/rows/result_body.rs documents the keys.
    body        text    not null,
    checksum    integer not null
) strict;

-- For exports in order, and for purging.
create index result_by_age on result (reported_ms, match_id);

-- Latest changes of each user's rating: a ring buffer with a fixed number of slots.
create table rating_change
(
    user_key         blob    not null check (length(user_key) = 16),
    set_id           integer not null,
    slot             integer not null check (0 <= slot),
    -- Number of rated matches after the change.
    number           integer not null,
    match_id         blob    not null check (length(match_id) = 16),
    at_ms            integer not null,
    -- Rank of the user's side, and number of sides.
    rank             integer not null,
    sides            integer not null,
    rating_before    real    not null,
    deviation_before real    not null,
    rating_after     real    not null,
    deviation_after  real    not null,
    checksum         integer not null,
    primary key (user_key, set_id, slot)
) strict, without rowid;

-- Players' feedback on matches, 1 to 5 stars. The primary key enforces one per player and match.
create table score
(
    match_id blob    not null check (length(match_id) = 16),
    user_key blob    not null check (length(user_key) = 16),
    score    integer not null check (score between 1 and 5),
    at_ms    integer not null,
    checksum integer not null,
    primary key (match_id, user_key)
) strict, without rowid;

-- For purging.
create index score_by_age on score (at_ms);
