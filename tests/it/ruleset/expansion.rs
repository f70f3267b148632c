//! Expansions: limits that relax with time waited, compared with the thesis's samples at each instant.

use fireteam::domain::expansion::Expansion;
use fireteam::domain::measure::Measure;
use fireteam::rules;

/// The thesis's sample, corrected (S1-34, B-10): with the right closing tag, and -1 as last duration.
const THESIS: &str = "<ExpansionConfigs>
<ExpansionConfig Name='skill_pvp_exponential' Type='skill'>
<Expansion ExpansionDurationMs='10000' Value='150' />
<Expansion ExpansionDurationMs='20000' Value='300' />
<Expansion ExpansionDurationMs='20000' Value='600' />
<Expansion ExpansionDurationMs='-1' Value='2000' />
</ExpansionConfig>
<ExpansionConfig Name='latency_fast_expansion' Type='latency'>
<Expansion ExpansionDurationMs='5000' Value='100' />
<Expansion ExpansionDurationMs='5000' Value='100' />
<Expansion ExpansionDurationMs='5000' Value='100' />
<Expansion ExpansionDurationMs='5000' Value='200' />
<Expansion ExpansionDurationMs='5000' Value='200' />
<Expansion ExpansionDurationMs='5000' Value='200' />
<Expansion ExpansionDurationMs='-1' Value='400' />
</ExpansionConfig>
</ExpansionConfigs>
";

/// Milliseconds waited, then the limits of `skill_pvp_exponential` and of `latency_fast_expansion`, computed from the
/// thesis independently of this code (durations per step, half-open, absolute values: S1-35).
const INSTANTS: [(u64, f64, f64); 22] = [
    (0, 150.0, 100.0),
    (1, 150.0, 100.0),
    (4_999, 150.0, 100.0),
    (5_000, 150.0, 100.0),
    (9_999, 150.0, 100.0),
    (10_000, 300.0, 100.0),
    (10_001, 300.0, 100.0),
    (14_999, 300.0, 100.0),
    (15_000, 300.0, 200.0),
    (19_999, 300.0, 200.0),
    (20_000, 300.0, 200.0),
    (24_999, 300.0, 200.0),
    (25_000, 300.0, 200.0),
    (29_999, 300.0, 200.0),
    (30_000, 600.0, 400.0),
    (30_001, 600.0, 400.0),
    (39_999, 600.0, 400.0),
    (49_999, 600.0, 400.0),
    (50_000, 2_000.0, 400.0),
    (50_001, 2_000.0, 400.0),
    (3_600_000, 2_000.0, 400.0),
    (1_099_511_627_776, 2_000.0, 400.0),
];

fn expansions(text: &str) -> Vec<Expansion> {
    rules::parse_expansion_fragment("thesis.xml", text).expect("a valid fragment").expansions.into_vec()
}

/// S1-34, S1-35, B-10: the fragment is accepted, and each instant has the expected limit.
#[test]
fn expansion_of_the_thesis_has_the_expected_limits() {
    let both = expansions(THESIS);
    assert_eq!((both[0].measure, both[1].measure), (Measure::AttributeDifference(0), Measure::Latency));
    for (waited_ms, skill, latency) in INSTANTS {
        assert_eq!((both[0].limit_at(waited_ms), both[1].limit_at(waited_ms)), (skill, latency), "{waited_ms} ms");
    }
}

/// B-10: with the last duration as printed, 1 instead of -1, the last value still holds.
#[test]
fn expansion_keeps_the_last_value_after_a_finite_step() {
    let printed = THESIS.replace("'-1' Value='400'", "'1' Value='400'");
    for (waited_ms, limit) in [(29_999, 200.0), (30_000, 400.0), (30_001, 400.0), (60_000, 400.0)] {
        assert_eq!(expansions(&printed)[1].limit_at(waited_ms), limit, "{waited_ms} ms");
    }
}

/// S1-33: "the first 10 s within 100 ms and 100 points; the next 30 s 200 and 300; then 500 ms and never mind skill";
/// the last is the whole span (B-12).
#[test]
fn expansion_can_express_the_example_in_words() {
    let both = expansions(
        "<ExpansionConfigs>
           <ExpansionConfig Name='latency' Type='latency'>
             <Expansion ExpansionDurationMs='10000' Value='100'/>
             <Expansion ExpansionDurationMs='30000' Value='200'/>
             <Expansion ExpansionDurationMs='-1' Value='500'/>
           </ExpansionConfig>
           <ExpansionConfig Name='skill' Type='skill'>
             <Expansion ExpansionDurationMs='10000' Value='100'/>
             <Expansion ExpansionDurationMs='30000' Value='300'/>
             <Expansion ExpansionDurationMs='-1' Value='2000'/>
           </ExpansionConfig>
         </ExpansionConfigs>",
    );
    let expected = [
        (0, 100.0, 100.0),
        (9_999, 100.0, 100.0),
        (10_000, 200.0, 300.0),
        (39_999, 200.0, 300.0),
        (40_000, 500.0, 2_000.0),
        (10_000_000, 500.0, 2_000.0),
    ];
    for (waited_ms, latency, skill) in expected {
        assert_eq!((both[0].limit_at(waited_ms), both[1].limit_at(waited_ms)), (latency, skill), "{waited_ms} ms");
    }
}

/// S1-32: the time until the limit next grows; a step with the same value is no growth.
#[test]
fn expansion_returns_the_time_until_the_next_growth() {
    let both = expansions(THESIS);
    let expected = [(0, Some(15_000)), (14_999, Some(1)), (15_000, Some(15_000)), (30_000, None), (u64::MAX, None)];
    for (waited_ms, next_ms) in expected {
        assert_eq!(both[1].ms_until_next_growth(waited_ms), next_ms, "{waited_ms} ms");
    }
}

/// B-11: a hard limit may exceed the range of a soft filter.
#[test]
fn expansion_limit_may_exceed_the_soft_range() {
    let shipped = rules::bundled::load_bundled().unwrap();
    let (_, control) = shipped.iter().find(|(_, ruleset)| ruleset.set_id.0 == 1).unwrap();
    let latency = control.soft_filters.iter().find(|soft| &*soft.name == "latency").unwrap();
    assert_eq!((latency.max, control.expansions[1].limit_at(30_000)), (300.0, 400.0));
    assert_eq!(latency.normalize(350.0), 1.0);
}
