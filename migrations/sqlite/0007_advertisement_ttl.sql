-- Time to live of an advertisement after each heartbeat, so that it keeps its own after a restart.

-- Null in rows of version 0.2.0: then the server's default applies. No checksum covers it: after a rollback, version
-- 0.2.0 writes the rest of the row with its own checksum.
alter table advertisement add column ttl_ms integer check (0 < ttl_ms);
