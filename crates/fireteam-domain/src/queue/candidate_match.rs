//! From parties that may meet to a match: divided into teams, placed in a region, and good enough.

use crate::filter::Refusal;
use crate::id::AdvertisementId;
use crate::queue::avoidance;
use crate::queue::pass_progress::PassProgress;
use crate::queue::pass_state::PassState;
use crate::queue::proposal::{Proposal, ProposedTicket};
use crate::queue::quality::{self, MatchQuality, QualityInput};
use crate::queue::region::{self, ReachableRegions, RegionChoice};
use crate::ruleset::queue::{AvoidStrictness, QualitySpec};
use crate::team;

/// The rows of a team, and what the players of each play.
type TeamRows = Vec<(u32, Vec<u16>)>;

/// A match that would do.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CandidateMatch<'a> {
    /// Rows by team, with what each one's players play.
    pub(super) teams: Vec<Vec<(u32, Vec<u16>)>>,
    /// By the ruleset, bonus and costs included.
    pub(super) quality: f64,
    /// Where they meet.
    pub(super) region: Option<&'a str>,
}

impl CandidateMatch<'_> {
    /// Its rows.
    pub(super) fn ticket_indices(&self) -> impl Iterator<Item = u32> + '_ {
        self.teams.iter().flatten().map(|(row, _)| *row)
    }

    pub(super) fn into_proposal(self, field: &PassState<'_>, backfills: Option<AdvertisementId>) -> Proposal {
        let placed = |(row, roles): (u32, Vec<u16>)| ProposedTicket {
            ticket_id: field.tickets[row as usize].prepared.ticket.id,
            roles,
        };
        let any = field.input.queue.quality == QualitySpec::Any;
        Proposal {
            teams: self.teams.into_iter().map(|team| team.into_iter().map(placed).collect()).collect(),
            quality: if any { 0.0 } else { self.quality },
            region: self.region.map(Into::into),
            backfilled_session: backfills,
        }
    }
}

impl<'a> PassState<'a> {
    /// Makes a match of `rows`, all of whom may meet and who are as many players as it takes; or says what is in the way.
    pub(super) fn build_match(&self, rows: &[u32], desk: &mut PassProgress) -> Result<CandidateMatch<'a>, Refusal> {
        if let &[one, other] = rows
            && self.input.teams.team_sizes.len() == 2
            && self.input.teams.roles.is_empty()
        {
            return self.build_two_ticket_match(one, other, desk);
        }
        let region = match self.input.queue.regions {
            None => RegionChoice::Unrestricted,
            Some(_) => self.choose_region(&rows.iter().map(|&row| self.reachable_regions(row)).collect::<Vec<_>>())?,
        };
        // Only chances go by teams; whatever else is not good enough need not be divided, which is the dearest step.
        let by_teams = matches!(
            self.input.queue.quality,
            QualitySpec::WinProbability { .. } | QualitySpec::DrawProbability { .. }
        );
        let mut quality = 0.0;
        if !by_teams {
            quality = self.passing_quality(rows, &[], region, desk)?;
        }
        let teams = self.split_into_teams(rows).ok_or(Refusal::TeamsNotFilled)?;
        if by_teams {
            let placed = teams.iter().zip(0_u16..).flat_map(|(team, place)| team.iter().map(move |it| (it.0, place)));
            let (rows, teams): (Vec<u32>, Vec<u16>) = placed.unzip();
            quality = self.passing_quality(&rows, &teams, region, desk)?;
        }
        Ok(CandidateMatch { teams, quality, region: region_name(region) })
    }

    /// The quality of a match of `rows`, if it will do; `teams` says which team each is in, where that counts.
    fn passing_quality(
        &self,
        rows: &[u32],
        teams: &[u16],
        region: RegionChoice<'a>,
        desk: &mut PassProgress,
    ) -> Result<f64, Refusal> {
        let worth = self.match_quality(rows, teams, region, desk);
        worth.passes.then_some(worth.quality).ok_or(Refusal::LowQuality)
    }

    /// How good two would be together, one in each team, if that is good enough; without making anything of it.
    pub(super) fn pair_quality(&self, one: u32, other: u32, desk: &mut PassProgress) -> Result<f64, Refusal> {
        self.pair_quality_and_region(one, other, desk).map(|(worth, _)| worth)
    }

    fn build_two_ticket_match(
        &self,
        one: u32,
        other: u32,
        desk: &mut PassProgress,
    ) -> Result<CandidateMatch<'a>, Refusal> {
        let sizes = &self.input.teams.team_sizes;
        let fit =
            |one: u32, other: u32| [one, other].map(|row| self.tickets[row as usize].player_count)[..] == sizes[..];
        let (first, second) = if fit(one, other) { (one, other) } else { (other, one) };
        fit(first, second).then_some(()).ok_or(Refusal::TeamsNotFilled)?;
        let (quality, region) = self.pair_quality_and_region(first, second, desk)?;
        Ok(CandidateMatch { teams: vec![vec![(first, Vec::new())], vec![(second, Vec::new())]], quality, region })
    }

    fn pair_quality_and_region(
        &self,
        one: u32,
        other: u32,
        desk: &mut PassProgress,
    ) -> Result<(f64, Option<&'a str>), Refusal> {
        let region = match self.input.queue.regions {
            None => RegionChoice::Unrestricted,
            Some(_) => self.choose_region(&[self.reachable_regions(one), self.reachable_regions(other)])?,
        };
        if self.input.queue.quality == QualitySpec::Any && self.input.queue.avoid.is_empty() {
            return Ok((0.0, region_name(region)));
        }
        Ok((self.passing_quality(&[one, other], &[0, 1], region, desk)?, region_name(region)))
    }

    fn reachable_regions(&self, row: u32) -> &ReachableRegions<'a> {
        &self.tickets[row as usize].reachable_regions
    }

    fn choose_region(&self, members: &[&ReachableRegions<'a>]) -> Result<RegionChoice<'a>, Refusal> {
        let Some(rule) = self.input.queue.regions else { return Ok(RegionChoice::Unrestricted) };
        match region::choose_region(rule, &self.region_names, members) {
            RegionChoice::NoCommonRegion => Err(Refusal::NoCommonRegion),
            place => Ok(place),
        }
    }

    fn match_quality(
        &self,
        rows: &[u32],
        teams: &[u16],
        place: RegionChoice<'a>,
        desk: &mut PassProgress,
    ) -> MatchQuality {
        let (input, queue) = (self.input, self.input.queue);
        let grudges = self.avoidance_cost(rows);
        let mut costs = grudges;
        if let Some(rule) = queue.regions {
            costs += region::region_cost(
                rule,
                place,
                &rows.iter().map(|&row| self.reachable_regions(row)).collect::<Vec<_>>(),
            );
        }
        let bonus = queue.wait_bonus.as_ref();
        let settle = |base: f64| {
            let waited = rows.iter().map(|&row| self.tickets[row as usize].waiting_session.waited_ms);
            quality::apply_bonus_and_costs(&queue.quality, bonus, base, waited.fold(0, u64::saturating_add), costs)
        };
        let worth = match queue.quality {
            QualitySpec::SoftScore { .. } => settle(-self.worst_pair_score(rows)),
            QualitySpec::LeaderboardGauss { sigma, scale, .. } => settle(quality::leaderboard_quality(
                sigma,
                scale,
                rows.iter().map(|&row| self.tickets[row as usize].leaderboard_position),
            )),
            _ => {
                let team = |at: usize| teams.get(at).copied().unwrap_or(0);
                let member = |(at, &row): (usize, &u32)| self.tickets[row as usize].quality_input(team(at));
                let members: Vec<QualityInput<'_>> = rows.iter().enumerate().map(member).collect();
                quality::evaluate_quality(input.ruleset, &queue.quality, bonus, &members, costs)
            }
        };
        if !worth.passes {
            self.record_when_quality_passes(rows, &worth, 0.0 < grudges, desk);
        }
        worth
    }

    /// Of any two of them.
    fn worst_pair_score(&self, rows: &[u32]) -> f64 {
        let pairs =
            rows.iter().enumerate().flat_map(|(at, &one)| rows[at + 1..].iter().map(move |&other| (one, other)));
        pairs.fold(0.0, |worst, (one, other)| worst.max(self.filter_columns.pair_score(one, other)))
    }

    /// What the grudges between members take from quality: by each rule the dearest.
    fn avoidance_cost(&self, rows: &[u32]) -> f64 {
        let input = self.input;
        let rather_not = input.queue.avoid.iter().filter(|it| matches!(it.how, AvoidStrictness::RatherNot { .. }));
        let dearest = |rule| {
            let mut dearest: f64 = 0.0;
            for (place, &one) in rows.iter().enumerate() {
                for &other in &rows[place + 1..] {
                    let (one, other) = (&self.tickets[one as usize], &self.tickets[other as usize]);
                    if one.has_avoidances || other.has_avoidances {
                        dearest = dearest.max(avoidance::avoidance_cost(
                            rule,
                            input.past_matches,
                            one.avoidance_side(),
                            other.avoidance_side(),
                            input.now,
                        ));
                    }
                }
            }
            dearest
        };
        rather_not.map(dearest).sum()
    }

    /// When the same match will be good enough, if all that happens is that its members wait.
    fn record_when_quality_passes(&self, rows: &[u32], worth: &MatchQuality, grudges: bool, desk: &mut PassProgress) {
        let (queue, now) = (self.input.queue, self.input.now);
        if let Some(rule) = queue.wait_bonus.as_ref().filter(|it| worth.shortfall.is_finite() && 0.0 < it.per_minute) {
            let waited: f64 =
                rows.iter().map(|&row| self.tickets[row as usize].waiting_session.waited_ms as f64 / 60_000.0).sum();
            let wanted = worth.shortfall / rule.per_minute + (rule.free_minutes - waited).max(0.0);
            // All wait at once. A millisecond more, for the comparison may be strict.
            let ms = (wanted / rows.len() as f64 * 60_000.0).ceil() + 1.0;
            desk.record_change_at(now.plus_ms(ms as u64));
        }
        if grudges {
            let half_lives = queue.avoid.iter().filter_map(|it| match it.how {
                AvoidStrictness::RatherNot { half_life_ms, .. } => Some(half_life_ms),
                _ => None,
            });
            // Grudges fade without steps; a sixteenth of a half-life is soon enough to look again.
            half_lives.for_each(|half_life_ms| desk.record_change_at(now.plus_ms((half_life_ms / 16).max(1))));
        }
    }

    fn split_into_teams(&self, rows: &[u32]) -> Option<Vec<TeamRows>> {
        let party = |&row: &u32| {
            let entrant = self.tickets[row as usize].prepared;
            team::TeamParty { ratings: &entrant.player_ratings, offered_roles: &entrant.offered_roles }
        };
        let parties: Vec<team::TeamParty<'_>> = rows.iter().map(party).collect();
        let split = team::split_into_teams(self.input.teams, &parties, &|one, other| {
            self.must_be_in_different_teams(rows[one], rows[other])
        })?;
        let named = |team: Vec<(usize, Vec<u16>)>| team.into_iter().map(|(at, roles)| (rows[at], roles)).collect();
        Some(split.teams.into_iter().map(named).collect())
    }
}

fn region_name(place: RegionChoice<'_>) -> Option<&str> {
    match place {
        RegionChoice::Chosen(name, _) => Some(name),
        RegionChoice::NoCommonRegion | RegionChoice::Unrestricted => None,
    }
}
