//! Configuration hash of the queue settings.

use crate::ruleset::hash::CanonicalWriter;
use crate::ruleset::queue::{
    AvoidStrictness, AvoidTarget, AvoidanceRule, DEFAULT_TICKET_TTL_MS, FrustratedPlayerSpec, LookDirection,
    PassTrigger, QualitySpec, QueueSpec, RegionUse, SelectionMode, WindowPairRule,
};
use crate::ruleset::validate::queue::DEFAULT_SELECTION;

/// Writes the settings that queues have had since the first hash.
pub(super) fn write_queue(writer: &mut CanonicalWriter, queue: &QueueSpec) {
    // The remaining fields are in `write_queue_additions`.
    let QueueSpec {
        pass_interval_ms, party_rating, gate, groups, window, quality: measure, selection, wait_bonus, ..
    } = queue;
    writer.integer((*pass_interval_ms).into());
    writer.variant_name(party_rating);
    writer.float(gate.min_waiting_percent);
    writer.variant_name(gate.rounding);
    writer.option(gate.max_concurrent_matches.as_ref(), |writer, max| writer.integer((*max).into()));
    writer.integer(gate.skip_unchanged.into());
    writer.option(groups.as_ref(), |writer, groups| {
        writer.list(&groups.groups, |writer, group| {
            writer.string(&group.name);
            writer.floats(&[group.from, group.to]);
        });
        writer.option(groups.widen_every_ms.as_ref(), |writer, every| writer.integer(*every));
        writer.integer(groups.max_extra_groups.into());
    });
    writer.option(window.as_ref(), |writer, window| {
        writer.floats(&[window.bucket_width, window.other_range_cover_percent]);
        writer
            .list(&[window.initial_half_width.into(), window.step.into(), window.step_every_ms], |writer, integer| {
                writer.integer(*integer)
            });
        writer.option(window.max_half_width.as_ref(), |writer, max| writer.integer((*max).into()));
        writer.option(window.max_percent_of_rating.as_ref(), |writer, max| writer.float(*max));
        writer.variant_name((window.rounding, window.combine, window.clock));
        if let Some(bounds) = &window.bucket_boundaries {
            writer.string("bucket bounds");
            writer.list(bounds, |writer, bound| writer.float(*bound));
        }
    });
    write_quality(writer, measure);
    writer.string(&format!("({}, {:?})", selection_mode_name(selection.mode), selection.start_with));
    writer.option(wait_bonus.as_ref(), |writer, bonus| {
        writer.floats(&[bonus.per_combined_minute, bonus.free_combined_minutes])
    });
}

/// Name of a selection mode in the hash format.
fn selection_mode_name(mode: SelectionMode) -> &'static str {
    match mode {
        SelectionMode::Nearest => "Nearest",
        SelectionMode::WeightedSample => "WeightedSample",
        SelectionMode::FirstWindow => "BestWindow",
        SelectionMode::MaximumWeight => "MaximumWeight",
    }
}

/// Writes the settings added after the first hashes were issued, each only if it differs from its default.
pub(super) fn write_queue_additions(writer: &mut CanonicalWriter, queue: &QueueSpec) {
    let QueueSpec {
        allow_other_queues, prefer_same_party_size, backfill, ticket_ttl_ms, regions, avoid, offer, ..
    } = queue;
    let QueueSpec { window, selection, frustrated_player_window: satisfaction, .. } = queue;
    let flags = [
        ("one queue", !allow_other_queues),
        ("like parties first", *prefer_same_party_size),
        ("backfill", *backfill),
        ("overlap", window.as_ref().is_some_and(|window| window.rule == WindowPairRule::Overlap)),
    ];
    flags.iter().filter(|(_, value)| *value).for_each(|(label, _)| writer.string(label));
    let integers = [
        ("ticket lapse", u64::from(*ticket_ttl_ms), u64::from(DEFAULT_TICKET_TTL_MS)),
        ("look at", selection.max_candidates.into(), DEFAULT_SELECTION.max_candidates.into()),
        ("exact up to", selection.exact_up_to_tickets.into(), DEFAULT_SELECTION.exact_up_to_tickets.into()),
    ];
    if let PassTrigger::Change { gather_ms } = queue.pass_trigger {
        writer.string("passes on change");
        writer.integer(gather_ms.into());
    }
    if selection.look != LookDirection::Both {
        writer.string("look");
        writer.variant_name(selection.look);
    }
    for (label, value, _) in integers.iter().filter(|(_, value, default)| value != default) {
        writer.string(label);
        writer.integer(*value);
    }
    match *regions {
        None => {}
        Some(RegionUse::Partition { attribute }) => {
            writer.string("separate regions");
            writer.index(attribute);
        }
        Some(RegionUse::Filter { expansion }) => {
            writer.string("a stage of regions");
            writer.index(expansion);
        }
        Some(RegionUse::Quality { weight, span_ms }) => {
            writer.string("regions in quality");
            writer.floats(&[weight, span_ms]);
        }
    }
    if !avoid.is_empty() {
        writer.string("avoid");
        writer.list(avoid, write_avoidance_rule);
    }
    if let Some(offer) = offer {
        writer.string("offer");
        writer.integer(offer.after_ms);
        writer.integer(offer.set_id.0.into());
    }
    if let Some(rule) = satisfaction {
        write_satisfaction(writer, rule);
    }
}

pub(super) fn write_satisfaction(writer: &mut CanonicalWriter, rule: &FrustratedPlayerSpec) {
    let defaults = FrustratedPlayerSpec::default();
    writer.string("satisfaction");
    // A streak is at least 1, so 0 means no criterion.
    writer.integer(rule.losing_streak.unwrap_or(0).into());
    writer.float(rule.window_widen_factor);
    for (label, value) in [("abandoned", rule.abandoned_percent), ("score below", rule.feedback_below)] {
        if let Some(number) = value {
            writer.string(label);
            writer.float(number);
        }
    }
    if rule.min_matches != defaults.min_matches {
        writer.string("min matches");
        writer.integer(rule.min_matches.into());
    }
    if rule.window_shift_down_points != defaults.window_shift_down_points {
        writer.string("shift down");
        writer.float(rule.window_shift_down_points);
    }
}

pub(super) fn write_avoidance_rule(writer: &mut CanonicalWriter, avoid: &AvoidanceRule) {
    match avoid.whom {
        AvoidTarget::Blocked => writer.string("blocked"),
        AvoidTarget::RecentOpponents { recent_ms } => {
            writer.string("opponents");
            writer.integer(recent_ms);
        }
        AvoidTarget::RecentTeammates { recent_ms } => {
            writer.string("teammates");
            writer.integer(recent_ms);
        }
    }
    match avoid.how {
        AvoidStrictness::Never => writer.string("never"),
        AvoidStrictness::NotSameTeam => writer.string("not same team"),
        AvoidStrictness::PreferNot { cost, half_life_ms } => {
            writer.string("rather not");
            writer.float(cost);
            writer.integer(half_life_ms);
        }
    }
}

fn write_quality(writer: &mut CanonicalWriter, quality: &QualitySpec) {
    match *quality {
        QualitySpec::Any => writer.string("any"),
        QualitySpec::SoftScore { max_score } => {
            writer.string("soft_score");
            writer.float(max_score);
        }
        QualitySpec::LeaderboardGauss { sigma, scale, threshold } => {
            writer.string("leaderboard_gauss");
            writer.floats(&[sigma, scale, threshold]);
        }
        QualitySpec::AverageSimilarity { rating_span, required_percent } => {
            writer.string("average_similarity");
            writer.floats(&[rating_span, required_percent]);
        }
        QualitySpec::DrawProbability { threshold } => {
            writer.string("draw_probability");
            writer.float(threshold);
        }
        QualitySpec::WinProbability { min_percent, max_percent } => {
            writer.string("win_probability");
            writer.floats(&[min_percent, max_percent]);
        }
        QualitySpec::CategorySimilarity { categories, category_width, divisor, curve, required_percent } => {
            writer.string("category_similarity");
            writer.floats(&[f64::from(categories), category_width, f64::from(divisor), required_percent]);
            writer.variant_name(curve);
        }
    }
}
