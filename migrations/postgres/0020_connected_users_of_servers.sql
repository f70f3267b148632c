-- Connected users by server, so that a user who is connected to two servers counts once. Servers of earlier versions write only
-- their counts: those are added up, as before.

-- Users who are connected to a server and count for a gate. A row says nothing without the secret of the deployment.
create table connected_user
(
    set_id   bigint not null,
    silo_id  bigint not null,
    -- First 64 bits of an HMAC of set, silo and user.
    user_key bigint not null,
    replica  bigint not null,
    primary key (set_id, silo_id, user_key, replica)
);

create index connected_user_by_replica on connected_user (replica, set_id, silo_id);

-- Whether all users of `user_count` are in `connected_user`.
alter table connected_users_by_set add column lists_users boolean not null default false;

-- Distinct users of all servers, of the server that runs the queue's passes.
alter table connected_users_by_set add column total_count bigint;
