//! Every statement that the Postgres store makes about queues. As for advertisements, many rows go in as arrays, one for each
//! column: one statement and one plan, whatever their number.

/// A ticket as it is read.
macro_rules! tickets {
    ($of:literal) => {
        concat!(
            "
    select t.ticket_id, t.silo_id, t.set_id, t.entered_ms, t.payload, t.body,
           t.state, t.match_id, t.ending, t.expires_ms, t.forget_at_ms, t.edition",
            $of
        )
    };
}

/// A match as it is read.
macro_rules! matches {
    ($of:literal) => {
        concat!(
            "
    select m.match_id, m.silo_id, m.set_id, m.proposed_ms, m.edition, m.stage, m.forget_at_ms, m.body",
            $of
        )
    };
}

/// A rating as it is read.
macro_rules! ratings {
    ($of:literal) => {
        concat!(
            "
    select r.user_key, r.set_id, r.rating, r.deviation, r.volatility, r.matches, r.last_ms, r.streak, r.abandoned,
           r.scores, r.score_sum, r.played",
            $of
        )
    };
}

/// A result as it is read.
macro_rules! results {
    ($of:literal) => {
        concat!("select r.match_id, r.silo_id, r.set_id, r.reported_ms, r.payload, r.body", $of)
    };
}

/// Begins a transaction. Where parties enter, locks their users' places first: `shared` are those of whom others may enter as
/// well, `own` of whom nobody may. A user who would wait alone in one queue and enters another at the same moment is in no row
/// that both would write. `places` are numbers without a sign, in order, each once; with what else is open of the database's
/// locks they must fit its table of them.
pub(super) fn begin_with_entry_locks(places: &[(u8, bool)]) -> String {
    if places.is_empty() {
        return "begin".to_owned();
    }
    let numbers: Vec<String> = places.iter().map(|(place, _)| place.to_string()).collect();
    let own: Vec<&str> = places.iter().map(|(_, own)| if *own { "t" } else { "f" }).collect();
    // Numbers and flags hurt nobody, and a text of two statements takes no parameters.
    format!(
        "begin; select case when own then pg_advisory_xact_lock({ENTRY_LOCK_CLASS}, place)::text \
         else pg_advisory_xact_lock_shared({ENTRY_LOCK_CLASS}, place)::text end \
         from unnest('{{{}}}'::integer[], '{{{}}}'::boolean[]) as u (place, own)",
        numbers.join(","),
        own.join(",")
    )
}

/// The first number of the locks that `begin` takes, `ftqu` in ASCII: the database keeps one list of them for whoever uses it.
const ENTRY_LOCK_CLASS: i32 = 0x6674_7175;

/// Locks and reads the tickets in `$1`, in the order of ids, so that two batches that want the same rows wait for each other
/// rather than each other's.
pub(super) const LOCK_TICKETS: &str =
    tickets!(" from ticket t where t.ticket_id = any($1) order by t.ticket_id for update");

/// The same of the matches in `$1`; after the tickets.
pub(super) const LOCK_MATCHES: &str =
    matches!(" from match m where m.match_id = any($1) order by m.match_id for update");

/// Locks what bars the users in `$1`, where it may change; after the matches.
pub(super) const LOCK_PENALTIES: &str = "
    select user_key
      from penalty
     where user_key = any($1)
     order by user_key, set_id
       for update
";

/// Locks and reads the ratings of the users in `$1`; after the penalties. Two matches of one user that end at once wait for each
/// other here, and both count.
pub(super) const LOCK_RATINGS: &str =
    ratings!(" from rating r where r.user_key = any($1) order by r.user_key, r.set_id for update");

/// Of the ratings in set `$1` of users who are not in `$2`, the one that tells how far the set has been played. It is not locked: two
/// matches that end at once in one period both say that it is played, and the next one is to both.
pub(super) const READ_LATEST_PERIOD: &str = ratings!(
    " from rating r
     where r.set_id = $1 and 0 < r.played and 0 < r.matches and r.user_key <> all($2)
     order by r.played desc, r.last_ms desc
     limit 1"
);

/// What came of the matches in `$1`. After the lock on the match, so that whoever comes second sees the first.
pub(super) const READ_RESULTS: &str = results!(" from result r where r.match_id = any($1) order by r.match_id");

/// What players thought of the matches in `$1`.
pub(super) const READ_FEEDBACK: &str = "
    select match_id, user_key, score, at_ms
      from score
     where match_id = any($1)
";

/// The changes of the rating of user `$1` in set `$2`, latest first.
pub(super) const READ_RATING_CHANGES: &str = "
    select user_key, set_id, number, match_id, at_ms, rank, sides, rating_before, deviation_before, rating_after,
           deviation_after
      from rating_change
     where user_key = $1 and set_id = $2
     order by at_ms desc, number desc
";

/// The first `$3` results reported at `$1` of matches called more than `$2`, or later, and how players scored them.
pub(super) const LIST_FINISHED_MATCHES: &str = results!(
    ", (select count(*) from score s where s.match_id = r.match_id),
           (select coalesce(sum(s.score), 0) from score s where s.match_id = r.match_id)
      from result r
     where (r.reported_ms, r.match_id) > ($1, $2)
     order by r.reported_ms, r.match_id
     limit $3
"
);

/// Where the users in `$1` are, what bars them, and who is in the matches in `$2`: a kind, a user, a name and four numbers. A
/// statement of its own: it must see what was committed while the locks were waited for.
pub(super) const READ_USER_ROWS: &str = "
    select 0, user_key, ticket_id, set_id, silo_id, alone::integer::bigint, null::bigint
      from ticket_user
     where user_key = any($1)
     union all
    select 1, user_key, match_id, null, null, null, null
      from match_user
     where user_key = any($1)
     union all
    select 1, user_key, match_id, null, null, null, null
      from match_user
     where match_id = any($2)
     union all
    select 2, user_key, null, set_id, rung, until_ms, resets_at_ms
      from penalty
     where user_key = any($1)
";

/// Takes users out of tickets that are over.
pub(super) const DELETE_TICKET_USERS: &str = "
    delete from ticket_user t
     using unnest($1::uuid[], $2::bigint[], $3::bigint[]) as u (user_key, set_id, silo_id)
     where t.user_key = u.user_key and t.set_id = u.set_id and t.silo_id = u.silo_id
";

/// Takes users out of matches.
pub(super) const DELETE_MATCH_USERS: &str = "delete from match_user where user_key = any($1)";

/// Enters tickets. Fewer rows than ids: another server was quicker with the same key.
pub(super) const INSERT_TICKETS: &str = "
    insert into ticket (ticket_id, silo_id, set_id, entered_ms, payload, body, state, match_id, ending, expires_ms,
                        forget_at_ms, edition)
    select *
      from unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::uuid[], $6::text[], $7::smallint[],
                  $8::uuid[], $9::smallint[], $10::bigint[], $11::bigint[], $12::bigint[])
        on conflict (ticket_id) do nothing
";

/// Changes how tickets stand: nothing else about one ever changes.
pub(super) const UPDATE_TICKET_STATES: &str = "
    update ticket t
       set state = u.state, match_id = u.match_id, ending = u.ending, expires_ms = u.expires_ms,
           forget_at_ms = u.forget_at_ms, edition = u.edition
      from unnest($1::uuid[], $2::smallint[], $3::uuid[], $4::smallint[], $5::bigint[], $6::bigint[], $7::bigint[])
        as u (ticket_id, state, match_id, ending, expires_ms, forget_at_ms, edition)
     where t.ticket_id = u.ticket_id
";

/// Makes matches. Fewer rows than ids: another server was quicker with the same name.
pub(super) const INSERT_MATCHES: &str = "
    insert into match (match_id, silo_id, set_id, proposed_ms, edition, stage, forget_at_ms, body)
    select *
      from unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::smallint[], $7::bigint[],
                  $8::text[])
        on conflict (match_id) do nothing
";

/// Replaces matches.
pub(super) const UPDATE_MATCHES: &str = "
    update match m
       set silo_id = u.silo_id, set_id = u.set_id, proposed_ms = u.proposed_ms, edition = u.edition, stage = u.stage,
           forget_at_ms = u.forget_at_ms, body = u.body
      from unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::smallint[], $7::bigint[],
                  $8::text[])
        as u (match_id, silo_id, set_id, proposed_ms, edition, stage, forget_at_ms, body)
     where m.match_id = u.match_id
";

/// Puts users into tickets. Fewer rows than users: another server was quicker with one of them.
pub(super) const INSERT_TICKET_USERS: &str = "
    insert into ticket_user (user_key, set_id, silo_id, ticket_id, alone)
    select *
      from unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::uuid[], $5::boolean[])
        on conflict (user_key, set_id, silo_id) do nothing
";

/// Puts users into matches. Fewer rows than users: another server was quicker with one of them.
pub(super) const INSERT_MATCH_USERS: &str = "
    insert into match_user (user_key, match_id)
    select *
      from unnest($1::uuid[], $2::uuid[])
        on conflict (user_key) do nothing
";

/// Sets penalties where there were none. Fewer rows than users: another server was quicker.
pub(super) const INSERT_PENALTIES: &str = "
    insert into penalty (user_key, set_id, rung, until_ms, resets_at_ms)
    select *
      from unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
        on conflict (user_key, set_id) do nothing
";

/// Sets penalties where there were some.
pub(super) const UPDATE_PENALTIES: &str = "
    update penalty p
       set rung = u.rung, until_ms = u.until_ms, resets_at_ms = u.resets_at_ms
      from unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
        as u (user_key, set_id, rung, until_ms, resets_at_ms)
     where p.user_key = u.user_key and p.set_id = u.set_id
";

/// Makes ratings. Fewer rows than users: another server was quicker with one of them.
pub(super) const INSERT_RATINGS: &str = "
    insert into rating (user_key, set_id, rating, deviation, volatility, matches, last_ms, streak, abandoned, scores,
                        score_sum, played)
    select *
      from unnest($1::uuid[], $2::bigint[], $3::double precision[], $4::double precision[], $5::double precision[],
                  $6::bigint[], $7::bigint[], $8::integer[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[])
        on conflict (user_key, set_id) do nothing
";

/// Sets ratings that are there.
pub(super) const UPDATE_RATINGS: &str = "
    update rating r
       set rating = u.rating, deviation = u.deviation, volatility = u.volatility, matches = u.matches, last_ms = u.last_ms,
           streak = u.streak, abandoned = u.abandoned, scores = u.scores, score_sum = u.score_sum, played = u.played
      from unnest($1::uuid[], $2::bigint[], $3::double precision[], $4::double precision[], $5::double precision[],
                  $6::bigint[], $7::bigint[], $8::integer[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[])
        as u (user_key, set_id, rating, deviation, volatility, matches, last_ms, streak, abandoned, scores, score_sum,
              played)
     where r.user_key = u.user_key and r.set_id = u.set_id
";

/// Writes down what came of matches. Fewer rows than matches: another server was quicker with one of them.
pub(super) const INSERT_RESULTS: &str = "
    insert into result (match_id, silo_id, set_id, reported_ms, payload, body)
    select *
      from unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::uuid[], $6::text[])
        on conflict (match_id) do nothing
";

/// Remembers changes of ratings, each in the place of one that was there before. Whoever writes one has its rating locked.
pub(super) const UPSERT_RATING_CHANGES: &str = "
    insert into rating_change (user_key, set_id, slot, number, match_id, at_ms, rank, sides, rating_before,
                               deviation_before, rating_after, deviation_after)
    select *
      from unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::uuid[], $6::bigint[], $7::bigint[],
                  $8::bigint[], $9::double precision[], $10::double precision[], $11::double precision[],
                  $12::double precision[])
        on conflict (user_key, set_id, slot) do update
       set number = excluded.number, match_id = excluded.match_id, at_ms = excluded.at_ms, rank = excluded.rank,
           sides = excluded.sides, rating_before = excluded.rating_before, deviation_before = excluded.deviation_before,
           rating_after = excluded.rating_after, deviation_after = excluded.deviation_after
";

/// Notes what players thought of matches. Fewer rows than scores: another server was quicker with one of them.
pub(super) const INSERT_FEEDBACK: &str = "
    insert into score (match_id, user_key, score, at_ms)
    select *
      from unnest($1::uuid[], $2::uuid[], $3::smallint[], $4::bigint[])
        on conflict (match_id, user_key) do nothing
";

/// Notes what the batch `$1` of server `$2` has touched, and rings the bell if `$6`.
pub(super) const INSERT_CHANGE: &str = "
    with noted as (
        insert into queue_change (batch_id, version, replica, ticket_ids, match_ids, rated)
        values ($1, pg_current_xact_id()::text::bigint, $2, $3, $4, $5)
        returning version
    )
    select case when $6 then pg_notify('fireteam_queue_change', '')::text end
      from noted
";

/// Gives the batch `$1` up. No row: it has been committed. Waits for it while nobody knows.
pub(in crate::store::postgres) const ABANDON_BATCH: &str = "
    insert into queue_change (batch_id, version, replica, ticket_ids, match_ids, rated)
    values ($1, pg_current_xact_id()::text::bigint, $2, '{}', '{}', '{}')
        on conflict (batch_id) do nothing
";

/// How far every reader may take everything before to be settled, the database's clock, and the numbers of at most `$4`
/// changes from `$1` on that are not in `$2`, made by other servers than `$3` or by the batches `$5`; and all that they name.
pub(super) const READ_CHANGES: &str = "
    with fresh as materialized (
        select version, ticket_ids, match_ids, rated
          from queue_change
         where $1 <= version and version <> all($2) and (replica <> $3 or batch_id = any($5))
         order by version
         limit $4
    )
    select pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
           (extract(epoch from clock_timestamp()) * 1000)::bigint,
           (select array_agg(version) from fresh),
           array(select distinct unnest(ticket_ids) from fresh),
           array(select distinct unnest(match_ids) from fresh),
           array(select distinct unnest(rated) from fresh)
";

/// Everything that follows is of one moment.
pub(super) const BEGIN_SNAPSHOT_READ: &str = "begin isolation level repeatable read read only";

/// The tickets in `$1`, in the silos `$2`, null for all.
pub(super) const READ_TICKETS: &str = tickets!(
    " from ticket t where t.ticket_id = any($1) and ($2::bigint[] is null or t.silo_id = any($2)) order by t.ticket_id"
);

/// The matches in `$1`, likewise.
pub(super) const READ_MATCHES: &str = matches!(
    " from match m where m.match_id = any($1) and ($2::bigint[] is null or m.silo_id = any($2)) order by m.match_id"
);

/// All ratings of the users in `$1`.
pub(super) const READ_RATINGS: &str =
    ratings!(" from rating r where r.user_key = any($1) order by r.user_key, r.set_id");

/// All tickets in the silos `$1`, null for all.
pub(super) const LOAD_TICKETS: &str =
    tickets!(" from ticket t where ($1::bigint[] is null or t.silo_id = any($1)) order by t.ticket_id");

/// All matches, likewise.
pub(super) const LOAD_MATCHES: &str =
    matches!(" from match m where ($1::bigint[] is null or m.silo_id = any($1)) order by m.match_id");

/// All ratings: a user has one in every silo.
pub(super) const LOAD_RATINGS: &str = ratings!(" from rating r order by r.user_key, r.set_id");

/// A thousand rows of each kind that are due by `$1`; those that another server is at are left to it.
pub(super) const PURGE: [&str; 5] = [
    "
    delete from ticket
     where ticket_id in (select ticket_id from ticket where forget_at_ms <= $1 limit 1000 for update skip locked)
",
    "
    delete from match
     where match_id in (select match_id from match where forget_at_ms <= $1 limit 1000 for update skip locked)
",
    "
    delete from penalty
     where (user_key, set_id) in (select user_key, set_id from penalty where greatest(until_ms, resets_at_ms) <= $1
                                   limit 1000 for update skip locked)
",
    // RESULTS_KEPT_MS
    "
    delete from result
     where match_id in (select match_id from result where reported_ms <= $1 - 7948800000 limit 1000
                           for update skip locked)
",
    "
    delete from score
     where (match_id, user_key) in (select match_id, user_key from score where at_ms <= $1 - 7948800000
                                     limit 1000 for update skip locked)
",
];

/// The same by the database's own clock: changes that every server has read, or will not miss; leases and attendance of
/// servers that are gone.
pub(super) const PURGE_BY_AGE: [&str; 3] = [
    "
    delete from queue_change
     where batch_id in (select batch_id from queue_change where made_at < clock_timestamp() - interval '10 minutes'
                         limit 1000 for update skip locked)
",
    "
    delete from lease
     where (set_id, silo_id) in (select set_id, silo_id from lease where until < clock_timestamp() - interval '1 minute'
                                  limit 1000 for update skip locked)
",
    "
    delete from attendance
     where (replica, silo_id) in (select replica, silo_id from attendance
                                   where said_at < clock_timestamp() - interval '1 minute'
                                   limit 1000 for update skip locked)
",
];

/// Server `$1` takes or keeps the leases of the sets `$2` in the silos `$3`, in order, for `$4` milliseconds; answers those it
/// has now. A lease that has run out by the database's clock is anybody's.
pub(super) const ACQUIRE_LEASES: &str = "
    insert into lease as l (set_id, silo_id, replica, until)
    select u.set_id, u.silo_id, $1, clock_timestamp() + $4::bigint * interval '1 millisecond'
      from unnest($2::bigint[], $3::bigint[]) as u (set_id, silo_id)
        on conflict (set_id, silo_id) do update
       set replica = excluded.replica, until = excluded.until
     where l.replica = excluded.replica or l.until <= clock_timestamp()
    returning set_id, silo_id
";

/// Server `$1` lets go of the leases of the sets `$2` in the silos `$3`, where it has them.
pub(super) const RELEASE_LEASES: &str = "
    delete from lease l
     using unnest($2::bigint[], $3::bigint[]) as u (set_id, silo_id)
     where l.set_id = u.set_id and l.silo_id = u.silo_id and l.replica = $1
";

/// Server `$1` says that it has `$3` users in the silos `$2`; answers how many all have that said so within ten seconds, in
/// the order of silos. What it says itself counts as it says it.
pub(super) const REPORT_CONNECTED_USERS: &str = "
    with mine as (
        select u.silo_id, u.users
          from unnest($2::bigint[], $3::bigint[]) as u (silo_id, users)
    ), said as (
        insert into attendance (replica, silo_id, users, said_at)
        select $1, silo_id, users, clock_timestamp() from mine
            on conflict (replica, silo_id) do update
           set users = excluded.users, said_at = excluded.said_at
    )
    select silo_id, sum(users)::bigint
      from (select silo_id, users from mine
             union all
            select silo_id, users from attendance
             where replica <> $1 and clock_timestamp() - interval '10 seconds' <= said_at) as everybody
     group by silo_id
     order by silo_id
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_forgotten_when_they_are_due() {
        let due = format!("$1 - {}", crate::store::queues::RESULT_RETENTION_MS);
        assert!(PURGE[3].contains(&due) && PURGE[4].contains(&due), "{due}");
    }
}
