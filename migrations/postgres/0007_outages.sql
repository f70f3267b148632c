-- Outages of servers, so that deadlines do not count the time in which players could not reach the store.

-- Last sign of life of each server. Rewritten every two seconds while the server has tickets or matches.
create table server_alive
(
    replica  bigint primary key,
    alive_ms bigint not null
);

-- Intervals in which a server could not write. Purged when no live deadline can overlap them.
create table outage_interval
(
    replica bigint not null,
    from_ms bigint not null,
    -- End, exclusive.
    to_ms   bigint not null check (from_ms < to_ms),
    primary key (replica, from_ms)
);
