-- What queues keep: tickets, matches, who is in which, penalties and ratings.
--
-- Tables are the durable copy; a pass never reads them. The server loads them once, at start. Moments are milliseconds since
-- the Unix epoch, by the server's clock. Names are 16 bytes. Nothing here refers to an advertisement, so that either can be
-- forgotten without the other.

-- A party that waits, plays, or has done so; kept a while after its end, so that a retry is told what became of it.
create table ticket
(
    -- Derived from the caller and the idempotency key, so that a retry is recognised.
    ticket_id      blob    primary key check (length(ticket_id) = 16),

    -- The queue: a population and a set. A silo is 64 bits without a sign, kept as the signed number of the same bits.
    silo_id        integer not null,
    set_id         integer not null check (set_id between 0 and 4294967295),
    -- Since when its clock runs. Never changes, not even when it comes back from a match.
    entered_ms     integer not null,
    -- A digest of what was asked; the same id with another digest is refused.
    payload        blob    not null check (length(payload) = 16),
    -- The rest of what was entered, as JSON; src/store/rows/queue_body.rs documents the keys.
    body           text    not null,
    -- The first 8 bytes of a SHA-256 over the columns above, which never change.
    checksum       integer not null,

    -- 0: waits. 1: is in `match_id`. 2: is over, perhaps by `match_id`.
    state          integer not null check (state in (0, 1, 2)),
    match_id       blob    check (length(match_id) = 16),
    -- Why it is over: 0 left, 1 lapsed, 2 played, 3 played elsewhere, 4 declined, 5 absent, 6 dismissed.
    ending         integer check (ending between 0 and 6),
    -- Until when it is believed while it waits.
    expires_ms     integer not null,
    -- When it may be forgotten; null while it is not over.
    forget_at_ms   integer,
    -- Counts its changes.
    edition        integer not null,
    -- As `checksum`, over the name and the columns below it.
    standing       integer not null,

    check ((state = 2) = (forget_at_ms is not null) and (state = 2) = (ending is not null)),
    check (state <> 1 or match_id is not null)
) strict;

-- For forgetting.
create index ticket_by_end on ticket (forget_at_ms) where forget_at_ms is not null;

-- Who is in a ticket that is not over. The primary key is the rule: a user is in one ticket of a queue.
create table ticket_user
(
    user_key  blob    not null check (length(user_key) = 16),
    set_id    integer not null,
    silo_id   integer not null,
    ticket_id blob    not null check (length(ticket_id) = 16),
    -- 1: it stays beside no other ticket of this user. 0: it may.
    alone     integer not null check (alone in (0, 1)),
    checksum  integer not null,
    primary key (user_key, set_id, silo_id)
) strict, without rowid;

-- A match, from the proposal on; kept a while after its end. Written whole whenever it changes.
create table match
(
    match_id     blob    primary key check (length(match_id) = 16),
    silo_id      integer not null,
    set_id       integer not null check (set_id between 0 and 4294967295),
    proposed_ms  integer not null,
    -- Counts its changes: a change names the one that it is based on.
    edition      integer not null,
    -- 0: ready check. 1: a server is wanted. 2: it is played. 3: it is over.
    stage        integer not null check (stage between 0 and 3),
    -- When it may be forgotten; null while it is not over.
    forget_at_ms integer,
    -- The rest, as JSON; src/store/rows/queue_body.rs documents the keys.
    body         text    not null,
    checksum     integer not null,
    check ((stage = 3) = (forget_at_ms is not null))
) strict;

-- For forgetting.
create index match_by_end on match (forget_at_ms) where forget_at_ms is not null;

-- Who is in a match that is not over. The primary key is the rule: a user is in one, whatever the code above believes.
create table match_user
(
    user_key blob    primary key check (length(user_key) = 16),
    match_id blob    not null check (length(match_id) = 16),
    checksum integer not null
) strict, without rowid;

-- For everybody in a match.
create index match_user_by_match on match_user (match_id);

-- Who let ready checks fail, and may not enter a set's queue for a while.
create table penalty
(
    user_key     blob    not null check (length(user_key) = 16),
    set_id       integer not null,
    -- Failed checks since the ladder last began anew.
    rung         integer not null check (0 < rung),
    -- Until when they may not enter.
    until_ms     integer not null,
    -- When the ladder begins anew.
    resets_at_ms integer not null,
    checksum     integer not null,
    primary key (user_key, set_id)
) strict, without rowid;

-- For forgetting the spent ones.
create index penalty_by_end on penalty (max(until_ms, resets_at_ms));

-- How good users are, on the scale of a set's rating system.
create table rating
(
    user_key   blob    not null check (length(user_key) = 16),
    set_id     integer not null,
    rating     real    not null,
    deviation  real    not null,
    volatility real    not null,
    -- Matches that count in it.
    matches    integer not null check (0 <= matches),
    -- When it last changed by a match.
    last_ms    integer not null,
    checksum   integer not null,
    primary key (user_key, set_id)
) strict, without rowid;
