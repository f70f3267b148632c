-- Advertisements, the seats held in them, and what changed when, for several servers on one database.
--
-- Tables are the durable copy; a search never reads them. Each server loads them once, at start, and from then on reads
-- what the others change. Moments are milliseconds since the Unix epoch, by this database's clock. Names are 16 bytes.

-- What a session says about itself so that others may join, and its name for as long as the name must not be used again.
--
-- SQLite has a table of its own for the names of what was deleted. Here both are one row, because the row's lock is all
-- that keeps two servers, of which one publishes and one deletes, from both being told yes.
create table advertisement
(
    -- Chosen by a server, so nobody can aim at another's.
    advertisement_id uuid     primary key,

    -- The transaction that last changed the row or the seats in it. Nobody's counter: equal means the same, no more.
    version          bigint   not null,
    -- What it was before that, for whoever publishes or extends: 0 if nothing was advertised under this name. A statement
    -- that changes a row can only tell what the row is now.
    version_before   bigint   not null default 0,
    -- The server that took its last heartbeat; that one alone may believe it for less long than `expires_ms` says.
    holder           bigint   not null,

    -- The population and the playlist; the key by which data is split. A silo is 64 bits without a sign, kept as the
    -- signed number of the same bits.
    silo_id          bigint   not null,
    set_id           bigint   not null check (set_id between 0 and 4294967295),
    -- 0: players wait behind it. 1: a game server does.
    kind             smallint not null check (kind in (0, 1)),

    -- Since when it has been advertised. Publishing it again keeps this, so that its limits go on relaxing.
    since_ms         bigint   not null,
    -- Until when it is believed.
    expires_ms       bigint   not null,

    -- Seats that others may take, before reservations are deducted.
    join_seats       integer  not null check (join_seats between 0 and 65535),

    -- The rest of what was published, as JSON; src/store/rows.rs documents the keys. Text, so that it comes back to the
    -- byte. Null: there is no advertisement, only its name, and the columns above are as they last were, or 0.
    body             text,
    -- Given to whoever finds or joins it; opaque.
    connect_data     bytea    not null,

    -- It was deleted at some time: a late update must not bring it back before this moment.
    deleted_until_ms bigint
) with (fillfactor = 70); -- A heartbeat or a seat rewrites the row: room for it in the same page spares the index.

-- For forgetting names.
create index advertisement_by_deletion on advertisement (deleted_until_ms) where deleted_until_ms is not null;

-- Seats held in an advertisement for a party.
create table reservation
(
    -- Derived from the caller and the idempotency key, so that a retry is recognised, on whatever server.
    reservation_id   uuid     primary key,
    advertisement_id uuid     not null references advertisement (advertisement_id) on delete cascade,
    seats            integer  not null check (seats between 0 and 65535),
    -- The users who will sit in them: 16 bytes each, one after the other, sorted.
    users            bytea    not null check (length(users) % 16 = 0),
    -- A digest of what was asked; the same id with another digest is refused.
    payload          bytea    not null check (length(payload) = 16),
    -- 0: held until `until_ms`. 1: confirmed, no deadline. 2: ended, remembered until `until_ms`.
    state            smallint not null check (state in (0, 1, 2)),
    until_ms         bigint   not null
) with (fillfactor = 80);

-- For the seats of one advertisement, and for removing them with it.
create index reservation_by_advertisement on reservation (advertisement_id);
-- For forgetting the ended ones.
create index reservation_by_end on reservation (until_ms) where state = 2;

-- What changed, a row for each transaction: what the other servers read, and how a server that lost its connection while
-- it committed finds out what became of it. SQLite serves one server, which has neither need.
create table change
(
    -- Made by the server before it began: its own number and a count. Whoever inserts it first decides: the transaction
    -- itself, or the server that gave it up.
    batch_id          uuid        primary key,
    -- The transaction's number. Not in the order of commits: readers go by the oldest transaction that still runs.
    version           bigint      not null,
    -- Which server made it.
    replica           bigint      not null,
    -- What it touched. Empty: given up.
    advertisement_ids uuid[]      not null,
    -- For forgetting it.
    made_at           timestamptz not null default clock_timestamp()
);
-- Names are as good as random: nothing to compress.
alter table change alter column advertisement_ids set storage external;

-- For reading what is new.
create index change_by_version on change (version);
-- For forgetting.
create index change_by_age on change (made_at);

-- A session's seats or heartbeats touch few pages: keep them from filling up with old rows.
alter table advertisement set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1);
alter table change set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1);
