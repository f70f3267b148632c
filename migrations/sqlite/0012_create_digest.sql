-- Digest of the request that created an advertisement, to distinguish a reused idempotency key from a repeated request. Null: without
-- such a key, or created by version 0.2.0. No checksum covers the column.
alter table advertisement add column create_digest blob check (length(create_digest) = 16);
