//! Candidate matches: matches that pass all rules and may be proposed.

use crate::id::AdvertisementId;
use crate::queue::pass_state::PassState;
use crate::queue::proposal::{Proposal, ProposedTicket};
use crate::ruleset::queue::QualitySpec;

/// Match that passes all rules but is not selected yet.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CandidateMatch<'a> {
    /// Ticket indices and roles, by team.
    pub(super) teams: Vec<Vec<(u32, Vec<u16>)>>,
    /// Quality by the ruleset, with bonus and costs; higher is better.
    pub(super) quality: f64,
    /// Region shared by all tickets.
    pub(super) region: Option<&'a str>,
}

impl CandidateMatch<'_> {
    /// Indices of all its tickets.
    pub(super) fn ticket_indices(&self) -> impl Iterator<Item = u32> + '_ {
        self.teams.iter().flatten().map(|(row, _)| *row)
    }

    pub(super) fn into_proposal(
        self,
        pass_state: &PassState<'_>,
        backfilled_session: Option<AdvertisementId>,
    ) -> Proposal {
        let proposed = |(row, roles): (u32, Vec<u16>)| ProposedTicket {
            ticket_id: pass_state.tickets[row as usize].prepared.ticket.id,
            roles,
        };
        let rows: Vec<u32> = self.ticket_indices().collect();
        // Checked when the match was built.
        let chosen = pass_state.choose_values(&rows, backfilled_session).unwrap_or_default();
        let input = pass_state.input;
        let bots_by_team = if input.teams.bots.is_some() && backfilled_session.is_none() {
            let player_count = |row: u32| pass_state.tickets[row as usize].player_count;
            input.teams.bots_by_team(self.teams.iter().map(|team| team.iter().map(|(row, _)| player_count(*row)).sum()))
        } else {
            Box::default()
        };
        let is_any = pass_state.input.queue.quality == QualitySpec::Any;
        Proposal {
            teams: self.teams.into_iter().map(|team| team.into_iter().map(proposed).collect()).collect(),
            quality: if is_any { 0.0 } else { self.quality },
            region: self.region.map(Into::into),
            backfilled_session,
            chosen,
            bots_by_team,
        }
    }
}
