//! Queue fixtures for tests: plain ones for scenarios, random ones for the comparison with the reference
//! implementation.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::attribute::{Attribute, AttributeValue, NumberAggregation, SourceField, Trust, ValueOrigin, ValueType};
use crate::expansion::{Expansion, ExpansionStep};
use crate::id::{RulesetHash, SetId, SiloId, TicketId, UserKey};
use crate::latency::DEFAULT_LATENCY_MODEL;
use crate::locality::Locality;
use crate::matchmaking_action::AdvertiseChances;
use crate::measure::Measure;
use crate::queue::avoidance::{PastMatches, PlayedPair};
use crate::queue::backfill::OpenSession;
use crate::queue::gate::GateCounts;
use crate::queue::pass::{self, PassInput, PassOutcome};
use crate::queue::prepared_ticket::PreparedTicket;
use crate::queue::rng::SplitMix64;
use crate::queue::tests::random_vectors::random_vectors;
use crate::queue::tests::random_wishes::random_wishes;
use crate::queue::ticket::{PlayerRating, Ticket};
use crate::queue::ticket_vector::TicketBeaconVector;
use crate::ruleset::probing::DEFAULT_PROBING;
use crate::ruleset::queue::{
    AvoidStrictness, AvoidTarget, AvoidanceRule, BucketRounding, FrustratedPlayerSpec, Gate, GateRounding,
    MaxRangeCombination, PassTrigger, QualitySpec, QueueSpec, RatingGroup, RatingGroups, RatingWindow, RegionUse,
    SelectionMode, SelectionOrder, SelectionSpec, WaitBonus, WindowClock, WindowPairRule,
};
use crate::ruleset::rating::{RatingSpec, RatingSystem};
use crate::ruleset::teams::{
    AllocatorOfferSpec, GameServerOrder, HostingMode, HostingSpec, PlayerDataForHost, TeamOrderInMatch, TeamsSpec,
};
use crate::ruleset::{
    AdvertisementIdForm, DistanceCurve, HardFilter, HardMissingPolicy, HardRule, PartyConsentPolicy, Ruleset,
    RulesetSilos, SearchLimits, SoftFilter, SoftFilterObjective, SoftMissingPolicy,
};
use crate::session::{Player, RegionLatency, Session};
use crate::time::UnixMs;

/// Default time of a pass.
pub(in crate::queue) const NOW: UnixMs = UnixMs(1_700_000_000_000);

/// Queue with its waiting tickets.
pub(in crate::queue) struct QueueFixture {
    pub(in crate::queue) ruleset: Ruleset,
    pub(in crate::queue) tickets: Vec<Arc<Ticket>>,
    pub(in crate::queue) leaderboard_positions: Vec<Option<f64>>,
    /// Vectors of tickets that have one.
    pub(in crate::queue) vectors: BTreeMap<TicketId, Arc<TicketBeaconVector>>,
    pub(in crate::queue) open_sessions: Vec<OpenSession>,
    pub(in crate::queue) past_matches: PastMatches,
    pub(in crate::queue) gate_counts: GateCounts,
    pub(in crate::queue) now: UnixMs,
    pub(in crate::queue) rng_seed: u64,
    pub(in crate::queue) max_pair_checks: u64,
}

impl QueueFixture {
    /// 1v1 queue without tickets and without rules that refuse.
    pub(in crate::queue) fn one_vs_one() -> Self {
        Self {
            ruleset: new_ruleset(Vec::new(), Vec::new(), Vec::new()),
            tickets: Vec::new(),
            leaderboard_positions: Vec::new(),
            vectors: BTreeMap::new(),
            open_sessions: Vec::new(),
            past_matches: PastMatches::default(),
            gate_counts: GateCounts::default(),
            now: NOW,
            rng_seed: 1,
            max_pair_checks: u64::MAX,
        }
    }

    pub(in crate::queue) fn queue_mut(&mut self) -> &mut QueueSpec {
        self.ruleset.queue.as_mut().unwrap()
    }

    pub(in crate::queue) fn set_team_sizes(&mut self, sizes: &[u16]) {
        let teams = self.ruleset.teams.as_mut().unwrap();
        teams.team_sizes = sizes.into();
        teams.max_party_size = teams.largest_team_size();
    }

    /// Adds a party with these ratings that has waited `waited_ms`. Its id is its number.
    pub(in crate::queue) fn add_ticket(&mut self, ratings: &[f64], waited_ms: u64) -> TicketId {
        let number = self.tickets.len() as u64;
        let ticket = new_ticket(number, ratings, UnixMs(self.now.0 - waited_ms));
        let id = ticket.id;
        self.tickets.push(Arc::new(ticket));
        self.leaderboard_positions.push(None);
        id
    }

    pub(in crate::queue) fn prepared_tickets(&self) -> Vec<PreparedTicket> {
        let queue = self.ruleset.queue.as_ref().unwrap();
        let tickets = self.tickets.iter().zip(&self.leaderboard_positions);
        let prepare = |(ticket, position): (&Arc<Ticket>, &Option<f64>)| {
            // Every third ticket is frustrated, which matters only with a satisfaction rule.
            let frustrated = ticket_number(ticket.id) % 3 == 1;
            let prepared = PreparedTicket::new(&self.ruleset, queue, Arc::clone(ticket), *position);
            let vector = self.vectors.get(&ticket.id).cloned();
            PreparedTicket { frustrated, vector, ..prepared }.with_limits_if_frustrated(&self.ruleset, frustrated)
        };
        tickets.map(prepare).collect()
    }

    pub(in crate::queue) fn with_input<T>(&self, tickets: &[PreparedTicket], f: impl FnOnce(&PassInput<'_>) -> T) -> T {
        let tickets: Vec<&PreparedTicket> = tickets.iter().collect();
        f(&PassInput {
            ruleset: &self.ruleset,
            queue: self.ruleset.queue.as_ref().unwrap(),
            teams: self.ruleset.teams.as_ref().unwrap(),
            tickets: &tickets,
            open_sessions: &self.open_sessions,
            past_matches: &self.past_matches,
            gate_counts: self.gate_counts,
            now: self.now,
            rng_seed: self.rng_seed,
            max_pair_checks: self.max_pair_checks,
        })
    }

    pub(in crate::queue) fn run_pass(&self) -> PassOutcome {
        self.with_input(&self.prepared_tickets(), pass::run_pass)
    }

    /// Ticket numbers of each match, sorted, regardless of teams.
    pub(in crate::queue) fn matched_ticket_numbers(&self) -> Vec<Vec<u64>> {
        let numbers = |it: &crate::queue::proposal::Proposal| {
            let mut numbers: Vec<u64> = it.teams.iter().flatten().map(|it| ticket_number(it.ticket_id)).collect();
            numbers.sort_unstable();
            numbers
        };
        self.run_pass().proposals.iter().map(numbers).collect()
    }
}

pub(in crate::queue) fn ticket_number(id: TicketId) -> u64 {
    u64::from_be_bytes(*id.as_bytes().last_chunk().unwrap())
}

pub(in crate::queue) fn ticket_id(number: u64) -> TicketId {
    TicketId::from_bytes(u128::from(number).to_be_bytes())
}

pub(in crate::queue) fn user_key(number: u64, player: usize) -> UserKey {
    UserKey::from_bytes((u128::from(number) << 8 | player as u128 | 1 << 100).to_be_bytes())
}

pub(in crate::queue) fn new_ticket(number: u64, ratings: &[f64], entered_at: UnixMs) -> Ticket {
    let player = |(index, rating): (usize, &f64)| Player {
        stated_skill: Some(*rating),
        ..Player::from_user(user_key(number, index))
    };
    Ticket {
        id: ticket_id(number),
        set_id: SetId(1),
        subject: None,
        entered_at,
        session: Session {
            silo: SiloId(1),
            party_sizes: [ratings.len() as u8].into(),
            players: ratings.iter().enumerate().map(player).collect(),
            value_origin: ValueOrigin::GameServer,
            ..Session::default()
        },
        player_ratings: ratings.iter().map(|&rating| PlayerRating { rating, deviation: 1.0 }).collect(),
        exact_round_trips_ms: None,
        blocked_users: Vec::new(),
        rating_digest_key: None,
        excludes_other_tickets: false,
        self_answering_users: Vec::new(),
    }
}

/// Teiserver's window (S0-13 to S0-16).
pub(in crate::queue) const UNIT_WINDOW: RatingWindow = RatingWindow {
    bucket_boundaries: None,
    bucket_width: 1.0,
    rounding: BucketRounding::Round,
    initial_half_width: 0,
    step: 1,
    step_every_ms: 20_000,
    max_half_width: Some(10),
    max_percent_of_rating: None,
    combine: MaxRangeCombination::Smaller,
    other_range_cover_percent: 100.0,
    clock: WindowClock::Queue,
    rule: WindowPairRule::Contain,
};

/// comprl's quality (S2-9, S2-12, B-27).
pub(in crate::queue) const GAUSS_QUALITY: QualitySpec =
    QualitySpec::LeaderboardGauss { sigma: 20.0, scale: 0.5, threshold: 0.3 };

fn default_queue_spec() -> QueueSpec {
    QueueSpec {
        pass_trigger: PassTrigger::Interval,
        pass_interval_ms: 250,
        party_rating: NumberAggregation::Max,
        allow_other_queues: true,
        prefer_same_party_size: false,
        backfill: false,
        ticket_ttl_ms: 60_000,
        gate: Gate {
            min_waiting_percent: 0.0,
            rounding: GateRounding::Up,
            max_concurrent_matches: None,
            skip_unchanged: true,
        },
        groups: None,
        regions: None,
        window: None,
        quality: QualitySpec::Any,
        selection: SelectionSpec {
            mode: SelectionMode::Nearest,
            start_with: SelectionOrder::LongestWaiting,
            max_candidates: 256,
            exact_up_to_tickets: 1_000,
            look: Default::default(),
        },
        wait_bonus: None,
        avoid: Box::default(),
        offer: None,
        frustrated_player_window: None,
    }
}

fn new_ruleset(hard: Vec<HardFilter>, soft: Vec<SoftFilter>, expansions: Vec<Expansion>) -> Ruleset {
    let attribute = |name: &str, kind, source| Attribute {
        name: name.into(),
        value_type: kind,
        source,
        normalization_range: None,
        unit: "".into(),
        number_aggregation: NumberAggregation::Max,
        trust: Trust::GameServer,
        allows_wishes: true,
    };
    Ruleset {
        name: "queue".into(),
        set_id: SetId(1),
        hash: RulesetHash(1),
        silos: RulesetSilos::Any,
        attributes: [
            attribute("skill", ValueType::Number, SourceField::Skill),
            attribute("mode", ValueType::String, SourceField::AttributeMap),
            attribute("region", ValueType::String, SourceField::AttributeMap),
            attribute("taste", ValueType::Number, SourceField::AttributeMap),
        ]
        .into(),
        hard_filters: hard.into(),
        soft_filters: soft.into(),
        expansions: expansions.into(),
        advertise_chances: AdvertiseChances::from_game_size(2),
        search_limits: SearchLimits { max_results: 50, max_evaluated: u32::MAX },
        clients_per_account: 1,
        advertisement_id_form: AdvertisementIdForm::Ids,
        latency_model: DEFAULT_LATENCY_MODEL,
        answered_percent_for_involved_phase: 50.0,
        probing: DEFAULT_PROBING,
        allows_latency_wishes: true,
        consent: PartyConsentPolicy::Assumed,
        avoid: Box::default(),
        frustrated_player_limits: None,
        teams: Some(TeamsSpec {
            team_sizes: [1, 1].into(),
            max_party_size: 1,
            exact_up_to_team_size: 5,
            roles: Box::default(),
            order: TeamOrderInMatch::Split,
            offered_roles_attribute: None,
            bots: None,
        }),
        queue: Some(default_queue_spec()),
        ready_check: None,
        hosting: HostingSpec {
            mode: HostingMode::None,
            allocation_timeout_ms: 0,
            max_match_ms: 0,
            confirm_ms: 0,
            host_loss_ms: 0,
            report_window_ms: 0,
            game_server_order: GameServerOrder::BestScore,
            max_round_trip_ms: None,
            allocator_offers: AllocatorOfferSpec::NO_OFFERS,
            host_data: PlayerDataForHost::default(),
        },
        rating: Some(RatingSpec::with_defaults(RatingSystem::Elo { initial: 0.0, k: 16.0, scale: 40.0 })),
        former_rating: None,
        rating_pool: None,
        statistics_regions: Box::default(),
        source_xml: "".into(),
        file_xml: "".into(),
    }
}

/// Random ruleset and tickets, with ties, gaps, few distinct values, blocks and past matches.
pub(in crate::queue) fn random_queue_fixture(seed: u64, max_tickets: u64) -> QueueFixture {
    let mut rng = SplitMix64(seed);
    let mut fixture = QueueFixture::one_vs_one();
    fixture.ruleset = random_ruleset(&mut rng);
    fixture.rng_seed = rng.next_u64();
    let count = 2 + random_below(&mut rng, max_tickets - 1);
    let party_max = fixture.ruleset.teams.as_ref().unwrap().max_party_size;
    for number in 0..count {
        let size = 1 + random_below(&mut rng, party_max.into());
        let size = if one_in(&mut rng, 2) { 1 } else { size };
        let ratings: Vec<f64> = (0..size).map(|_| random_below(&mut rng, 30) as f64 * 0.5).collect();
        let waited_ms = random_below(&mut rng, 6) * 17_000 + random_below(&mut rng, 2) * 500;
        let mut ticket = new_ticket(number, &ratings, UnixMs(NOW.0 - waited_ms));
        random_session(&mut rng, &mut ticket.session);
        ticket.session.details = random_wishes(seed, number);
        // Exact round trips are up to 12 ms less or more than those that others see.
        let own =
            |latency: &RegionLatency| (latency.round_trip_ms + (latency.round_trip_ms * 7.0) % 25.0 - 12.0).max(0.0);
        ticket.exact_round_trips_ms = Some(ticket.session.region_latencies.iter().map(own).collect());
        if one_in(&mut rng, 4) {
            ticket.blocked_users = vec![user_key(random_below(&mut rng, count), 0)];
        }
        fixture.tickets.push(Arc::new(ticket));
        let position = random_below(&mut rng, 60) as f64;
        fixture.leaderboard_positions.push((!one_in(&mut rng, 12)).then_some(position));
    }
    let past_match = |_| PlayedPair {
        user: user_key(random_below(&mut rng, count), 0),
        other_user: user_key(random_below(&mut rng, count), 0),
        same_team: one_in(&mut rng, 2),
        started_at: UnixMs(NOW.0 - random_below(&mut rng, 10) * 600_000),
    };
    fixture.past_matches = PastMatches::from_pairs_keeping_latest((0..count).map(past_match));
    // Without vectors it changes nothing.
    fixture.ruleset.probing.filters_by_interval_high_end = seed.is_multiple_of(2);
    fixture.vectors = random_vectors(seed, &fixture.tickets, NOW);
    let wider = |widen_limits| {
        Some(FrustratedPlayerSpec { limit_widen_factor: widen_limits, ..FrustratedPlayerSpec::default() })
    };
    fixture.ruleset.frustrated_player_limits = pick_random(&mut rng, &[None, None, wider(1.4), wider(3.0)]);
    fixture
}

fn random_session(rng: &mut SplitMix64, session: &mut Session) {
    let text = |rng: &mut SplitMix64| AttributeValue::String(format!("t{}", random_below(rng, 3)).into());
    for (name, missing) in [("mode", 9), ("region", 7), ("taste", 5)] {
        if !one_in(rng, missing) {
            let value = if name == "taste" { AttributeValue::Number(random_below(rng, 10) as f64) } else { text(rng) };
            session.attributes.push((name.into(), value));
        }
    }
    if !one_in(rng, 4) {
        session.locality =
            Locality::from_degrees(random_below(rng, 120) as f64 - 60.0, random_below(rng, 300) as f64 - 150.0);
    }
    let regions = ["asia", "eu", "us"].into_iter().filter(|_| one_in(rng, 2)).collect::<Vec<_>>();
    let latency = |region: &str| RegionLatency { region: region.into(), round_trip_ms: random_below(rng, 150) as f32 };
    session.region_latencies = regions.into_iter().map(latency).collect();
}

fn random_ruleset(rng: &mut SplitMix64) -> Ruleset {
    let steps = |values: [f64; 3]| {
        values
            .into_iter()
            .zip([0, 20_000, 40_000])
            .map(|(value, start_ms)| ExpansionStep { start_ms, limit: value })
            .collect()
    };
    let expansions = vec![
        Expansion::new("skill", Measure::AttributeDifference(0), steps([2.0, 5.0, 12.0])).unwrap(),
        Expansion::new("latency", Measure::Latency, steps([60.0, 110.0, 300.0])).unwrap(),
        Expansion::new("taste", Measure::AttributeDifference(3), steps([2.0, 4.0, 8.0])).unwrap(),
    ];
    let missing =
        |rng: &mut SplitMix64| if one_in(rng, 3) { HardMissingPolicy::Refuse } else { HardMissingPolicy::Pass };
    let mut hard = Vec::new();
    let rules = [
        HardRule::Equal { attribute: 1, value: None },
        HardRule::NotEqual { attribute: 1, value: Some(AttributeValue::String("t0".into())) },
        HardRule::Range { attribute: 3, min: 0.0, max: 8.0 },
        HardRule::Within { measure: Measure::AttributeDifference(0), expansion: 0, reciprocal_percent: 100.0 },
        HardRule::Within { measure: Measure::Latency, expansion: 1, reciprocal_percent: 50.0 },
        HardRule::Within { measure: Measure::AttributeDifference(3), expansion: 2, reciprocal_percent: 0.0 },
    ];
    for rule in rules {
        if one_in(rng, 4) {
            hard.push(HardFilter { name: "hard".into(), missing: missing(rng), rule });
        }
    }
    let soft = |name: &str, weight, measure, mode, curve, max| SoftFilter {
        name: name.into(),
        weight,
        measure,
        mode,
        curve,
        missing: SoftMissingPolicy::Worst,
        min: 0.0,
        max,
    };
    let curve = pick_random(rng, &[DistanceCurve::Linear, DistanceCurve::Quadratic, DistanceCurve::SquareRoot]);
    let soft = vec![
        soft("skill", 0.6, Measure::AttributeDifference(0), SoftFilterObjective::Difference, curve, 15.0),
        soft("distance", 0.4, Measure::Distance, SoftFilterObjective::LowerIsBetter, DistanceCurve::Linear, 8_000.0),
        soft("latency", 0.2, Measure::Latency, SoftFilterObjective::LowerIsBetter, DistanceCurve::Linear, 300.0),
        soft("delta_ping", 0.3, Measure::DeltaPing, SoftFilterObjective::LowerIsBetter, DistanceCurve::Linear, 100.0),
        soft(
            "taste",
            0.1,
            Measure::AttributeDifference(3),
            SoftFilterObjective::LowerIsBetter,
            DistanceCurve::Linear,
            10.0,
        ),
    ];
    let soft = soft.into_iter().filter(|_| !one_in(rng, 3)).collect();
    let mut rules = new_ruleset(hard, soft, expansions);
    let sizes: [&[u16]; 7] = [&[1, 1], &[1, 1], &[1, 1], &[2, 2], &[3, 3], &[1, 1, 1], &[2, 1]];
    let teams = rules.teams.as_mut().unwrap();
    teams.team_sizes = pick_random(rng, &sizes).into();
    teams.max_party_size = teams.largest_team_size();
    random_queue_spec(rng, rules.queue.as_mut().unwrap());
    if matches!(rules.queue.as_ref().unwrap().quality, QualitySpec::DrawProbability { .. }) {
        let system = RatingSystem::TrueSkill { mu: 0.0, sigma: 8.0, beta: 4.0, tau: 0.0, draw_percent: 5.0 };
        rules.rating = Some(RatingSpec::with_defaults(system));
    }
    rules
}

#[expect(clippy::too_many_lines, reason = "one random choice per queue setting")]
fn random_queue_spec(rng: &mut SplitMix64, queue: &mut QueueSpec) {
    queue.party_rating = pick_random(rng, &[NumberAggregation::Max, NumberAggregation::Mean]);
    queue.prefer_same_party_size = one_in(rng, 3);
    if one_in(rng, 4) {
        let group = |index: u32| RatingGroup {
            name: format!("g{index}").into(),
            from: f64::from(index) * 4.0,
            to: f64::from(index) * 4.0 + 4.0,
        };
        let widen_every_ms = pick_random(rng, &[None, Some(20_000)]);
        queue.groups = Some(RatingGroups { groups: (0..4).map(group).collect(), widen_every_ms, max_extra_groups: 2 });
    }
    queue.regions = pick_random(
        rng,
        &[
            None,
            None,
            Some(RegionUse::Partition { attribute: 2 }),
            Some(RegionUse::Filter { expansion: 1 }),
            Some(RegionUse::Quality { weight: 0.2, span_ms: 100.0 }),
        ],
    );
    if one_in(rng, 2) {
        let bounds: Option<Arc<[f64]>> =
            pick_random(rng, &[None, None, Some([-1.0, 0.5, 2.0, 2.25, 6.0])]).map(Into::into);
        queue.window = Some(RatingWindow {
            bucket_width: pick_random(rng, &[1.0, 2.5]),
            initial_half_width: pick_random(rng, &[0, 1, 3]),
            max_half_width: pick_random(rng, &[None, Some(4)]),
            max_percent_of_rating: pick_random(rng, &[None, Some(40.0)]).filter(|_| bounds.is_none()),
            bucket_boundaries: bounds,
            combine: pick_random(rng, &[MaxRangeCombination::Smaller, MaxRangeCombination::Larger]),
            other_range_cover_percent: pick_random(rng, &[100.0, 50.0, 0.0]),
            clock: pick_random(rng, &[WindowClock::Queue, WindowClock::Ticket]),
            rule: pick_random(rng, &[WindowPairRule::Contain, WindowPairRule::Contain, WindowPairRule::Overlap]),
            ..UNIT_WINDOW
        });
    }
    if queue.window.is_some() {
        let plain = FrustratedPlayerSpec::default();
        let rule = |widen, shift_down| {
            Some(FrustratedPlayerSpec { window_widen_factor: widen, window_shift_down_points: shift_down, ..plain })
        };
        queue.frustrated_player_window = pick_random(rng, &[None, rule(1.5, 0.0), rule(1.0, 2.4), rule(2.0, 1.0)]);
    }
    queue.quality = pick_random(
        rng,
        &[
            QualitySpec::Any,
            GAUSS_QUALITY,
            QualitySpec::SoftScore { max_score: 0.5 },
            QualitySpec::AverageSimilarity { rating_span: 15.0, required_percent: 80.0 },
            QualitySpec::CategorySimilarity {
                categories: 8,
                category_width: 2.0,
                divisor: 8,
                curve: DistanceCurve::Linear,
                required_percent: 80.0,
            },
            QualitySpec::WinProbability { min_percent: 30.0, max_percent: 70.0 },
            QualitySpec::DrawProbability { threshold: 0.4 },
        ],
    );
    queue.selection.mode = pick_random(
        rng,
        &[
            SelectionMode::Nearest,
            SelectionMode::WeightedSample,
            SelectionMode::FirstWindow,
            SelectionMode::MaximumWeight,
        ],
    );
    queue.selection.start_with = pick_random(rng, &[SelectionOrder::LongestWaiting, SelectionOrder::HighestRated]);
    queue.selection.exact_up_to_tickets = pick_random(rng, &[0, 1_000]);
    queue.wait_bonus =
        pick_random(rng, &[None, Some(WaitBonus { per_combined_minute: 0.1, free_combined_minutes: 1.0 })]);
    let whom = [
        AvoidTarget::Blocked,
        AvoidTarget::RecentOpponents { recent_ms: 3_600_000 },
        AvoidTarget::RecentTeammates { recent_ms: 1_800_000 },
    ];
    let strictness = [
        AvoidStrictness::Never,
        AvoidStrictness::NotSameTeam,
        AvoidStrictness::PreferNot { cost: 0.1, half_life_ms: 1_200_000 },
    ];
    let avoid = whom.into_iter().filter(|_| one_in(rng, 3)).collect::<Vec<_>>();
    queue.avoid = avoid.into_iter().map(|whom| AvoidanceRule { whom, how: pick_random(rng, &strictness) }).collect();
}

pub(in crate::queue) fn random_below(rng: &mut SplitMix64, below: u64) -> u64 {
    rng.next_u64() % below
}

pub(in crate::queue) fn one_in(rng: &mut SplitMix64, times: u64) -> bool {
    random_below(rng, times) == 0
}

pub(in crate::queue) fn pick_random<T: Clone>(rng: &mut SplitMix64, from: &[T]) -> T {
    from[random_below(rng, from.len() as u64) as usize].clone()
}
