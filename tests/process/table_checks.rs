//! What the tables say in the end, and whether that is what clients were told and what each server believes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use fireteam::domain::id::{AdvertisementId, UserKey};
use fireteam_client::pb;
use sqlx::types::Uuid;

use crate::cluster::Fleet;
use crate::history::{Asked, History, Outcome, Told};
use crate::load_client::SEATS;
use crate::support::database::TestDatabase;
use crate::support::party::party_session;

/// How long servers may take to agree with the store once nothing changes any more.
const AGREE_WITHIN: Duration = Duration::from_secs(10);

/// An advertisement's row.
#[derive(Clone, Debug)]
struct Session {
    silo: u64,
    stands: bool,
    join_seats: u32,
    word: String,
    noted: bool,
}

/// A reservation's row.
#[derive(Clone, Debug)]
struct Seat {
    advertisement: String,
    users: Vec<u8>,
    seats: u32,
    ended: bool,
    noted: bool,
}

/// Everything.
pub(crate) struct Tables {
    sessions: BTreeMap<String, Session>,
    seats: Vec<Seat>,
}

impl Tables {
    /// Reads them. A row is noted when the transaction that last wrote it left word of that: all or nothing.
    pub(crate) async fn read(database: &TestDatabase) -> Self {
        let mut connection = database.connect().await;
        let sessions: Vec<(Uuid, i64, bool, i32, Vec<u8>, bool)> = sqlx::query_as(
            "select advertisement_id, silo_id, body is not null, join_seats, connect_data, \
             exists (select from change c where c.version = a.version and a.advertisement_id = any(c.advertisement_ids)) \
             from advertisement a",
        )
        .fetch_all(&mut connection)
        .await
        .expect("advertisements");
        let seats: Vec<(Uuid, Vec<u8>, i32, i16, bool)> = sqlx::query_as(
            "select advertisement_id, users, seats, state, \
             exists (select from change c where c.version = r.xmin::text::bigint \
                     and r.advertisement_id = any(c.advertisement_ids)) \
             from reservation r",
        )
        .fetch_all(&mut connection)
        .await
        .expect("reservations");
        let name = |id: Uuid| AdvertisementId::from_bytes(*id.as_bytes()).to_string();
        let session = |(id, silo, stands, join_seats, word, noted): (Uuid, i64, bool, i32, Vec<u8>, bool)| {
            let word = String::from_utf8(word).expect("text");
            (name(id), Session { silo: silo.cast_unsigned(), stands, join_seats: join_seats as u32, word, noted })
        };
        let seat = |(id, users, seats, state, noted): (Uuid, Vec<u8>, i32, i16, bool)| Seat {
            advertisement: name(id),
            users,
            seats: seats as u32,
            ended: state == 2,
            noted,
        };
        Self { sessions: sessions.into_iter().map(session).collect(), seats: seats.into_iter().map(seat).collect() }
    }

    /// Sessions that are advertised.
    pub(crate) fn standing(&self) -> usize {
        self.sessions.values().filter(|session| session.stands).count()
    }

    /// Reservations that take seats.
    pub(crate) fn taken(&self) -> usize {
        self.seats.iter().filter(|seat| !seat.ended).count()
    }

    fn seats_in(&self, advertisement: &str) -> u32 {
        self.seats.iter().filter(|it| !it.ended && it.advertisement == advertisement).map(|it| it.seats).sum()
    }

    /// More seats taken than there are; half of a change without the other half.
    pub(crate) fn contradictions(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for (id, session) in &self.sessions {
            let taken = self.seats_in(id);
            if session.stands && session.join_seats < taken {
                wrong.push(format!("over: {taken} of {} seats are taken in {id}", session.join_seats));
            }
            if !session.noted {
                wrong.push(format!("half: no word of the change that left {id} as it is"));
            }
        }
        for seat in &self.seats {
            if !self.sessions.get(&seat.advertisement).is_some_and(|session| session.stands) {
                wrong.push(format!("half: seats in {}, which is not there", seat.advertisement));
            }
            if !seat.noted {
                wrong
                    .push(format!("half: no word of the change that left seats in {} as they are", seat.advertisement));
            }
        }
        wrong
    }

    /// What clients were told and the tables do not say.
    pub(crate) fn broken_promises(&self, history: &History) -> Vec<String> {
        let lines = history.lines();
        let mut wrong = Vec::new();
        let mut deleted: BTreeMap<&str, Outcome> = BTreeMap::new();
        let mut released: BTreeMap<&str, Outcome> = BTreeMap::new();
        let mut words: BTreeMap<&str, (BTreeSet<String>, String)> = BTreeMap::new();
        for told in &lines {
            match &told.asked {
                Asked::Delete { advertisement } => worse(deleted.entry(advertisement), told.outcome),
                Asked::Release { user } => worse(released.entry(user), told.outcome),
                Asked::Publish { advertisement, word, .. } if !advertisement.is_empty() => {
                    let (perhaps, last) = words.entry(advertisement).or_default();
                    match told.outcome {
                        Outcome::Done => *last = word.to_string(),
                        Outcome::Unknown => drop(perhaps.insert(word.to_string())),
                        Outcome::Refused => {}
                    }
                }
                Asked::Publish { .. } | Asked::Reserve { .. } => {}
            }
        }
        for (id, (perhaps, last)) in words.iter().filter(|(_, (_, last))| !last.is_empty()) {
            let session = self.sessions.get(*id).filter(|session| session.stands);
            match (deleted.get(id), session) {
                (None, None) => wrong.push(format!("lost: session {id}")),
                (None | Some(Outcome::Unknown), Some(it)) if it.word == *last || perhaps.contains(&it.word) => {}
                (None | Some(Outcome::Unknown), Some(it)) => {
                    wrong.push(format!("lost: session {id} says {}, not {last} nor any of {perhaps:?}", it.word));
                }
                (Some(Outcome::Done), Some(_)) => wrong.push(format!("lost: session {id} was deleted and is there")),
                _ => {}
            }
        }
        wrong.extend(self.broken_seats(&lines, &released, &deleted));
        wrong
    }

    fn broken_seats(
        &self,
        lines: &[Told],
        released: &BTreeMap<&str, Outcome>,
        deleted: &BTreeMap<&str, Outcome>,
    ) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut by_leader: HashMap<UserKey, Vec<&Seat>> = HashMap::new();
        for seat in &self.seats {
            for user in seat.users.chunks(16) {
                by_leader.entry(UserKey::from_bytes(user.try_into().expect("16 bytes"))).or_default().push(seat);
            }
        }
        let mut parties: BTreeMap<&str, (Outcome, &str, u32, &str)> = BTreeMap::new();
        for told in lines {
            let Asked::Reserve { user, advertisement, seats, reservation } = &told.asked else { continue };
            let known = parties.entry(user).or_insert((told.outcome, advertisement, *seats, reservation));
            if !known.3.is_empty() && !reservation.is_empty() && known.3 != reservation {
                wrong.push(format!("twice: {user} was given {} and {reservation}", known.3));
            }
            known.0 = surer(known.0, told.outcome);
            if known.3.is_empty() {
                known.3 = reservation;
            }
        }
        for (user, (outcome, advertisement, seats, _)) in parties {
            let rows = by_leader.get(&UserKey::from_name(user)).map_or(&[][..], Vec::as_slice);
            let live: Vec<&&Seat> = rows.iter().filter(|seat| !seat.ended).collect();
            if 1 < rows.len() {
                wrong.push(format!("twice: {user} sits {} times", rows.len()));
            }
            let gone = deleted.contains_key(advertisement) || released.contains_key(user);
            match outcome {
                Outcome::Refused if !live.is_empty() => wrong.push(format!("lost: {user} was refused and sits there")),
                Outcome::Done if live.is_empty() && !gone => wrong.push(format!("lost: {user} does not sit there")),
                _ => {}
            }
            if released.get(user) == Some(&Outcome::Done) && !live.is_empty() {
                wrong.push(format!("lost: {user} gave the seats back and sits there"));
            }
            if live.iter().any(|seat| seat.seats != seats || seat.advertisement != advertisement) {
                wrong.push(format!("half: {user} sits elsewhere, or on other seats: {live:?}"));
            }
        }
        wrong
    }

    /// What is advertised in `silo` and has open seats: by id, what it says and how many.
    fn open_in(&self, silo: u64) -> BTreeMap<String, (String, u32)> {
        let open = |id: &str, session: &Session| session.join_seats.saturating_sub(self.seats_in(id));
        let there = self.sessions.iter().filter(|(_, session)| session.stands && session.silo == silo);
        let shown = there.map(|(id, session)| (id.clone(), (session.word.clone(), open(id, session))));
        shown.filter(|(_, (_, open))| 0 < *open).collect()
    }

    /// Whether each server comes to show what is stored, in each silo. Nothing may change any more.
    pub(crate) async fn pictures(&self, fleet: &Fleet) -> Vec<String> {
        let silos: BTreeSet<u64> =
            self.sessions.values().map(|session| session.silo).filter(|silo| *silo != 0).collect();
        let mut wrong = Vec::new();
        for at in 0..fleet.len() {
            for &silo in &silos {
                let stored = self.open_in(silo);
                let mut seen = BTreeMap::new();
                let agreed = async {
                    loop {
                        seen = shown(fleet, at, silo).await;
                        if seen == stored {
                            return;
                        }
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                };
                if tokio::time::timeout(AGREE_WITHIN, agreed).await.is_err() {
                    let differ = stored.iter().filter(|(id, it)| seen.get(*id) != Some(it)).count();
                    let extra = seen.keys().filter(|id| !stored.contains_key(*id)).count();
                    wrong.push(format!(
                        "picture: server {at} in silo {silo}: {differ} of {} differ, {extra} are too many",
                        stored.len()
                    ));
                }
            }
        }
        wrong
    }
}

/// What a stranger is shown at server `at`.
async fn shown(fleet: &Fleet, at: usize, silo: u64) -> BTreeMap<String, (String, u32)> {
    let client = fleet.client(at, 0).expect("somebody is there");
    let session = pb::SessionCompositionData { silo_id: Some(silo), ..party_session(&[("a stranger", 0.0)]) };
    let Ok(found) = client.search_session(1, session).search().await else { return BTreeMap::new() };
    let open =
        |it: pb::Candidate| (it.advertisement_id, (String::from_utf8(it.connect_data).expect("text"), it.open_seats));
    found.candidates.into_iter().map(open).collect()
}

/// The surest that is known of what has been asked several times under one name: once done, it is done; and a refusal does
/// not undo what may yet happen.
fn surer(one: Outcome, other: Outcome) -> Outcome {
    match (one, other) {
        (Outcome::Done, _) | (_, Outcome::Done) => Outcome::Done,
        (Outcome::Unknown, _) | (_, Outcome::Unknown) => Outcome::Unknown,
        (Outcome::Refused, Outcome::Refused) => Outcome::Refused,
    }
}

fn worse(entry: std::collections::btree_map::Entry<'_, &str, Outcome>, outcome: Outcome) {
    entry.and_modify(|it| *it = surer(*it, outcome)).or_insert(outcome);
}

/// Sessions in which, at some moment, more seats were surely taken than there are: after the answer that gave them, and
/// before anybody asked for them back.
pub(crate) fn crowded(history: &History) -> Vec<String> {
    let lines = history.lines();
    let mut free_from: BTreeMap<&str, Duration> = BTreeMap::new();
    for told in &lines {
        if let Asked::Release { user: of } | Asked::Delete { advertisement: of } = &told.asked {
            let first = free_from.entry(of).or_insert(told.start);
            *first = told.start.min(*first);
        }
    }
    let mut moments: BTreeMap<&str, Vec<(Duration, bool, u32)>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for told in lines.iter().filter(|told| told.outcome == Outcome::Done) {
        let Asked::Reserve { user, advertisement, seats, .. } = &told.asked else { continue };
        let until = [&**user, &**advertisement].into_iter().filter_map(|of| free_from.get(of)).min();
        if seen.insert(user) && until.is_none_or(|until| told.end < *until) {
            let of = moments.entry(advertisement).or_default();
            of.push((told.end, true, *seats));
            of.extend(until.map(|until| (*until, false, *seats)));
        }
    }
    let mut wrong = Vec::new();
    for (id, mut all) in moments {
        all.sort_unstable();
        let mut taken = 0;
        for (at, takes, seats) in all {
            taken = if takes { taken + seats } else { taken - seats };
            if SEATS < taken {
                wrong.push(format!("over: {taken} seats of {SEATS} were taken in {id} at {at:?}"));
                break;
            }
        }
    }
    wrong
}
