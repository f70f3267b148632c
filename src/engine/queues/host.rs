//! Finds a match a place to be played: a game server that has advertised itself, or a session with open seats.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::domain::advertisement::Kind;
use crate::domain::attribute::{Origin, Value};
use crate::domain::facts::Facts;
use crate::domain::filter::Searcher;
use crate::domain::id::{AdvertisementId, ReservationId, SetId, UserKey};
use crate::domain::index::{Found, Query};
use crate::domain::life::{Match, Place};
use crate::domain::locality::Locality;
use crate::domain::queue::backfill::OpenSession;
use crate::domain::queue::ticket::Ticket;
use crate::domain::ruleset::Ruleset;
use crate::domain::session::{RegionLatency, Session};
use crate::domain::time::UnixMs;
use crate::engine::fault::Fault;
use crate::engine::job::{Job, Take};
use crate::engine::queues::hall::Hall;
use crate::engine::shelf::Record;
use crate::store::queues::QueueKey;

/// Sessions with open seats that a pass may fill.
const SESSIONS_MAX: usize = 1_000;

/// Servers that are tried for one match before it waits a moment: each may have been taken since it was looked up.
const TRIES: usize = 4;

impl Hall {
    /// Takes seats for a match that is to be played somewhere; none when there is nowhere now.
    pub(super) async fn host(&self, play: &Match, ruleset: &Arc<Ruleset>) -> Option<Place> {
        let now = self.core.clock.now();
        let tickets: Vec<Arc<Ticket>> = {
            let roster = self.roster.read();
            let ticket = |member: &crate::domain::life::Member| Some(Arc::clone(&roster.ticket(member.ticket)?.ticket));
            play.members.iter().filter_map(ticket).collect()
        };
        let players = Together::of(&tickets, play, ruleset);
        let (kind, candidates) = match play.backfills {
            Some(id) => (Kind::Session, vec![id]),
            None => (Kind::Server, self.servers(&players, ruleset, now)),
        };
        for id in candidates.into_iter().take(TRIES) {
            match self.take_seats(play, id, kind, &players, ruleset, now).await {
                Ok(place) => return Some(place),
                Err(fault) => {
                    tracing::debug!(?fault, advertisement = %id, play = %play.id, "a server is no longer free")
                }
            }
        }
        None
    }

    /// Gives seats back. Should that fail they lapse.
    pub(super) fn give_back(&self, advertisement: AdvertisementId, set_id: SetId, reservation: ReservationId) {
        let (reply, _nobody) = oneshot::channel();
        let in_flight = self.core.flights.begin(advertisement);
        // The writer of advertisements is never waited for by that of queues: a full inbox lets the seats lapse.
        let _ = self.jobs.try_send(Job::Release(reservation, advertisement, set_id, reply, in_flight));
    }

    /// Sessions of a queue with open seats, those that have been advertised longest first.
    pub(super) fn open_sessions(&self, key: QueueKey, ruleset: &Ruleset, now: UnixMs) -> Vec<OpenSession> {
        let Some(shelf) = self.core.directory.shelf(key.set_id) else { return Vec::new() };
        let shelf = shelf.read();
        let fits = |record: &&Record| {
            let advertisement = &record.advertisement;
            let is_of_queue = advertisement.kind == Kind::Session && advertisement.session.silo == key.silo;
            is_of_queue && now < record.expires && 0 < record.open_seats()
        };
        let mut records: Vec<&Record> = shelf.records().filter(fits).collect();
        records.sort_unstable_by_key(|record| (record.advertisement.since, record.advertisement.id));
        let open = |record: &Record| {
            let session = &record.advertisement.session;
            let ratings: Option<Box<[f64]>> = session.players.iter().map(|player| player.skill).collect();
            OpenSession {
                advertisement: Arc::clone(&record.advertisement),
                facts: Facts::of(ruleset, session),
                expires: record.expires,
                open_seats: record.open_seats(),
                open_by_team: None,
                ratings: ratings.unwrap_or_default(),
                place: None,
            }
        };
        records.into_iter().take(SESSIONS_MAX).map(open).collect()
    }

    /// Game servers with room for all, the best by the ruleset's soft filters first.
    fn servers(&self, players: &Together, ruleset: &Arc<Ruleset>, now: UnixMs) -> Vec<AdvertisementId> {
        let Some(shelf) = self.core.directory.shelf(ruleset.set_id) else { return Vec::new() };
        let shelf = shelf.read();
        let Some(view) = shelf.view(ruleset.hash) else { return Vec::new() };
        let query = Query {
            ruleset: view.ruleset(),
            searcher: players.searcher(),
            silo: players.session.silo,
            kind: Kind::Server,
            limits: ruleset.limits,
            now,
        };
        let mut found = Found::default();
        view.search(&query, &mut found);
        found.hits.iter().map(|hit| view.entry(hit.slot).advertisement.id).collect()
    }

    async fn take_seats(
        &self,
        play: &Match,
        advertisement_id: AdvertisementId,
        kind: Kind,
        players: &Together,
        ruleset: &Arc<Ruleset>,
        now: UnixMs,
    ) -> Result<Place, Fault> {
        let id = self.core.signer.reservation_id(None, advertisement_id, &play.id.to_string());
        let take = Take {
            id,
            advertisement_id,
            kind,
            set_id: play.set_id,
            silo: play.silo,
            ruleset: Arc::clone(ruleset),
            session: players.session.clone(),
            facts: players.facts.clone(),
            users: players.users.clone(),
            subject: None,
            searching_since: play.members.iter().map(|member| member.entered).min().unwrap_or(now),
            hold_ms: self.core.settings.hold_max_ms,
            payload: *play.id.as_bytes(),
        };
        let (reply, answer) = oneshot::channel();
        let in_flight = self.core.flights.begin(advertisement_id);
        self.jobs.send(Job::Take(Box::new(take), reply, in_flight)).await.map_err(|_| Fault::Draining)?;
        let taken = answer.await.unwrap_or(Err(Fault::Internal))?;
        Ok(Place::Server { advertisement: advertisement_id, reservation: id, connect_data: taken.connect_data })
    }
}

/// The players of a match as one session that looks for a server.
#[derive(Debug)]
struct Together {
    session: Session,
    users: Vec<UserKey>,
    facts: Facts,
}

impl Together {
    /// What all say alike the session says too; so a server may ask for a mode, and one that asks for nothing is good for all.
    fn of(tickets: &[Arc<Ticket>], play: &Match, ruleset: &Ruleset) -> Self {
        let seats: usize = play.members.iter().map(|member| member.players.len()).sum();
        let mut users: Vec<UserKey> =
            play.members.iter().flat_map(|member| &member.players).map(|seat| seat.user).collect();
        users.sort_unstable();
        let said = tickets.first().map_or(&[][..], |first| &first.session.attributes);
        let by_all = |(name, value): &&(Box<str>, Value)| {
            tickets.iter().all(|ticket| ticket.session.attribute(name) == Some(value))
        };
        let session = Session {
            silo: play.silo,
            party_sizes: vec![u8::try_from(seats).unwrap_or(u8::MAX)],
            locality: Locality::between(tickets.iter().filter_map(|ticket| ticket.session.locality)),
            regions: mean_round_trips(tickets, play.region.as_deref()),
            attributes: said.iter().filter(by_all).cloned().collect(),
            origin: Origin::Server,
            ..Session::default()
        };
        Self { facts: Facts::of(ruleset, &session), session, users }
    }

    /// As long as it looks, limits no longer count: whoever is in the match has agreed to it.
    fn searcher(&self) -> Searcher<'_> {
        Searcher {
            facts: &self.facts,
            locality: self.session.locality,
            regions: &self.session.regions,
            seats: self.session.player_count(),
            users: &[],
            subject: None,
            excluded: &[],
            waited_ms: u64::MAX,
        }
    }
}

/// The mean round trip of all to each region that all have measured; to the match's own region alone, where it has one.
fn mean_round_trips(tickets: &[Arc<Ticket>], region: Option<&str>) -> Box<[RegionLatency]> {
    let Some(first) = tickets.first() else { return Box::default() };
    let wanted = first.session.regions.iter().filter(|it| region.is_none_or(|region| *it.region == *region));
    let mean = |name: &str| {
        let of = |ticket: &Arc<Ticket>| {
            ticket.session.regions.iter().find(|it| *it.region == *name).map(|it| it.round_trip_ms)
        };
        let all: Option<Vec<f32>> = tickets.iter().map(of).collect();
        all.map(|all| all.iter().sum::<f32>() / all.len() as f32)
    };
    wanted
        .filter_map(|it| Some(RegionLatency { region: it.region.clone(), round_trip_ms: mean(&it.region)? }))
        .collect()
}
