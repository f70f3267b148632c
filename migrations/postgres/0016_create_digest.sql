-- Digest of the request that created an advertisement, to distinguish a reused idempotency key from a repeated request. Null: without
-- such a key, created by version 0.2.0, or a tombstone.
alter table advertisement add column create_digest uuid;
