//! Match building: splits compatible parties into teams, chooses a region and checks the quality.

use crate::chosen_value::ChosenValue;
use crate::filter::Refusal;
use crate::id::{AdvertisementId, UserKey};
use crate::queue::candidate_match::CandidateMatch;
use crate::queue::input::OpenSession;
use crate::queue::pass_progress::PassProgress;
use crate::queue::pass_state::PassState;
use crate::queue::quality::{self, PartyQualityInput, QualityVerdict};
use crate::queue::region::{self, ReachableRegions, RegionChoice};
use crate::queue::ticket::PlayerRating;
use crate::ruleset::queue::{AvoidStrictness, QualitySpec};
use crate::ruleset::teams::TeamsSpec;
use crate::team;
use crate::value_choice::{ValueChoiceContext, choose_values, seed_of_id};

/// Tickets of one team: ticket index, and one role per player.
type TeamRowsWithRoles = Vec<(u32, Vec<u16>)>;

impl<'a> PassState<'a> {
    /// Builds a match from tickets that may all meet and fill the teams exactly, or leave seats to bots. Returns the first rule that
    /// fails.
    pub(in crate::queue) fn build_match(
        &self,
        rows: &[u32],
        progress: &mut PassProgress,
    ) -> Result<CandidateMatch<'a>, Refusal> {
        if let &[one, other] = rows
            && self.input.teams.team_sizes.len() == 2
            && self.input.teams.roles.is_empty()
            && self.input.teams.bots.is_none()
        {
            return self.build_two_ticket_match(one, other, progress);
        }
        self.choose_values(rows, None)?;
        let region = match self.input.queue.regions {
            None => RegionChoice::Unrestricted,
            Some(_) => {
                self.choose_region(&rows.iter().map(|&row| self.reachable_regions_of(row)).collect::<Vec<_>>())?
            }
        };
        // Only win and draw probabilities depend on the teams. For other qualities, a match is rejected before the
        // expensive team split.
        let needs_teams = matches!(
            self.input.queue.quality,
            QualitySpec::WinProbability { .. } | QualitySpec::DrawProbability { .. }
        );
        let mut quality = 0.0;
        if !needs_teams {
            quality = self.passing_quality(rows, &[], region, progress)?;
        }
        let teams = self.split_into_teams(rows, self.input.teams).ok_or_else(|| self.refusal_of_split(rows))?;
        if needs_teams {
            let tickets = teams.iter().zip(0_u16..).flat_map(|(team, place)| team.iter().map(move |it| (it.0, place)));
            let (rows, teams): (Vec<u32>, Vec<u16>) = tickets.unzip();
            quality = self.passing_quality(&rows, &teams, region, progress)?;
        }
        Ok(CandidateMatch { teams, quality, region: chosen_region_name(region) })
    }

    /// Entries chosen for these tickets and the session that they join, or the filter whose lists have nothing in common.
    pub(in crate::queue) fn choose_values(
        &self,
        rows: &[u32],
        session: Option<AdvertisementId>,
    ) -> Result<Box<[ChosenValue]>, Refusal> {
        if !self.chooses_values {
            return Ok(Box::default());
        }
        let session = session.and_then(|id| self.input.open_sessions.iter().find(|open| open.advertisement.id == id));
        let ticket = |row: &u32| self.tickets[*row as usize].prepared;
        let first_ticket = rows.iter().map(|row| ticket(row).ticket.id).min();
        let seed = match (session, first_ticket) {
            (Some(open), _) => seed_of_id(open.advertisement.id.as_bytes()),
            (None, first) => first.map_or(0, |id| seed_of_id(id.as_bytes())),
        };
        let of_tickets = rows.iter().map(|row| &ticket(row).attribute_values);
        let sessions = session.iter().map(|open| &open.attribute_values).chain(of_tickets);
        let users = if self.input.ruleset.played_values_recent_ms().is_some() {
            self.users_of(rows, session)
        } else {
            Vec::new()
        };
        let past_matches = self.input.past_matches;
        let promised = session.map_or(&[][..], |open| &open.promised_values);
        let choice = ValueChoiceContext {
            seed,
            users: &users,
            played: &past_matches.played_values,
            promised,
            now: self.input.now,
        };
        choose_values(self.input.ruleset, sessions, choice)
    }

    /// Users of these tickets, and of the session that they join.
    fn users_of(&self, rows: &[u32], session: Option<&OpenSession>) -> Vec<UserKey> {
        let of_tickets = rows.iter().flat_map(|row| self.tickets[*row as usize].prepared.users.iter().copied());
        let listed = session.iter().flat_map(|open| &open.advertisement.session.players).map(|player| player.user);
        let seated = session.iter().flat_map(|open| &open.parties).flat_map(|party| party.users.iter().copied());
        of_tickets.chain(listed).chain(seated).collect()
    }

    /// Quality of a match, or `LowQuality`. `teams` holds the team of each ticket where quality depends on teams.
    fn passing_quality(
        &self,
        rows: &[u32],
        teams: &[u16],
        region: RegionChoice<'a>,
        progress: &mut PassProgress,
    ) -> Result<f64, Refusal> {
        let quality = self.match_quality(rows, teams, region, progress);
        quality.passes.then_some(quality.quality).ok_or(Refusal::LowQuality)
    }

    /// Quality of a two-ticket match with one ticket per team, without building it.
    pub(in crate::queue) fn pair_quality(
        &self,
        one: u32,
        other: u32,
        progress: &mut PassProgress,
    ) -> Result<f64, Refusal> {
        self.pair_quality_and_region(one, other, progress).map(|(quality, _)| quality)
    }

    fn build_two_ticket_match(
        &self,
        one: u32,
        other: u32,
        progress: &mut PassProgress,
    ) -> Result<CandidateMatch<'a>, Refusal> {
        let sizes = &self.input.teams.team_sizes;
        let fits =
            |one: u32, other: u32| [one, other].map(|row| self.tickets[row as usize].player_count)[..] == sizes[..];
        let (first, second) = if fits(one, other) { (one, other) } else { (other, one) };
        fits(first, second).then_some(()).ok_or(Refusal::TeamsNotFilled)?;
        let (quality, region) = self.pair_quality_and_region(first, second, progress)?;
        Ok(CandidateMatch { teams: vec![vec![(first, Vec::new())], vec![(second, Vec::new())]], quality, region })
    }

    fn pair_quality_and_region(
        &self,
        one: u32,
        other: u32,
        progress: &mut PassProgress,
    ) -> Result<(f64, Option<&'a str>), Refusal> {
        let region = match self.input.queue.regions {
            None => RegionChoice::Unrestricted,
            Some(_) => self.choose_region(&[self.reachable_regions_of(one), self.reachable_regions_of(other)])?,
        };
        if self.input.queue.quality == QualitySpec::Any && self.input.queue.avoid.is_empty() {
            return Ok((0.0, chosen_region_name(region)));
        }
        Ok((self.passing_quality(&[one, other], &[0, 1], region, progress)?, chosen_region_name(region)))
    }

    fn reachable_regions_of(&self, row: u32) -> &ReachableRegions<'a> {
        &self.tickets[row as usize].reachable_regions
    }

    fn choose_region(&self, members: &[&ReachableRegions<'a>]) -> Result<RegionChoice<'a>, Refusal> {
        let Some(rule) = self.input.queue.regions else { return Ok(RegionChoice::Unrestricted) };
        match region::choose_region(rule, &self.region_names, members) {
            RegionChoice::NoCommonRegion => Err(Refusal::NoCommonRegion),
            choice => Ok(choice),
        }
    }

    fn match_quality(
        &self,
        rows: &[u32],
        teams: &[u16],
        region: RegionChoice<'a>,
        progress: &mut PassProgress,
    ) -> QualityVerdict {
        let (input, queue) = (self.input, self.input.queue);
        let avoidance_cost = self.avoidance_cost(rows);
        let mut costs = avoidance_cost;
        if let Some(rule) = queue.regions {
            costs += region::region_cost(
                rule,
                region,
                &rows.iter().map(|&row| self.reachable_regions_of(row)).collect::<Vec<_>>(),
            );
        }
        let bonus = queue.wait_bonus.as_ref();
        let with_bonus = |base: f64| {
            let waits = rows.iter().map(|&row| self.tickets[row as usize].waiting_session.waited_ms);
            quality::evaluate_from_base_quality(&queue.quality, bonus, base, waits.fold(0, u64::saturating_add), costs)
        };
        let quality = match queue.quality {
            QualitySpec::SoftScore { .. } => with_bonus(-self.worst_pair_score(rows)),
            QualitySpec::LeaderboardGauss { sigma, scale, .. } => with_bonus(quality::leaderboard_spread_quality(
                sigma,
                scale,
                rows.iter().map(|&row| self.tickets[row as usize].leaderboard_position),
            )),
            _ => {
                let team = |index: usize| teams.get(index).copied().unwrap_or(0);
                let input_of = |(index, &row): (usize, &u32)| self.tickets[row as usize].quality_input(team(index));
                let mut members: Vec<PartyQualityInput<'_>> = rows.iter().enumerate().map(input_of).collect();
                let bots = if teams.is_empty() { Vec::new() } else { self.bot_ratings_by_team(rows, teams) };
                members.extend(bots.iter().zip(0_u16..).filter(|(bots, _)| !bots.is_empty()).map(|(bots, team)| {
                    let first = self.tickets[rows[0] as usize].quality_input(team);
                    PartyQualityInput { player_ratings: bots, waited_ms: 0, ..first }
                }));
                quality::evaluate_quality(input.ruleset, &queue.quality, bonus, &members, costs)
            }
        };
        if !quality.passes {
            self.record_when_quality_passes(rows, &quality, avoidance_cost > 0.0, progress);
        }
        quality
    }

    /// Highest mutual soft score of any two tickets; lower is better.
    fn worst_pair_score(&self, rows: &[u32]) -> f64 {
        let pairs =
            rows.iter().enumerate().flat_map(|(index, &one)| rows[index + 1..].iter().map(move |&other| (one, other)));
        pairs.fold(0.0, |worst, (one, other)| worst.max(self.filter_columns.pair_score(one, other)))
    }

    /// Quality cost of avoidance rules: the sum over rules of the highest cost of any pair.
    fn avoidance_cost(&self, rows: &[u32]) -> f64 {
        let rules = &self.input.queue.avoid;
        if rules.is_empty() || self.is_without_avoidance() {
            return 0.0;
        }
        let mut max_costs = vec![0.0_f64; rules.len()];
        for (index, &one) in rows.iter().enumerate() {
            for &other in &rows[index + 1..] {
                if let Some(reasons) = self.avoidance_reasons(one, other) {
                    let costs = rules.iter().map(|rule| reasons.rule_cost(rule, self.input.now));
                    max_costs.iter_mut().zip(costs).for_each(|(max_cost, cost)| *max_cost = max_cost.max(cost));
                }
            }
        }
        max_costs.into_iter().sum()
    }

    /// Records when the match would be good enough if its tickets only wait.
    fn record_when_quality_passes(
        &self,
        rows: &[u32],
        quality: &QualityVerdict,
        has_avoidance_cost: bool,
        progress: &mut PassProgress,
    ) {
        let (queue, now) = (self.input.queue, self.input.now);
        if let Some(rule) =
            queue.wait_bonus.as_ref().filter(|it| quality.shortfall.is_finite() && it.per_combined_minute > 0.0)
        {
            let waited_minutes: f64 =
                rows.iter().map(|&row| self.tickets[row as usize].waiting_session.waited_ms as f64 / 60_000.0).sum();
            let wanted_minutes =
                quality.shortfall / rule.per_combined_minute + (rule.free_combined_minutes - waited_minutes).max(0.0);
            // All tickets wait at the same time. One extra millisecond, because the comparison may be strict.
            let ms = (wanted_minutes / rows.len() as f64 * 60_000.0).ceil() + 1.0;
            progress.record_next_change_at(now.plus_ms(ms as u64));
        }
        if has_avoidance_cost {
            let half_lives = queue.avoid.iter().filter_map(|it| match it.how {
                AvoidStrictness::PreferNot { half_life_ms, .. } => Some(half_life_ms),
                _ => None,
            });
            // Costs fall continuously, so check again after a sixteenth of a half-life.
            half_lives.for_each(|half_life_ms| progress.record_next_change_at(now.plus_ms((half_life_ms / 16).max(1))));
        }
    }

    /// Rule that prevents a split: the roles, if there is a split without them.
    fn refusal_of_split(&self, rows: &[u32]) -> Refusal {
        let teams = self.input.teams;
        if teams.roles.is_empty() {
            return Refusal::TeamsNotFilled;
        }
        let without_roles = TeamsSpec { roles: Box::default(), ..teams.clone() };
        match self.split_into_teams(rows, &without_roles) {
            Some(_) => Refusal::RolesNotFilled,
            None => Refusal::TeamsNotFilled,
        }
    }

    /// Ratings of the bots of each team: the mean of all players.
    fn bot_ratings_by_team(&self, rows: &[u32], teams: &[u16]) -> Vec<Vec<PlayerRating>> {
        let spec = self.input.teams;
        if spec.bots.is_none() {
            return Vec::new();
        }
        let ratings = || rows.iter().flat_map(|&row| &self.tickets[row as usize].prepared.ticket.player_ratings);
        let mean =
            |value: fn(&PlayerRating) -> f64| ratings().map(value).sum::<f64>() / ratings().count().max(1) as f64;
        let bot = PlayerRating { rating: mean(|player| player.rating), deviation: mean(|player| player.deviation) };
        let players_in = |team: u16| {
            let rows = rows.iter().zip(teams).filter(|(_, of_row)| **of_row == team);
            rows.map(|(&row, _)| self.tickets[row as usize].player_count).sum()
        };
        let bots = spec.bots_by_team((0..spec.team_sizes.len() as u16).map(players_in));
        bots.iter().map(|&count| vec![bot; usize::from(count)]).collect()
    }

    fn split_into_teams(&self, rows: &[u32], teams: &TeamsSpec) -> Option<Vec<TeamRowsWithRoles>> {
        let party = |&row: &u32| self.tickets[row as usize].prepared.team_party();
        let parties: Vec<team::TeamParty<'_>> = rows.iter().map(party).collect();
        let apart = |one: usize, other: usize| self.must_be_in_different_teams(rows[one], rows[other]);
        let split = match teams.bots {
            // Without two parties there would be one side only.
            Some(_) if rows.len() < 2 => None,
            Some(_) => team::split_with_bots(teams, &parties, &apart),
            None => team::split_into_teams(teams, &parties, &apart),
        }?;
        let with_indices =
            |team: Vec<(usize, Vec<u16>)>| team.into_iter().map(|(position, roles)| (rows[position], roles)).collect();
        Some(split.teams.into_iter().map(with_indices).collect())
    }
}

fn chosen_region_name(choice: RegionChoice<'_>) -> Option<&str> {
    match choice {
        RegionChoice::Chosen(name, _) => Some(name),
        RegionChoice::NoCommonRegion | RegionChoice::Unrestricted => None,
    }
}
