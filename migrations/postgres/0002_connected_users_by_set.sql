-- Connected users per set. Until now they were counted per silo, over all sets, in table connected_users. Servers of this
-- version no longer write that table; servers of earlier versions still do.

-- Connected users per server, set and silo. Rewritten every two seconds; a row counts for ten seconds.
create table connected_users_by_set
(
    replica     bigint      not null,
    set_id      bigint      not null,
    silo_id     bigint      not null,
    user_count  bigint      not null check (0 <= user_count),
    reported_at timestamptz not null,
    primary key (replica, set_id, silo_id)
);
