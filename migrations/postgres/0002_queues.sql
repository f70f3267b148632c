-- Queues: tickets, matches, memberships of users, penalties, ratings, and queue leases.
--
-- Tables are the durable copy; passes do not read them. Each server loads them once at startup, and then reads the
-- changes of the other servers. Times are milliseconds since the Unix epoch, by this database's clock. Ids have 16
-- bytes.
--
-- No foreign keys. Queues and advertisements can be purged independently. Within the queues, each row is changed under
-- the lock of its ticket or match. Checking a foreign key would cost as much as writing the row.

-- Tickets of parties: waiting, in a match, or ended. Ended tickets are kept for a while to answer retries.
create table ticket
(
    -- Derived from the caller and the idempotency key, so that any server recognizes a retry.
    ticket_id      uuid     primary key,

    -- Silo and set of the queue. A silo is an unsigned 64-bit number, stored as the signed number with the same bits.
    silo_id        bigint   not null,
    set_id         bigint   not null check (set_id between 0 and 4294967295),
    -- Start of waiting. Never changes, not even when the ticket returns from a match.
    entered_ms     bigint   not null,
    -- Digest of the request; the same id with another digest is rejected.
    payload        uuid     not null,
    -- Other values as JSON; src/store/rows/queue_body.rs documents the keys. Text, so that the bytes do not change.
    body           text     not null,

    -- 0: waiting. 1: in `match_id`. 2: ended, perhaps by `match_id`.
    state          smallint not null check (state in (0, 1, 2)),
    match_id       uuid,
    -- End reason: 0 left, 1 expired, 2 played, 3 matched elsewhere, 4 declined, 5 not accepted in time, 6 cancelled.
    ending         smallint check (ending between 0 and 6),
    -- Expiry while it waits. Heartbeats extend it.
    expires_ms     bigint   not null,
    -- When it may be purged; null until it has ended.
    forget_at_ms   bigint,
    -- Number of changes, from 1.
    edition        bigint   not null,

    check ((state = 2) = (forget_at_ms is not null) and (state = 2) = (ending is not null)),
    check (state <> 1 or match_id is not null)
) with (fillfactor = 70); -- Heartbeats and matches rewrite the row; free space in the page avoids index updates.

-- For purging.
create index ticket_by_end on ticket (forget_at_ms) where forget_at_ms is not null;

-- Users of tickets that have not ended. The primary key enforces one ticket per user and queue, for all servers.
create table ticket_user
(
    user_key  uuid    not null,
    set_id    bigint  not null,
    silo_id   bigint  not null,
    ticket_id uuid    not null,
    -- The user cannot have another ticket beside it.
    alone     boolean not null,
    primary key (user_key, set_id, silo_id)
);

-- Matches, from the proposal on. Ended matches are kept for a while. Each change replaces the whole row.
create table match
(
    match_id     uuid     primary key,
    silo_id      bigint   not null,
    set_id       bigint   not null check (set_id between 0 and 4294967295),
    proposed_ms  bigint   not null,
    -- Number of changes, from 1; a change must name the version that it replaces.
    edition      bigint   not null,
    -- 0: ready check. 1: placing. 2: playing. 3: ended.
    stage        smallint not null check (stage between 0 and 3),
    -- When it may be purged; null until it has ended.
    forget_at_ms bigint,
    -- Other values as JSON; src/store/rows/queue_body.rs documents the keys.
    body         text     not null,
    check ((stage = 3) = (forget_at_ms is not null))
) with (fillfactor = 70);

-- For purging.
create index match_by_end on match (forget_at_ms) where forget_at_ms is not null;

-- Users of matches that have not ended. The primary key enforces one match per user, for all servers.
create table match_user
(
    user_key uuid primary key,
    match_id uuid not null
);

-- For all users of a match.
create index match_user_by_match on match_user (match_id);

-- Cooldowns after failed ready checks, per user and set.
create table penalty
(
    user_key     uuid   not null,
    set_id       bigint not null,
    -- Failed checks since the count was last reset.
    rung         bigint not null check (0 < rung),
    -- End of the cooldown.
    until_ms     bigint not null,
    -- When the count of failed checks resets.
    resets_at_ms bigint not null,
    primary key (user_key, set_id)
);

-- For purging.
create index penalty_by_end on penalty (greatest(until_ms, resets_at_ms));

-- Ratings of users, on the scale of the set's rating system.
create table rating
(
    user_key   uuid             not null,
    set_id     bigint           not null,
    rating     double precision not null,
    deviation  double precision not null,
    volatility double precision not null,
    -- Number of rated matches.
    matches    bigint           not null check (0 <= matches),
    -- Time of the last rated match.
    last_ms    bigint           not null,
    primary key (user_key, set_id)
) with (fillfactor = 80);

-- Change log of the queues, one row per transaction, as `advertisement_change` is for advertisements.
create table queue_change
(
    batch_id   uuid        primary key,
    version    bigint      not null,
    replica    bigint      not null,
    -- Changed rows. All empty: abandoned.
    ticket_ids uuid[]      not null,
    match_ids  uuid[]      not null,
    -- Users whose ratings changed.
    rated      uuid[]      not null,
    made_at    timestamptz not null default clock_timestamp()
);
-- Ids are random and do not compress.
alter table queue_change alter column ticket_ids set storage external;
alter table queue_change alter column match_ids set storage external;
alter table queue_change alter column rated set storage external;

-- For reading new changes.
create index queue_change_by_version on queue_change (version);
-- For purging.
create index queue_change_by_age on queue_change (made_at);

-- Server that runs the passes of a queue, and until when. Only divides the work: if two servers run a queue, one of two
-- proposals of a ticket is rejected.
create table lease
(
    set_id  bigint      not null,
    silo_id bigint      not null,
    replica bigint      not null,
    until   timestamptz not null,
    primary key (set_id, silo_id)
);

-- Connected users per server and silo.
create table attendance
(
    replica bigint      not null,
    silo_id bigint      not null,
    users   bigint      not null check (0 <= users),
    said_at timestamptz not null,
    primary key (replica, silo_id)
);

-- Rows are inserted and deleted by the thousand: vacuum early, so that old row versions do not fill the pages.
alter table ticket set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1);
alter table ticket_user set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1);
alter table match set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1);
alter table match_user set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1);
alter table queue_change set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1);
