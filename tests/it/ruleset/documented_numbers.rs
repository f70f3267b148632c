//! Shipped rulesets of five documented matchmakers: each has the numbers of its document.

use std::sync::Arc;

use fireteam::domain::attribute::NumberAggregation;
use fireteam::domain::id::SetId;
use fireteam::domain::measure::Measure;
use fireteam::domain::ruleset::queue::{
    AlternativeSetOffer, AvoidStrictness, AvoidTarget, BucketRounding, Gate, GateRounding, PassTrigger, QualitySpec,
    QueueSpec, RatingWindow, RegionUse, SelectionMode, SelectionOrder, WaitBonus, WindowClock, WindowPairRule,
};
use fireteam::domain::ruleset::rating::{DisconnectPolicy, RatingSystem};
use fireteam::domain::ruleset::teams::{HostingMode, TeamsSpec};
use fireteam::domain::ruleset::{DistanceCurve, Ruleset};
use fireteam::rules::bundled;

/// The shipped file with that name.
fn shipped(name: &str) -> Arc<Ruleset> {
    let bundled_rulesets = bundled::load_bundled().unwrap_or_else(|problems| panic!("{problems:#?}"));
    let found = bundled_rulesets.into_iter().find(|(path, _)| path.ends_with(format!("{name}.xml")));
    found.unwrap_or_else(|| panic!("{name}.xml is not shipped")).1
}

fn queue(ruleset: &Ruleset) -> &QueueSpec {
    ruleset.queue.as_ref().expect("a queue")
}

fn teams(ruleset: &Ruleset) -> &TeamsSpec {
    ruleset.teams.as_ref().expect("teams")
}

/// Gate of a document that describes none.
const OPEN_GATE: Gate =
    Gate { min_waiting_percent: 0.0, rounding: GateRounding::Up, max_concurrent_matches: None, skip_unchanged: true };

/// S0-5, S0-13, S0-14, S0-15, S0-16, S0-17, S0-19, S0-20, S0-23, S0-26, B-4, D-1: Teiserver's suggested settings.
#[test]
fn teiserver_ruleset_has_the_documented_numbers() {
    let ruleset = shipped("teiserver_duel");
    let queue = queue(&ruleset);
    let window = RatingWindow {
        bucket_width: 1.0,
        rounding: BucketRounding::Round,
        initial_half_width: 0,
        step: 1,
        step_every_ms: 20_000,
        max_half_width: Some(10),
        max_percent_of_rating: None,
        other_range_cover_percent: 100.0,
        clock: WindowClock::Queue,
        rule: WindowPairRule::Contain,
        ..queue.window.clone().expect("a window")
    };
    assert_eq!(queue.window, Some(window));
    assert_eq!(
        (queue.pass_interval_ms, queue.party_rating, queue.allow_other_queues),
        (250, NumberAggregation::Max, true)
    );
    assert_eq!((queue.gate, queue.quality, &queue.groups), (OPEN_GATE, QualitySpec::Any, &None));
    assert_eq!(
        (queue.selection.mode, queue.selection.start_with),
        (SelectionMode::Nearest, SelectionOrder::LongestWaiting)
    );
    assert_eq!(*teams(&ruleset).team_sizes, [1, 1]);
    let check = ruleset.ready_check.as_ref().expect("a ready check");
    assert_eq!((check.timeout_ms, &*check.penalty_cooldowns_ms), (30_000, &[][..]));
    assert_eq!((ruleset.hosting.mode, ruleset.hosting.allocation_timeout_ms), (HostingMode::GameServer, 5_000));
    assert!(matches!(ruleset.rating.expect("TrueSkill").system, RatingSystem::TrueSkill { mu: 25.0, .. }));
}

/// Passes of the documented systems run at intervals: `Pass="on_change"` is an addition.
#[test]
fn shipped_queues_have_passes_at_intervals() {
    let bundled_rulesets = bundled::load_bundled().unwrap_or_else(|problems| panic!("{problems:#?}"));
    let queues = bundled_rulesets.iter().filter_map(|(_, ruleset)| ruleset.queue.as_ref());
    let triggers: Vec<PassTrigger> = queues.map(|queue| queue.pass_trigger).collect();
    assert!(triggers.len() >= 5 && triggers.iter().all(|trigger| *trigger == PassTrigger::Interval), "{triggers:?}");
}

/// S0-13, S0-14, S0-16, S0-17, S0-23, S0-26: defaults of a queue are those that the document suggests.
#[test]
fn queue_defaults_have_the_documented_numbers() {
    let text = "<Ruleset Name='little' SetId='5'><Teams Count='2' Size='1'/><Queue><RatingWindow/></Queue></Ruleset>";
    let ruleset = fireteam::rules::parse_ruleset("little.xml", text).unwrap_or_else(|problems| panic!("{problems:#?}"));
    let queue = queue(&ruleset);
    assert_eq!((queue.pass_interval_ms, queue.party_rating, queue.gate), (250, NumberAggregation::Max, OPEN_GATE));
    let window = queue.window.clone().expect("a window");
    assert_eq!((window.rounding, window.bucket_width, window.initial_half_width), (BucketRounding::Round, 1.0, 0));
    assert_eq!((window.step, window.step_every_ms, window.other_range_cover_percent), (1, 20_000, 100.0));
}

/// S2-1, S2-3, S2-5, S2-6, S2-7, S2-8, S2-9, S2-11, S2-12, B-24 to B-27: comprl's leaderboard distance, with its
/// server's defaults.
#[test]
fn comprl_ruleset_has_the_documented_numbers() {
    let ruleset = shipped("comprl_ladder");
    let queue = queue(&ruleset);
    let gate = Gate { min_waiting_percent: 10.0, max_concurrent_matches: Some(100), ..OPEN_GATE };
    assert_eq!((queue.gate, queue.pass_interval_ms), (gate, 1_000));
    assert_eq!(queue.quality, QualitySpec::LeaderboardGauss { sigma: 20.0, scale: 0.5, threshold: 0.3 });
    assert_eq!(queue.wait_bonus, Some(WaitBonus { per_combined_minute: 0.1, free_combined_minutes: 1.0 }));
    assert_eq!(queue.selection.mode, SelectionMode::WeightedSample);
    assert_eq!(queue.selection.start_with, SelectionOrder::LongestWaiting, "starting with the first");
    assert!(queue.window.is_none() && queue.groups.is_none() && ruleset.ready_check.is_none());
    assert_eq!((&*teams(&ruleset).team_sizes, ruleset.hosting.mode), (&[1, 1][..], HostingMode::None));
    let rating = ruleset.rating.expect("Plackett-Luce");
    assert_eq!((rating.leaderboard_z, rating.decay), (1.0, None));
    let RatingSystem::PlackettLuce { mu, sigma, beta, kappa, tau } = rating.system else { panic!("{rating:?}") };
    assert_eq!((mu, sigma, beta, kappa, tau), (25.0, 25.0 / 3.0, 25.0 / 6.0, 1e-4, 25.0 / 300.0));
    assert_eq!(rating.on_disconnect, DisconnectPolicy::Ignore);
}

/// S3-2, S3-3, S3-8, S3-10, B-29, B-30: OpenMatchmaking's seven leagues of 500 points; neighbours may meet after a
/// wait.
#[test]
fn openmatchmaking_ruleset_has_the_documented_numbers() {
    let ruleset = shipped("openmatchmaking_leagues");
    let queue = queue(&ruleset);
    let groups = queue.groups.as_ref().expect("groups");
    let names = ["bronze", "silver", "gold", "platinum", "diamond", "semi_pro", "professional"];
    let found: Vec<(&str, f64, f64)> = groups.groups.iter().map(|it| (&*it.name, it.from, it.to)).collect();
    let expected: Vec<(&str, f64, f64)> = names
        .iter()
        .zip(2_u16..)
        .map(|(name, half)| (*name, f64::from(half) * 500.0, f64::from(half + 1) * 500.0))
        .collect();
    assert_eq!(found, expected);
    assert_eq!((groups.widen_every_ms, groups.max_extra_groups), (Some(60_000), 1));
    let Some(RegionUse::Filter { expansion }) = queue.regions else { panic!("{:?}", queue.regions) };
    assert_eq!(ruleset.expansions[expansion].measure, Measure::Latency);
    // D-13: teams with means 25 points apart may play, 26 points apart may not.
    let QualitySpec::WinProbability { min_percent, max_percent } = queue.quality else { panic!("{:?}", queue.quality) };
    let win_percent = |points: f64| 100.0 / (1.0 + 10_f64.powf(-points / 400.0));
    assert!(
        (min_percent..=max_percent).contains(&win_percent(-25.0))
            && (min_percent..=max_percent).contains(&win_percent(25.0))
    );
    assert!(
        !(min_percent..=max_percent).contains(&win_percent(-26.0))
            && !(min_percent..=max_percent).contains(&win_percent(26.0))
    );
    assert_eq!((queue.party_rating, queue.selection.mode), (NumberAggregation::Mean, SelectionMode::Nearest));
    assert_eq!((&*teams(&ruleset).team_sizes, ruleset.hosting.mode), (&[5, 5][..], HostingMode::GameServer));
    assert!(matches!(ruleset.rating.expect("Elo").system, RatingSystem::Elo { initial: 1_000.0, scale: 400.0, .. }));
}

/// S4-4 to S4-6, S4-9, S4-10, S4-13, S4-14, S4-16, D-17: the team challenge's windows, similarity, split and K.
#[test]
fn challenge_ruleset_has_the_documented_numbers() {
    let ruleset = shipped("challenge_5v5");
    let queue = queue(&ruleset);
    assert_eq!(queue.quality, QualitySpec::AverageSimilarity { rating_span: 2_900.0, required_percent: 95.0 });
    assert_eq!(
        (queue.selection.mode, queue.selection.start_with),
        (SelectionMode::FirstWindow, SelectionOrder::HighestRated)
    );
    assert_eq!(queue.offer, Some(AlternativeSetOffer { after_ms: 60_000, set_id: SetId(2) }));
    assert!(queue.window.is_none() && queue.groups.is_none() && queue.wait_bonus.is_none());
    let teams = teams(&ruleset);
    assert_eq!((&*teams.team_sizes, teams.max_party_size, teams.exact_up_to_team_size), (&[5, 5][..], 1, 10));
    assert_eq!(ruleset.rating.expect("Elo").system, RatingSystem::Elo { initial: 1_036.0, k: 32.0, scale: 400.0 });
}

/// S4-7, S4-8, B-21, B-22: the alternative similarity, with the challenge's thirteen categories and three curves.
#[test]
fn category_similarity_has_the_documented_numbers() {
    let source = include_str!("../../../rulesets/challenge_5v5.xml");
    let (_, rest) = source.split_once("<CategorySimilarity").expect("an example in the comment");
    let element = format!("<CategorySimilarity{}", &rest[..rest.find("/>").unwrap() + 2]);
    let average = "<AverageSimilarity RatingSpan=\"2900\" RequiredPercent=\"95\"/>";
    for (more, curve, divisor) in [
        ("", DistanceCurve::Linear, 13),
        ("Curve=\"linear\"", DistanceCurve::Linear, 13),
        ("Curve=\"quadratic\"", DistanceCurve::Quadratic, 13),
        ("Curve=\"square_root\" DivideBy=\"span\"", DistanceCurve::SquareRoot, 12),
    ] {
        let other_quality = element.replace("/>", &format!(" {more}/>"));
        let text = source.replace(average, &other_quality);
        let ruleset =
            fireteam::rules::parse_ruleset("other.xml", &text).unwrap_or_else(|problems| panic!("{problems:#?}"));
        let expected = QualitySpec::CategorySimilarity {
            categories: 13,
            category_width: 200.0,
            divisor,
            curve,
            required_percent: 95.0,
        };
        assert_eq!(queue(&ruleset).quality, expected, "{more}");
    }
}

/// S1-30, S1-35, S1-62, S1-96, B-18: the thesis's limits in a queue: any score is accepted, the lowest first; Glicko
/// starts at 0.
#[test]
fn control_ruleset_has_the_documented_numbers() {
    let ruleset = shipped("destiny_control_6v6");
    let queue = queue(&ruleset);
    let max_score: f64 = ruleset.soft_filters.iter().map(|soft| soft.weight).sum();
    assert_eq!((queue.pass_interval_ms, queue.quality), (100, QualitySpec::SoftScore { max_score }));
    assert!(queue.backfill && queue.window.is_none() && queue.groups.is_none());
    let avoided: Vec<AvoidTarget> = queue.avoid.iter().map(|avoid| avoid.whom).collect();
    assert_eq!(
        avoided,
        [
            AvoidTarget::Blocked,
            AvoidTarget::RecentOpponents { recent_ms: 600_000 },
            AvoidTarget::RecentTeammates { recent_ms: 600_000 }
        ]
    );
    assert_eq!(queue.avoid, ruleset.avoid, "the same in searches");
    let how: Vec<AvoidStrictness> = queue.avoid.iter().map(|avoid| avoid.how).collect();
    // Equal to 100 points of skill, or 10 ms of round trip.
    let earlier_grouping = AvoidStrictness::PreferNot { cost: 0.02, half_life_ms: 300_000 };
    assert_eq!(how, [AvoidStrictness::Never, earlier_grouping, earlier_grouping]);
    assert_eq!((&*teams(&ruleset).team_sizes, teams(&ruleset).exact_up_to_team_size), (&[6, 6][..], 6));
    assert_eq!(ruleset.hosting.mode, HostingMode::Peer);
    let glicko =
        RatingSystem::Glicko { initial: 0.0, deviation: 350.0, min_deviation: 30.0, c: 63.2, period_ms: 5_259_600_000 };
    assert_eq!(ruleset.rating.expect("Glicko").system, glicko);
}
