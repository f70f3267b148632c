//! Match events and the transitions that follow from them.

use crate::chosen_value::ChosenValue;
use crate::id::{AdvertisementId, MatchId, ReservationId, RulesetHash, SetId, SiloId, TicketId, UserKey};
use crate::latency::worst_pair::WorstPair;
use crate::lifecycle::{Assignment, Match, MatchPlayer, MatchStage, MatchTicket, TicketFate};
use crate::queue::ticket::{Ticket, TicketEndReason};
use crate::time::UnixMs;

/// Event of a match.
#[derive(Clone, Debug, PartialEq)]
pub enum MatchEvent {
    /// Players responded to the ready check.
    Responded {
        /// Ticket of the players.
        ticket_id: TicketId,
        /// Players who responded. One player may respond for the whole party and then names all of it.
        users: Vec<UserKey>,
        /// `true` to accept, `false` to decline.
        accepted: bool,
        /// Player whose client answered, also for other players: a decline is this player's fault. `None` for a caller that
        /// answers for everyone it entered: a decline is the fault of `users`.
        answered_by: Option<UserKey>,
    },
    /// The deadline of the current stage has passed.
    DeadlinePassed,
    /// A game server or host was found. On a game server, seats are reserved.
    ServerFound(Assignment),
    /// The host confirmed the match, or gave a sign of life during play.
    HostHeard {
        /// Time at which the host counts as lost if it is not heard again.
        lost_at: UnixMs,
    },
    /// The named host gave up the match before it was played. Of another host than the match has now, it does not count.
    ServerFailed {
        /// The host.
        host: Assignment,
    },
    /// The end of the match was reported.
    EndReported {
        /// Player who reported. `None` if the caller need not be a player, as for the game server.
        reported_by: Option<UserKey>,
    },
    /// An operator cancelled the match.
    Cancelled,
    /// A ticket was withdrawn from the match before play, by an operator or because it expired. No one is penalized.
    TicketWithdrawn {
        /// Ticket id.
        ticket_id: TicketId,
        /// Reason.
        reason: TicketEndReason,
    },
    /// Players left the match. Before play, that counts as a failed ready check, also after they accepted.
    PlayersLeft {
        /// Ticket of the players.
        ticket_id: TicketId,
        /// Players of the ticket who left; empty for all of them.
        users: Vec<UserKey>,
        /// Player whose client left, also for other players; as in `Responded`.
        left_by: Option<UserKey>,
    },
}

/// Result of one event: the next state of the match and the effects to carry out.
#[derive(Clone, Debug, PartialEq)]
pub struct Transition {
    /// Result of the event. `next_match` is set if and only if this is `Changed`.
    pub result: EventResult,
    /// Match after the event, with its version increased by 1.
    pub next_match: Option<Match>,
    /// New state of the tickets that the event takes out of the match: all that were in it if the match ended, or the
    /// ticket whose last player left during play.
    pub ticket_fates: Vec<(TicketId, TicketFate)>,
    /// Users who declined, left, or were silent with the chance to answer, in the order of the match's players.
    pub penalized_users: Vec<UserKey>,
    /// Further effects. Players are always notified of a change, so that is not listed.
    pub effects: Vec<MatchEffect>,
}

/// Result of applying an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventResult {
    /// The match changed.
    Changed,
    /// Nothing changed: the event was applied before.
    AlreadyApplied,
    /// Nothing changed: the event does not apply to the current stage.
    WrongStage,
    /// Nothing changed: the deadline of the stage has not passed.
    TooEarly,
    /// Nothing changed: the response arrived after the deadline.
    TooLate,
    /// Nothing changed: the ticket or user is not in the match.
    UnknownParticipant,
}

impl Transition {
    /// Transition of `current` to another stage, or to the same stage with other values.
    pub(super) fn to_stage(current: &Match, stage: MatchStage, effects: Vec<MatchEffect>) -> Self {
        Self {
            result: EventResult::Changed,
            next_match: Some(Match { version: current.version + 1, stage, ..current.clone() }),
            ticket_fates: Vec::new(),
            penalized_users: Vec::new(),
            effects,
        }
    }

    /// The transition, with `user` at fault instead of the users that it penalizes, if there are any.
    pub(super) fn with_penalty_moved_to(mut self, user: Option<UserKey>) -> Self {
        if let Some(user) = user.filter(|_| !self.penalized_users.is_empty()) {
            self.penalized_users = vec![user];
        }
        self
    }

    /// Transition that leaves the match as it is.
    pub(super) fn unchanged(result: EventResult) -> Self {
        Self { result, next_match: None, ticket_fates: Vec::new(), penalized_users: Vec::new(), effects: Vec::new() }
    }
}

/// Side effect that the engine carries out after the match is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchEffect {
    /// Find a game server, or reserve seats in the session to backfill. Then apply `ServerFound`.
    FindServer,
    /// End the other tickets of the match's users, and issue a credential to each player.
    StartPlay,
    /// Release the remaining seats of a reservation. It may already be used up or expired.
    ReleaseReservation {
        /// Advertisement of the game server.
        advertisement: AdvertisementId,
        /// Reservation id.
        reservation: ReservationId,
    },
}

/// Match that is about to be created.
#[derive(Clone, Debug, PartialEq)]
pub struct NewMatch {
    /// See [`Match::id`].
    pub id: MatchId,
    /// See [`Match::set_id`].
    pub set_id: SetId,
    /// See [`Match::silo`].
    pub silo: SiloId,
    /// See [`Match::ruleset_hash`].
    pub ruleset_hash: RulesetHash,
    /// Tickets, built by [`MatchTicket::from_ticket`]. No player has responded yet.
    pub tickets: Vec<MatchTicket>,
    /// See [`Match::quality`].
    pub quality: f64,
    /// See [`Match::region`].
    pub region: Option<Box<str>>,
    /// See [`Match::backfilled_session`].
    pub backfilled_session: Option<AdvertisementId>,
    /// Entries of string lists chosen for its players.
    pub chosen_values: Box<[ChosenValue]>,
    /// See [`Match::bots_by_team`].
    pub bots_by_team: Box<[u16]>,
    /// See [`Match::worst_pair`].
    pub worst_pair: Option<WorstPair>,
}

impl MatchTicket {
    /// Places `ticket` in a team. `roles` has one entry per player, in their order, or is empty.
    pub fn from_ticket(ticket: &Ticket, team: u16, roles: &[u16]) -> Self {
        let roles = roles.iter().copied().map(Some).chain(std::iter::repeat(None));
        let players = ticket.session.players.iter().zip(roles);
        let players = players.map(|(player, role)| MatchPlayer {
            user: player.user,
            client: UserKey::of_client_of_user(player.user, player.client_key),
            role,
            accepted: None,
            left_at: None,
        });
        Self { ticket_id: ticket.id, entered_at: ticket.entered_at, team, players: players.collect() }
    }
}
