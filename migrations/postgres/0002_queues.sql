-- What queues keep: tickets, matches, who is in which, penalties and ratings, and which server runs which queue.
--
-- Tables are the durable copy; a pass never reads them. Each server loads them once, at start, and from then on reads what
-- the others change. Moments are milliseconds since the Unix epoch, by this database's clock. Names are 16 bytes. Nothing here
-- refers to an advertisement, so that either can be forgotten without the other; nor does one table refer to another: each row
-- is changed under the lock of its ticket or match, and a check for each row would be as dear as writing it.

-- A party that waits, plays, or has done so; kept a while after its end, so that a retry is told what became of it.
create table ticket
(
    -- Derived from the caller and the idempotency key, so that a retry is recognised, on whatever server.
    ticket_id      uuid     primary key,

    -- The queue: a population and a set. A silo is 64 bits without a sign, kept as the signed number of the same bits.
    silo_id        bigint   not null,
    set_id         bigint   not null check (set_id between 0 and 4294967295),
    -- Since when its clock runs. Never changes, not even when it comes back from a match.
    entered_ms     bigint   not null,
    -- A digest of what was asked; the same id with another digest is refused.
    payload        uuid     not null,
    -- The rest of what was entered, as JSON; src/store/rows/queue_body.rs documents the keys. Text, so that it comes back to
    -- the byte.
    body           text     not null,

    -- 0: waits. 1: is in `match_id`. 2: is over, perhaps by `match_id`.
    state          smallint not null check (state in (0, 1, 2)),
    match_id       uuid,
    -- Why it is over: 0 left, 1 lapsed, 2 played, 3 played elsewhere, 4 declined, 5 absent, 6 dismissed.
    ending         smallint check (ending between 0 and 6),
    -- Until when it is believed while it waits.
    expires_ms     bigint   not null,
    -- When it may be forgotten; null while it is not over.
    forget_at_ms   bigint,
    -- Counts its changes.
    edition        bigint   not null,

    check ((state = 2) = (forget_at_ms is not null) and (state = 2) = (ending is not null)),
    check (state <> 1 or match_id is not null)
) with (fillfactor = 70); -- A heartbeat or a match rewrites the row: room for it in the same page spares the index.

-- For forgetting.
create index ticket_by_end on ticket (forget_at_ms) where forget_at_ms is not null;

-- Who is in a ticket that is not over. The primary key is the rule: a user is in one ticket of a queue, whatever servers
-- believe at the same moment.
create table ticket_user
(
    user_key  uuid    not null,
    set_id    bigint  not null,
    silo_id   bigint  not null,
    ticket_id uuid    not null,
    -- It stays beside no other ticket of this user.
    alone     boolean not null,
    primary key (user_key, set_id, silo_id)
);

-- A match, from the proposal on; kept a while after its end. Written whole whenever it changes.
create table match
(
    match_id     uuid     primary key,
    silo_id      bigint   not null,
    set_id       bigint   not null check (set_id between 0 and 4294967295),
    proposed_ms  bigint   not null,
    -- Counts its changes: a change names the one that it is based on.
    edition      bigint   not null,
    -- 0: ready check. 1: a server is wanted. 2: it is played. 3: it is over.
    stage        smallint not null check (stage between 0 and 3),
    -- When it may be forgotten; null while it is not over.
    forget_at_ms bigint,
    -- The rest, as JSON; src/store/rows/queue_body.rs documents the keys.
    body         text     not null,
    check ((stage = 3) = (forget_at_ms is not null))
) with (fillfactor = 70);

-- For forgetting.
create index match_by_end on match (forget_at_ms) where forget_at_ms is not null;

-- Who is in a match that is not over. The primary key is the rule: a user is in one, whatever servers believe at the same
-- moment, and whatever is wrong in their code.
create table match_user
(
    user_key uuid primary key,
    match_id uuid not null
);

-- For everybody in a match.
create index match_user_by_match on match_user (match_id);

-- Who let ready checks fail, and may not enter a set's queue for a while.
create table penalty
(
    user_key     uuid   not null,
    set_id       bigint not null,
    -- Failed checks since the ladder last began anew.
    rung         bigint not null check (0 < rung),
    -- Until when they may not enter.
    until_ms     bigint not null,
    -- When the ladder begins anew.
    resets_at_ms bigint not null,
    primary key (user_key, set_id)
);

-- For forgetting the spent ones.
create index penalty_by_end on penalty (greatest(until_ms, resets_at_ms));

-- How good users are, on the scale of a set's rating system.
create table rating
(
    user_key   uuid             not null,
    set_id     bigint           not null,
    rating     double precision not null,
    deviation  double precision not null,
    volatility double precision not null,
    -- Matches that count in it.
    matches    bigint           not null check (0 <= matches),
    -- When it last changed by a match.
    last_ms    bigint           not null,
    primary key (user_key, set_id)
) with (fillfactor = 80);

-- What changed, a row for each transaction, as `change` is for advertisements: what the other servers read, and how a server
-- that lost its connection while it committed finds out what became of it.
create table queue_change
(
    batch_id   uuid        primary key,
    version    bigint      not null,
    replica    bigint      not null,
    -- What it touched. All empty: given up.
    ticket_ids uuid[]      not null,
    match_ids  uuid[]      not null,
    -- Whose ratings it set.
    rated      uuid[]      not null,
    made_at    timestamptz not null default clock_timestamp()
);
-- Names are as good as random: nothing to compress.
alter table queue_change alter column ticket_ids set storage external;
alter table queue_change alter column match_ids set storage external;
alter table queue_change alter column rated set storage external;

-- For reading what is new.
create index queue_change_by_version on queue_change (version);
-- For forgetting.
create index queue_change_by_age on queue_change (made_at);

-- Which server runs the passes of a queue, until when. It saves work and decides nothing: two that both believe it propose, and
-- one of them is refused.
create table lease
(
    set_id  bigint      not null,
    silo_id bigint      not null,
    replica bigint      not null,
    until   timestamptz not null,
    primary key (set_id, silo_id)
);

-- How many users each server has connected.
create table attendance
(
    replica bigint      not null,
    silo_id bigint      not null,
    users   bigint      not null check (0 <= users),
    said_at timestamptz not null,
    primary key (replica, silo_id)
);

-- Rows come and go by the thousand: keep the pages from filling up with old ones.
alter table ticket set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1);
alter table ticket_user set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1);
alter table match set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1);
alter table match_user set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1);
alter table queue_change set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1);
