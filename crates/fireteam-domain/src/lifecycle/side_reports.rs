//! Results that the players of a match report themselves: decides when the reports of its sides are a result.
//!
//! | reports | before the window ends | when it ends |
//! |---|---|---|
//! | alike from more than half of the sides, none against | the result | the result |
//! | alike from fewer sides, none against | wait | the result; held, if it favours a side over one that was never heard |
//! | contradicting | wait for the players who have not reported | disputed |
//! | none | wait | unreported |
//!
//! A side says what more than half of its members who reported say. A side is against a result if more than half of its
//! members who reported say something else.

use crate::id::{TicketId, UserKey};
use crate::time::UnixMs;

/// Reports of the players of a match, and what became of them. Empty for matches that a game server reports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SideReports {
    /// One report per player at most, in the order of arrival.
    pub reports: Vec<PlayerReport>,
    /// Tickets that were heard since play began.
    pub heard_tickets: Vec<TicketId>,
    /// End of the report window. `None` before the first report, unless the match lost its hosting player.
    pub window_ends_at: Option<UnixMs>,
    /// Final outcome.
    pub outcome: Option<SideReportsOutcome>,
}

/// Report of one player.
#[derive(Clone, Debug, PartialEq)]
pub struct PlayerReport {
    /// The player.
    pub user: UserKey,
    /// Reported result.
    pub claim: PlayerResultClaim,
}

/// Result of a match as a player reports it.
#[derive(Clone, Debug, PartialEq)]
pub struct PlayerResultClaim {
    /// Dense ranks of the sides, in the order of [`Match::sides`](crate::lifecycle::Match::sides). Two reports are alike if
    /// their ranks are equal.
    pub ranks: Vec<u32>,
    /// Players who left before the end, sorted.
    pub disconnected: Vec<UserKey>,
    /// Duration of play, milliseconds, if reported.
    pub duration_ms: Option<u64>,
}

/// Final outcome of the reports of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SideReportsOutcome {
    /// There is a result.
    Settled,
    /// The reports are alike, but favour a side over one that was not heard since play began. An operator decides.
    Held,
    /// The reports contradict each other.
    Disputed,
    /// No report arrived within the window.
    Unreported,
}

/// Decision about the reports of a match at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportDecision {
    /// More reports may arrive.
    Wait,
    /// These ranks are the result.
    Result(Vec<u32>),
    /// These ranks are the result if an operator confirms them.
    Held(Vec<u32>),
    /// The reports contradict each other.
    Disputed,
    /// There is no report.
    Unreported,
}

/// Side of a match, as far as reports depend on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SideClaims {
    /// Ranks that its members reported, one entry per member who reported.
    pub claims: Vec<Vec<u32>>,
    /// Whether a member can still report: one who has not left and has not reported.
    pub may_report_more: bool,
    /// Whether the side was heard since play began.
    pub made_contact_in_play: bool,
}

impl SideReports {
    /// Remembers that a ticket was heard since play began.
    pub fn add_ticket_heard_in_play(&mut self, id: TicketId) {
        if !self.heard_tickets.contains(&id) {
            self.heard_tickets.push(id);
        }
    }

    /// Report of a player.
    pub fn claim_of_user(&self, user: UserKey) -> Option<&PlayerResultClaim> {
        self.reports.iter().find(|report| report.user == user).map(|report| &report.claim)
    }
}

impl SideClaims {
    /// Ranks that more than half of the members who reported say.
    pub fn majority_ranks(&self) -> Option<&[u32]> {
        self.claims.iter().find(|claim| 2 * self.count_of(claim) > self.claims.len()).map(Vec::as_slice)
    }

    fn is_against(&self, ranks: &[u32]) -> bool {
        let others = self.claims.len() - self.count_of(ranks);
        2 * others > self.claims.len()
    }

    fn has_no_claims(&self) -> bool {
        self.claims.is_empty()
    }

    fn count_of(&self, ranks: &[u32]) -> usize {
        self.claims.iter().filter(|claim| claim.as_slice() == ranks).count()
    }
}

/// Decides about the reports of a match. The order of `sides` is that of the ranks.
pub fn decide_reports(sides: &[SideClaims], is_window_over: bool) -> ReportDecision {
    let is_complete = is_window_over || sides.iter().all(|side| !side.may_report_more);
    if sides.iter().all(SideClaims::has_no_claims) {
        return if is_window_over { ReportDecision::Unreported } else { ReportDecision::Wait };
    }
    let dispute = if is_complete { ReportDecision::Disputed } else { ReportDecision::Wait };
    let Some(ranks) = sides.iter().find_map(SideClaims::majority_ranks) else { return dispute };
    if sides.iter().any(|side| side.is_against(ranks)) {
        return dispute;
    }
    let supporters = sides.iter().filter(|side| side.majority_ranks() == Some(ranks)).count();
    if 2 * supporters > sides.len() {
        return ReportDecision::Result(ranks.to_vec());
    }
    if !is_window_over {
        return ReportDecision::Wait;
    }
    let has_unheard_side = sides.iter().any(|side| side.has_no_claims() && !side.made_contact_in_play);
    if has_unheard_side && favours_reporter_over_silent_side(sides, ranks) {
        ReportDecision::Held(ranks.to_vec())
    } else {
        ReportDecision::Result(ranks.to_vec())
    }
}

/// Whether a side that reports `ranks` is not ranked below a silent side. A draw can favour the side that lost.
fn favours_reporter_over_silent_side(sides: &[SideClaims], ranks: &[u32]) -> bool {
    let rank_of = |index: usize| ranks.get(index).copied().unwrap_or(u32::MAX);
    let reporting = (0..sides.len()).filter(|index| sides[*index].majority_ranks() == Some(ranks)).map(rank_of);
    let best_reporting = reporting.min();
    let mut silent = (0..sides.len()).filter(|index| sides[*index].has_no_claims()).map(rank_of);
    best_reporting.is_some_and(|best| silent.any(|rank| best <= rank))
}

/// Whether every report ranks the side at `index` last, with at least one report. Reports of other shapes do not count as
/// agreeing.
pub fn is_ranked_last_by_all_claims<'a>(claims: impl IntoIterator<Item = &'a [u32]>, index: usize) -> bool {
    let mut has_claim = false;
    for ranks in claims {
        has_claim = true;
        let is_last = ranks.len() > 1
            && ranks.get(index).is_some_and(|own| ranks.iter().max() == Some(own))
            && ranks.iter().any(|rank| Some(rank) != ranks.get(index));
        if !is_last {
            return false;
        }
    }
    has_claim
}

#[cfg(test)]
mod tests;
