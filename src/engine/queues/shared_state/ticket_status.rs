//! Ticket status as sent to the party.

use std::sync::Arc;

use crate::auth::match_credential::{CredentialHost, MatchCredentialContent};
use crate::auth::public_user_keys::KeyPurpose;
use crate::auth::token::WatchResumeClaim;
use crate::domain::id::{MatchId, UserKey};
use crate::domain::lifecycle::deadline::{effective_reports_due_at, given_up_before_play_at};
use crate::domain::lifecycle::rules::LifecycleRules;
use crate::domain::lifecycle::{Assignment, Match, MatchStage};
use crate::domain::ruleset::queue::QueueSpec;
use crate::domain::time::UnixMs;
use crate::engine::queues::command::{MatchPlayerView, MatchView, TicketPhase, TicketPlayerView, TicketStatus};
use crate::engine::queues::shared_state::SharedState;
use crate::engine::queues::stored_ticket::nearest_region;
use crate::engine::queues::ticket_holder::TicketTokenHolder;
use crate::engine::queues::wait_estimator::WaitClass;
use crate::engine::ratings::command::ReportState;
use crate::rules::catalog::MatchRulesetLookup;
use crate::store::queues::{QueueKey, StoredTicket, TicketState};

/// Match version reported while a ticket is paused for another match; no match reaches it.
const MATCH_VERSION_OF_PAUSED_TICKET: u64 = u64::MAX;

/// Match version that the resume token records.
fn match_version_of_status(phase: TicketPhase, match_: Option<&Match>, last_unplayed: Option<&Match>) -> u64 {
    match phase {
        TicketPhase::Paused => MATCH_VERSION_OF_PAUSED_TICKET,
        // The match may become known after the ticket: then its status is sent again.
        TicketPhase::Waiting => last_unplayed.map_or(0, |match_| match_.version),
        _ => match_.map_or(0, |match_| match_.version),
    }
}

/// Version of what a ticket shows: acknowledgements do not change it.
fn version_without_acknowledgements(stored: &StoredTicket) -> u64 {
    stored.version - u64::from(stored.ready_check_delivered_mask.count_ones())
}

/// Phase of a ticket, and the matches that its status shows.
pub(crate) struct TicketProgress {
    phase: TicketPhase,
    match_: Option<Arc<Match>>,
    /// Match that ended before play and returned the ticket to its queue.
    last_unplayed_match: Option<Arc<Match>>,
    /// Versions that the status shows.
    pub(crate) resume_claim: WatchResumeClaim,
}

impl SharedState {
    /// Status of a ticket at `now`, as its holder may see it: with the credentials of the players whom it acts for, and with
    /// the host as its own if it acts for that player.
    pub(crate) fn ticket_status_for(
        &self,
        holder: &TicketTokenHolder,
        stored: &StoredTicket,
        now: UnixMs,
    ) -> TicketStatus {
        self.ticket_status_at_progress(holder, stored, self.ticket_progress(stored), now)
    }

    /// As [`ticket_status_for`](Self::ticket_status_for), of a ticket whose progress is known.
    pub(crate) fn ticket_status_at_progress(
        &self,
        holder: &TicketTokenHolder,
        stored: &StoredTicket,
        progress: TicketProgress,
        now: UnixMs,
    ) -> TicketStatus {
        let mut status = self.status_without_credentials(stored, progress, now);
        if let Some(MatchView { found_match, team, own_players, host_player_key: host, is_own_host, .. }) =
            &mut status.match_view
        {
            for (own_player, player) in own_players.iter_mut().zip(&stored.ticket.session.players) {
                if holder.acts_for(&stored.ticket, player.user) {
                    let key = own_player.player_key;
                    *is_own_host |= *host == Some(key);
                    own_player.credential = self.player_credential(found_match, player.user, key, *team, now);
                }
            }
        }
        status
    }

    /// Status of a ticket at `now`, for no holder: without credentials.
    pub(crate) fn ticket_status_without_credentials(&self, stored: &StoredTicket, now: UnixMs) -> TicketStatus {
        self.status_without_credentials(stored, self.ticket_progress(stored), now)
    }

    fn status_without_credentials(&self, stored: &StoredTicket, progress: TicketProgress, now: UnixMs) -> TicketStatus {
        let ticket = &stored.ticket;
        let TicketProgress { phase, match_, last_unplayed_match, resume_claim } = progress;
        let is_waiting = matches!(phase, TicketPhase::Waiting | TicketPhase::Paused);
        let key = QueueKey { set_id: ticket.set_id, silo: ticket.session.silo };
        let position = is_waiting.then(|| {
            let cache = self.cache.read();
            cache.queue_index(key).map_or(0, |index| index.tickets_ahead_of(ticket.entered_at, ticket.id))
        });
        let ruleset = self.common.rulesets.ruleset_in_force(ticket.set_id);
        // Waiting ends when the match starts.
        let waiting_ended_at =
            match match_.as_ref().map(|match_| &match_.stage) {
                Some(
                    MatchStage::Playing { started_at, .. } | MatchStage::Ended { started_at: Some(started_at), .. },
                ) if !is_waiting => *started_at,
                _ => now,
            };
        let waited_ms = waiting_ended_at.ms_since(ticket.entered_at);
        let offer = ruleset.as_ref().and_then(|ruleset| ruleset.queue.as_ref()?.offer);
        let queue = ruleset.as_ref().and_then(|ruleset| ruleset.queue.as_ref());
        let hides_avoidance = queue.is_none_or(QueueSpec::avoids_blocked_users);
        let wait_class = WaitClass {
            set_id: ticket.set_id,
            region: nearest_region(stored),
            party_size: ticket.session.player_count(),
        };
        let estimate = is_waiting.then(|| self.wait_estimator.lock().estimate(&wait_class, now)).flatten();
        let placing_match = match_.as_ref().map(|match_| match_.id);
        TicketStatus {
            id: ticket.id,
            set_id: ticket.set_id,
            phase,
            waited_ms,
            position,
            wait_median_and_p90_ms: estimate.map(|estimate| (estimate.p50_ms, estimate.p90_ms)),
            match_view: match_.map(|match_| self.match_view(stored, &match_, now)),
            offered_set: offer.filter(|offer| is_waiting && offer.after_ms <= waited_ms).map(|offer| offer.set_id),
            blocking_rule: match (is_waiting, phase) {
                (true, _) => self.pass_reports.lock().blocking_rule(key, ticket.id),
                (false, TicketPhase::Placing) => placing_match.and_then(|id| self.placement_problem(id)),
                (false, _) => None,
            },
            return_reason: last_unplayed_match.and_then(|match_| match_.stage.end_reason()),
            hides_avoidance,
            resume_token: self.common.token_signer.sign(&resume_claim),
        }
    }

    /// Progress of a ticket, by which a watch decides whether its holder knows it already.
    pub(crate) fn ticket_progress(&self, stored: &StoredTicket) -> TicketProgress {
        let ticket = &stored.ticket;
        let cache = self.cache.read();
        let match_ = match stored.state {
            TicketState::InMatch(id) => cache.match_by_id(id).cloned(),
            TicketState::Ended { match_id, .. } => match_id.and_then(|id| cache.match_by_id(id).cloned()),
            TicketState::Waiting => None,
        };
        let phase = match stored.state {
            TicketState::Ended { end_reason, .. } => TicketPhase::Ended(end_reason),
            TicketState::Waiting => {
                let users = ticket.session.players.iter().map(|player| player.user);
                if cache.live_match_of(users).is_some() { TicketPhase::Paused } else { TicketPhase::Waiting }
            }
            TicketState::InMatch(_) => match match_.as_ref().map(|match_| &match_.stage) {
                Some(MatchStage::Placing { .. } | MatchStage::Confirming { .. }) => TicketPhase::Placing,
                Some(MatchStage::Playing { .. }) => TicketPhase::Matched,
                // The match is not cached yet, or has just ended; the ticket's update follows.
                Some(MatchStage::ReadyCheck { .. } | MatchStage::Ended { .. }) | None => TicketPhase::Proposed,
            },
        };
        let is_waiting = matches!(phase, TicketPhase::Waiting | TicketPhase::Paused);
        let last_unplayed_match = cache.last_unplayed_match_of(ticket.id).filter(|_| is_waiting).cloned();
        drop(cache);
        let resume_claim = WatchResumeClaim {
            ticket_id: ticket.id,
            ticket_version: version_without_acknowledgements(stored),
            match_version: match_version_of_status(phase, match_.as_deref(), last_unplayed_match.as_deref()),
        };
        TicketProgress { phase, match_, last_unplayed_match, resume_claim }
    }

    /// Reason that a match has no game server yet, as far as this server has tried to place it.
    pub(crate) fn placement_problem(&self, id: MatchId) -> Option<Arc<str>> {
        self.placement_problems.lock().get(id).map(|problem| problem.as_str().into())
    }

    /// Match as seen by one of its tickets.
    fn match_view(&self, stored: &StoredTicket, match_: &Arc<Match>, now: UnixMs) -> MatchView {
        let is_playing = matches!(match_.stage, MatchStage::Playing { .. });
        let ruleset = match self.common.ruleset_of_match(match_.set_id, match_.ruleset_hash) {
            MatchRulesetLookup::Known(ruleset) => Some(ruleset),
            MatchRulesetLookup::NotLoaded | MatchRulesetLookup::Unrecoverable => None,
        };
        let roles = ruleset.as_ref().and_then(|ruleset| ruleset.teams.as_ref()).map(|teams| &teams.roles);
        let own_ticket = match_.tickets.iter().find(|match_ticket| match_ticket.ticket_id == stored.ticket.id);
        let team = own_ticket.map_or(0, |match_ticket| match_ticket.team);
        let own_players = own_ticket.into_iter().flat_map(|match_ticket| &match_ticket.players).map(|player| {
            let player_key = self.common.match_player_key(match_.id, player.user);
            TicketPlayerView {
                player_key,
                team_role: player.role.and_then(|role| Some(roles?.get(usize::from(role))?.name.clone())),
                accepted: player.accepted,
                credential: String::new(),
            }
        });
        let players = match_.tickets.iter().filter(|_| is_playing).flat_map(|match_ticket| {
            match_ticket.players.iter().map(|player| MatchPlayerView {
                player_key: self.common.match_player_key(match_.id, player.user),
                team: match_ticket.team,
                has_left: player.left_at.is_some(),
            })
        });
        let rules = ruleset.as_deref().map(LifecycleRules::from_ruleset);
        let outages = self.common.server_outages.outages_extending_deadlines();
        let deadline = given_up_before_play_at(rules.as_ref(), match_, &outages);
        let reports_due_at = effective_reports_due_at(rules.as_ref(), match_, &outages);
        MatchView {
            deadline_in_ms: deadline.map(|deadline| u32::try_from(deadline.ms_since(now)).unwrap_or(u32::MAX)),
            own_players: own_players.collect(),
            players: players.collect(),
            team,
            host_player_key: match match_.stage.assignment_in_play() {
                Some(Assignment::PeerHost { host }) => self.player_key_of_peer_host(match_, *host),
                Some(Assignment::GameServer { .. } | Assignment::Unhosted) | None => None,
            },
            is_own_host: false,
            report_state: ReportState::of_match(match_, reports_due_at, now),
            found_match: Arc::clone(match_),
        }
    }

    /// Player key of the user whose client hosts a match.
    fn player_key_of_peer_host(&self, match_: &Match, host: UserKey) -> Option<UserKey> {
        let mut all_players = match_.tickets.iter().flat_map(|match_ticket| &match_ticket.players);
        let player = all_players.find(|player| player.client == host)?;
        Some(self.common.match_player_key(match_.id, player.user))
    }

    /// Player's credential for the host; empty until the match starts.
    fn player_credential(&self, match_: &Match, user: UserKey, player_key: UserKey, team: u16, now: UnixMs) -> String {
        let host = match match_.stage.assignment_in_play() {
            None => return String::new(),
            Some(Assignment::GameServer { advertisement, .. }) => CredentialHost::GameServer {
                advertisement: *advertisement,
                user_key: self.common.public_user_keys.public_key(KeyPurpose::Credential, user),
            },
            // The host has left the match at the latest when its player is not found.
            Some(Assignment::PeerHost { host }) => {
                self.player_key_of_peer_host(match_, *host).map_or(CredentialHost::None, CredentialHost::Player)
            }
            Some(Assignment::Unhosted) => CredentialHost::None,
        };
        let credential = MatchCredentialContent { match_id: match_.id, player_key, team, host };
        let token =
            self.common.match_credential_keys.sign_credential(&credential, self.common.clock.random_bytes(), now);
        token.unwrap_or_else(|error| {
            tracing::error!(%error, "match credential signing failed");
            String::new()
        })
    }
}
