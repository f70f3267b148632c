-- Store format version of the server that holds a lease. A stage or reason that earlier versions do not know is written only
-- while no server of an earlier version holds a lease.

alter table queue_lease
    -- Store format version of the server `format_replica`. Servers before this column do not write it.
    add column store_format   bigint not null default 1,
    -- Server that wrote store_format. If it is not `replica`, that server does not know this column, and its version is 1.
    add column format_replica bigint;
