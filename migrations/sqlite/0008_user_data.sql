-- Names of users in logs, and the cleanup after an erasure. The setting `user_key_secret` is the id of the secret of public
-- user keys.

-- Random name of a user in the log and the audit log. It goes with the user's erasure: then nothing leads from the user to
-- the lines. Users whom no operator has named have no row.
create table user_log_name
(
    user_key blob primary key check (length(user_key) = 16),
    log_name blob not null check (length(log_name) = 16)
) strict, without rowid;

-- Erasures after which the write-ahead log has to be emptied. They name no user.
create table erasure_cleanup
(
    requested_ms integer primary key
) strict;
