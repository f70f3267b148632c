//! What queues are asked and what they answer, in the domain's words.

use std::sync::Arc;

use crate::domain::filter::explain::SearchExplanation;
use crate::domain::id::{MatchId, RulesetHash, SetId, SiloId, TicketId, UserKey};
use crate::domain::lifecycle::{Match, MatchEndReason};
use crate::domain::queue::explain::Explanation;
use crate::domain::queue::ticket::TicketEndReason;
use crate::domain::ruleset::Ruleset;
use crate::domain::session::Session;
use crate::engine::command::PartyConsents;

/// Begin to wait.
#[derive(Clone, Debug, Default)]
pub struct EnterQueueCommand {
    /// The set.
    pub set_id: SetId,
    /// The ruleset that the client was given.
    pub ruleset_hash: Option<RulesetHash>,
    /// The party.
    pub session: Session,
    /// What its players have said of coming along.
    pub consents: PartyConsents,
    /// Makes a retried enter the same ticket.
    pub idempotency_key: String,
    /// Users whom the party will not meet, sorted, each once.
    pub blocked_users: Vec<UserKey>,
}

/// It waits.
#[derive(Clone, Debug, PartialEq)]
pub struct EnterQueueAnswer {
    /// How it stands.
    pub status: TicketStatus,
    /// Proof that the ticket is the caller's.
    pub ticket_token: Vec<u8>,
    /// How long it is kept without a heartbeat.
    pub expires_in_ms: u32,
    /// Paths, relative to the session composition, that were not believed.
    pub ignored_fields: Vec<String>,
}

/// A ticket, with proof that it is the caller's, and what was last heard of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TicketReference {
    /// Which.
    pub id: TicketId,
    /// Proof.
    pub ticket_token: Vec<u8>,
    /// From the last status; empty for none.
    pub resume_token: Vec<u8>,
}

/// What leaving has come to.
#[derive(Clone, Debug, PartialEq)]
pub enum LeaveQueueAnswer {
    /// The ticket is over.
    Ended(TicketStatus),
    /// It has a match.
    Matched(TicketStatus),
}

/// Answer a ready check.
#[derive(Clone, Debug)]
pub struct ReadyCheckResponse {
    /// Which ticket.
    pub ticket: TicketReference,
    /// The match that is answered.
    pub match_id: MatchId,
    /// Whether they will play.
    pub accept: bool,
    /// Who answers; all of the ticket when empty.
    pub users: Vec<UserKey>,
}

/// Keep alive.
#[derive(Clone, Debug, Default)]
pub struct TicketHeartbeatCommand {
    /// Tickets to keep.
    pub tickets: Vec<TicketReference>,
    /// Users who are connected.
    pub connected_users: Vec<UserKey>,
    /// Their population.
    pub silo: SiloId,
}

/// A match is over.
#[derive(Clone, Debug)]
pub struct EndMatchCommand {
    /// Which.
    pub match_id: MatchId,
    /// Proof: the token of the advertisement that it was placed on, or of a ticket in it.
    pub proof: EndMatchProof,
    /// It could not be hosted.
    pub server_failed: bool,
}

/// Who says that a match is over.
#[derive(Clone, Debug)]
pub enum EndMatchProof {
    /// A game server, by its advertisement's token.
    GameServer(Vec<u8>),
    /// A player's game, by its ticket's token.
    Ticket(Vec<u8>),
}

/// How a ticket stands.
#[derive(Clone, Debug, PartialEq)]
pub struct TicketStatus {
    /// Which.
    pub id: TicketId,
    /// The set.
    pub set_id: SetId,
    /// Where it stands.
    pub phase: TicketPhase,
    /// How long it has been waiting.
    pub waited_ms: u64,
    /// Tickets of its queue that began to wait before it, while it waits.
    pub position: Option<u32>,
    /// The median and the ninth decile of what tickets like it have lately waited, milliseconds.
    pub wait_estimate_ms: Option<(u64, u64)>,
    /// Its match.
    pub match_view: Option<MatchView>,
    /// Another set that is offered instead.
    pub offered_set: Option<SetId>,
    /// The rule that kept it waiting when it was last looked at.
    pub blocking_rule: Option<Arc<str>>,
    /// To go on from here.
    pub resume_token: Vec<u8>,
}

/// Where a ticket stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TicketPhase {
    /// It waits.
    Waiting,
    /// It waits, and is passed over.
    Paused,
    /// A match is proposed.
    Proposed,
    /// A server is being found.
    Placing,
    /// The match is on.
    Matched,
    /// It is over.
    Ended(TicketEndReason),
}

/// A match, as one of its tickets sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct MatchView {
    /// The match.
    pub found_match: Arc<Match>,
    /// Until when there is to answer, or a server is looked for, milliseconds from now.
    pub deadline_in_ms: Option<u32>,
    /// What the ticket's players are, in the order in which they were entered.
    pub own_players: Vec<OwnPlayerView>,
    /// Everybody in it, and their teams; once it is on.
    pub players: Vec<(UserKey, u16)>,
    /// The team of this ticket.
    pub team: u16,
    /// Who hosts it, where a player does.
    pub host: Option<UserKey>,
}

/// One of the ticket's own players.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnPlayerView {
    /// Its name in this match.
    pub player_key: UserKey,
    /// What it plays.
    pub team_role: Option<Box<str>>,
    /// What it has said.
    pub accepted: Option<bool>,
    /// To show the game server; empty until the match is on.
    pub credential: String,
}

/// How a match ended.
pub type EndMatchAnswer = Option<MatchEndReason>;

/// What a queue looks like to an operator.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueStatistics {
    /// The set.
    pub set_id: SetId,
    /// The population.
    pub silo: SiloId,
    /// Tickets that wait, those passed over included.
    pub waiting_tickets: u32,
    /// Their players.
    pub waiting_players: u32,
    /// Matches that are not over.
    pub running_matches: u32,
    /// How long the one that has waited longest has.
    pub longest_wait_ms: u64,
    /// Whether this server runs its passes.
    pub runs_on_this_replica: bool,
    /// Why tickets were left waiting by the last pass, by rule.
    pub refusal_counts: Vec<(Arc<str>, u64)>,
    /// Passes, and how long the last took.
    pub pass_count: u64,
    /// Milliseconds.
    pub last_pass_ms: f64,
    /// Waits of the last hour, all regions and party sizes: median, ninth decile, how many.
    pub wait_percentiles_ms: Option<(u64, u64, u32)>,
    /// Quality of the last hour's matches: median.
    pub median_quality: Option<f64>,
    /// Of the tickets that were told a ninth decile, how many were matched within it, percent.
    pub p90_estimate_met_percent: Option<f64>,
}

/// Why a ticket still waits.
#[derive(Clone, Debug)]
pub struct ExplainTicketAnswer {
    /// The set whose queue it is in.
    pub set_id: SetId,
    /// The rules that it was judged by.
    pub ruleset: Arc<Ruleset>,
    /// Why.
    pub explanation: Explanation,
}

/// Why a search finds so little.
#[derive(Clone, Debug)]
pub struct ExplainSearchAnswer {
    /// The rules that it was judged by.
    pub ruleset: Arc<Ruleset>,
    /// Why.
    pub explanation: SearchExplanation,
}

/// A rating that an operator sets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ImportedRating {
    /// Whose.
    pub user: UserKey,
    /// Elo's and Glicko's rating, TrueSkill's and OpenSkill's mu.
    pub rating: f64,
    /// A standard deviation; what newcomers have when absent.
    pub deviation: Option<f64>,
    /// Glicko-2's volatility; what newcomers have when absent.
    pub volatility: Option<f64>,
    /// Matches that count in it.
    pub matches: u32,
}
