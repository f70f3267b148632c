//! Match of a searched session: its host begins it, and names the teams. It starts in play: its players have already joined
//! the session, so there is no ready check, and nothing to place.
//!
//! Its players have not accepted such a match. So leaving it has no cooldown, none of its tickets ever waits in a queue, and the reports
//! of its players are a result only if more than half of the roster was heard since play began, and every side that is ranked.

use crate::chosen_value::ChosenValue;
use crate::id::{MatchId, RulesetHash, SetId, SiloId};
use crate::lifecycle::rules::LifecycleRules;
use crate::lifecycle::session_start::SessionMatchStartByHost;
use crate::lifecycle::side_reports::{SideClaims, SideReports};
use crate::lifecycle::{Assignment, Match, MatchStage, MatchTicket};
use crate::time::UnixMs;

/// Match of a session that is about to begin.
#[derive(Clone, Debug, PartialEq)]
pub struct NewMatchStartedByHost {
    /// See [`Match::id`].
    pub id: MatchId,
    /// See [`Match::set_id`].
    pub set_id: SetId,
    /// See [`Match::silo`].
    pub silo: SiloId,
    /// See [`Match::ruleset_hash`].
    pub ruleset_hash: RulesetHash,
    /// Tickets, one for each party.
    pub tickets: Vec<MatchTicket>,
    /// Host of the session.
    pub assignment: Assignment,
    /// See [`Match::session_match_start_by_host`].
    pub session_start: SessionMatchStartByHost,
    /// See [`Match::chosen_values`].
    pub chosen: Box<[ChosenValue]>,
}

/// The match with version 1, in play since `now`.
pub fn begin_match_started_by_host(rules: &LifecycleRules, new_match: NewMatchStartedByHost, now: UnixMs) -> Match {
    let NewMatchStartedByHost { id, set_id, silo, ruleset_hash, tickets, assignment, session_start, chosen } =
        new_match;
    let stage = MatchStage::Playing {
        assignment,
        started_at: now,
        times_out_at: now.plus_ms(rules.hosting.max_match_ms),
        host_lost_at: Some(now.plus_ms(u64::from(rules.hosting.host_loss_ms))),
    };
    Match {
        id,
        set_id,
        silo,
        ruleset_hash,
        proposed_at: now,
        version: 1,
        stage,
        tickets,
        quality: 0.0,
        region: None,
        backfilled_session: None,
        chosen_values: chosen,
        bots_by_team: Box::default(),
        worst_pair: None,
        session_match_start_by_host: Some(session_start),
        servers_that_did_not_confirm: Vec::new(),
        side_reports: SideReports::default(),
        kept_skills_of_erased_users: Vec::new(),
    }
}

/// Whether the reports of `sides` may be a result. In a match of a session, more than half of the players must have been heard
/// since play began, and a member of each side that did not report.
pub(super) fn is_report_quorum_heard(match_: &Match, sides: &[SideClaims]) -> bool {
    if match_.session_match_start_by_host.is_none() {
        return true;
    }
    let is_heard = |ticket: &&MatchTicket| match_.side_reports.heard_tickets.contains(&ticket.ticket_id);
    let player_count =
        |tickets: &mut dyn Iterator<Item = &MatchTicket>| -> usize { tickets.map(|ticket| ticket.players.len()).sum() };
    let all = player_count(&mut match_.tickets.iter());
    let heard = player_count(&mut match_.tickets.iter().filter(is_heard));
    let has_silent_side = sides.iter().any(|side| side.claims.is_empty() && !side.made_contact_in_play);
    2 * heard > all && !has_silent_side
}

/// Whether the players of a match may be penalized for leaving it: they have accepted it in a ready check.
pub(super) fn penalizes_leavers(rules: &LifecycleRules, match_: &Match) -> bool {
    rules.ready_check_ms.is_some() && match_.session_match_start_by_host.is_none()
}
