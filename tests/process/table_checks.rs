//! Compares the final tables with the call history and with the search results of each server.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use fireteam::domain::id::{AdvertisementId, UserKey};
use fireteam_client::pb;
use sqlx::types::Uuid;

use crate::cluster::Cluster;
use crate::history::{CallOutcome, CallRecord, History, Operation};
use crate::load_client::SEATS;
use crate::support::database::TestDatabase;
use crate::support::party::party_session;

/// Time for servers to agree with the store after the last change.
const AGREE_WITHIN: Duration = Duration::from_secs(10);

/// An advertisement's row.
#[derive(Clone, Debug)]
struct Session {
    silo: u64,
    advertised: bool,
    join_seats: u32,
    word: String,
    in_feed: bool,
}

/// A reservation's row.
#[derive(Clone, Debug)]
struct Seat {
    advertisement: String,
    users: Vec<u8>,
    seats: u32,
    ended: bool,
    in_feed: bool,
}

/// All rows.
pub(crate) struct Tables {
    sessions: BTreeMap<String, Session>,
    seats: Vec<Seat>,
}

impl Tables {
    /// Reads the tables. `in_feed` is whether the feed has an entry of the transaction that last wrote the row: both or none.
    pub(crate) async fn read(database: &TestDatabase) -> Self {
        let mut connection = database.connect().await;
        let sessions: Vec<(Uuid, i64, bool, i32, Vec<u8>, bool)> = sqlx::query_as(
            "select advertisement_id, silo_id, body is not null, join_seats, connect_data, \
             exists (select from advertisement_change c where c.version = a.version and a.advertisement_id = any(c.advertisement_ids)) \
             from advertisement a",
        )
        .fetch_all(&mut connection)
        .await
        .expect("advertisements");
        let seats: Vec<(Uuid, Vec<u8>, i32, i16, bool)> = sqlx::query_as(
            "select advertisement_id, users, seats, state, \
             exists (select from advertisement_change c where c.version = r.xmin::text::bigint \
                     and r.advertisement_id = any(c.advertisement_ids)) \
             from reservation r",
        )
        .fetch_all(&mut connection)
        .await
        .expect("reservations");
        let name = |id: Uuid| AdvertisementId::from_bytes(*id.as_bytes()).to_string();
        let session = |(id, silo, advertised, join_seats, word, in_feed): (Uuid, i64, bool, i32, Vec<u8>, bool)| {
            let word = String::from_utf8(word).expect("text");
            (name(id), Session { silo: silo.cast_unsigned(), advertised, join_seats: join_seats as u32, word, in_feed })
        };
        let seat = |(id, users, seats, state, in_feed): (Uuid, Vec<u8>, i32, i16, bool)| Seat {
            advertisement: name(id),
            users,
            seats: seats as u32,
            ended: state == 2,
            in_feed,
        };
        Self { sessions: sessions.into_iter().map(session).collect(), seats: seats.into_iter().map(seat).collect() }
    }

    /// Sessions that are advertised.
    pub(crate) fn advertised(&self) -> usize {
        self.sessions.values().filter(|session| session.advertised).count()
    }

    /// Reservations that hold seats.
    pub(crate) fn taken(&self) -> usize {
        self.seats.iter().filter(|seat| !seat.ended).count()
    }

    fn seats_in(&self, advertisement: &str) -> u32 {
        self.seats.iter().filter(|it| !it.ended && it.advertisement == advertisement).map(|it| it.seats).sum()
    }

    /// Overfull sessions, and changes of which only a part was stored.
    pub(crate) fn inconsistencies(&self) -> Vec<String> {
        let mut violations = Vec::new();
        for (id, session) in &self.sessions {
            let taken = self.seats_in(id);
            if session.advertised && session.join_seats < taken {
                violations.push(format!("over: {taken} of {} seats are taken in {id}", session.join_seats));
            }
            if !session.in_feed {
                violations.push(format!("incomplete: the feed has no entry of the last change of {id}"));
            }
        }
        for seat in &self.seats {
            if !self.sessions.get(&seat.advertisement).is_some_and(|session| session.advertised) {
                violations.push(format!("incomplete: seats in {}, which is not stored", seat.advertisement));
            }
            if !seat.in_feed {
                violations.push(format!(
                    "incomplete: the feed has no entry of the last change of seats in {}",
                    seat.advertisement
                ));
            }
        }
        violations
    }

    /// Acknowledged changes that the tables do not have, and rejected changes that they have.
    pub(crate) fn lost_acknowledgements(&self, history: &History) -> Vec<String> {
        let calls = history.calls();
        let mut violations = Vec::new();
        let mut deleted: BTreeMap<&str, CallOutcome> = BTreeMap::new();
        let mut released: BTreeMap<&str, CallOutcome> = BTreeMap::new();
        let mut words: BTreeMap<&str, (BTreeSet<String>, String)> = BTreeMap::new();
        for call in &calls {
            match &call.operation {
                Operation::Delete { advertisement } => merge_outcome(deleted.entry(advertisement), call.outcome),
                Operation::Release { user } => merge_outcome(released.entry(user), call.outcome),
                Operation::Publish { advertisement, word, .. } if !advertisement.is_empty() => {
                    let (possible, last) = words.entry(advertisement).or_default();
                    match call.outcome {
                        CallOutcome::Succeeded => *last = word.to_string(),
                        CallOutcome::Unknown => drop(possible.insert(word.to_string())),
                        CallOutcome::Rejected => {}
                    }
                }
                Operation::Publish { .. } | Operation::Reserve { .. } => {}
            }
        }
        for (id, (possible, last)) in words.iter().filter(|(_, (_, last))| !last.is_empty()) {
            let session = self.sessions.get(*id).filter(|session| session.advertised);
            match (deleted.get(id), session) {
                (None, None) => violations.push(format!("lost: session {id}")),
                (None | Some(CallOutcome::Unknown), Some(it)) if it.word == *last || possible.contains(&it.word) => {}
                (None | Some(CallOutcome::Unknown), Some(it)) => {
                    violations
                        .push(format!("lost: session {id} has text {}, not {last} nor any of {possible:?}", it.word));
                }
                (Some(CallOutcome::Succeeded), Some(_)) => {
                    violations.push(format!("lost: session {id} was deleted and is stored"))
                }
                _ => {}
            }
        }
        violations.extend(self.reservation_errors(&calls, &released, &deleted));
        violations
    }

    fn reservation_errors(
        &self,
        calls: &[CallRecord],
        released: &BTreeMap<&str, CallOutcome>,
        deleted: &BTreeMap<&str, CallOutcome>,
    ) -> Vec<String> {
        let mut violations = Vec::new();
        let mut by_leader: HashMap<UserKey, Vec<&Seat>> = HashMap::new();
        for seat in &self.seats {
            for user in seat.users.chunks(16) {
                by_leader.entry(UserKey::from_bytes(user.try_into().expect("16 bytes"))).or_default().push(seat);
            }
        }
        let mut parties: BTreeMap<&str, (CallOutcome, &str, u32, &str)> = BTreeMap::new();
        for call in calls {
            let Operation::Reserve { user, advertisement, seats, reservation } = &call.operation else { continue };
            let known = parties.entry(user).or_insert((call.outcome, advertisement, *seats, reservation));
            if !known.3.is_empty() && !reservation.is_empty() && known.3 != reservation {
                violations.push(format!("twice: {user} received {} and {reservation}", known.3));
            }
            known.0 = more_certain(known.0, call.outcome);
            if known.3.is_empty() {
                known.3 = reservation;
            }
        }
        for (user, (outcome, advertisement, seats, _)) in parties {
            let rows = by_leader.get(&UserKey::from_name(user)).map_or(&[][..], Vec::as_slice);
            let live: Vec<&&Seat> = rows.iter().filter(|seat| !seat.ended).collect();
            if 1 < rows.len() {
                violations.push(format!("twice: {user} has {} reservations", rows.len()));
            }
            let released_or_deleted = deleted.contains_key(advertisement) || released.contains_key(user);
            match outcome {
                CallOutcome::Rejected if !live.is_empty() => {
                    violations.push(format!("lost: {user} was rejected and has seats"))
                }
                CallOutcome::Succeeded if live.is_empty() && !released_or_deleted => {
                    violations.push(format!("lost: {user} has no seats"))
                }
                _ => {}
            }
            if released.get(user) == Some(&CallOutcome::Succeeded) && !live.is_empty() {
                violations.push(format!("lost: {user} released the seats and still has them"));
            }
            if live.iter().any(|seat| seat.seats != seats || seat.advertisement != advertisement) {
                violations.push(format!("incomplete: {user} has other seats, or seats in another session: {live:?}"));
            }
        }
        violations
    }

    /// Sessions in `silo` with open seats: number of open seats by id.
    fn open_in(&self, silo: u64) -> BTreeMap<String, u32> {
        let open = |id: &str, session: &Session| session.join_seats.saturating_sub(self.seats_in(id));
        let there = self.sessions.iter().filter(|(_, session)| session.advertised && session.silo == silo);
        let shown = there.map(|(id, session)| (id.clone(), open(id, session)));
        shown.filter(|(_, open)| 0 < *open).collect()
    }

    /// Differences between each server's search results and the tables, in each silo. No change may be in progress.
    pub(crate) async fn index_differences(&self, cluster: &Cluster) -> Vec<String> {
        let silos: BTreeSet<u64> =
            self.sessions.values().map(|session| session.silo).filter(|silo| *silo != 0).collect();
        let mut violations = Vec::new();
        for at in 0..cluster.len() {
            for &silo in &silos {
                let stored = self.open_in(silo);
                let mut seen = BTreeMap::new();
                let agreed = async {
                    loop {
                        seen = shown(cluster, at, silo).await;
                        if seen == stored {
                            return;
                        }
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                };
                if tokio::time::timeout(AGREE_WITHIN, agreed).await.is_err() {
                    let differ = stored.iter().filter(|(id, it)| seen.get(*id) != Some(it)).count();
                    let extra = seen.keys().filter(|id| !stored.contains_key(*id)).count();
                    violations.push(format!(
                        "index: server {at} in silo {silo}: {differ} of {} differ, {extra} are not stored",
                        stored.len()
                    ));
                }
            }
        }
        violations
    }
}

/// Search results of server `at`.
async fn shown(cluster: &Cluster, at: usize, silo: u64) -> BTreeMap<String, u32> {
    let client = cluster.client(at, 0).expect("a server is running");
    let session = pb::SessionCompositionData { silo_id: Some(silo), ..party_session(&[("observer", 0.0)]) };
    let Ok(found) = client.new_search(1, session).search().await else { return BTreeMap::new() };
    let open = |it: pb::Candidate| (it.advertisement_id, it.open_seats);
    found.candidates.into_iter().map(open).collect()
}

/// The more certain of two outcomes of the same operation: once it succeeded it has succeeded, and a rejection does not
/// exclude that an earlier attempt of unknown outcome takes effect.
fn more_certain(one: CallOutcome, other: CallOutcome) -> CallOutcome {
    match (one, other) {
        (CallOutcome::Succeeded, _) | (_, CallOutcome::Succeeded) => CallOutcome::Succeeded,
        (CallOutcome::Unknown, _) | (_, CallOutcome::Unknown) => CallOutcome::Unknown,
        (CallOutcome::Rejected, CallOutcome::Rejected) => CallOutcome::Rejected,
    }
}

fn merge_outcome(entry: std::collections::btree_map::Entry<'_, &str, CallOutcome>, outcome: CallOutcome) {
    entry.and_modify(|it| *it = more_certain(*it, outcome)).or_insert(outcome);
}

/// Sessions in which more seats than exist were certainly taken at some moment: from each acknowledged reservation until
/// the first request to release it.
pub(crate) fn overfull_sessions(history: &History) -> Vec<String> {
    let calls = history.calls();
    let mut released_at: BTreeMap<&str, Duration> = BTreeMap::new();
    for call in &calls {
        if let Operation::Release { user: of } | Operation::Delete { advertisement: of } = &call.operation {
            let first = released_at.entry(of).or_insert(call.start);
            *first = call.start.min(*first);
        }
    }
    let mut changes: BTreeMap<&str, Vec<(Duration, bool, u32)>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for call in calls.iter().filter(|call| call.outcome == CallOutcome::Succeeded) {
        let Operation::Reserve { user, advertisement, seats, .. } = &call.operation else { continue };
        let until = [&**user, &**advertisement].into_iter().filter_map(|of| released_at.get(of)).min();
        if seen.insert(user) && until.is_none_or(|until| call.end < *until) {
            let of = changes.entry(advertisement).or_default();
            of.push((call.end, true, *seats));
            of.extend(until.map(|until| (*until, false, *seats)));
        }
    }
    let mut violations = Vec::new();
    for (id, mut all) in changes {
        all.sort_unstable();
        let mut taken = 0;
        for (at, is_taken, seats) in all {
            taken = if is_taken { taken + seats } else { taken - seats };
            if SEATS < taken {
                violations.push(format!("over: {taken} seats of {SEATS} were taken in {id} at {at:?}"));
                break;
            }
        }
    }
    violations
}
