-- Durable block lists: users whom a user will not meet.

-- Block list of a user who has ever had one. The row stays while the list is empty, so that its version never starts again; it goes
-- with the user's erasure.
create table block_list
(
    user_key blob    primary key check (length(user_key) = 16),
    -- Keys of the blocked users, 16 bytes each, in order; at most 1,000.
    blocked  blob    not null check (length(blocked) % 16 = 0 and length(blocked) <= 16000),
    -- Number of changes.
    version  integer not null check (0 < version),
    -- First 8 bytes of a SHA-256 over the columns above.
    checksum integer not null
) strict, without rowid;
