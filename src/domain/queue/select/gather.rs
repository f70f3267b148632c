//! Brings parties together one by one until they are as many as a match takes; whoever does not suit those who are there, or
//! would leave no room for whole parties, stays out.

use crate::domain::filter::Refusal;
use crate::domain::queue::desk::Desk;
use crate::domain::queue::field::Field;
use crate::domain::queue::region::{self, Place, Reached};
use crate::domain::ruleset::queue::Quality;

/// Steps that finding room for parties may take; beyond that the split decides.
const FIT_STEPS_MAX: u32 = 2_000;

/// Parties that may all meet.
pub(in crate::domain::queue) struct Gathering<'g, 'a> {
    field: &'g Field<'a>,
    rows: Vec<u32>,
    players: u16,
}

impl<'g, 'a> Gathering<'g, 'a> {
    pub(in crate::domain::queue) fn of(field: &'g Field<'a>, first: u32) -> Self {
        Self { field, rows: vec![first], players: field.rows[first as usize].size }
    }

    pub(in crate::domain::queue) fn rows(&self) -> &[u32] {
        &self.rows
    }

    /// They are as many as a match takes.
    pub(in crate::domain::queue) fn is_full(&self) -> bool {
        self.players == self.field.input.teams.match_size()
    }

    /// Lets `row` in, or says which rule keeps it out. `None` when there are no more looks.
    pub(in crate::domain::queue) fn admit(&mut self, row: u32, desk: &mut Desk) -> Option<Result<(), Refusal>> {
        let verdict = self.judge(row, desk)?;
        if verdict.is_ok() {
            self.rows.push(row);
            self.players += self.field.rows[row as usize].size;
        }
        Some(verdict)
    }

    /// Lets the last one go.
    pub(in crate::domain::queue) fn dismiss(&mut self) {
        if let Some(row) = self.rows.pop() {
            self.players -= self.field.rows[row as usize].size;
        }
    }

    fn judge(&self, row: u32, desk: &mut Desk) -> Option<Result<(), Refusal>> {
        let (field, size) = (self.field, self.field.rows[row as usize].size);
        if !self.has_room_for(size) {
            return desk.look().then_some(Err(Refusal::Team));
        }
        for &one in &self.rows {
            if !desk.look() {
                return None;
            }
            if let Err(refusal) = field.meet(one, row) {
                return Some(Err(refusal));
            }
        }
        Some(self.suits(row))
    }

    /// Rules that are known to fail before everybody is there. Two have nobody to wait for: their match is judged at once.
    fn suits(&self, row: u32) -> Result<(), Refusal> {
        let (field, queue) = (self.field, self.field.input.queue);
        if let [_] = self.rows[..] {
            return Ok(());
        }
        if let Some(rule) = queue.regions {
            let everybody = self.rows.iter().chain([&row]).map(|&row| &field.rows[row as usize].reached);
            let place = region::choose(rule, &field.names, &everybody.collect::<Vec<&Reached<'_>>>());
            (place != Place::Nowhere).then_some(()).ok_or(Refusal::Region)?;
        }
        if let (Quality::SoftScore { max_score }, None) = (queue.quality, queue.wait_bonus) {
            let too_bad = |&one: &u32| max_score < field.columns.score(one, row);
            (!self.rows.iter().any(too_bad)).then_some(()).ok_or(Refusal::Quality)?;
        }
        Ok(())
    }

    fn has_room_for(&self, size: u16) -> bool {
        let teams = self.field.input.teams;
        if teams.match_size() < self.players.saturating_add(size) {
            return false;
        }
        if size == 1 {
            return true;
        }
        let mut parties: Vec<u16> = self.rows.iter().map(|&row| self.field.rows[row as usize].size).collect();
        parties.push(size);
        parties.sort_unstable_by(|one, other| other.cmp(one));
        let mut steps = FIT_STEPS_MAX;
        fits(&parties, &mut teams.sizes.to_vec(), &mut steps)
    }
}

/// Whether whole parties, largest first, find room in teams with so many seats. Out of steps they are said to.
fn fits(parties: &[u16], seats: &mut [u16], steps: &mut u32) -> bool {
    let Some((&party, rest)) = parties.split_first() else { return true };
    let Some(left) = steps.checked_sub(1) else { return true };
    *steps = left;
    for team in 0..seats.len() {
        // Teams with as many seats left are the same to a party.
        if seats[team] < party || seats[..team].contains(&seats[team]) {
            continue;
        }
        seats[team] -= party;
        if fits(rest, seats, steps) {
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
    fn whole_parties_need_whole_room() {
        let check = |parties: &[u16], seats: &[u16], wanted| {
            let mut steps = FIT_STEPS_MAX;
            assert_eq!(fits(parties, &mut seats.to_vec(), &mut steps), wanted, "{parties:?} {seats:?}");
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
