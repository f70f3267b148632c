//! Match lifecycle as a pure state machine: ready check, placement, play and end. Takes events with timestamps and
//! returns effects.

pub mod deadline;
pub mod event;
pub mod penalty;
pub mod rules;
pub mod session_start;
pub mod side_reports;
pub mod ticket_facts;
pub mod transition;

use std::collections::BTreeMap;

use crate::chosen_value::ChosenValue;
use crate::id::{AdvertisementId, MatchId, RatingKey, ReservationId, RulesetHash, SetId, SiloId, TicketId, UserKey};
use crate::latency::worst_pair::WorstPair;
use crate::lifecycle::session_start::SessionMatchStartByHost;
use crate::lifecycle::side_reports::SideReports;
use crate::queue::avoidance::PlayedPair;
use crate::queue::ticket::TicketEndReason;
use crate::rating::Skill;
use crate::time::UnixMs;

/// Match, from its proposal until it is purged.
#[derive(Clone, Debug, PartialEq)]
pub struct Match {
    /// Match id.
    pub id: MatchId,
    /// Matchmaking set of the match.
    pub set_id: SetId,
    /// Silo of the players.
    pub silo: SiloId,
    /// Ruleset version that made the match. It does not change when a new ruleset loads.
    pub ruleset_hash: RulesetHash,
    /// Time of the proposal.
    pub proposed_at: UnixMs,
    /// Version number, increased by 1 per change. A write names the version it is based on and fails if the store has a
    /// newer one.
    pub version: u64,
    /// Current stage.
    pub stage: MatchStage,
    /// Tickets in the match.
    pub tickets: Vec<MatchTicket>,
    /// Match quality computed by the pass; higher is better.
    pub quality: f64,
    /// Region shared by all tickets, if the ruleset uses regions.
    pub region: Option<Box<str>>,
    /// Session whose open seats the match fills. `None` for a new session.
    pub backfilled_session: Option<AdvertisementId>,
    /// Entries of string lists chosen for its players, by attribute.
    pub chosen_values: Box<[ChosenValue]>,
    /// Bots of each team, which the host adds. Empty if there are none. A match with bots is not rated.
    pub bots_by_team: Box<[u16]>,
    /// Worst pair of its tickets when it was proposed, as indices of `tickets`. `None` if the ruleset predicts no round trips, for a
    /// match of one ticket, and for one that fills a session.
    pub worst_pair: Option<WorstPair>,
    /// Start by the host of a searched session. `None` for a match of a queue.
    pub session_match_start_by_host: Option<SessionMatchStartByHost>,
    /// Game servers that did not confirm this match. They are not asked again.
    pub servers_that_did_not_confirm: Vec<AdvertisementId>,
    /// Results that its players reported.
    pub side_reports: SideReports,
    /// Skills of its players who were erased before it had a result.
    pub kept_skills_of_erased_users: Vec<KeptSkillOfErasedUser>,
}

/// Skill of an erased player in a match without a result: the ratings of the others depend on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeptSkillOfErasedUser {
    /// Key of the erased player in the match.
    pub user: UserKey,
    /// Ratings that the match counts for.
    pub rating_key: RatingKey,
    /// Skill when the player was erased.
    pub skill: Skill,
}

/// Ticket in a match.
#[derive(Clone, Debug, PartialEq)]
pub struct MatchTicket {
    /// Ticket id.
    pub ticket_id: TicketId,
    /// Time at which the ticket entered the queue.
    pub entered_at: UnixMs,
    /// Team: an index into `TeamsSpec::team_sizes`.
    pub team: u16,
    /// Players of the ticket.
    pub players: Vec<MatchPlayer>,
}

/// Player in a match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchPlayer {
    /// Account.
    pub user: UserKey,
    /// Name of the player's client in this match. It is derived from the account, so no two players of a match have the
    /// same one.
    pub client: UserKey,
    /// Role in the team: an index into `TeamsSpec::roles`. `None` if the ruleset has no roles.
    pub role: Option<u16>,
    /// Response to the ready check. `None` until the player responds.
    pub accepted: Option<bool>,
    /// Time at which the player left during play. The user is free from then on; the match goes on without the player.
    pub left_at: Option<UnixMs>,
}

/// Stage of a match.
#[derive(Clone, Debug, PartialEq)]
pub enum MatchStage {
    /// Ready check: all players must accept before the deadline.
    ReadyCheck {
        /// Time at which the ready check fails.
        deadline: UnixMs,
    },
    /// Placement: the match waits for a game server or a host.
    Placing {
        /// Time at which the placement fails.
        deadline: UnixMs,
    },
    /// A host is named, with its seats reserved, and must confirm that it hosts the match. Players still wait.
    Confirming {
        /// Game server or host that must confirm.
        assignment: Assignment,
        /// Time until which it may confirm.
        confirm_by: UnixMs,
        /// Time at which the placement fails, as in `Placing`.
        deadline: UnixMs,
    },
    /// The match is being played.
    Playing {
        /// Game server or host of the match.
        assignment: Assignment,
        /// Time at which play started.
        started_at: UnixMs,
        /// Time at which the match ends without an end report.
        times_out_at: UnixMs,
        /// Time at which the host counts as lost if it is not heard before. `None` without a host.
        host_lost_at: Option<UnixMs>,
    },
    /// The match is over, or did not start. It is kept for a while to answer retries and to apply avoidance rules.
    Ended {
        /// Reason of the end.
        end_reason: MatchEndReason,
        /// Time at which play started. `None` if the match was not played or its game server failed.
        started_at: Option<UnixMs>,
        /// Game server or host, if the match was played. It may still report results.
        assignment: Option<Assignment>,
        /// Time after which the match may be deleted.
        purge_at: UnixMs,
    },
}

/// Game server or host that a match is played on, with the data that clients need to join.
#[derive(Clone, Debug, PartialEq)]
pub enum Assignment {
    /// Advertised game server.
    GameServer {
        /// Advertisement of the game server.
        advertisement: AdvertisementId,
        /// Reservation of the match's seats. `None` for a match of a session: its parties have reservations of their own.
        reservation: Option<ReservationId>,
        /// Connection data published by the game server; opaque.
        connect_data: Vec<u8>,
    },
    /// One of the players hosts the match.
    PeerHost {
        /// Client that hosts, as in [`MatchPlayer::client`].
        host: UserKey,
    },
    /// No host: the players agree on one themselves.
    Unhosted,
}

impl MatchStage {
    /// Game server or host while the match is being played.
    pub fn assignment_in_play(&self) -> Option<&Assignment> {
        match self {
            MatchStage::Playing { assignment, .. } => Some(assignment),
            MatchStage::ReadyCheck { .. }
            | MatchStage::Placing { .. }
            | MatchStage::Confirming { .. }
            | MatchStage::Ended { .. } => None,
        }
    }

    /// Game server or host that must confirm, that plays the match, or that played it.
    pub fn assignment_since_confirming(&self) -> Option<&Assignment> {
        match self {
            MatchStage::Confirming { assignment, .. } => Some(assignment),
            _ => self.assignment_since_play_start(),
        }
    }

    /// Whether play has not started and the match has not ended.
    pub fn is_before_play(&self) -> bool {
        matches!(self, MatchStage::ReadyCheck { .. } | MatchStage::Placing { .. } | MatchStage::Confirming { .. })
    }

    /// Time of the next event that needs no caller: a deadline passes. `None` after the end.
    pub fn deadline(&self) -> Option<UnixMs> {
        match self {
            MatchStage::ReadyCheck { deadline } | MatchStage::Placing { deadline } => Some(*deadline),
            MatchStage::Confirming { confirm_by, .. } => Some(*confirm_by),
            MatchStage::Playing { times_out_at, host_lost_at, .. } => {
                Some(host_lost_at.map_or(*times_out_at, |lost_at| lost_at.min(*times_out_at)))
            }
            MatchStage::Ended { .. } => None,
        }
    }
}

impl MatchStage {
    /// Time at which play started. `None` if the match was not played.
    pub fn started_at(&self) -> Option<UnixMs> {
        match self {
            MatchStage::Playing { started_at, .. } => Some(*started_at),
            MatchStage::Ended { started_at, .. } => *started_at,
            MatchStage::ReadyCheck { .. } | MatchStage::Placing { .. } | MatchStage::Confirming { .. } => None,
        }
    }
}

impl Match {
    /// Skill of an erased player, kept for the match's result.
    pub fn kept_skill_of_erased_user(&self, user: UserKey, rating_key: RatingKey) -> Option<Skill> {
        let is_of = |erased: &&KeptSkillOfErasedUser| erased.user == user && erased.rating_key == rating_key;
        self.kept_skills_of_erased_users.iter().find(is_of).map(|erased| erased.skill)
    }

    /// Players who have not left, with their tickets.
    pub fn present_players(&self) -> impl Iterator<Item = (&MatchTicket, &MatchPlayer)> {
        let all = self.tickets.iter().flat_map(|ticket| ticket.players.iter().map(move |player| (ticket, player)));
        all.filter(|(_, player)| player.left_at.is_none())
    }

    /// Sides that a result ranks: the teams in their order, or each player of a match with one team.
    pub fn sides(&self) -> Vec<(u16, Vec<UserKey>)> {
        let mut teams: BTreeMap<u16, Vec<UserKey>> = BTreeMap::new();
        for ticket in &self.tickets {
            teams.entry(ticket.team).or_default().extend(ticket.players.iter().map(|player| player.user));
        }
        match teams.len() {
            1 => teams
                .into_iter()
                .flat_map(|(team, users)| users.into_iter().map(move |user| (team, vec![user])))
                .collect(),
            _ => teams.into_iter().collect(),
        }
    }

    /// Whether the reports of players may change the rating of `user`: in a match of a session, only if the user's ticket was
    /// heard since play began.
    pub fn is_user_ratable_by_reports(&self, user: UserKey) -> bool {
        let is_heard = |ticket: &MatchTicket| self.side_reports.heard_tickets.contains(&ticket.ticket_id);
        let has_user = |ticket: &MatchTicket| ticket.players.iter().any(|player| player.user == user);
        self.session_match_start_by_host.is_none()
            || self.tickets.iter().any(|ticket| has_user(ticket) && is_heard(ticket))
    }

    /// Time at which the report window ends, if no outcome is known.
    pub fn reports_due_at(&self) -> Option<UnixMs> {
        let may_have_result = self.stage.assignment_since_play_start().is_some() && self.side_reports.outcome.is_none();
        self.side_reports.window_ends_at.filter(|_| may_have_result)
    }

    /// All pairs of users in the match, for avoidance rules. Empty if the match was not played.
    pub fn played_pairs(&self) -> Vec<PlayedPair> {
        let Some(started_at) = self.stage.started_at() else { return Vec::new() };
        let users =
            self.tickets.iter().flat_map(|ticket| ticket.players.iter().map(|player| (ticket.team, player.user)));
        let users: Vec<(u16, UserKey)> = users.collect();
        let mut past_matches = Vec::new();
        for (index, &(team, one)) in users.iter().enumerate() {
            let past_match = |&(other_team, other)| PlayedPair {
                user: one,
                other_user: other,
                same_team: team == other_team,
                started_at,
            };
            past_matches.extend(users[index + 1..].iter().map(past_match));
        }
        past_matches
    }
}

impl MatchStage {
    /// Game server or host of a match that is being played or was played.
    pub fn assignment_since_play_start(&self) -> Option<&Assignment> {
        match self {
            MatchStage::Playing { assignment, .. } | MatchStage::Ended { assignment: Some(assignment), .. } => {
                Some(assignment)
            }
            MatchStage::ReadyCheck { .. }
            | MatchStage::Placing { .. }
            | MatchStage::Confirming { .. }
            | MatchStage::Ended { assignment: None, .. } => None,
        }
    }

    /// Reason of the end. `None` while the match is active.
    pub fn end_reason(&self) -> Option<MatchEndReason> {
        match self {
            MatchStage::Ended { end_reason, .. } => Some(*end_reason),
            MatchStage::ReadyCheck { .. }
            | MatchStage::Placing { .. }
            | MatchStage::Confirming { .. }
            | MatchStage::Playing { .. } => None,
        }
    }
}

impl Assignment {
    /// Whether the match is on the game server with advertisement `id`.
    pub fn is_on_game_server_with_id(&self, id: AdvertisementId) -> bool {
        matches!(self, Assignment::GameServer { advertisement, .. } if *advertisement == id)
    }
}

/// Reason why a match ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MatchEndReason {
    /// It was played, and its end was reported.
    Played,
    /// It was played, but no end report arrived in time.
    TimedOut,
    /// A player declined, or left before play started.
    Declined,
    /// A player did not respond to the ready check in time.
    NotAcceptedInTime,
    /// No game server was found in time.
    NoServer,
    /// The game server failed, or gave up the match before it was played.
    ServerFailed,
    /// Cancelled by an operator.
    Cancelled,
    /// The host was not heard for too long during play, or before it confirmed.
    HostLost,
    /// All players left during play.
    Abandoned,
}

/// Effect of a match's end on one of its tickets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TicketFate {
    /// The ticket waits again and keeps its original wait time.
    Requeued,
    /// The ticket ends.
    Ended(TicketEndReason),
}
