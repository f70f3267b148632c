-- What comes of matches: results, what they made of ratings, and what players thought of them.
--
-- Conventions are those of 0002. The new columns of `rating` count in its checksum where they say anything, so that the rows that
-- are there keep theirs.

-- Matches won in a row, above 0, or lost, below.
alter table rating add column streak integer not null default 0;
-- Matches left before their end.
alter table rating add column abandoned integer not null default 0;
-- Matches that the user has scored.
alter table rating add column scores integer not null default 0;
-- The sum of those scores.
alter table rating add column score_sum integer not null default 0;

-- What came of a match. The primary key is the rule: once, however often it is reported.
create table result
(
    match_id    blob    primary key check (length(match_id) = 16),
    silo_id     integer not null,
    set_id      integer not null check (set_id between 0 and 4294967295),
    -- When it was taken.
    reported_ms integer not null,
    -- A digest of what was said; the same match with another digest is refused.
    payload     blob    not null check (length(payload) = 16),
    -- The rest, as JSON; src/store/rows/result_body.rs documents the keys.
    body        text    not null,
    checksum    integer not null
) strict;

-- For exporting in order, and for forgetting.
create index result_by_age on result (reported_ms, match_id);

-- The latest changes of each user's rating. Places go round, so a user has no more of them than there are places.
create table rating_change
(
    user_key         blob    not null check (length(user_key) = 16),
    set_id           integer not null,
    slot             integer not null check (0 <= slot),
    -- Matches that count in the rating after it.
    number           integer not null,
    match_id         blob    not null check (length(match_id) = 16),
    at_ms            integer not null,
    -- Where the user's side came in, of how many.
    rank             integer not null,
    sides            integer not null,
    rating_before    real    not null,
    deviation_before real    not null,
    rating_after     real    not null,
    deviation_after  real    not null,
    checksum         integer not null,
    primary key (user_key, set_id, slot)
) strict, without rowid;

-- What players thought of matches, 1 to 5. The primary key is the rule: once for each player and match.
create table score
(
    match_id blob    not null check (length(match_id) = 16),
    user_key blob    not null check (length(user_key) = 16),
    score    integer not null check (score between 1 and 5),
    at_ms    integer not null,
    checksum integer not null,
    primary key (match_id, user_key)
) strict, without rowid;

-- For forgetting.
create index score_by_age on score (at_ms);
