//! Commands of the queues and their answers, in domain types.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use crate::domain::attribute::{AttributeValue, ShortString};
use crate::domain::filter::explain::SearchExplanation;
use crate::domain::id::{AdvertisementId, MatchId, RulesetHash, SetId, SiloId, TicketId, UserKey};
use crate::domain::lifecycle::{Match, MatchEndReason};
use crate::domain::queue::explain::Explanation;
use crate::domain::queue::ticket::TicketEndReason;
use crate::domain::ruleset::Ruleset;
use crate::domain::session::Session;
use crate::domain::statistic::StatisticKey;
use crate::domain::statistic::histogram::BucketCounts;
use crate::domain::time::UnixMs;
use crate::engine::command::PartyConsents;
use crate::engine::hosted_match::HostedMatch;
use crate::engine::latency_tokens::LatencyTokens;
use crate::engine::ratings::command::ReportState;

/// Enters a party into a queue.
#[derive(Clone, Debug, Default)]
pub struct EnterQueueCommand {
    /// Matchmaking set.
    pub set_id: SetId,
    /// Latency tokens of the party.
    pub latency_tokens: LatencyTokens,
    /// Ruleset that the client has; `None` for the current one.
    pub ruleset_hash: Option<RulesetHash>,
    /// Party.
    pub session: Session,
    /// Consent tokens of its players.
    pub consents: PartyConsents,
    /// Key that makes a retried enter return the same ticket.
    pub idempotency_key: String,
    /// Blocked users; sorted, without duplicates.
    pub blocked_users: Vec<UserKey>,
}

/// Answer to an enter.
#[derive(Clone, Debug, PartialEq)]
pub struct EnterQueueAnswer {
    /// Status of the ticket.
    pub status: TicketStatus,
    /// Token that proves ownership of the ticket.
    pub ticket_token: Vec<u8>,
    /// TTL without heartbeat, milliseconds.
    pub expires_in_ms: u32,
    /// Paths of ignored fields, relative to the session composition.
    pub ignored_fields: Vec<String>,
}

/// Tickets and cooldowns of a player.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnTicketsAndCooldowns {
    /// Tickets that have not ended.
    pub tickets: Vec<OwnTicket>,
    /// Sets whose queues the player may not enter now, and for how long, milliseconds.
    pub cooldowns: Vec<(SetId, u32)>,
}

/// Ticket of a player, entered by any caller.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnTicket {
    /// Status of the ticket.
    pub status: TicketStatus,
    /// Token of the ticket, if the caller entered it; else of the player's own seat.
    pub ticket_token: Vec<u8>,
    /// Whether the token is of the own seat.
    pub is_seat_token: bool,
}

/// Ticket id with its token and, optionally, a resume token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TicketReference {
    /// Ticket.
    pub id: TicketId,
    /// Token that proves ownership.
    pub ticket_token: Vec<u8>,
    /// Token of the last received status; empty for none.
    pub resume_token: Vec<u8>,
}

/// Takes a party, or some of its players, out of a queue or a match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaveQueueCommand {
    /// Ticket.
    pub ticket: TicketReference,
    /// Players who leave; empty for the whole party.
    pub users: Vec<UserKey>,
}

/// Answer to a leave.
#[derive(Clone, Debug, PartialEq)]
pub enum LeaveQueueAnswer {
    /// The ticket has ended.
    Ended(TicketStatus),
    /// The named players have left the match that is being played, and the ticket goes on for its other players.
    StillMatched(TicketStatus),
}

/// Reply to a ready check.
#[derive(Clone, Debug)]
pub struct ReadyCheckResponse {
    /// Ticket.
    pub ticket: TicketReference,
    /// Proposed match.
    pub match_id: MatchId,
    /// Whether the players accept.
    pub accept: bool,
    /// Players who reply; empty for all of the ticket.
    pub users: Vec<UserKey>,
}

/// Heartbeat of tickets and connected users.
#[derive(Clone, Debug, Default)]
pub struct TicketAndUserHeartbeatCommand {
    /// Tickets to extend.
    pub tickets: Vec<TicketReference>,
    /// Connected users.
    pub connected_users: Vec<UserKey>,
    /// Sets that the connected users play. Sets without a queue are ignored.
    pub connected_sets: Vec<SetId>,
    /// Silo of the users.
    pub silo: SiloId,
    /// Latency token of the caller's own player in the tickets; empty for none.
    pub latency_token: Vec<u8>,
}

/// Ends a match.
#[derive(Clone, Debug)]
pub struct EndMatchCommand {
    /// Match; `None` for the only one that the game server hosts.
    pub match_id: Option<MatchId>,
    /// Proof that the caller may end it.
    pub proof: EndMatchProof,
    /// The server failed to host the match.
    pub has_game_server_failed: bool,
}

/// Proof that the caller may end a match.
#[derive(Clone, Debug)]
pub enum EndMatchProof {
    /// Token of the game server's advertisement.
    GameServer(Vec<u8>),
    /// Token of a ticket in the match.
    Ticket(Vec<u8>),
}

/// Heartbeat of the host of matches.
#[derive(Clone, Debug)]
pub struct HostHeartbeatCommand {
    /// Token of the advertisement whose seats the matches have taken.
    pub advertisement_token: Vec<u8>,
    /// Matches to confirm, to keep alive or to give up.
    pub matches: Vec<HostedMatchBeat>,
}

/// Match in the heartbeat of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostedMatchBeat {
    /// Match.
    pub match_id: MatchId,
    /// The host gives it up.
    pub is_given_up: bool,
}

/// Answer to the heartbeat of a host.
#[derive(Clone, Debug, PartialEq)]
pub struct HostHeartbeatAnswer {
    /// Named matches as they are now, in the order of the command.
    pub matches: Vec<HostedMatch>,
    /// All matches of the advertisement.
    pub hosted_match_ids: Vec<MatchId>,
    /// Milliseconds until the next heartbeat.
    pub next_beat_in_ms: u64,
}

/// Status of a ticket.
#[derive(Clone, Debug, PartialEq)]
pub struct TicketStatus {
    /// Ticket.
    pub id: TicketId,
    /// Matchmaking set.
    pub set_id: SetId,
    /// Phase of the ticket.
    pub phase: TicketPhase,
    /// Time waited, milliseconds. Ends when the match starts.
    pub waited_ms: u64,
    /// Number of tickets ahead in the queue, while waiting.
    pub position: Option<u32>,
    /// Median and 90th percentile of recent waits of similar tickets, milliseconds.
    pub wait_median_and_p90_ms: Option<(u64, u64)>,
    /// Match of the ticket, if any.
    pub match_view: Option<MatchView>,
    /// Alternative set that the ruleset offers after a long wait.
    pub offered_set: Option<SetId>,
    /// Rule that refused most in the last pass.
    pub blocking_rule: Option<Arc<str>>,
    /// Reason that its last match ended without play, while it waits again.
    pub return_reason: Option<MatchEndReason>,
    /// Whether players are not told that they are avoided: it would show that another player has blocked one of them.
    pub hides_avoidance: bool,
    /// Token to resume a watch from this status.
    pub resume_token: Vec<u8>,
}

/// Phase of a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TicketPhase {
    /// Waiting for a match.
    Waiting,
    /// Waiting, but not matched while one of its players is in another match.
    Paused,
    /// A match is proposed.
    Proposed,
    /// A game server is being allocated.
    Placing,
    /// The match is running.
    Matched,
    /// The ticket has ended.
    Ended(TicketEndReason),
}

/// Player of a match as all its players see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatchPlayerView {
    /// Key of the player in this match.
    pub player_key: UserKey,
    /// Team.
    pub team: u16,
    /// Whether the player left during play.
    pub has_left: bool,
}

/// Match as seen by one of its tickets.
#[derive(Clone, Debug, PartialEq)]
pub struct MatchView {
    /// The match.
    pub found_match: Arc<Match>,
    /// Milliseconds until the ready check or the allocation times out.
    pub deadline_in_ms: Option<u32>,
    /// The ticket's own players, in entry order.
    pub own_players: Vec<TicketPlayerView>,
    /// All players; empty until the match starts.
    pub players: Vec<MatchPlayerView>,
    /// Team of this ticket.
    pub team: u16,
    /// Player key of the hosting player, if a player hosts.
    pub host_player_key: Option<UserKey>,
    /// The hosting player is one of the ticket's players for whom the holder acts.
    pub is_own_host: bool,
    /// State of the result's reports, if its players report it.
    pub report_state: Option<ReportState>,
}

/// One of the ticket's own players in a match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TicketPlayerView {
    /// Key of the player in this match.
    pub player_key: UserKey,
    /// Role in the team.
    pub team_role: Option<Box<str>>,
    /// Reply to the ready check, if any.
    pub accepted: Option<bool>,
    /// Credential for the game server; empty until the match starts.
    pub credential: String,
}

/// End reason of a match.
pub type EndMatchAnswer = Option<MatchEndReason>;

/// Queue statistics for operators.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueStatistics {
    /// Matchmaking set.
    pub set_id: SetId,
    /// Silo.
    pub silo: SiloId,
    /// Waiting tickets, including paused ones.
    pub waiting_tickets: u32,
    /// Players in those tickets.
    pub waiting_players: u32,
    /// Matches that have not ended.
    pub live_matches: u32,
    /// Longest current wait, milliseconds.
    pub longest_wait_ms: u64,
    /// Whether this replica runs the queue's passes.
    pub runs_on_this_replica: bool,
    /// Number of refusals in the last pass, by rule.
    pub refusal_counts: Vec<(Arc<str>, u64)>,
    /// Passes run on this replica.
    pub pass_count: u64,
    /// Duration of the last pass, milliseconds.
    pub last_pass_duration_ms: f64,
    /// Median, 90th percentile (milliseconds) and sample count of the last hour's waits, over all regions and party
    /// sizes.
    pub wait_percentiles_and_sample_count: Option<(u64, u64, u32)>,
    /// Median quality of the last hour's matches.
    pub median_quality: Option<f64>,
    /// Percentage of tickets that were matched within their 90th-percentile estimate.
    pub p90_estimate_met_percent: Option<f64>,
}

/// Period of statistics, and how they are split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatisticsPeriodAndSplit {
    /// Hours before the current one.
    pub hours_before: u64,
    /// Matchmaking set; `None` for all.
    pub set_id: Option<SetId>,
    /// Whether regions are separate.
    pub by_region: bool,
    /// Whether party sizes are separate.
    pub by_party_size: bool,
}

/// Counts of a period.
#[derive(Clone, Debug, PartialEq)]
pub struct CountedStatistics {
    /// Start of the period.
    pub since: UnixMs,
    /// Counts in the order of their keys.
    pub counts: Vec<(StatisticKey, BucketCounts)>,
    /// Whether the last keys are left out, because there are too many.
    pub is_truncated: bool,
}

/// Totals over the queues of a set in all silos.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetStatistics {
    /// Matchmaking set.
    pub set_id: SetId,
    /// Silos with waiting tickets or matches.
    pub silo_count: u32,
    /// Waiting tickets, including paused ones.
    pub waiting_tickets: u64,
    /// Players in those tickets.
    pub waiting_players: u64,
    /// Matches that have not ended.
    pub live_matches: u64,
    /// Longest current wait in any silo, milliseconds.
    pub longest_wait_ms: u64,
}

/// Explanation of a waiting ticket.
#[derive(Clone, Debug)]
pub struct ExplainTicketAnswer {
    /// Matchmaking set.
    pub set_id: SetId,
    /// Ruleset that was applied.
    pub ruleset: Arc<Ruleset>,
    /// Explanation.
    pub explanation: Explanation,
    /// Time of its entry.
    pub entered_at: UnixMs,
    /// Matches of the last hour that were proposed for it, the earliest first.
    pub proposed_matches: Vec<Arc<Match>>,
    /// Time of the explanation.
    pub read_at: UnixMs,
}

/// Search to explain, as an operator describes it.
#[derive(Clone)]
pub struct ExplainSearchCommand {
    /// Matchmaking set.
    pub set_id: SetId,
    /// The searching party.
    pub session: Session,
    /// Latency tokens of the party.
    pub latency_tokens: LatencyTokens,
    /// Address from which the party's calls come. Never logged.
    pub caller_address: Option<IpAddr>,
    /// Time searched so far, milliseconds.
    pub searching_for_ms: u64,
    /// Maximum number of near misses, and of compatible advertisements.
    pub max_listed: usize,
}

impl std::fmt::Debug for ExplainSearchCommand {
    /// Without the session, its tokens and the address, so that no log can have them.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { set_id, searching_for_ms, max_listed, .. } = self;
        f.debug_struct("ExplainSearchCommand")
            .field("set_id", set_id)
            .field("searching_for_ms", searching_for_ms)
            .field("max_listed", max_listed)
            .finish_non_exhaustive()
    }
}

/// Explanation of a search.
#[derive(Clone, Debug)]
pub struct ExplainSearchAnswer {
    /// Ruleset that was applied.
    pub ruleset: Arc<Ruleset>,
    /// Explanation.
    pub explanation: SearchExplanation,
    /// Factor by which the limits of the search are wider, because a player counts as frustrated.
    pub frustration_limit_factor: f64,
    /// Paths of ignored fields, within the session composition.
    pub ignored_fields: Vec<String>,
}

/// Rating imported by an operator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ImportedRating {
    /// User.
    pub user: UserKey,
    /// Rating for Elo and Glicko; mu for TrueSkill and OpenSkill.
    pub rating: f64,
    /// Standard deviation; `None` for a newcomer's.
    pub deviation: Option<f64>,
    /// Glicko-2 volatility; `None` for a newcomer's.
    pub volatility: Option<f64>,
    /// Matches counted in the rating.
    pub matches: u32,
}

/// Registers an allocator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllocatorRegistration {
    /// Allocator; `None` for an anonymous caller.
    pub subject: Option<UserKey>,
    /// Game servers that it starts.
    pub host_subject: Option<UserKey>,
    /// Sets whose matches it hosts; empty for all.
    pub sets: BTreeSet<SetId>,
    /// Regions in which it starts game servers; empty for all.
    pub regions: Vec<Box<str>>,
    /// Offers that it answers at the same time.
    pub max_open_offers: usize,
}

/// Match on offer.
#[derive(Clone, Debug, PartialEq)]
pub struct MatchOffer {
    /// Proof of the offer.
    pub offer_token: Vec<u8>,
    /// Match.
    pub match_id: MatchId,
    /// Set of the match.
    pub set_id: SetId,
    /// Hash of the ruleset that made the match.
    pub ruleset_hash: RulesetHash,
    /// Silo of the players.
    pub silo: SiloId,
    /// Region of the match, if it has one.
    pub region: Option<Box<str>>,
    /// Number of players.
    pub seats: u16,
    /// Attributes that all parties have in common.
    pub attributes: Vec<(ShortString, AttributeValue)>,
    /// Time to answer, milliseconds.
    pub answer_within_ms: u64,
    /// Advertisement id for the game server.
    pub advertisement_id: AdvertisementId,
    /// Token for the game server.
    pub host_token: Vec<u8>,
}

/// Answer to an offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferAnswer {
    /// Proof of the offer.
    pub offer_token: Vec<u8>,
    /// Connection data of the place; `None` for a refusal.
    pub connect_data: Option<Vec<u8>>,
    /// Reason of a refusal, for the log.
    pub refusal_reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_of_an_explained_search_has_no_address_and_no_token() {
        let command = ExplainSearchCommand {
            set_id: SetId(7),
            session: Session::default(),
            latency_tokens: LatencyTokens::new(b"token-canary".to_vec(), Vec::new()),
            caller_address: Some(IpAddr::from([203, 0, 113, 77])),
            searching_for_ms: 5,
            max_listed: 3,
        };
        let output = format!("{command:?}");
        assert!(output.contains("searching_for_ms: 5") && !output.contains("113"), "{output}");
        assert!(!output.contains("canary") && !output.contains("tokens"), "{output}");
    }
}
