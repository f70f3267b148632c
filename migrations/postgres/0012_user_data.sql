-- Names of users in logs, and the cleanup after an erasure. The setting `user_key_secret` is the id of the secret of public
-- user keys.

-- Random name of a user in the log and the audit log. It goes with the user's erasure: then nothing leads from the user to
-- the lines. Users whom no operator has named have no row.
create table user_log_name
(
    user_key uuid primary key,
    log_name uuid not null
);

-- Erasures after which dead rows have to be removed. They name no user.
create table erasure_cleanup
(
    cleanup_id   uuid        primary key,
    requested_at timestamptz not null default clock_timestamp()
);
