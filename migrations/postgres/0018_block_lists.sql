-- Durable block lists: users whom a user will not meet.

-- Block list of a user who has ever had one. The row stays while the list is empty, so that its version never starts again; it goes
-- with the user's erasure.
create table block_list
(
    user_key uuid   primary key,
    -- Keys of the blocked users, 16 bytes each, in order; at most 1,000.
    blocked  bytea  not null check (octet_length(blocked) % 16 = 0 and octet_length(blocked) <= 16000),
    -- Number of changes.
    version  bigint not null check (0 < version)
);
