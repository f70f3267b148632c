//! What queues are asked and what they answer, in the domain's words.

use std::sync::Arc;

use crate::domain::filter::explain::SearchExplanation;
use crate::domain::id::{MatchId, RulesetHash, SetId, SiloId, TicketId, UserKey};
use crate::domain::life::{Match, Outcome};
use crate::domain::queue::explain::Explanation;
use crate::domain::queue::ticket::Ending;
use crate::domain::ruleset::Ruleset;
use crate::domain::session::Session;
use crate::engine::command::Consents;

/// Begin to wait.
#[derive(Clone, Debug, Default)]
pub struct Enter {
    /// The set.
    pub set_id: SetId,
    /// The ruleset that the client was given.
    pub hash: Option<RulesetHash>,
    /// The party.
    pub session: Session,
    /// What its players have said of coming along.
    pub consents: Consents,
    /// Makes a retried enter the same ticket.
    pub idempotency_key: String,
    /// Users whom the party will not meet, sorted, each once.
    pub blocked: Vec<UserKey>,
}

/// It waits.
#[derive(Clone, Debug, PartialEq)]
pub struct EnterAnswer {
    /// How it stands.
    pub status: Status,
    /// Proof that the ticket is the caller's.
    pub token: Vec<u8>,
    /// How long it is kept without a heartbeat.
    pub expires_in_ms: u32,
    /// Paths, relative to the session composition, that were not believed.
    pub ignored: Vec<String>,
}

/// A ticket, with proof that it is the caller's, and what was last heard of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Which.
    pub id: TicketId,
    /// Proof.
    pub token: Vec<u8>,
    /// From the last status; empty for none.
    pub heard: Vec<u8>,
}

/// What leaving has come to.
#[derive(Clone, Debug, PartialEq)]
pub enum LeaveAnswer {
    /// The ticket is over.
    Left(Status),
    /// It has a match.
    Matched(Status),
}

/// Answer a ready check.
#[derive(Clone, Debug)]
pub struct Respond {
    /// Which ticket.
    pub ticket: Reference,
    /// The match that is answered.
    pub match_id: MatchId,
    /// Whether they will play.
    pub accept: bool,
    /// Who answers; all of the ticket when empty.
    pub users: Vec<UserKey>,
}

/// Keep alive.
#[derive(Clone, Debug, Default)]
pub struct Heartbeat {
    /// Tickets to keep.
    pub tickets: Vec<Reference>,
    /// Users who are connected.
    pub connected: Vec<UserKey>,
    /// Their population.
    pub silo: SiloId,
}

/// A match is over.
#[derive(Clone, Debug)]
pub struct EndMatch {
    /// Which.
    pub match_id: MatchId,
    /// Proof: the token of the advertisement that it was placed on, or of a ticket in it.
    pub proof: Proof,
    /// It could not be hosted.
    pub failed: bool,
}

/// Who says that a match is over.
#[derive(Clone, Debug)]
pub enum Proof {
    /// A game server, by its advertisement's token.
    Server(Vec<u8>),
    /// A player's game, by its ticket's token.
    Ticket(Vec<u8>),
}

/// How a ticket stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// Which.
    pub id: TicketId,
    /// The set.
    pub set_id: SetId,
    /// Where it stands.
    pub standing: Standing,
    /// How long it has been waiting.
    pub waited_ms: u64,
    /// Tickets of its queue that began to wait before it, while it waits.
    pub position: Option<u32>,
    /// The median and the ninth decile of what tickets like it have lately waited, milliseconds.
    pub estimate_ms: Option<(u64, u64)>,
    /// Its match.
    pub play: Option<Play>,
    /// Another set that is offered instead.
    pub offered: Option<SetId>,
    /// The rule that kept it waiting when it was last looked at.
    pub waiting_for: Option<Arc<str>>,
    /// To go on from here.
    pub heard: Vec<u8>,
}

/// Where a ticket stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
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
    Ended(Ending),
}

/// A match, as one of its tickets sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Play {
    /// The match.
    pub play: Arc<Match>,
    /// Until when there is to answer, or a server is looked for, milliseconds from now.
    pub deadline_in_ms: Option<u32>,
    /// What the ticket's players are, in the order in which they were entered.
    pub seats: Vec<SeatView>,
    /// Everybody in it, and their teams; once it is on.
    pub everybody: Vec<(UserKey, u16)>,
    /// The team of this ticket.
    pub team: u16,
    /// Who hosts it, where a player does.
    pub host: Option<UserKey>,
}

/// One of the ticket's own players.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeatView {
    /// Its name in this match.
    pub player_key: UserKey,
    /// What it plays.
    pub role: Option<Box<str>>,
    /// What it has said.
    pub answer: Option<bool>,
    /// To show the game server; empty until the match is on.
    pub credential: String,
}

/// How a match ended.
pub type EndMatchAnswer = Option<Outcome>;

/// What a queue looks like to an operator.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueStatistics {
    /// The set.
    pub set_id: SetId,
    /// The population.
    pub silo: SiloId,
    /// Tickets that wait, those passed over included.
    pub waiting: u32,
    /// Their players.
    pub players: u32,
    /// Matches that are not over.
    pub matches: u32,
    /// How long the one that has waited longest has.
    pub longest_wait_ms: u64,
    /// Whether this server runs its passes.
    pub here: bool,
    /// Why tickets were left waiting by the last pass, by rule.
    pub refusals: Vec<(Arc<str>, u64)>,
    /// Passes, and how long the last took.
    pub passes: u64,
    /// Milliseconds.
    pub last_pass_ms: f64,
    /// Waits of the last hour, all regions and party sizes: median, ninth decile, how many.
    pub waits: Option<(u64, u64, u32)>,
    /// Quality of the last hour's matches: median.
    pub quality: Option<f64>,
    /// Of the tickets that were told a ninth decile, how many were matched within it, percent.
    pub calibration_percent: Option<f64>,
}

/// Why a ticket still waits.
#[derive(Clone, Debug)]
pub struct Explained {
    /// The set whose queue it is in.
    pub set_id: SetId,
    /// The rules that it was judged by.
    pub ruleset: Arc<Ruleset>,
    /// Why.
    pub explanation: Explanation,
}

/// Why a search finds so little.
#[derive(Clone, Debug)]
pub struct SearchExplained {
    /// The rules that it was judged by.
    pub ruleset: Arc<Ruleset>,
    /// Why.
    pub explanation: SearchExplanation,
}

/// A rating that an operator sets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatingGiven {
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
