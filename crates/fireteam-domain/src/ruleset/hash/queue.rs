//! What a queue feeds to the hash.

use crate::ruleset::hash::CanonicalWriter;
use crate::ruleset::queue::{
    AvoidStrictness, AvoidTarget, AvoidanceRule, QualitySpec, QueueSpec, RegionMode, SatisfactionSpec, WindowMatchRule,
};
use crate::ruleset::validate::queue::{DEFAULT_SELECTION, DEFAULT_TICKET_TTL_MS};

/// What every queue has had from the first on.
pub(super) fn write_queue(canon: &mut CanonicalWriter, queue: &QueueSpec) {
    // What is not named here is in `later`.
    let QueueSpec { pass_every_ms, party_rating, gate, groups, window, quality: bar, selection, wait_bonus, .. } =
        queue;
    canon.integer((*pass_every_ms).into());
    canon.variant_name(party_rating);
    canon.float(gate.min_waiting_percent);
    canon.variant_name(gate.rounding);
    canon.option(gate.max_parallel_matches.as_ref(), |canon, max| canon.integer((*max).into()));
    canon.integer(gate.skip_unchanged.into());
    canon.option(groups.as_ref(), |canon, groups| {
        canon.list(&groups.groups, |canon, group| {
            canon.string(&group.name);
            canon.floats(&[group.from, group.to]);
        });
        canon.option(groups.neighbour_every_ms.as_ref(), |canon, every| canon.integer(*every));
        canon.integer(groups.max_neighbours.into());
    });
    canon.option(window.as_ref(), |canon, window| {
        canon.floats(&[window.bucket_width, window.reciprocal_percent]);
        canon.list(&[window.start.into(), window.step.into(), window.step_every_ms], |canon, it| canon.integer(*it));
        canon.option(window.max.as_ref(), |canon, max| canon.integer((*max).into()));
        canon.option(window.max_percent.as_ref(), |canon, max| canon.float(*max));
        canon.variant_name((window.rounding, window.combine, window.clock));
    });
    write_quality(canon, bar);
    canon.variant_name((selection.mode, selection.start_with));
    canon.option(wait_bonus.as_ref(), |canon, bonus| canon.floats(&[bonus.per_minute, bonus.free_minutes]));
}

/// What queues came to say after their first hashes were given out: each where it says more than its default.
pub(super) fn write_queue_additions(canon: &mut CanonicalWriter, queue: &QueueSpec) {
    let QueueSpec { several_queues, like_parties_first, backfill, ticket_lapse_ms, regions, avoid, offer, .. } = queue;
    let QueueSpec { window, selection, satisfaction, .. } = queue;
    let flags = [
        ("one queue", !several_queues),
        ("like parties first", *like_parties_first),
        ("backfill", *backfill),
        ("overlap", window.as_ref().is_some_and(|window| window.rule == WindowMatchRule::Overlap)),
    ];
    flags.iter().filter(|(_, said)| *said).for_each(|(text, _)| canon.string(text));
    let wholes = [
        ("ticket lapse", u64::from(*ticket_lapse_ms), DEFAULT_TICKET_TTL_MS),
        ("look at", selection.look_at.into(), DEFAULT_SELECTION.look_at.into()),
        ("exact up to", selection.exact_up_to.into(), DEFAULT_SELECTION.exact_up_to.into()),
    ];
    for (text, value, _) in wholes.iter().filter(|(_, value, default)| value != default) {
        canon.string(text);
        canon.integer(*value);
    }
    match *regions {
        None => {}
        Some(RegionMode::Separate { attribute }) => {
            canon.string("separate regions");
            canon.index(attribute);
        }
        Some(RegionMode::Stage { expansion }) => {
            canon.string("a stage of regions");
            canon.index(expansion);
        }
        Some(RegionMode::Quality { weight, span_ms }) => {
            canon.string("regions in quality");
            canon.floats(&[weight, span_ms]);
        }
    }
    if !avoid.is_empty() {
        canon.string("avoid");
        canon.list(avoid, write_avoidance_rule);
    }
    if let Some(offer) = offer {
        canon.string("offer");
        canon.integer(offer.after_ms);
        canon.integer(offer.set_id.0.into());
    }
    if let Some(rule) = satisfaction {
        write_satisfaction(canon, rule);
    }
}

fn write_satisfaction(canon: &mut CanonicalWriter, rule: &SatisfactionSpec) {
    let plain = SatisfactionSpec::default();
    canon.string("satisfaction");
    // Nobody has lost no match in a row: 0 is none.
    canon.integer(rule.losing_streak.unwrap_or(0).into());
    canon.float(rule.widen);
    for (text, said) in [("abandoned", rule.abandoned_percent), ("score below", rule.score_below)] {
        if let Some(number) = said {
            canon.string(text);
            canon.float(number);
        }
    }
    if rule.min_matches != plain.min_matches {
        canon.string("min matches");
        canon.integer(rule.min_matches.into());
    }
    if rule.shift_down != plain.shift_down {
        canon.string("shift down");
        canon.float(rule.shift_down);
    }
}

fn write_avoidance_rule(canon: &mut CanonicalWriter, avoid: &AvoidanceRule) {
    match avoid.whom {
        AvoidTarget::Blocked => canon.string("blocked"),
        AvoidTarget::RecentOpponents { for_ms } => {
            canon.string("opponents");
            canon.integer(for_ms);
        }
        AvoidTarget::RecentTeammates { for_ms } => {
            canon.string("teammates");
            canon.integer(for_ms);
        }
    }
    match avoid.how {
        AvoidStrictness::Never => canon.string("never"),
        AvoidStrictness::NotSameTeam => canon.string("not same team"),
        AvoidStrictness::RatherNot { cost, half_life_ms } => {
            canon.string("rather not");
            canon.float(cost);
            canon.integer(half_life_ms);
        }
    }
}

fn write_quality(canon: &mut CanonicalWriter, quality: &QualitySpec) {
    match *quality {
        QualitySpec::Any => canon.string("any"),
        QualitySpec::SoftScore { max_score } => {
            canon.string("soft_score");
            canon.float(max_score);
        }
        QualitySpec::LeaderboardGauss { sigma, scale, threshold } => {
            canon.string("leaderboard_gauss");
            canon.floats(&[sigma, scale, threshold]);
        }
        QualitySpec::AverageSimilarity { rating_span, required_percent } => {
            canon.string("average_similarity");
            canon.floats(&[rating_span, required_percent]);
        }
        QualitySpec::DrawProbability { threshold } => {
            canon.string("draw_probability");
            canon.float(threshold);
        }
        QualitySpec::WinProbability { min_percent, max_percent } => {
            canon.string("win_probability");
            canon.floats(&[min_percent, max_percent]);
        }
        QualitySpec::CategorySimilarity { categories, category_width, divisor, curve, required_percent } => {
            canon.string("category_similarity");
            canon.floats(&[f64::from(categories), category_width, f64::from(divisor), required_percent]);
            canon.variant_name(curve);
        }
    }
}
