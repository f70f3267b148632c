//! Every statement that the SQLite store makes about queues. As for advertisements, names to be looked up come as one JSON
//! array of hexadecimal texts, and many rows are one statement.

use crate::store::sqlite::statements::MultiRowStatement;

/// A ticket as it is read.
macro_rules! tickets {
    ($of:literal) => {
        concat!(
            "
    select t.ticket_id, t.silo_id, t.set_id, t.entered_ms, t.payload, t.body, t.checksum,
           t.state, t.match_id, t.ending, t.expires_ms, t.forget_at_ms, t.edition, t.standing",
            $of
        )
    };
}

/// A match as it is read.
macro_rules! matches {
    ($of:literal) => {
        concat!(
            "
    select m.match_id, m.silo_id, m.set_id, m.proposed_ms, m.edition, m.stage, m.forget_at_ms, m.body, m.checksum",
            $of
        )
    };
}

/// A rating as it is read.
macro_rules! ratings {
    ($of:literal) => {
        concat!(
            "
    select r.user_key, r.set_id, r.rating, r.deviation, r.volatility, r.matches, r.last_ms, r.checksum,
           r.streak, r.abandoned, r.scores, r.score_sum, r.played",
            $of
        )
    };
}

/// A result as it is read.
macro_rules! results {
    ($of:literal) => {
        concat!("select r.match_id, r.silo_id, r.set_id, r.reported_ms, r.payload, r.body, r.checksum", $of)
    };
}

/// Begins a transaction that may write.
pub(in crate::store::sqlite) const BEGIN_IMMEDIATE: &str = "begin immediate";

/// The tickets in `$1`, a JSON array of names.
pub(in crate::store::sqlite) const READ_TICKETS: &str =
    tickets!(" from json_each($1) wanted join ticket t on t.ticket_id = unhex(wanted.value)");

/// The matches in `$1`, another such array.
pub(in crate::store::sqlite) const READ_MATCHES: &str =
    matches!(" from json_each($1) wanted join match m on m.match_id = unhex(wanted.value)");

/// Where the users in `$1` are, what bars them, and who is in the matches in `$2`: a kind, a user, a name and four numbers,
/// the checksum.
pub(in crate::store::sqlite) const READ_USER_ROWS: &str = "
    with wanted (user_key) as materialized (select unhex(value) from json_each($1))
    select 0, u.user_key, u.ticket_id, u.set_id, u.silo_id, u.alone, null, u.checksum
      from wanted join ticket_user u on u.user_key = wanted.user_key
     union all
    select 1, u.user_key, u.match_id, null, null, null, null, u.checksum
      from wanted join match_user u on u.user_key = wanted.user_key
     union all
    select 1, u.user_key, u.match_id, null, null, null, null, u.checksum
      from json_each($2) played join match_user u on u.match_id = unhex(played.value)
     union all
    select 2, p.user_key, null, p.set_id, p.rung, p.until_ms, p.resets_at_ms, p.checksum
      from wanted join penalty p on p.user_key = wanted.user_key
";

/// All tickets, in the order of ids.
pub(in crate::store::sqlite) const LOAD_TICKETS: &str = tickets!(" from ticket t order by t.ticket_id");

/// All matches, likewise.
pub(in crate::store::sqlite) const LOAD_MATCHES: &str = matches!(" from match m order by m.match_id");

/// All ratings, in the order of users and sets.
pub(in crate::store::sqlite) const LOAD_RATINGS: &str = ratings!(" from rating r order by r.user_key, r.set_id");

/// All ratings of the users in `$1`, a JSON array of names.
pub(in crate::store::sqlite) const READ_RATINGS: &str =
    ratings!(" from json_each($1) wanted join rating r on r.user_key = unhex(wanted.value)");

/// Of the ratings in set `$1` of users who are not in `$2`, another such array, the one that tells how far the set has been played.
pub(in crate::store::sqlite) const READ_LATEST_PERIOD: &str = ratings!(
    " from rating r
     where r.set_id = $1 and 0 < r.played and 0 < r.matches
       and r.user_key not in (select unhex(value) from json_each($2))
     order by r.played desc, r.last_ms desc
     limit 1"
);

/// What came of the matches in `$1`, another such array.
pub(in crate::store::sqlite) const READ_RESULTS: &str =
    results!(" from json_each($1) wanted join result r on r.match_id = unhex(wanted.value)");

/// What players thought of the matches in `$1`.
pub(in crate::store::sqlite) const READ_FEEDBACK: &str = "
    select s.match_id, s.user_key, s.score, s.at_ms, s.checksum
      from json_each($1) wanted join score s on s.match_id = unhex(wanted.value)
";

/// The changes of the rating of user `$1` in set `$2`, latest first.
pub(in crate::store::sqlite) const READ_RATING_CHANGES: &str = "
    select user_key, set_id, number, match_id, at_ms, rank, sides, rating_before, deviation_before, rating_after,
           deviation_after, checksum
      from rating_change
     where user_key = $1 and set_id = $2
     order by at_ms desc, number desc
";

/// The first `$3` results reported at `$1` of matches called more than `$2`, or later, and how players scored them.
pub(in crate::store::sqlite) const LIST_FINISHED_MATCHES: &str = results!(
    ", (select count(*) from score s where s.match_id = r.match_id),
           (select coalesce(sum(s.score), 0) from score s where s.match_id = r.match_id)
      from result r
     where (r.reported_ms, r.match_id) > ($1, $2)
     order by r.reported_ms, r.match_id
     limit $3
"
);

/// Enters tickets.
pub(in crate::store::sqlite) const INSERT_TICKETS: MultiRowStatement = MultiRowStatement::new(
    "
    insert into ticket (ticket_id, silo_id, set_id, entered_ms, payload, body, checksum,
                        state, match_id, ending, expires_ms, forget_at_ms, edition, standing)
    values ",
    "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    // What fills a statement up is there already, and the same.
    " on conflict (ticket_id) do nothing",
    false,
);

/// Changes how tickets stand: nothing else about one ever changes.
pub(in crate::store::sqlite) const UPDATE_TICKET_STATES: MultiRowStatement = MultiRowStatement::new(
    "
    update ticket
       set state = v.column2, match_id = v.column3, ending = v.column4, expires_ms = v.column5,
           forget_at_ms = v.column6, edition = v.column7, standing = v.column8
      from (values ",
    "(?, ?, ?, ?, ?, ?, ?, ?)",
    ") v
     where ticket.ticket_id = v.column1",
    true,
);

/// Makes matches, or replaces them.
pub(in crate::store::sqlite) const UPSERT_MATCHES: MultiRowStatement = MultiRowStatement::new(
    "
    insert into match (match_id, silo_id, set_id, proposed_ms, edition, stage, forget_at_ms, body, checksum)
    values ",
    "(?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "
        on conflict (match_id) do update
       set silo_id = excluded.silo_id, set_id = excluded.set_id, proposed_ms = excluded.proposed_ms,
           edition = excluded.edition, stage = excluded.stage, forget_at_ms = excluded.forget_at_ms,
           body = excluded.body, checksum = excluded.checksum",
    false,
);

/// Takes users out of tickets that are over.
pub(in crate::store::sqlite) const DELETE_TICKET_USERS: MultiRowStatement = MultiRowStatement::new(
    "delete from ticket_user where (user_key, set_id, silo_id) in (values ",
    "(?, ?, ?)",
    ")",
    true,
);

/// Puts users into tickets. One who is in another of that queue fails it, whatever the code believed; one row of a batch that
/// is there to fill up is the same again.
pub(in crate::store::sqlite) const INSERT_TICKET_USERS: MultiRowStatement = MultiRowStatement::new(
    "insert into ticket_user (user_key, set_id, silo_id, ticket_id, alone, checksum) values ",
    "(?, ?, ?, ?, ?, ?)",
    "
        on conflict (user_key, set_id, silo_id) do update
       set checksum = case ticket_id when excluded.ticket_id then checksum end",
    true,
);

/// Takes users out of matches.
pub(in crate::store::sqlite) const DELETE_MATCH_USERS: MultiRowStatement =
    MultiRowStatement::new("delete from match_user where user_key in (", "?", ")", true);

/// Puts users into matches; likewise.
pub(in crate::store::sqlite) const INSERT_MATCH_USERS: MultiRowStatement = MultiRowStatement::new(
    "insert into match_user (user_key, match_id, checksum) values ",
    "(?, ?, ?)",
    "
        on conflict (user_key) do update
       set checksum = case match_id when excluded.match_id then checksum end",
    true,
);

/// Sets penalties.
pub(in crate::store::sqlite) const UPSERT_PENALTIES: MultiRowStatement = MultiRowStatement::new(
    "insert into penalty (user_key, set_id, rung, until_ms, resets_at_ms, checksum) values ",
    "(?, ?, ?, ?, ?, ?)",
    "
        on conflict (user_key, set_id) do update
       set rung = excluded.rung, until_ms = excluded.until_ms, resets_at_ms = excluded.resets_at_ms,
           checksum = excluded.checksum",
    true,
);

/// Sets ratings.
pub(in crate::store::sqlite) const UPSERT_RATINGS: MultiRowStatement = MultiRowStatement::new(
    "
    insert into rating (user_key, set_id, rating, deviation, volatility, matches, last_ms, streak, abandoned, scores,
                        score_sum, played, checksum)
    values ",
    "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "
        on conflict (user_key, set_id) do update
       set rating = excluded.rating, deviation = excluded.deviation, volatility = excluded.volatility,
           matches = excluded.matches, last_ms = excluded.last_ms, streak = excluded.streak,
           abandoned = excluded.abandoned, scores = excluded.scores, score_sum = excluded.score_sum,
           played = excluded.played, checksum = excluded.checksum",
    true,
);

/// Writes down what came of matches. One that is there fails the batch, whatever the code believed, unless it is the same again
/// to fill up.
pub(in crate::store::sqlite) const INSERT_RESULTS: MultiRowStatement = MultiRowStatement::new(
    "insert into result (match_id, silo_id, set_id, reported_ms, payload, body, checksum) values ",
    "(?, ?, ?, ?, ?, ?, ?)",
    "
        on conflict (match_id) do update
       set checksum = case result.checksum when excluded.checksum then result.checksum end",
    false,
);

/// Remembers changes of ratings, each in the place of one that was there before.
pub(in crate::store::sqlite) const UPSERT_RATING_CHANGES: MultiRowStatement = MultiRowStatement::new(
    "
    insert into rating_change (user_key, set_id, slot, number, match_id, at_ms, rank, sides, rating_before,
                               deviation_before, rating_after, deviation_after, checksum)
    values ",
    "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "
        on conflict (user_key, set_id, slot) do update
       set number = excluded.number, match_id = excluded.match_id, at_ms = excluded.at_ms, rank = excluded.rank,
           sides = excluded.sides, rating_before = excluded.rating_before, deviation_before = excluded.deviation_before,
           rating_after = excluded.rating_after, deviation_after = excluded.deviation_after,
           checksum = excluded.checksum",
    true,
);

/// Notes what players thought of matches; as for results.
pub(in crate::store::sqlite) const INSERT_FEEDBACK: MultiRowStatement = MultiRowStatement::new(
    "insert into score (match_id, user_key, score, at_ms, checksum) values ",
    "(?, ?, ?, ?, ?)",
    "
        on conflict (match_id, user_key) do update
       set checksum = case score.checksum when excluded.checksum then score.checksum end",
    true,
);

/// A thousand rows of each kind that are due to be forgotten.
pub(in crate::store::sqlite) const PURGE: [&str; 5] = [
    "
    delete from ticket
     where ticket_id in (select ticket_id from ticket where forget_at_ms <= $1 limit 1000)
",
    "
    delete from match
     where match_id in (select match_id from match where forget_at_ms <= $1 limit 1000)
",
    "
    delete from penalty
     where (user_key, set_id) in (select user_key, set_id from penalty where max(until_ms, resets_at_ms) <= $1 limit 1000)
",
    // RESULTS_KEPT_MS
    "
    delete from result
     where match_id in (select match_id from result where reported_ms <= $1 - 7948800000 limit 1000)
",
    "
    delete from score
     where (match_id, user_key) in (select match_id, user_key from score where at_ms <= $1 - 7948800000 limit 1000)
",
];

/// All of them, for the test that prepares every statement.
#[cfg(test)]
pub(in crate::store::sqlite) mod tests {
    use super::*;

    pub(in crate::store::sqlite) const SINGLE_STATEMENTS: [&str; 16] = [
        READ_TICKETS,
        READ_MATCHES,
        READ_USER_ROWS,
        READ_RATINGS,
        READ_RESULTS,
        READ_FEEDBACK,
        LOAD_TICKETS,
        LOAD_MATCHES,
        LOAD_RATINGS,
        READ_RATING_CHANGES,
        LIST_FINISHED_MATCHES,
        PURGE[0],
        PURGE[1],
        PURGE[2],
        PURGE[3],
        PURGE[4],
    ];

    pub(in crate::store::sqlite) const MULTI_ROW_STATEMENTS: [MultiRowStatement; 12] = [
        INSERT_TICKETS,
        UPDATE_TICKET_STATES,
        UPSERT_MATCHES,
        DELETE_TICKET_USERS,
        INSERT_TICKET_USERS,
        DELETE_MATCH_USERS,
        INSERT_MATCH_USERS,
        UPSERT_PENALTIES,
        UPSERT_RATINGS,
        INSERT_RESULTS,
        UPSERT_RATING_CHANGES,
        INSERT_FEEDBACK,
    ];

    #[test]
    fn results_are_forgotten_when_they_are_due() {
        let due = format!("$1 - {}", crate::store::queues::RESULT_RETENTION_MS);
        assert!(PURGE[3].contains(&due) && PURGE[4].contains(&due), "{due}");
    }
}
