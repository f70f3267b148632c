//! What a queue feeds to the hash.

use crate::domain::ruleset::hash::Canon;
use crate::domain::ruleset::queue::{
    Avoid, AvoidHow, AvoidWhom, Quality, QueueSpec, Regions, Satisfaction, WindowRule,
};
use crate::domain::ruleset::validate::queue::{DEFAULT_SELECTION, DEFAULT_TICKET_LAPSE_MS};

/// What every queue has had from the first on.
pub(super) fn queue(canon: &mut Canon, queue: &QueueSpec) {
    // What is not named here is in `later`.
    let QueueSpec { pass_every_ms, party_rating, gate, groups, window, quality: bar, selection, wait_bonus, .. } =
        queue;
    canon.whole((*pass_every_ms).into());
    canon.word(party_rating);
    canon.number(gate.min_waiting_percent);
    canon.word(gate.rounding);
    canon.option(gate.max_parallel_matches.as_ref(), |canon, max| canon.whole((*max).into()));
    canon.whole(gate.skip_unchanged.into());
    canon.option(groups.as_ref(), |canon, groups| {
        canon.list(&groups.groups, |canon, group| {
            canon.text(&group.name);
            canon.numbers(&[group.from, group.to]);
        });
        canon.option(groups.neighbour_every_ms.as_ref(), |canon, every| canon.whole(*every));
        canon.whole(groups.max_neighbours.into());
    });
    canon.option(window.as_ref(), |canon, window| {
        canon.numbers(&[window.bucket_width, window.reciprocal_percent]);
        canon.list(&[window.start.into(), window.step.into(), window.step_every_ms], |canon, it| canon.whole(*it));
        canon.option(window.max.as_ref(), |canon, max| canon.whole((*max).into()));
        canon.option(window.max_percent.as_ref(), |canon, max| canon.number(*max));
        canon.word((window.rounding, window.combine, window.clock));
    });
    quality(canon, bar);
    canon.word((selection.mode, selection.start_with));
    canon.option(wait_bonus.as_ref(), |canon, bonus| canon.numbers(&[bonus.per_minute, bonus.free_minutes]));
}

/// What queues came to say after their first hashes were given out: each where it says more than its default.
pub(super) fn later(canon: &mut Canon, queue: &QueueSpec) {
    let QueueSpec { several_queues, like_parties_first, backfill, ticket_lapse_ms, regions, avoid, offer, .. } = queue;
    let QueueSpec { window, selection, satisfaction, .. } = queue;
    let flags = [
        ("one queue", !several_queues),
        ("like parties first", *like_parties_first),
        ("backfill", *backfill),
        ("overlap", window.as_ref().is_some_and(|window| window.rule == WindowRule::Overlap)),
    ];
    flags.iter().filter(|(_, said)| *said).for_each(|(text, _)| canon.text(text));
    let wholes = [
        ("ticket lapse", u64::from(*ticket_lapse_ms), DEFAULT_TICKET_LAPSE_MS),
        ("look at", selection.look_at.into(), DEFAULT_SELECTION.look_at.into()),
        ("exact up to", selection.exact_up_to.into(), DEFAULT_SELECTION.exact_up_to.into()),
    ];
    for (text, value, _) in wholes.iter().filter(|(_, value, default)| value != default) {
        canon.text(text);
        canon.whole(*value);
    }
    match *regions {
        None => {}
        Some(Regions::Separate { attribute }) => {
            canon.text("separate regions");
            canon.place(attribute);
        }
        Some(Regions::Stage { expansion }) => {
            canon.text("a stage of regions");
            canon.place(expansion);
        }
        Some(Regions::Quality { weight, span_ms }) => {
            canon.text("regions in quality");
            canon.numbers(&[weight, span_ms]);
        }
    }
    if !avoid.is_empty() {
        canon.text("avoid");
        canon.list(avoid, avoided);
    }
    if let Some(offer) = offer {
        canon.text("offer");
        canon.whole(offer.after_ms);
        canon.whole(offer.set_id.0.into());
    }
    if let Some(rule) = satisfaction {
        satisfied(canon, rule);
    }
}

fn satisfied(canon: &mut Canon, rule: &Satisfaction) {
    let plain = Satisfaction::default();
    canon.text("satisfaction");
    // Nobody has lost no match in a row: 0 is none.
    canon.whole(rule.losing_streak.unwrap_or(0).into());
    canon.number(rule.widen);
    for (text, said) in [("abandoned", rule.abandoned_percent), ("score below", rule.score_below)] {
        if let Some(number) = said {
            canon.text(text);
            canon.number(number);
        }
    }
    if rule.min_matches != plain.min_matches {
        canon.text("min matches");
        canon.whole(rule.min_matches.into());
    }
    if rule.shift_down != plain.shift_down {
        canon.text("shift down");
        canon.number(rule.shift_down);
    }
}

fn avoided(canon: &mut Canon, avoid: &Avoid) {
    match avoid.whom {
        AvoidWhom::Blocked => canon.text("blocked"),
        AvoidWhom::RecentOpponents { for_ms } => {
            canon.text("opponents");
            canon.whole(for_ms);
        }
        AvoidWhom::RecentTeammates { for_ms } => {
            canon.text("teammates");
            canon.whole(for_ms);
        }
    }
    match avoid.how {
        AvoidHow::Never => canon.text("never"),
        AvoidHow::NotSameTeam => canon.text("not same team"),
        AvoidHow::RatherNot { cost, half_life_ms } => {
            canon.text("rather not");
            canon.number(cost);
            canon.whole(half_life_ms);
        }
    }
}

fn quality(canon: &mut Canon, quality: &Quality) {
    match *quality {
        Quality::Any => canon.text("any"),
        Quality::SoftScore { max_score } => {
            canon.text("soft_score");
            canon.number(max_score);
        }
        Quality::LeaderboardGauss { sigma, scale, threshold } => {
            canon.text("leaderboard_gauss");
            canon.numbers(&[sigma, scale, threshold]);
        }
        Quality::AverageSimilarity { rating_span, required_percent } => {
            canon.text("average_similarity");
            canon.numbers(&[rating_span, required_percent]);
        }
        Quality::DrawProbability { threshold } => {
            canon.text("draw_probability");
            canon.number(threshold);
        }
        Quality::WinProbability { min_percent, max_percent } => {
            canon.text("win_probability");
            canon.numbers(&[min_percent, max_percent]);
        }
        Quality::CategorySimilarity { categories, category_width, divisor, curve, required_percent } => {
            canon.text("category_similarity");
            canon.numbers(&[f64::from(categories), category_width, f64::from(divisor), required_percent]);
            canon.word(curve);
        }
    }
}
