-- Copies of rulesets, so that tickets and matches outlive the files. `ticket.end_reason` has one more number, 7: the set was
-- retired.

-- One row per ruleset that is active on a server, or that tickets and matches still use.
create table ruleset_copy
(
    set_id        integer not null check (set_id between 0 and 4294967295),
    -- Service configuration hash.
    hash          integer not null check (hash between 0 and 4294967295),
    -- Name of the file, without its directory.
    file_name     text    not null,
    -- Text of the file, without comments.
    source_xml    text    not null,
    -- When a server last reported the ruleset as active.
    active_at_ms  integer not null,
    -- When the file was first found missing; null while a server reports a ruleset of the set as active.
    removed_at_ms integer,
    -- When the set was retired; null before.
    ended_at_ms   integer,
    primary key (set_id, hash)
) strict, without rowid;
