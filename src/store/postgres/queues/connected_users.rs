//! Connected users of all servers: each server lists its own, and the server that runs a queue counts the distinct ones.

use sqlx::Connection;
use sqlx::postgres::PgConnection;

use crate::domain::id::{SetId, SiloId};
use crate::store::queues::QueueKey;
use crate::store::queues::connected_users_report::ConnectedUsersReport;

const REMOVE_ALL_USERS_OF_SERVER: &str = "delete from connected_user where replica = $1";

const REMOVE_USERS: &str = "
    delete from connected_user u
     using unnest($2::bigint[], $3::bigint[], $4::bigint[]) as gone (set_id, silo_id, user_key)
     where u.set_id = gone.set_id and u.silo_id = gone.silo_id and u.user_key = gone.user_key and u.replica = $1
";

const ADD_USERS: &str = "
    insert into connected_user (replica, set_id, silo_id, user_key)
    select $1, u.set_id, u.silo_id, u.user_key
      from unnest($2::bigint[], $3::bigint[], $4::bigint[]) as u (set_id, silo_id, user_key)
        on conflict do nothing
";

/// Forgets the numbers of the last report of server `$1`. `$2`: its list is complete.
const RESET_COUNTS: &str = "
    update connected_users_by_set set user_count = 0, lists_users = $2, total_count = null where replica = $1
";

/// Stores that server `$1` has `$4` connected users of the sets `$2` in the silos `$3`. `$5`: its list is complete.
const STORE_COUNTS: &str = "
    insert into connected_users_by_set (replica, set_id, silo_id, user_count, lists_users, reported_at)
    select $1, u.set_id, u.silo_id, u.user_count, $5, clock_timestamp()
      from unnest($2::bigint[], $3::bigint[], $4::bigint[]) as u (set_id, silo_id, user_count)
        on conflict (replica, set_id, silo_id) do update
       set user_count = excluded.user_count, lists_users = excluded.lists_users, reported_at = excluded.reported_at
";

/// Stores that server `$1` counts the sets `$2` in the silos `$3`: distinct users of the servers whose lists are complete, and
/// the counts of the others. A server counts for ten seconds after its report. `$4`: the list of this server is complete.
const STORE_TOTALS_OF_ALL_SERVERS: &str = "
    insert into connected_users_by_set (replica, set_id, silo_id, user_count, lists_users, total_count, reported_at)
    select $1, q.set_id, q.silo_id, 0, $4,
           (select count(*)
              from (select distinct u.user_key from connected_user u
                     where u.set_id = q.set_id and u.silo_id = q.silo_id
                       and u.replica = any (array(select l.replica from connected_users_by_set l
                                                   where l.set_id = q.set_id and l.silo_id = q.silo_id and l.lists_users
                                                     and l.reported_at >= clock_timestamp() - interval '10 seconds'))) listed)
         + (select coalesce(sum(l.user_count), 0)::bigint from connected_users_by_set l
             where l.set_id = q.set_id and l.silo_id = q.silo_id and not l.lists_users
               and l.reported_at >= clock_timestamp() - interval '10 seconds'),
           clock_timestamp()
      from unnest($2::bigint[], $3::bigint[]) as q (set_id, silo_id)
        on conflict (replica, set_id, silo_id) do update
       set total_count = excluded.total_count, reported_at = excluded.reported_at
";

/// Totals of all queues, in set and silo order: the latest count of distinct users. Without one, as of a queue that a server of an
/// earlier version runs, the sum.
const READ_TOTALS: &str = "
    select set_id, silo_id,
           coalesce((array_agg(total_count order by reported_at desc) filter (where total_count is not null))[1],
                    sum(user_count)::bigint)
      from connected_users_by_set
     where reported_at >= clock_timestamp() - interval '10 seconds'
     group by set_id, silo_id
     order by set_id, silo_id
";

/// Stores a report of the server `replica` in one transaction, and returns the totals: set, silo and users.
pub(super) async fn store_report_and_read_totals(
    connection: &mut PgConnection,
    replica: i64,
    report: &ConnectedUsersReport,
) -> Result<Vec<(i64, i64, i64)>, sqlx::Error> {
    let mut transaction = connection.begin().await?;
    if report.replaces_list {
        sqlx::query(REMOVE_ALL_USERS_OF_SERVER).bind(replica).execute(&mut *transaction).await?;
    }
    for (statement, users) in [(REMOVE_USERS, &report.newly_disconnected), (ADD_USERS, &report.newly_connected)] {
        if !users.is_empty() {
            let (sets, silos) = queue_columns(users.iter().map(|(queue, _)| *queue));
            let keys: Vec<i64> = users.iter().map(|(_, key)| *key).collect();
            let query = sqlx::query(statement).bind(replica).bind(sets).bind(silos).bind(keys);
            query.execute(&mut *transaction).await?;
        }
    }
    let is_complete = report.is_list_complete;
    sqlx::query(RESET_COUNTS).bind(replica).bind(is_complete).execute(&mut *transaction).await?;
    if !report.counts.is_empty() {
        let (sets, silos) = queue_columns(report.counts.iter().map(|(queue, _)| *queue));
        let counts: Vec<i64> = report.counts.iter().map(|(_, count)| (*count).into()).collect();
        let query = sqlx::query(STORE_COUNTS).bind(replica).bind(sets).bind(silos).bind(counts).bind(is_complete);
        query.execute(&mut *transaction).await?;
    }
    if !report.queues_to_total.is_empty() {
        let (sets, silos) = queue_columns(report.queues_to_total.iter().copied());
        let query = sqlx::query(STORE_TOTALS_OF_ALL_SERVERS).bind(replica).bind(sets).bind(silos).bind(is_complete);
        query.execute(&mut *transaction).await?;
    }
    let totals = sqlx::query_as(READ_TOTALS).fetch_all(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(totals)
}

/// Sets and silos as columns.
fn queue_columns(queues: impl Iterator<Item = QueueKey>) -> (Vec<i64>, Vec<i64>) {
    queues.map(|QueueKey { set_id: SetId(set), silo: SiloId(silo) }| (i64::from(set), silo.cast_signed())).unzip()
}
