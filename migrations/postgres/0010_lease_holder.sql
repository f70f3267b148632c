-- Servers that hold queue leases. A lease row of such a server lasts longer than this row, and ends with it: one row per server
-- is renewed often, and not one per queue.

create table lease_holder
(
    replica      bigint primary key,
    -- Until when the server's leases are in force, by the database's clock.
    expires_at   timestamptz not null,
    -- Store format version of the server.
    store_format bigint      not null
);

-- Leases of servers that do not write format_replica, and have no row in lease_holder. Without expires_at, so that renewals
-- change no index.
create index queue_lease_of_earlier_server on queue_lease (replica)
    where format_replica is distinct from replica;
