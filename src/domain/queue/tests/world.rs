//! Queues to try passes on: plain ones for stories, random and unkind ones for judges.

use std::sync::Arc;

use crate::domain::attribute::{Attribute, Origin, Reduction, Source, Trust, Value, ValueKind};
use crate::domain::expansion::{Expansion, Step};
use crate::domain::id::{RulesetHash, SetId, SiloId, TicketId, UserKey};
use crate::domain::latency::DEFAULT_LINE;
use crate::domain::locality::Locality;
use crate::domain::measure::Measure;
use crate::domain::queue::avoid::{Meeting, Meetings};
use crate::domain::queue::backfill::OpenSession;
use crate::domain::queue::dice::Dice;
use crate::domain::queue::entrant::Entrant;
use crate::domain::queue::gate::Crowd;
use crate::domain::queue::pass::{self, PassInput, PassOutcome};
use crate::domain::queue::ticket::{Rated, Ticket};
use crate::domain::role::AdvertiseChances;
use crate::domain::ruleset::queue::{
    Avoid, AvoidHow, AvoidWhom, BucketRounding, CombineBounds, Gate, GateRounding, Group, Groups, Quality, QueueSpec,
    Regions, Satisfaction, Selection, SelectionMode, StartWith, WaitBonus, Window, WindowClock, WindowRule,
};
use crate::domain::ruleset::rating::{RatingSpec, RatingSystem};
use crate::domain::ruleset::teams::{ServerMode, ServerSpec, TeamsSpec};
use crate::domain::ruleset::{
    Consent, Curve, HardFilter, HardRule, MissingHard, MissingSoft, Ruleset, SearchLimits, SiloRule, SoftFilter,
    SoftMode,
};
use crate::domain::session::{Player, RegionLatency, Session};
use crate::domain::time::UnixMs;

/// The moment of every pass, unless a story says otherwise.
pub(in crate::domain::queue) const NOW: UnixMs = UnixMs(1_700_000_000_000);

/// A queue and those who wait in it.
pub(in crate::domain::queue) struct World {
    pub(in crate::domain::queue) ruleset: Ruleset,
    pub(in crate::domain::queue) tickets: Vec<Arc<Ticket>>,
    pub(in crate::domain::queue) places: Vec<Option<f64>>,
    pub(in crate::domain::queue) sessions: Vec<OpenSession>,
    pub(in crate::domain::queue) meetings: Meetings,
    pub(in crate::domain::queue) crowd: Crowd,
    pub(in crate::domain::queue) now: UnixMs,
    pub(in crate::domain::queue) seed: u64,
    pub(in crate::domain::queue) looks_max: u64,
}

impl World {
    /// Nobody yet, and rules that refuse nothing: one against one.
    pub(in crate::domain::queue) fn plain() -> Self {
        Self {
            ruleset: ruleset(Vec::new(), Vec::new(), Vec::new()),
            tickets: Vec::new(),
            places: Vec::new(),
            sessions: Vec::new(),
            meetings: Meetings::default(),
            crowd: Crowd::default(),
            now: NOW,
            seed: 1,
            looks_max: u64::MAX,
        }
    }

    pub(in crate::domain::queue) fn queue(&mut self) -> &mut QueueSpec {
        self.ruleset.queue.as_mut().unwrap()
    }

    pub(in crate::domain::queue) fn sizes(&mut self, sizes: &[u16]) {
        let teams = self.ruleset.teams.as_mut().unwrap();
        teams.sizes = sizes.into();
        teams.max_party_size = teams.largest();
    }

    /// A party of these ratings enters, so many milliseconds before `now`; its id is its number.
    pub(in crate::domain::queue) fn enters(&mut self, ratings: &[f64], waited_ms: u64) -> TicketId {
        let number = self.tickets.len() as u64;
        let ticket = ticket(number, ratings, UnixMs(self.now.0 - waited_ms));
        let id = ticket.id;
        self.tickets.push(Arc::new(ticket));
        self.places.push(None);
        id
    }

    pub(in crate::domain::queue) fn entrants(&self) -> Vec<Entrant> {
        let queue = self.ruleset.queue.as_ref().unwrap();
        let each = self.tickets.iter().zip(&self.places);
        let entrant = |(ticket, place): (&Arc<Ticket>, &Option<f64>)| Entrant {
            // Some are frustrated, whatever the order; that only matters where the queue looks after them.
            frustrated: number_of(ticket.id) % 3 == 1,
            ..Entrant::of(&self.ruleset, queue, Arc::clone(ticket), *place)
        };
        each.map(entrant).collect()
    }

    pub(in crate::domain::queue) fn with<T>(&self, entrants: &[Entrant], act: impl FnOnce(&PassInput<'_>) -> T) -> T {
        let entrants: Vec<&Entrant> = entrants.iter().collect();
        act(&PassInput {
            ruleset: &self.ruleset,
            queue: self.ruleset.queue.as_ref().unwrap(),
            teams: self.ruleset.teams.as_ref().unwrap(),
            entrants: &entrants,
            sessions: &self.sessions,
            meetings: &self.meetings,
            crowd: self.crowd,
            now: self.now,
            seed: self.seed,
            looks_max: self.looks_max,
        })
    }

    pub(in crate::domain::queue) fn pass(&self) -> PassOutcome {
        self.with(&self.entrants(), pass::run)
    }

    /// The tickets of each match, by the order in which they entered; teams are not told apart.
    pub(in crate::domain::queue) fn matches(&self) -> Vec<Vec<u64>> {
        let numbers = |it: &crate::domain::queue::proposal::Proposal| {
            let mut numbers: Vec<u64> = it.teams.iter().flatten().map(|it| number_of(it.ticket)).collect();
            numbers.sort_unstable();
            numbers
        };
        self.pass().proposals.iter().map(numbers).collect()
    }
}

pub(in crate::domain::queue) fn number_of(id: TicketId) -> u64 {
    u64::from_be_bytes(*id.as_bytes().last_chunk().unwrap())
}

pub(in crate::domain::queue) fn ticket_id(number: u64) -> TicketId {
    TicketId::from_bytes(u128::from(number).to_be_bytes())
}

pub(in crate::domain::queue) fn user(number: u64, player: usize) -> UserKey {
    UserKey::from_bytes((u128::from(number) << 8 | player as u128 | 1 << 100).to_be_bytes())
}

pub(in crate::domain::queue) fn ticket(number: u64, ratings: &[f64], entered: UnixMs) -> Ticket {
    let player = |(place, rating): (usize, &f64)| Player {
        user: user(number, place),
        player: user(number, place),
        skill: Some(*rating),
    };
    Ticket {
        id: ticket_id(number),
        set_id: SetId(1),
        subject: None,
        entered,
        session: Session {
            silo: SiloId(1),
            party_sizes: vec![ratings.len() as u8],
            players: ratings.iter().enumerate().map(player).collect(),
            origin: Origin::Server,
            ..Session::default()
        },
        ratings: ratings.iter().map(|&rating| Rated { rating, deviation: 1.0 }).collect(),
        blocked: Vec::new(),
        alone: false,
    }
}

/// Teiserver's (S0-13 to S0-16).
pub(in crate::domain::queue) const WINDOW: Window = Window {
    bucket_width: 1.0,
    rounding: BucketRounding::Round,
    start: 0,
    step: 1,
    step_every_ms: 20_000,
    max: Some(10),
    max_percent: None,
    combine: CombineBounds::Smaller,
    reciprocal_percent: 100.0,
    clock: WindowClock::Queue,
    rule: WindowRule::Contain,
};

/// comprl's (S2-9, S2-12, B-27).
pub(in crate::domain::queue) const GAUSS: Quality =
    Quality::LeaderboardGauss { sigma: 20.0, scale: 0.5, threshold: 0.3 };

fn spec() -> QueueSpec {
    QueueSpec {
        pass_every_ms: 250,
        party_rating: Reduction::Max,
        several_queues: true,
        like_parties_first: false,
        backfill: false,
        ticket_lapse_ms: 60_000,
        gate: Gate {
            min_waiting_percent: 0.0,
            rounding: GateRounding::Up,
            max_parallel_matches: None,
            skip_unchanged: true,
        },
        groups: None,
        regions: None,
        window: None,
        quality: Quality::Any,
        selection: Selection {
            mode: SelectionMode::Nearest,
            start_with: StartWith::LongestWaiting,
            look_at: 256,
            exact_up_to: 1_000,
        },
        wait_bonus: None,
        avoid: Box::default(),
        offer: None,
        satisfaction: None,
    }
}

fn ruleset(hard: Vec<HardFilter>, soft: Vec<SoftFilter>, expansions: Vec<Expansion>) -> Ruleset {
    let attribute = |name: &str, kind, source| Attribute {
        name: name.into(),
        kind,
        source,
        range: None,
        unit: "".into(),
        reduction: Reduction::Max,
        trust: Trust::Server,
    };
    Ruleset {
        name: "queue".into(),
        set_id: SetId(1),
        hash: RulesetHash(1),
        silos: SiloRule::Any,
        attributes: [
            attribute("skill", ValueKind::Number, Source::Skill),
            attribute("mode", ValueKind::Text, Source::Map),
            attribute("region", ValueKind::Text, Source::Map),
            attribute("taste", ValueKind::Number, Source::Map),
        ]
        .into(),
        hard: hard.into(),
        soft: soft.into(),
        expansions: expansions.into(),
        chances: AdvertiseChances::rule_of_thumb(2),
        limits: SearchLimits { max_results: 50, max_evaluated: u32::MAX },
        line: DEFAULT_LINE,
        involved_phase_percent: 50.0,
        consent: Consent::Assumed,
        teams: Some(TeamsSpec {
            sizes: [1, 1].into(),
            max_party_size: 1,
            exact_up_to_size: 5,
            roles: Box::default(),
            role_attribute: None,
        }),
        queue: Some(spec()),
        ready_check: None,
        server: ServerSpec { mode: ServerMode::None, wait_ms: 0, play_max_ms: 0 },
        rating: Some(RatingSpec::plain(RatingSystem::Elo { initial: 0.0, k: 16.0, scale: 40.0 })),
        xml: "".into(),
    }
}

/// Anything that a ruleset may say, and a crowd that is unkind: ties, gaps, few values, blocks and old acquaintances.
pub(in crate::domain::queue) fn random(seed: u64, most: u64) -> World {
    let mut dice = Dice(seed);
    let mut world = World::plain();
    world.ruleset = random_rules(&mut dice);
    world.seed = dice.next();
    let count = 2 + below(&mut dice, most - 1);
    let party_max = world.ruleset.teams.as_ref().unwrap().max_party_size;
    for number in 0..count {
        let size = 1 + below(&mut dice, party_max.into());
        let size = if one_in(&mut dice, 2) { 1 } else { size };
        let ratings: Vec<f64> = (0..size).map(|_| below(&mut dice, 30) as f64 * 0.5).collect();
        let waited_ms = below(&mut dice, 6) * 17_000 + below(&mut dice, 2) * 500;
        let mut made = ticket(number, &ratings, UnixMs(NOW.0 - waited_ms));
        random_session(&mut dice, &mut made.session);
        if one_in(&mut dice, 4) {
            made.blocked = vec![user(below(&mut dice, count), 0)];
        }
        world.tickets.push(Arc::new(made));
        let place = below(&mut dice, 60) as f64;
        world.places.push((!one_in(&mut dice, 12)).then_some(place));
    }
    let meeting = |_| Meeting {
        one: user(below(&mut dice, count), 0),
        other: user(below(&mut dice, count), 0),
        same_team: one_in(&mut dice, 2),
        began: UnixMs(NOW.0 - below(&mut dice, 10) * 600_000),
    };
    world.meetings = Meetings::of((0..count).map(meeting));
    world
}

fn random_session(dice: &mut Dice, session: &mut Session) {
    let text = |dice: &mut Dice| Value::Text(format!("t{}", below(dice, 3)).into());
    for (name, missing) in [("mode", 9), ("region", 7), ("taste", 5)] {
        if !one_in(dice, missing) {
            let value = if name == "taste" { Value::Number(below(dice, 10) as f64) } else { text(dice) };
            session.attributes.push((name.into(), value));
        }
    }
    if !one_in(dice, 4) {
        session.locality = Locality::from_degrees(below(dice, 120) as f64 - 60.0, below(dice, 300) as f64 - 150.0);
    }
    let regions = ["asia", "eu", "us"].into_iter().filter(|_| one_in(dice, 2)).collect::<Vec<_>>();
    let latency = |region: &str| RegionLatency { region: region.into(), round_trip_ms: below(dice, 150) as f32 };
    session.regions = regions.into_iter().map(latency).collect();
}

fn random_rules(dice: &mut Dice) -> Ruleset {
    let steps = |values: [f64; 3]| {
        values.into_iter().zip([0, 20_000, 40_000]).map(|(value, start_ms)| Step { start_ms, value }).collect()
    };
    let expansions = vec![
        Expansion::new("skill", Measure::Attribute(0), steps([2.0, 5.0, 12.0])).unwrap(),
        Expansion::new("latency", Measure::Latency, steps([60.0, 110.0, 300.0])).unwrap(),
    ];
    let missing = |dice: &mut Dice| if one_in(dice, 3) { MissingHard::Refuse } else { MissingHard::Pass };
    let mut hard = Vec::new();
    let rules = [
        HardRule::Equal { attribute: 1, value: None },
        HardRule::NotEqual { attribute: 1, value: Some(Value::Text("t0".into())) },
        HardRule::Range { attribute: 3, min: 0.0, max: 8.0 },
        HardRule::Within { measure: Measure::Attribute(0), expansion: 0, reciprocal_percent: 100.0 },
        HardRule::Within { measure: Measure::Latency, expansion: 1, reciprocal_percent: 50.0 },
    ];
    for rule in rules {
        if one_in(dice, 4) {
            hard.push(HardFilter { name: "hard".into(), missing: missing(dice), rule });
        }
    }
    let soft = |name: &str, weight, measure, mode, curve, max| SoftFilter {
        name: name.into(),
        weight,
        measure,
        mode,
        curve,
        missing: MissingSoft::Worst,
        min: 0.0,
        max,
    };
    let curve = pick(dice, &[Curve::Linear, Curve::Quadratic, Curve::SquareRoot]);
    let soft = vec![
        soft("skill", 0.6, Measure::Attribute(0), SoftMode::Difference, curve, 15.0),
        soft("distance", 0.4, Measure::Distance, SoftMode::LowerIsBetter, Curve::Linear, 8_000.0),
        soft("latency", 0.2, Measure::Latency, SoftMode::LowerIsBetter, Curve::Linear, 300.0),
        soft("taste", 0.1, Measure::Attribute(3), SoftMode::LowerIsBetter, Curve::Linear, 10.0),
    ];
    let soft = soft.into_iter().filter(|_| !one_in(dice, 3)).collect();
    let mut rules = ruleset(hard, soft, expansions);
    let sizes: [&[u16]; 7] = [&[1, 1], &[1, 1], &[1, 1], &[2, 2], &[3, 3], &[1, 1, 1], &[2, 1]];
    let teams = rules.teams.as_mut().unwrap();
    teams.sizes = pick(dice, &sizes).into();
    teams.max_party_size = teams.largest();
    random_queue(dice, rules.queue.as_mut().unwrap());
    if matches!(rules.queue.as_ref().unwrap().quality, Quality::DrawProbability { .. }) {
        let system = RatingSystem::TrueSkill { mu: 0.0, sigma: 8.0, beta: 4.0, tau: 0.0, draw_percent: 5.0 };
        rules.rating = Some(RatingSpec::plain(system));
    }
    rules
}

#[expect(clippy::too_many_lines, reason = "one draw after another")]
fn random_queue(dice: &mut Dice, queue: &mut QueueSpec) {
    queue.party_rating = pick(dice, &[Reduction::Max, Reduction::Mean]);
    queue.like_parties_first = one_in(dice, 3);
    if one_in(dice, 4) {
        let group = |place: u32| Group {
            name: format!("g{place}").into(),
            from: f64::from(place) * 4.0,
            to: f64::from(place) * 4.0 + 4.0,
        };
        let neighbour_every_ms = pick(dice, &[None, Some(20_000)]);
        queue.groups = Some(Groups { groups: (0..4).map(group).collect(), neighbour_every_ms, max_neighbours: 2 });
    }
    queue.regions = pick(
        dice,
        &[
            None,
            None,
            Some(Regions::Separate { attribute: 2 }),
            Some(Regions::Stage { expansion: 1 }),
            Some(Regions::Quality { weight: 0.2, span_ms: 100.0 }),
        ],
    );
    if one_in(dice, 2) {
        queue.window = Some(Window {
            bucket_width: pick(dice, &[1.0, 2.5]),
            start: pick(dice, &[0, 1, 3]),
            max: pick(dice, &[None, Some(4)]),
            max_percent: pick(dice, &[None, Some(40.0)]),
            combine: pick(dice, &[CombineBounds::Smaller, CombineBounds::Larger]),
            reciprocal_percent: pick(dice, &[100.0, 50.0, 0.0]),
            clock: pick(dice, &[WindowClock::Queue, WindowClock::Ticket]),
            rule: pick(dice, &[WindowRule::Contain, WindowRule::Contain, WindowRule::Overlap]),
            ..WINDOW
        });
    }
    if queue.window.is_some() {
        let plain = Satisfaction::default();
        let rule = |widen, shift_down| Some(Satisfaction { widen, shift_down, ..plain });
        queue.satisfaction = pick(dice, &[None, rule(1.5, 0.0), rule(1.0, 2.4), rule(2.0, 1.0)]);
    }
    queue.quality = pick(
        dice,
        &[
            Quality::Any,
            GAUSS,
            Quality::SoftScore { max_score: 0.5 },
            Quality::AverageSimilarity { rating_span: 15.0, required_percent: 80.0 },
            Quality::CategorySimilarity {
                categories: 8,
                category_width: 2.0,
                divisor: 8,
                curve: Curve::Linear,
                required_percent: 80.0,
            },
            Quality::WinProbability { min_percent: 30.0, max_percent: 70.0 },
            Quality::DrawProbability { threshold: 0.4 },
        ],
    );
    queue.selection.mode = pick(
        dice,
        &[
            SelectionMode::Nearest,
            SelectionMode::WeightedSample,
            SelectionMode::BestWindow,
            SelectionMode::MaximumWeight,
        ],
    );
    queue.selection.start_with = pick(dice, &[StartWith::LongestWaiting, StartWith::HighestRated]);
    queue.selection.exact_up_to = pick(dice, &[0, 1_000]);
    queue.wait_bonus = pick(dice, &[None, Some(WaitBonus { per_minute: 0.1, free_minutes: 1.0 })]);
    let whom = [
        AvoidWhom::Blocked,
        AvoidWhom::RecentOpponents { for_ms: 3_600_000 },
        AvoidWhom::RecentTeammates { for_ms: 1_800_000 },
    ];
    let hows = [AvoidHow::Never, AvoidHow::NotSameTeam, AvoidHow::RatherNot { cost: 0.1, half_life_ms: 1_200_000 }];
    let avoid = whom.into_iter().filter(|_| one_in(dice, 3)).collect::<Vec<_>>();
    queue.avoid = avoid.into_iter().map(|whom| Avoid { whom, how: pick(dice, &hows) }).collect();
}

pub(in crate::domain::queue) fn below(dice: &mut Dice, below: u64) -> u64 {
    dice.next() % below
}

pub(in crate::domain::queue) fn one_in(dice: &mut Dice, times: u64) -> bool {
    below(dice, times) == 0
}

pub(in crate::domain::queue) fn pick<T: Clone>(dice: &mut Dice, from: &[T]) -> T {
    from[below(dice, from.len() as u64) as usize].clone()
}
