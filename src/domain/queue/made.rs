//! From parties that may meet to a match: divided into teams, placed in a region, and good enough.

use crate::domain::filter::Refusal;
use crate::domain::id::AdvertisementId;
use crate::domain::queue::avoid;
use crate::domain::queue::desk::Desk;
use crate::domain::queue::field::Field;
use crate::domain::queue::proposal::{Placed, Proposal};
use crate::domain::queue::quality::{self, Member, Worth};
use crate::domain::queue::region::{self, Place, Reached};
use crate::domain::ruleset::queue::{AvoidHow, Quality};
use crate::domain::team;

/// The rows of a team, and what the players of each play.
type Team = Vec<(u32, Vec<u16>)>;

/// A match that would do.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Made<'a> {
    /// Rows by team, with what each one's players play.
    pub(super) teams: Vec<Vec<(u32, Vec<u16>)>>,
    /// By the ruleset, bonus and costs included.
    pub(super) quality: f64,
    /// Where they meet.
    pub(super) region: Option<&'a str>,
}

impl Made<'_> {
    /// Its rows.
    pub(super) fn rows(&self) -> impl Iterator<Item = u32> + '_ {
        self.teams.iter().flatten().map(|(row, _)| *row)
    }

    pub(super) fn proposal(self, field: &Field<'_>, backfills: Option<AdvertisementId>) -> Proposal {
        let placed =
            |(row, roles): (u32, Vec<u16>)| Placed { ticket: field.rows[row as usize].entrant.ticket.id, roles };
        let any = field.input.queue.quality == Quality::Any;
        Proposal {
            teams: self.teams.into_iter().map(|team| team.into_iter().map(placed).collect()).collect(),
            quality: if any { 0.0 } else { self.quality },
            region: self.region.map(Into::into),
            backfills,
        }
    }
}

impl<'a> Field<'a> {
    /// Makes a match of `rows`, all of whom may meet and who are as many players as it takes; or says what is in the way.
    pub(super) fn finish(&self, rows: &[u32], desk: &mut Desk) -> Result<Made<'a>, Refusal> {
        if let &[one, other] = rows
            && self.input.teams.sizes.len() == 2
            && self.input.teams.roles.is_empty()
        {
            return self.duel(one, other, desk);
        }
        let region = match self.input.queue.regions {
            None => Place::Anywhere,
            Some(_) => self.place(&rows.iter().map(|&row| self.reached(row)).collect::<Vec<_>>())?,
        };
        // Only chances go by teams; whatever else is not good enough need not be divided, which is the dearest step.
        let by_teams =
            matches!(self.input.queue.quality, Quality::WinProbability { .. } | Quality::DrawProbability { .. });
        let mut quality = 0.0;
        if !by_teams {
            quality = self.good_enough(rows, &[], region, desk)?;
        }
        let teams = self.divide(rows).ok_or(Refusal::Team)?;
        if by_teams {
            let placed = teams.iter().zip(0_u16..).flat_map(|(team, place)| team.iter().map(move |it| (it.0, place)));
            let (rows, teams): (Vec<u32>, Vec<u16>) = placed.unzip();
            quality = self.good_enough(&rows, &teams, region, desk)?;
        }
        Ok(Made { teams, quality, region: name_of(region) })
    }

    /// The quality of a match of `rows`, if it will do; `teams` says which team each is in, where that counts.
    fn good_enough(&self, rows: &[u32], teams: &[u16], region: Place<'a>, desk: &mut Desk) -> Result<f64, Refusal> {
        let worth = self.worth(rows, teams, region, desk);
        worth.passes.then_some(worth.quality).ok_or(Refusal::Quality)
    }

    /// How good two would be together, one in each team, if that is good enough; without making anything of it.
    pub(super) fn pair_quality(&self, one: u32, other: u32, desk: &mut Desk) -> Result<f64, Refusal> {
        self.pair_worth(one, other, desk).map(|(worth, _)| worth)
    }

    fn duel(&self, one: u32, other: u32, desk: &mut Desk) -> Result<Made<'a>, Refusal> {
        let sizes = &self.input.teams.sizes;
        let fit = |one: u32, other: u32| [one, other].map(|row| self.rows[row as usize].size)[..] == sizes[..];
        let (first, second) = if fit(one, other) { (one, other) } else { (other, one) };
        fit(first, second).then_some(()).ok_or(Refusal::Team)?;
        let (quality, region) = self.pair_worth(first, second, desk)?;
        Ok(Made { teams: vec![vec![(first, Vec::new())], vec![(second, Vec::new())]], quality, region })
    }

    fn pair_worth(&self, one: u32, other: u32, desk: &mut Desk) -> Result<(f64, Option<&'a str>), Refusal> {
        let region = match self.input.queue.regions {
            None => Place::Anywhere,
            Some(_) => self.place(&[self.reached(one), self.reached(other)])?,
        };
        if self.input.queue.quality == Quality::Any && self.input.queue.avoid.is_empty() {
            return Ok((0.0, name_of(region)));
        }
        Ok((self.good_enough(&[one, other], &[0, 1], region, desk)?, name_of(region)))
    }

    fn reached(&self, row: u32) -> &Reached<'a> {
        &self.rows[row as usize].reached
    }

    fn place(&self, members: &[&Reached<'a>]) -> Result<Place<'a>, Refusal> {
        let Some(rule) = self.input.queue.regions else { return Ok(Place::Anywhere) };
        match region::choose(rule, &self.names, members) {
            Place::Nowhere => Err(Refusal::Region),
            place => Ok(place),
        }
    }

    fn worth(&self, rows: &[u32], teams: &[u16], place: Place<'a>, desk: &mut Desk) -> Worth {
        let (input, queue) = (self.input, self.input.queue);
        let grudges = self.grudges(rows);
        let mut costs = grudges;
        if let Some(rule) = queue.regions {
            costs += region::cost(rule, place, &rows.iter().map(|&row| self.reached(row)).collect::<Vec<_>>());
        }
        let bonus = queue.wait_bonus.as_ref();
        let settle = |base: f64| {
            let waited = rows.iter().map(|&row| self.rows[row as usize].waits.waited_ms);
            quality::settle(&queue.quality, bonus, base, waited.fold(0, u64::saturating_add), costs)
        };
        let worth = match queue.quality {
            Quality::SoftScore { .. } => settle(-self.worst_score(rows)),
            Quality::LeaderboardGauss { sigma, scale, .. } => {
                settle(quality::by_places(sigma, scale, rows.iter().map(|&row| self.rows[row as usize].place)))
            }
            _ => {
                let team = |at: usize| teams.get(at).copied().unwrap_or(0);
                let member = |(at, &row): (usize, &u32)| self.rows[row as usize].member(team(at));
                let members: Vec<Member<'_>> = rows.iter().enumerate().map(member).collect();
                quality::judge(input.ruleset, &queue.quality, bonus, &members, costs)
            }
        };
        if !worth.passes {
            self.note_when_it_will_do(rows, &worth, 0.0 < grudges, desk);
        }
        worth
    }

    /// Of any two of them.
    fn worst_score(&self, rows: &[u32]) -> f64 {
        let pairs =
            rows.iter().enumerate().flat_map(|(at, &one)| rows[at + 1..].iter().map(move |&other| (one, other)));
        pairs.fold(0.0, |worst, (one, other)| worst.max(self.columns.score(one, other)))
    }

    /// What the grudges between members take from quality: by each rule the dearest.
    fn grudges(&self, rows: &[u32]) -> f64 {
        let input = self.input;
        let rather_not = input.queue.avoid.iter().filter(|it| matches!(it.how, AvoidHow::RatherNot { .. }));
        let dearest = |rule| {
            let mut dearest: f64 = 0.0;
            for (place, &one) in rows.iter().enumerate() {
                for &other in &rows[place + 1..] {
                    let (one, other) = (&self.rows[one as usize], &self.rows[other as usize]);
                    if one.wary || other.wary {
                        dearest = dearest.max(avoid::cost(rule, input.meetings, one.wary(), other.wary(), input.now));
                    }
                }
            }
            dearest
        };
        rather_not.map(dearest).sum()
    }

    /// When the same match will be good enough, if all that happens is that its members wait.
    fn note_when_it_will_do(&self, rows: &[u32], worth: &Worth, grudges: bool, desk: &mut Desk) {
        let (queue, now) = (self.input.queue, self.input.now);
        if let Some(rule) = queue.wait_bonus.as_ref().filter(|it| worth.short_by.is_finite() && 0.0 < it.per_minute) {
            let waited: f64 = rows.iter().map(|&row| self.rows[row as usize].waits.waited_ms as f64 / 60_000.0).sum();
            let wanted = worth.short_by / rule.per_minute + (rule.free_minutes - waited).max(0.0);
            // All wait at once. A millisecond more, for the comparison may be strict.
            let ms = (wanted / rows.len() as f64 * 60_000.0).ceil() + 1.0;
            desk.changes_at(now.after(ms as u64));
        }
        if grudges {
            let half_lives = queue.avoid.iter().filter_map(|it| match it.how {
                AvoidHow::RatherNot { half_life_ms, .. } => Some(half_life_ms),
                _ => None,
            });
            // Grudges fade without steps; a sixteenth of a half-life is soon enough to look again.
            half_lives.for_each(|half_life_ms| desk.changes_at(now.after((half_life_ms / 16).max(1))));
        }
    }

    fn divide(&self, rows: &[u32]) -> Option<Vec<Team>> {
        let party = |&row: &u32| {
            let entrant = self.rows[row as usize].entrant;
            team::Party { ratings: &entrant.ratings, roles: &entrant.roles }
        };
        let parties: Vec<team::Party<'_>> = rows.iter().map(party).collect();
        let split = team::split(self.input.teams, &parties, &|one, other| self.apart(rows[one], rows[other]))?;
        let named = |team: Vec<(usize, Vec<u16>)>| team.into_iter().map(|(at, roles)| (rows[at], roles)).collect();
        Some(split.teams.into_iter().map(named).collect())
    }
}

fn name_of(place: Place<'_>) -> Option<&str> {
    match place {
        Place::There(name, _) => Some(name),
        Place::Nowhere | Place::Anywhere => None,
    }
}
