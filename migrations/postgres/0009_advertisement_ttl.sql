-- Time to live of an advertisement after each heartbeat, so that it keeps its own after a restart and at other servers.

-- Null in rows of version 0.2.0 and in tombstones: then the server's default applies.
alter table advertisement add column ttl_ms integer check (0 < ttl_ms);
