//! Rules of side reports, one by one, and a comparison with a slow version that follows the words of the rules.

use proptest::prelude::*;

use super::*;

const WIN: [u32; 2] = [1, 2];
const LOSS: [u32; 2] = [2, 1];
const DRAW: [u32; 2] = [1, 1];

/// Side whose members reported `claims`, and that was heard.
fn side(claims: &[&[u32]]) -> SideClaims {
    SideClaims {
        claims: claims.iter().map(|claim| claim.to_vec()).collect(),
        may_report_more: claims.is_empty(),
        made_contact_in_play: true,
    }
}

fn unheard() -> SideClaims {
    SideClaims { made_contact_in_play: false, ..side(&[]) }
}

fn open(side: SideClaims) -> SideClaims {
    SideClaims { may_report_more: true, ..side }
}

/// Decisions before and after the end of the window.
fn decisions(sides: &[SideClaims]) -> [ReportDecision; 2] {
    [decide_reports(sides, false), decide_reports(sides, true)]
}

fn result(ranks: &[u32]) -> ReportDecision {
    ReportDecision::Result(ranks.to_vec())
}

fn held(ranks: &[u32]) -> ReportDecision {
    ReportDecision::Held(ranks.to_vec())
}

const WAIT: ReportDecision = ReportDecision::Wait;
const DISPUTED: ReportDecision = ReportDecision::Disputed;

/// Both of two sides alike are rated at once, contradicting ones never.
#[test]
fn two_sides_decide_alike_or_dispute() {
    assert_eq!(decisions(&[side(&[&WIN]), side(&[&WIN])]), [result(&WIN), result(&WIN)]);
    assert_eq!(decisions(&[side(&[&WIN]), side(&[&LOSS])]), [DISPUTED, DISPUTED]);
    let more_to_come = [open(side(&[&WIN])), side(&[&LOSS])];
    assert_eq!(decisions(&more_to_come), [WAIT, DISPUTED], "other members may still change what the side says");
}

/// A report of one of two sides waits for the window. If it favours the reporter, the silent side must
/// have been heard since play began.
#[test]
fn one_side_alone_waits_and_depends_on_whether_the_other_was_heard() {
    assert_eq!(decisions(&[side(&[&WIN]), side(&[])]), [WAIT, result(&WIN)]);
    assert_eq!(decisions(&[side(&[&WIN]), unheard()]), [WAIT, held(&WIN)]);
    assert_eq!(decisions(&[side(&[&DRAW]), unheard()]), [WAIT, held(&DRAW)], "a draw can favour the reporter");
    assert_eq!(decisions(&[side(&[&LOSS]), unheard()]), [WAIT, result(&LOSS)], "a side may report its own loss");
    assert_eq!(decisions(&[side(&[]), unheard()]), [WAIT, ReportDecision::Unreported]);
}

/// A side says what more than half of its members that reported say, so a liar alone changes nothing.
#[test]
fn liar_in_a_side_is_outvoted_by_honest_members() {
    let honest = side(&[&WIN]);
    assert_eq!(decisions(&[honest.clone(), side(&[&LOSS, &WIN, &WIN])]), [result(&WIN), result(&WIN)]);
    assert_eq!(decisions(&[honest.clone(), side(&[&LOSS, &LOSS, &WIN])]), [DISPUTED, DISPUTED]);
    // One to one, the side says nothing: it is neither for nor against.
    assert_eq!(decisions(&[honest.clone(), side(&[&LOSS, &WIN])]), [WAIT, result(&WIN)]);
    assert_eq!(decisions(&[honest, side(&[&LOSS, &DRAW])]), [DISPUTED, DISPUTED]);
    assert_eq!(decisions(&[side(&[&LOSS, &WIN]), side(&[])]), [WAIT, DISPUTED], "no side says anything");
}

/// Of three sides, two alike are more than half, and one report against them spoils it.
#[test]
fn three_sides_need_two_alike_and_none_against() {
    let (first, other) = ([1, 2, 3], [2, 1, 3]);
    let says = |ranks: &[u32]| side(&[ranks]);
    assert_eq!(decisions(&[says(&first), says(&first), unheard()]), [result(&first), result(&first)]);
    assert_eq!(decisions(&[says(&first), side(&[]), unheard()]), [WAIT, held(&first)]);
    assert_eq!(decisions(&[says(&first), side(&[]), side(&[])]), [WAIT, result(&first)]);
    assert_eq!(decisions(&[says(&first), says(&other), side(&[])]), [WAIT, DISPUTED]);
    assert_eq!(decisions(&[says(&first), says(&first), says(&other)]), [DISPUTED, DISPUTED]);
    // The third reports that it came last, below both silent sides.
    assert_eq!(decisions(&[unheard(), unheard(), says(&first)]), [WAIT, result(&first)]);
}

#[test]
fn leaver_is_last_only_if_all_reports_say_so() {
    let claims: [&[u32]; 2] = [&[1, 2, 3], &[2, 1, 3]];
    assert!(is_ranked_last_by_all_claims(claims, 2));
    assert!(!is_ranked_last_by_all_claims(claims, 1) && !is_ranked_last_by_all_claims(claims, 0));
    assert!(!is_ranked_last_by_all_claims([], 0), "without a report no side is last");
    assert!(!is_ranked_last_by_all_claims([&[1, 1][..]], 0), "in a draw no side is last");
}

/// The rules in the order and the words of their description, without shared helpers.
fn slow_decision(sides: &[SideClaims], is_window_over: bool) -> ReportDecision {
    let mut all: Vec<Vec<u32>> = sides.iter().flat_map(|side| side.claims.clone()).collect();
    all.sort();
    all.dedup();
    let says = |side: &SideClaims, ranks: &Vec<u32>| {
        let same = side.claims.iter().filter(|claim| *claim == ranks).count() as f64;
        !side.claims.is_empty() && same > side.claims.len() as f64 / 2.0
    };
    let against = |side: &SideClaims, ranks: &Vec<u32>| {
        let different = side.claims.iter().filter(|claim| *claim != ranks).count() as f64;
        !side.claims.is_empty() && different > side.claims.len() as f64 / 2.0
    };
    if all.is_empty() {
        return if is_window_over { ReportDecision::Unreported } else { ReportDecision::Wait };
    }
    let uncontested: Vec<&Vec<u32>> = all
        .iter()
        .filter(|ranks| sides.iter().any(|side| says(side, ranks)) && !sides.iter().any(|side| against(side, ranks)))
        .collect();
    assert!(uncontested.len() <= 1, "two uncontested results: {uncontested:?}");
    let Some(ranks) = uncontested.first() else {
        let no_more = sides.iter().all(|side| !side.may_report_more);
        return if is_window_over || no_more { ReportDecision::Disputed } else { ReportDecision::Wait };
    };
    let alike = sides.iter().filter(|side| says(side, ranks)).count() as f64;
    if alike > sides.len() as f64 / 2.0 {
        return ReportDecision::Result((*ranks).clone());
    }
    if !is_window_over {
        return ReportDecision::Wait;
    }
    let mut favoured = false;
    for (index, reporter) in sides.iter().enumerate().filter(|(_, side)| says(side, ranks)) {
        for (other, silent) in sides.iter().enumerate().filter(|(_, side)| side.claims.is_empty()) {
            let _ = (reporter, silent);
            favoured |= ranks[index] <= ranks[other];
        }
    }
    let unheard = sides.iter().any(|side| side.claims.is_empty() && !side.made_contact_in_play);
    if favoured && unheard { ReportDecision::Held((*ranks).clone()) } else { ReportDecision::Result((*ranks).clone()) }
}

fn any_sides() -> impl Strategy<Value = Vec<SideClaims>> {
    (1_usize..=5).prop_flat_map(|count| {
        let claim = proptest::collection::vec(1_u32..=2, count);
        let side = (proptest::collection::vec(claim, 0..=4), any::<bool>(), any::<bool>()).prop_map(
            |(claims, may_report_more, was_heard)| SideClaims {
                claims,
                may_report_more,
                made_contact_in_play: was_heard,
            },
        );
        proptest::collection::vec(side, count)
    })
}

proptest! {
    #[test]
    fn decision_equals_the_slow_version(sides in any_sides(), is_window_over in any::<bool>()) {
        prop_assert_eq!(decide_reports(&sides, is_window_over), slow_decision(&sides, is_window_over));
    }

    /// After the window there is always an outcome, and a result that was decided before it stays.
    #[test]
    fn decision_is_final_after_the_window(sides in any_sides()) {
        let [before, after] = decisions(&sides);
        prop_assert_ne!(&after, &ReportDecision::Wait);
        prop_assert!(before == ReportDecision::Wait || before == after);
    }

    /// One side alone never has a result against another that was not heard.
    #[test]
    fn single_side_gains_nothing_over_an_unheard_one(ranks in prop_oneof![Just(WIN), Just(DRAW)]) {
        let sides = [side(&[&ranks]), unheard()];
        prop_assert_eq!(decisions(&sides), [WAIT, held(&ranks)]);
    }
}
