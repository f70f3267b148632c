-- Statistics of matchmaking: counts by hour, that outlive a restart. They name no user.

-- Count and sum of a quantity, by bucket. Rows are only added up; they have no checksum, since no decision depends on them.
create table statistic
(
    -- Start of the hour in which the values were counted.
    hour_ms      integer not null,
    -- Quantity, by number (`StatisticKind`). Rows with an unknown kind belong to a newer server.
    kind         integer not null check (0 < kind),
    -- Matchmaking set; -1 for sets beyond the limit of a server.
    set_id       integer not null,
    -- Region that the ruleset lists; empty for none.
    region       text    not null,
    -- Class of party sizes; 0 for all.
    party_size   integer not null,
    -- Ruleset; 0 for kinds that do not differ by it.
    ruleset_hash integer not null,
    -- Refusing rule; empty for other kinds.
    rule         text    not null,
    -- Bucket of the values: the index of its upper bound.
    bucket       integer not null check (0 <= bucket),
    count        integer not null check (0 < count),
    total        real    not null,
    primary key (hour_ms, kind, set_id, region, party_size, ruleset_hash, rule, bucket)
) strict, without rowid;

-- Last batch that each server process has added, so that a batch whose outcome was unknown is not added twice.
create table statistic_writer
(
    writer      blob    primary key check (length(writer) = 16),
    last_number integer not null check (0 < last_number),
    -- Time of the last batch; the row is deleted some time after it.
    at_ms       integer not null
) strict, without rowid;
