-- Queues: tickets, matches, memberships of users, penalties and ratings.
--
-- Tables are the durable copy; passes do not read them. The server loads them once at startup. Times are milliseconds
-- since the Unix epoch, by the server's clock. Ids have 16 bytes. No foreign keys to advertisements: both can be purged
-- independently.

-- Tickets of parties: waiting, in a match, or ended. Ended tickets are kept for a while to answer retries.
create table ticket
(
    -- Derived from the caller and the idempotency key, so that a retry is recognized.
    ticket_id      blob    primary key check (length(ticket_id) = 16),

    -- Silo and set of the queue. A silo is an unsigned 64-bit number, stored as the signed number with the same bits.
    silo_id        integer not null,
    set_id         integer not null check (set_id between 0 and 4294967295),
    -- Start of waiting. Never changes, not even when the ticket returns from a match.
    entered_ms     integer not null,
    -- Digest of the request; the same id with another digest is rejected.
    payload        blob    not null check (length(payload) = 16),
    -- Other values as JSON; src/store/rows/queue_body.rs documents the keys.
    body           text    not null,
    -- First 8 bytes of a SHA-256 over the columns above, which never change.
    checksum       integer not null,

    -- 0: waiting. 1: in `match_id`. 2: ended, perhaps by `match_id`.
    state          integer not null check (state in (0, 1, 2)),
    match_id       blob    check (length(match_id) = 16),
    -- End reason: 0 left, 1 expired, 2 played, 3 matched elsewhere, 4 declined, 5 not accepted in time, 6 cancelled.
    ending         integer check (ending between 0 and 6),
    -- Expiry while it waits. Heartbeats extend it.
    expires_ms     integer not null,
    -- When it may be purged; null until it has ended.
    forget_at_ms   integer,
    -- Number of changes, from 1.
    edition        integer not null,
    -- Like `checksum`, over the id and the state columns above.
    standing       integer not null,

    check ((state = 2) = (forget_at_ms is not null) and (state = 2) = (ending is not null)),
    check (state <> 1 or match_id is not null)
) strict;

-- For purging.
create index ticket_by_end on ticket (forget_at_ms) where forget_at_ms is not null;

-- Users of tickets that have not ended. The primary key enforces one ticket per user and queue.
create table ticket_user
(
    user_key  blob    not null check (length(user_key) = 16),
    set_id    integer not null,
    silo_id   integer not null,
    ticket_id blob    not null check (length(ticket_id) = 16),
    -- 1: the user cannot have another ticket beside it. 0: the user can.
    alone     integer not null check (alone in (0, 1)),
    checksum  integer not null,
    primary key (user_key, set_id, silo_id)
) strict, without rowid;

-- Matches, from the proposal on. Ended matches are kept for a while. Each change replaces the whole row.
create table match
(
    match_id     blob    primary key check (length(match_id) = 16),
    silo_id      integer not null,
    set_id       integer not null check (set_id between 0 and 4294967295),
    proposed_ms  integer not null,
    -- Number of changes, from 1; a change must name the version that it replaces.
    edition      integer not null,
    -- 0: ready check. 1: placing. 2: playing. 3: ended.
    stage        integer not null check (stage between 0 and 3),
    -- When it may be purged; null until it has ended.
    forget_at_ms integer,
    -- Other values as JSON; src/store/rows/queue_body.rs documents the keys.
    body         text    not null,
    checksum     integer not null,
    check ((stage = 3) = (forget_at_ms is not null))
) strict;

-- For purging.
create index match_by_end on match (forget_at_ms) where forget_at_ms is not null;

-- Users of matches that have not ended. The primary key enforces one match per user.
create table match_user
(
    user_key blob    primary key check (length(user_key) = 16),
    match_id blob    not null check (length(match_id) = 16),
    checksum integer not null
) strict, without rowid;

-- For all users of a match.
create index match_user_by_match on match_user (match_id);

-- Cooldowns after failed ready checks, per user and set.
create table penalty
(
    user_key     blob    not null check (length(user_key) = 16),
    set_id       integer not null,
    -- Failed checks since the count was last reset.
    rung         integer not null check (0 < rung),
    -- End of the cooldown.
    until_ms     integer not null,
    -- When the count of failed checks resets.
    resets_at_ms integer not null,
    checksum     integer not null,
    primary key (user_key, set_id)
) strict, without rowid;

-- For purging.
create index penalty_by_end on penalty (max(until_ms, resets_at_ms));

-- Ratings of users, on the scale of the set's rating system.
create table rating
(
    user_key   blob    not null check (length(user_key) = 16),
    set_id     integer not null,
    rating     real    not null,
    deviation  real    not null,
    volatility real    not null,
    -- Number of rated matches.
    matches    integer not null check (0 <= matches),
    -- Time of the last rated match.
    last_ms    integer not null,
    checksum   integer not null,
    primary key (user_key, set_id)
) strict, without rowid;
