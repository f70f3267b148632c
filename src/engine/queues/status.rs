//! How a ticket stands, as its party is told.

use std::sync::Arc;

use crate::auth::credential::Credential;
use crate::auth::token::HeardClaim;
use crate::domain::id::UserKey;
use crate::domain::life::{Match, Place, Stage};
use crate::domain::time::UnixMs;
use crate::engine::queues::command::{Play, SeatView, Standing, Status};
use crate::engine::queues::hall::Hall;
use crate::engine::queues::waits::Sort;
use crate::store::queues::{QueueKey, StoredTicket, TicketState};

/// Stands for a match's edition where a ticket is passed over for a match that is not its own: no match has so many.
const PAUSED: u64 = u64::MAX;

/// What of a ticket's match it has heard of.
fn edition(standing: Standing, play: Option<&Match>) -> u64 {
    match standing {
        Standing::Paused => PAUSED,
        _ => play.map_or(0, |play| play.edition),
    }
}

impl Hall {
    /// What a ticket's party is told at `now`.
    pub(super) fn status(&self, stored: &StoredTicket, now: UnixMs) -> Status {
        let ticket = &stored.ticket;
        let roster = self.roster.read();
        let play = match stored.state {
            TicketState::InMatch(id) => roster.play(id).cloned(),
            TicketState::Ended { by, .. } => by.and_then(|id| roster.play(id).cloned()),
            TicketState::Waiting => None,
        };
        let standing = match stored.state {
            TicketState::Ended { how, .. } => Standing::Ended(how),
            TicketState::Waiting => {
                let users = ticket.session.players.iter().map(|player| player.user);
                if roster.match_of(users).is_some() { Standing::Paused } else { Standing::Waiting }
            }
            TicketState::InMatch(_) => match play.as_ref().map(|play| &play.stage) {
                Some(Stage::Placing { .. }) => Standing::Placing,
                Some(Stage::Playing { .. }) => Standing::Matched,
                // The match is not here yet, or has just been over; the ticket follows.
                Some(Stage::ReadyCheck { .. } | Stage::Over { .. }) | None => Standing::Proposed,
            },
        };
        let waits = matches!(standing, Standing::Waiting | Standing::Paused);
        let key = QueueKey { set_id: ticket.set_id, silo: ticket.session.silo };
        let position = waits.then(|| roster.room(key).map_or(0, |room| room.before(ticket.entered, ticket.id)));
        drop(roster);
        let rules = self.core.catalog.current(ticket.set_id);
        // Whoever plays, or has played, has waited until the match began.
        let until = match play.as_ref().map(|play| &play.stage) {
            Some(Stage::Playing { began, .. } | Stage::Over { began: Some(began), .. }) if !waits => *began,
            _ => now,
        };
        let waited_ms = until.since(ticket.entered);
        let offer = rules.as_ref().and_then(|rules| rules.queue.as_ref()?.offer);
        let sort =
            Sort { set_id: ticket.set_id, region: nearest_region(stored), party_size: ticket.session.player_count() };
        let estimate = self.waits.lock().estimate(&sort, now).filter(|_| waits);
        let heard = HeardClaim { id: ticket.id, ticket: stored.edition, play: edition(standing, play.as_deref()) };
        Status {
            id: ticket.id,
            set_id: ticket.set_id,
            standing,
            waited_ms,
            position,
            estimate_ms: estimate.map(|estimate| (estimate.p50_ms, estimate.p90_ms)),
            play: play.map(|play| self.play(stored, &play, now)),
            offered: offer.filter(|offer| waits && offer.after_ms <= waited_ms).map(|offer| offer.set_id),
            waiting_for: self.reports.lock().why(key, ticket.id).filter(|_| waits),
            heard: self.core.signer.seal(&heard),
        }
    }

    /// A match as one of its tickets sees it.
    fn play(&self, stored: &StoredTicket, play: &Arc<Match>, now: UnixMs) -> Play {
        let signer = &self.core.signer;
        let on = matches!(play.stage, Stage::Playing { .. });
        let rules = self.rules(play.set_id, play.hash);
        let roles = rules.as_ref().and_then(|rules| rules.teams.as_ref()).map(|teams| &teams.roles);
        let own = play.members.iter().find(|member| member.ticket == stored.ticket.id);
        let team = own.map_or(0, |member| member.team);
        let seats = own.into_iter().flat_map(|member| &member.players).map(|seat| {
            let player_key = signer.player_key(play.id, seat.user);
            SeatView {
                player_key,
                role: seat.role.and_then(|role| Some(roles?.get(usize::from(role))?.name.clone())),
                answer: seat.answer,
                credential: self.credential(play, seat.user, player_key, team, now),
            }
        });
        let everybody =
            play.members.iter().filter(|_| on).flat_map(|member| {
                member.players.iter().map(|seat| (signer.player_key(play.id, seat.user), member.team))
            });
        let deadline = match play.stage {
            Stage::ReadyCheck { deadline } | Stage::Placing { deadline } => Some(deadline),
            Stage::Playing { .. } | Stage::Over { .. } => None,
        };
        Play {
            deadline_in_ms: deadline.map(|at| u32::try_from(at.since(now)).unwrap_or(u32::MAX)),
            seats: seats.collect(),
            everybody: everybody.collect(),
            team,
            host: match play.stage.place() {
                Some(Place::Peer { host }) => {
                    let mut seats = play.members.iter().flat_map(|member| &member.players);
                    seats.find(|seat| seat.player == *host).map(|seat| signer.player_key(play.id, seat.user))
                }
                Some(Place::Server { .. } | Place::Nowhere) | None => None,
            },
            play: Arc::clone(play),
        }
    }
}

impl Hall {
    /// What a player shows the game server; nothing until the match is on.
    fn credential(&self, play: &Match, user: UserKey, player: UserKey, team: u16, now: UnixMs) -> String {
        let Some(place) = play.stage.place() else { return String::new() };
        let says = Credential { match_id: play.id, user, player, team, place };
        let signed = self.core.match_keys.sign(&says, self.core.clock.random_bytes(), now);
        signed.unwrap_or_else(|error| {
            tracing::error!(%error, "sign a credential");
            String::new()
        })
    }
}

/// The region to which a party's round trip is shortest; empty where it has measured none.
pub(super) fn nearest_region(stored: &StoredTicket) -> Box<str> {
    let regions = stored.ticket.session.regions.iter();
    let nearest = regions.min_by(|one, other| one.round_trip_ms.total_cmp(&other.round_trip_ms));
    nearest.map_or_else(|| "".into(), |nearest| nearest.region.clone())
}

/// Whether a ticket is over.
pub(super) fn is_over(stored: &StoredTicket) -> bool {
    matches!(stored.state, TicketState::Ended { .. })
}
