-- Outages of the server, so that deadlines do not count the time in which players could not reach the store.

-- Last sign of life of the server. Rewritten every two seconds while it has tickets or matches. The only server of a file
-- has the number 0.
create table server_alive
(
    replica  integer primary key,
    alive_ms integer not null
) strict;

-- Intervals in which the server could not write. Purged when no live deadline can overlap them.
create table outage_interval
(
    replica integer not null,
    from_ms integer not null,
    -- End, exclusive.
    to_ms   integer not null check (from_ms < to_ms),
    primary key (replica, from_ms)
) strict, without rowid;
