-- Statistics of matchmaking: counts by hour, added up over all servers. They name no user.

-- Count and sum of a quantity, by bucket.
create table statistic
(
    -- Start of the hour in which the values were counted.
    hour_ms      bigint           not null,
    -- Quantity, by number (`StatisticKind`). Rows with an unknown kind belong to a newer server.
    kind         integer          not null check (0 < kind),
    -- Matchmaking set; -1 for sets beyond the limit of a server.
    set_id       bigint           not null,
    -- Region that the ruleset lists; empty for none.
    region       text             not null,
    -- Class of party sizes; 0 for all.
    party_size   integer          not null,
    -- Ruleset; 0 for kinds that do not differ by it.
    ruleset_hash bigint           not null,
    -- Refusing rule; empty for other kinds.
    rule         text             not null,
    -- Bucket of the values: the index of its upper bound.
    bucket       integer          not null check (0 <= bucket),
    count        bigint           not null check (0 < count),
    total        double precision not null,
    primary key (hour_ms, kind, set_id, region, party_size, ruleset_hash, rule, bucket)
);

-- Last batch that each server process has added, so that a batch whose outcome was unknown is not added twice.
create table statistic_writer
(
    writer      uuid   primary key,
    last_number bigint not null check (0 < last_number),
    -- Time of the last batch; the row is deleted some time after it.
    at_ms       bigint not null
);
