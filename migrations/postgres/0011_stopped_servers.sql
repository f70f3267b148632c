-- Servers that stopped, so that the others do not wait for their next sign of life.

-- False for a server that was killed, and for every server of an earlier version.
alter table server_alive add column is_stopped boolean not null default false;
