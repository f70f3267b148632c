-- Advertisements, the seats held in them, and the names that must stay deleted.
--
-- Tables are the durable copy; a search never reads them. The server loads them once, at start, into its index.
-- Moments are milliseconds since the Unix epoch, by the server's clock. Names are 16 bytes.

-- What a session says about itself so that others may join. A row is written whole whenever it is published.
create table advertisement
(
    -- Small and dense, so that `lease` can be narrow. Never leaves the store.
    n                integer primary key,
    -- Chosen by the server, so nobody can aim at another's.
    advertisement_id blob    not null unique check (length(advertisement_id) = 16),

    -- The population and the playlist; the key by which data is split. A silo is 64 bits without a sign, kept as the
    -- signed number of the same bits.
    silo_id          integer not null,
    set_id           integer not null check (set_id between 0 and 4294967295),
    -- 0: players wait behind it. 1: a game server does.
    kind             integer not null check (kind in (0, 1)),

    -- Since when it has been advertised. Publishing it again keeps this, so that its limits go on relaxing.
    since_ms         integer not null,
    -- Until when it is believed, as of the last publishing. A later heartbeat writes `lease` instead.
    expires_ms       integer not null,

    -- Seats that others may take, before reservations are deducted.
    join_seats       integer not null check (join_seats between 0 and 65535),

    -- The rest of what was published, as JSON; src/store/rows.rs documents the keys.
    body             text    not null,
    -- Given to whoever finds or joins it; opaque.
    connect_data     blob    not null,

    -- The first 8 bytes of a SHA-256 over the other columns but `n`, so that a flipped bit is noticed.
    checksum         integer not null
) strict;

-- Heartbeats. A row is two small numbers, so that a thousand heartbeats dirty a dozen pages and not a thousand.
-- No row: `advertisement.expires_ms` stands. Publishing the advertisement again takes the row away.
create table lease
(
    n          integer primary key references advertisement (n) on delete cascade,
    expires_ms integer not null
) strict;

-- Seats held in an advertisement for a party.
create table reservation
(
    -- Derived from the caller and the idempotency key, so that a retry is recognised.
    reservation_id   blob    primary key check (length(reservation_id) = 16),
    advertisement_id blob    not null references advertisement (advertisement_id) on delete cascade,
    seats            integer not null check (seats between 0 and 65535),
    -- The users who will sit in them: 16 bytes each, one after the other, sorted.
    users            blob    not null check (length(users) % 16 = 0),
    -- A digest of what was asked; the same id with another digest is refused.
    payload          blob    not null check (length(payload) = 16),
    -- 0: held until `until_ms`. 1: confirmed, no deadline. 2: ended, remembered until `until_ms`.
    state            integer not null check (state in (0, 1, 2)),
    until_ms         integer not null,
    -- As in `advertisement`: over all other columns.
    checksum         integer not null
) strict;

-- For the seats of one advertisement, and for removing them with it.
create index reservation_by_advertisement on reservation (advertisement_id);
-- For forgetting the ended ones.
create index reservation_by_end on reservation (until_ms) where state = 2;

-- Advertisements that were deleted: a late update must not bring them back before `until_ms`.
create table tombstone
(
    advertisement_id blob    primary key check (length(advertisement_id) = 16),
    until_ms         integer not null
) strict;

-- For forgetting them.
create index tombstone_by_end on tombstone (until_ms);
