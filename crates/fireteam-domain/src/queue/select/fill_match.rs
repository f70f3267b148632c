//! Brings parties together one by one until they are as many as a match takes; whoever does not suit those who are there, or
//! would leave no room for whole parties, stays out.

use crate::filter::Refusal;
use crate::queue::pass_progress::PassProgress;
use crate::queue::pass_state::PassState;
use crate::queue::region::{self, ReachableRegions, RegionChoice};
use crate::ruleset::queue::QualitySpec;

/// Steps that finding room for parties may take; beyond that the split decides.
const FIT_STEPS_MAX: u32 = 2_000;

/// Parties that may all meet.
pub(in crate::queue) struct PartialMatch<'g, 'a> {
    pass_state: &'g PassState<'a>,
    ticket_indices: Vec<u32>,
    player_count: u16,
}

impl<'g, 'a> PartialMatch<'g, 'a> {
    pub(in crate::queue) fn new(field: &'g PassState<'a>, first: u32) -> Self {
        Self {
            pass_state: field,
            ticket_indices: vec![first],
            player_count: field.tickets[first as usize].player_count,
        }
    }

    pub(in crate::queue) fn ticket_indices(&self) -> &[u32] {
        &self.ticket_indices
    }

    /// They are as many as a match takes.
    pub(in crate::queue) fn is_full(&self) -> bool {
        self.player_count == self.pass_state.input.teams.players_per_match()
    }

    /// Lets `row` in, or says which rule keeps it out. `None` when there are no more looks.
    pub(in crate::queue) fn try_add(&mut self, row: u32, desk: &mut PassProgress) -> Option<Result<(), Refusal>> {
        let verdict = self.check_candidate(row, desk)?;
        if verdict.is_ok() {
            self.ticket_indices.push(row);
            self.player_count += self.pass_state.tickets[row as usize].player_count;
        }
        Some(verdict)
    }

    /// Lets the last one go.
    pub(in crate::queue) fn remove_last(&mut self) {
        if let Some(row) = self.ticket_indices.pop() {
            self.player_count -= self.pass_state.tickets[row as usize].player_count;
        }
    }

    fn check_candidate(&self, row: u32, desk: &mut PassProgress) -> Option<Result<(), Refusal>> {
        let (field, size) = (self.pass_state, self.pass_state.tickets[row as usize].player_count);
        if !self.has_room_for_party(size) {
            return desk.spend_pair_check().then_some(Err(Refusal::TeamsNotFilled));
        }
        for &one in &self.ticket_indices {
            if !desk.spend_pair_check() {
                return None;
            }
            if let Err(refusal) = field.check_pair(one, row) {
                return Some(Err(refusal));
            }
        }
        Some(self.check_match_rules(row))
    }

    /// Rules that are known to fail before everybody is there. Two have nobody to wait for: their match is judged at once.
    fn check_match_rules(&self, row: u32) -> Result<(), Refusal> {
        let (field, queue) = (self.pass_state, self.pass_state.input.queue);
        if let [_] = self.ticket_indices[..] {
            return Ok(());
        }
        if let Some(rule) = queue.regions {
            let everybody =
                self.ticket_indices.iter().chain([&row]).map(|&row| &field.tickets[row as usize].reachable_regions);
            let place =
                region::choose_region(rule, &field.region_names, &everybody.collect::<Vec<&ReachableRegions<'_>>>());
            (place != RegionChoice::NoCommonRegion).then_some(()).ok_or(Refusal::NoCommonRegion)?;
        }
        if let (QualitySpec::SoftScore { max_score }, None) = (queue.quality, queue.wait_bonus) {
            let too_bad = |&one: &u32| max_score < field.filter_columns.pair_score(one, row);
            (!self.ticket_indices.iter().any(too_bad)).then_some(()).ok_or(Refusal::LowQuality)?;
        }
        Ok(())
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
        let mut steps = FIT_STEPS_MAX;
        parties_fit_in_teams(&parties, &mut teams.team_sizes.to_vec(), &mut steps)
    }
}

/// Whether whole parties, largest first, find room in teams with so many seats. Out of steps they are said to.
fn parties_fit_in_teams(parties: &[u16], seats: &mut [u16], steps: &mut u32) -> bool {
    let Some((&party, rest)) = parties.split_first() else { return true };
    let Some(left) = steps.checked_sub(1) else { return true };
    *steps = left;
    for team in 0..seats.len() {
        // Teams with as many seats left are the same to a party.
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

    /// B-7: parties are not split, so what adds up need not fit.
    #[test]
    fn parties_fit_in_teams_only_unsplit() {
        let check = |parties: &[u16], seats: &[u16], wanted| {
            let mut steps = FIT_STEPS_MAX;
            assert_eq!(parties_fit_in_teams(parties, &mut seats.to_vec(), &mut steps), wanted, "{parties:?} {seats:?}");
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
