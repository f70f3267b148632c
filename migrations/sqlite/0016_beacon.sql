-- Beacons: machines of the operator that measure round trips to players.
create table beacon
(
    -- For ever: a beacon that moves gets a new id.
    id              integer primary key check (id between 1 and 4294967295),
    -- Last announcement. A beacon is dead a minute after it, and its row is deleted after a day.
    announced_at_ms integer not null,
    -- JSON: region, endpoint, place, key id, and round trips to other beacons.
    body            text    not null
) strict;
