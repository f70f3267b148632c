//! Partial match: is filled with tickets one by one. Refuses a ticket that fails a pair rule or leaves seats that
//! parties cannot fill.

use crate::filter::Refusal;
use crate::queue::pass_progress::PassProgress;
use crate::queue::pass_state::PassState;
use crate::queue::region::{self, ReachableRegions, RegionChoice};
use crate::ruleset::queue::QualitySpec;
use crate::team;

/// Maximum number of steps of the seat check. Beyond that, the team split decides.
const PARTY_FIT_STEPS_MAX: u32 = 2_000;

/// Tickets that may all meet, as a match that is being filled.
pub(in crate::queue) struct PartialMatch<'g, 'a> {
    pass_state: &'g PassState<'a>,
    ticket_indices: Vec<u32>,
    player_count: u16,
}

impl<'g, 'a> PartialMatch<'g, 'a> {
    pub(in crate::queue) fn new(pass_state: &'g PassState<'a>, first: u32) -> Self {
        Self { pass_state, ticket_indices: vec![first], player_count: pass_state.tickets[first as usize].player_count }
    }

    /// Match of tickets that were added before, in this order.
    pub(in crate::queue) fn of_rows(pass_state: &'g PassState<'a>, first: u32, others: &[u32]) -> Self {
        let mut partial_match = Self::new(pass_state, first);
        partial_match.ticket_indices.extend(others);
        let sizes = others.iter().map(|&row| pass_state.tickets[row as usize].player_count);
        partial_match.player_count += sizes.sum::<u16>();
        partial_match
    }

    pub(in crate::queue) fn ticket_indices(&self) -> &[u32] {
        &self.ticket_indices
    }

    pub(in crate::queue) fn player_count(&self) -> u16 {
        self.player_count
    }

    /// The match has all its players.
    pub(in crate::queue) fn is_full(&self) -> bool {
        self.player_count == self.pass_state.input.teams.players_per_match()
    }

    /// Adds a ticket, or returns the rule that refuses it. `None` if the pair check budget ran out.
    pub(in crate::queue) fn try_add(&mut self, row: u32, progress: &mut PassProgress) -> Option<Result<(), Refusal>> {
        let verdict = self.check_candidate(row, progress)?;
        if verdict.is_ok() {
            self.ticket_indices.push(row);
            self.player_count += self.pass_state.tickets[row as usize].player_count;
        }
        Some(verdict)
    }

    /// Removes the ticket added last.
    pub(in crate::queue) fn remove_last(&mut self) {
        if let Some(row) = self.ticket_indices.pop() {
            self.player_count -= self.pass_state.tickets[row as usize].player_count;
        }
    }

    fn check_candidate(&self, row: u32, progress: &mut PassProgress) -> Option<Result<(), Refusal>> {
        let (pass_state, size) = (self.pass_state, self.pass_state.tickets[row as usize].player_count);
        if !self.has_room_for_party(size) {
            return progress.spend_pair_check().then_some(Err(Refusal::TeamsNotFilled));
        }
        for &one in &self.ticket_indices {
            if !progress.spend_pair_check() {
                return None;
            }
            if let Err(refusal) = pass_state.check_pair(one, row) {
                return Some(Err(refusal));
            }
        }
        Some(self.check_match_rules(row))
    }

    /// Checks match rules that can fail before the match is full. A pair is checked when it is built.
    fn check_match_rules(&self, row: u32) -> Result<(), Refusal> {
        let (pass_state, queue) = (self.pass_state, self.pass_state.input.queue);
        self.roles_can_be_filled_with(row).then_some(()).ok_or(Refusal::RolesNotFilled)?;
        if let [_] = self.ticket_indices[..] {
            return Ok(());
        }
        if let Some(rule) = queue.regions {
            let members = self
                .ticket_indices
                .iter()
                .chain([&row])
                .map(|&row| &pass_state.tickets[row as usize].reachable_regions);
            let choice =
                region::choose_region(rule, &pass_state.region_names, &members.collect::<Vec<&ReachableRegions<'_>>>());
            (choice != RegionChoice::NoCommonRegion).then_some(()).ok_or(Refusal::NoCommonRegion)?;
        }
        if let (QualitySpec::SoftScore { max_score }, None) = (queue.quality, queue.wait_bonus) {
            let is_too_high = |&one: &u32| max_score < pass_state.filter_columns.pair_score(one, row);
            (!self.ticket_indices.iter().any(is_too_high)).then_some(()).ok_or(Refusal::LowQuality)?;
        }
        Ok(())
    }

    /// Whether the roles of all teams can still be filled after a ticket is added. The split checks each team.
    fn roles_can_be_filled_with(&self, row: u32) -> bool {
        let teams = self.pass_state.input.teams;
        if teams.roles.is_empty() {
            return true;
        }
        let prepared = |row: u32| self.pass_state.tickets[row as usize].prepared;
        let seats = self.player_count + self.pass_state.tickets[row as usize].player_count;
        let parties = self.ticket_indices.iter().copied().chain([row]).map(|row| prepared(row).team_party());
        team::roles_can_be_filled(teams, parties, teams.players_per_match().saturating_sub(seats))
    }

    fn has_room_for_party(&self, size: u16) -> bool {
        let teams = self.pass_state.input.teams;
        if teams.players_per_match() < self.player_count.saturating_add(size) {
            return false;
        }
        if size == 1 {
            return true;
        }
        let mut parties: Vec<u16> =
            self.ticket_indices.iter().map(|&row| self.pass_state.tickets[row as usize].player_count).collect();
        parties.push(size);
        parties.sort_unstable_by(|one, other| other.cmp(one));
        let mut steps = PARTY_FIT_STEPS_MAX;
        parties_fit_in_teams(&parties, &mut teams.team_sizes.to_vec(), &mut steps)
    }
}

/// Whether unsplit parties, largest first, fit into teams with `seats` free seats. Returns `true` if the steps run out.
fn parties_fit_in_teams(parties: &[u16], seats: &mut [u16], steps: &mut u32) -> bool {
    let Some((&party, rest)) = parties.split_first() else { return true };
    let Some(steps_left) = steps.checked_sub(1) else { return true };
    *steps = steps_left;
    for team in 0..seats.len() {
        // Teams with the same number of free seats are equivalent.
        if seats[team] < party || seats[..team].contains(&seats[team]) {
            continue;
        }
        seats[team] -= party;
        if parties_fit_in_teams(rest, seats, steps) {
            return true;
        }
        seats[team] += party;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// B-7: parties are not split, so a matching total does not suffice.
    #[test]
    fn parties_fit_in_teams_only_unsplit() {
        let check = |parties: &[u16], seats: &[u16], expected| {
            let mut steps = PARTY_FIT_STEPS_MAX;
            assert_eq!(
                parties_fit_in_teams(parties, &mut seats.to_vec(), &mut steps),
                expected,
                "{parties:?} {seats:?}"
            );
        };
        check(&[3, 3], &[5, 5], true);
        check(&[3, 3, 3], &[5, 5], false);
        check(&[2, 2, 2], &[3, 3], false);
        check(&[5, 4, 4, 3, 2, 2], &[10, 10], true);
        check(&[1, 1], &[1, 1], true);
        check(&[4, 1], &[1, 4], true);
        check(&[], &[1, 1], true);
    }
}
