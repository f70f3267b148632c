//! Whether parts that are right by themselves go together. What could never come true, or never matter, is a mistake: its
//! author meant something else.

use crate::rating::{TeamStrength, relative_draw_probability};
use crate::ruleset::element_reader::ElementReader;
use crate::ruleset::queue::{AvoidStrictness, AvoidTarget, QualitySpec, QueueSpec, RegionMode, SelectionMode};
use crate::ruleset::rating::RatingSpec;
use crate::ruleset::raw::{RawElement, Span};
use crate::ruleset::spelling::closest_name;
use crate::ruleset::teams::TeamsSpec;

/// What lacks what it needs altogether; asked of parts that may themselves be wrong.
pub(super) fn check_required_sections(root: &ElementReader<'_>) {
    // A misspelt section is noted as such: that it is missing would be the same mistake again.
    let like = |name: &str| {
        root.element.children.iter().find(|it| &*it.name == name || closest_name(&it.name, [name]).is_some())
    };
    let has = |name: &str| like(name).is_some_and(|it| name != "SoftFilters" || !it.children.is_empty());
    if !has("Queue") {
        for (name, what) in [("ReadyCheck", "agreed to"), ("Server", "played")] {
            if let Some(child) = root.element.child(name) {
                let right = "add a <Queue>, or leave it out";
                root.report(child.name_span, format!("<{name}> says how matches are {what}, but none are made"), right);
            }
        }
    }
    let Some(queue) = root.element.child("Queue") else { return };
    if !has("Teams") {
        let what = "<Queue> makes matches but nothing says of what";
        root.report(queue.name_span, what, "add <Teams Count=\"2\" Size=\"…\"/>");
    }
    if let Some(child) = queue.child("Satisfaction").filter(|_| !has("Rating")) {
        let right = "add a <Rating System=\"…\"/>, which does";
        root.report(child.name_span, "<Satisfaction> goes by what came of matches, and nobody keeps that", right);
    }
    let measures = queue.child("Quality").map_or(&[][..], |quality| &quality.children);
    for measure in measures.iter().take(1) {
        let (needed, what, right) = match &*measure.name {
            "LeaderboardGauss" => (
                "Rating",
                "goes by places on a leaderboard, and there is none",
                "a <Rating System=\"…\"/>, whose leaderboard it is",
            ),
            "WinProbability" => (
                "Rating",
                "goes by ratings, and none are kept",
                "a <Rating System=\"…\"/>, by which chances are reckoned",
            ),
            "DrawProbability" => (
                "Rating",
                "goes by ratings and how sure they are, and none are kept",
                "a <Rating System=\"…\"/>, by which draws are reckoned",
            ),
            "SoftScore" => {
                ("SoftFilters", "adds soft filters up, and there are none", "<SoftFilters>, or measure in another way")
            }
            _ => continue,
        };
        if !has(needed) {
            root.report(measure.name_span, format!("<{}> {what}", measure.name), format!("add {right}"));
        }
    }
}

/// Checks teams, queue and rating of the ruleset at hand, each of which is sound.
pub(super) fn check_sections_agree(
    root: &ElementReader<'_>,
    teams: Option<&TeamsSpec>,
    queue: Option<&QueueSpec>,
    rating: Option<&RatingSpec>,
) {
    let Some((element, queue)) = root.element.child("Queue").zip(queue) else { return };
    let sense = CrossChecker { root, queue_element: element, queue };
    if let Some(teams) = teams {
        sense.check_match_size(teams);
        sense.check_single_player_teams(teams);
    }
    sense.check_settings_that_need_quality();
    sense.check_quality_threshold_reachable();
    if let Some(rating) = rating {
        sense.check_initial_rating_in_range(rating.system.initial_rating());
        sense.check_draw_probability(rating, teams);
    }
}

struct CrossChecker<'a> {
    root: &'a ElementReader<'a>,
    queue_element: &'a RawElement,
    queue: &'a QueueSpec,
}

impl CrossChecker<'_> {
    fn report(&self, span: Span, what: impl Into<String>, right: impl Into<String>) {
        self.root.report(span, what, right);
    }

    /// Where a step of the queue stands.
    fn child_span(&self, name: &str) -> Span {
        self.queue_element.child(name).unwrap_or(self.queue_element).name_span
    }

    /// Where an attribute of a step stands; else the step itself.
    fn attribute_span(&self, step: &str, name: &str) -> Span {
        let written = self.queue_element.child(step).and_then(|step| step.attribute(name));
        written.map_or(self.child_span(step), |written| written.value_span)
    }

    /// The one element in `<Quality>`.
    fn quality_element(&self) -> Option<&RawElement> {
        self.queue_element.child("Quality").and_then(|quality| quality.children.first())
    }

    fn check_match_size(&self, teams: &TeamsSpec) {
        let others = teams.players_per_match().saturating_sub(1);
        let selection = &self.queue.selection;
        if selection.look_at < others.into() {
            let what = format!("a match of {} is sought among {} others", others + 1, selection.look_at);
            let right = format!("give `LookAt` {others} or more: players who come alone would never be enough");
            self.report(self.attribute_span("Selection", "LookAt"), what, right);
        }
        let is_pair = matches!(&*teams.team_sizes, [first, second] if first == second);
        if selection.mode == SelectionMode::MaximumWeight && !is_pair {
            let right = "make it two teams of one size, or take another `Mode`";
            let what = "`maximum_weight` pairs parties, and this match is no pair";
            self.report(self.attribute_span("Selection", "Mode"), what, right);
        }
        if let (QualitySpec::WinProbability { min_percent, max_percent }, Some(measure)) =
            (self.queue.quality, self.quality_element())
        {
            let even_percent = 100.0 / teams.team_sizes.len().max(1) as f64;
            if even_percent < min_percent || max_percent < even_percent {
                let what = format!(
                    "{} teams cannot all have a chance from {min_percent} to {max_percent} %",
                    teams.team_sizes.len()
                );
                let even_percent = (even_percent * 1_000.0).round() / 1_000.0;
                let right = format!("chances add up to 100: let the band hold {even_percent}, as in an even match");
                self.report(measure.name_span, what, right);
            }
        }
    }

    /// What says nothing where a team is one player.
    fn check_single_player_teams(&self, teams: &TeamsSpec) {
        if self.queue.like_parties_first && teams.max_party_size == 1 {
            let written = self
                .queue_element
                .attribute("LikePartiesFirst")
                .map_or(self.queue_element.name_span, |it| it.name_span);
            let right = "leave it out, or let `MaxPartySize` be more than 1";
            self.report(written, "parties of like size come first, but every party is one player", right);
        }
        if teams.largest_team_size() != 1 {
            return;
        }
        let elements = self.queue_element.children.iter().filter(|child| &*child.name == "Avoid");
        for (avoid, element) in self.queue.avoid.iter().zip(elements) {
            if avoid.how == AvoidStrictness::NotSameTeam || matches!(avoid.whom, AvoidTarget::RecentTeammates { .. }) {
                self.report(
                    element.name_span,
                    "nobody has teammates in teams of one",
                    "avoid opponents, or leave it out",
                );
            }
        }
    }

    /// What adds to quality, or takes from it, where any match is good enough; and a bonus for what no bonus helps.
    fn check_settings_that_need_quality(&self) {
        if matches!(self.queue.quality, QualitySpec::WinProbability { .. }) && self.queue.wait_bonus.is_some() {
            let what = "waiting adds to quality, but <WinProbability> is a band, and no bonus brings a match into it";
            self.report(self.child_span("WaitBonus"), what, "leave it out, or make the band wider");
        }
        if self.queue.quality != QualitySpec::Any {
            return;
        }
        let right = "add a <Quality> for it to count in, or leave it out";
        let adds = |what: &str| format!("{what}, but without <Quality> every match is as good");
        if self.queue.wait_bonus.is_some() {
            self.report(self.child_span("WaitBonus"), adds("waiting adds to quality"), right);
        }
        if matches!(self.queue.regions, Some(RegionMode::Quality { .. })) {
            self.report(self.attribute_span("Regions", "Mode"), adds("far regions take from quality"), right);
        }
        let elements = self.queue_element.children.iter().filter(|child| &*child.name == "Avoid");
        for (avoid, element) in self.queue.avoid.iter().zip(elements) {
            if matches!(avoid.how, AvoidStrictness::RatherNot { .. }) {
                self.report(element.name_span, adds("`rather_not` takes from quality"), right);
            }
        }
        if self.queue.selection.mode == SelectionMode::BestWindow {
            let right = "add a <Quality>: <AverageSimilarity> or <CategorySimilarity>, for example";
            let what = "`best_window` takes the first players that are good enough, and anyone is";
            self.report(self.attribute_span("Selection", "Mode"), what, right);
        }
    }

    /// Groups and categories on another scale than the ratings: all newcomers would be in the first, or in the last (B-32).
    fn check_initial_rating_in_range(&self, newcomer: f64) {
        let right = "let them span the ratings of <Rating>, or let newcomers begin among them";
        if let Some(groups) = &self.queue.groups {
            let (from, to) = (groups.groups.first().map(|it| it.from), groups.groups.last().map(|it| it.to));
            if let (Some(from), Some(to)) = (from, to)
                && !(from..to).contains(&newcomer)
            {
                let what = format!("groups go from {from} to {to}, but a newcomer is rated {newcomer}");
                self.report(self.child_span("Groups"), what, right);
            }
        }
        if let (QualitySpec::CategorySimilarity { categories, category_width, .. }, Some(measure)) =
            (self.queue.quality, self.quality_element())
        {
            let to = f64::from(categories) * category_width;
            if !(0.0 < newcomer && newcomer < to) {
                let what = format!("categories go from 0 to {to}, but a newcomer is rated {newcomer}");
                self.report(measure.name_span, what, right);
            }
        }
    }

    /// Draws are of two teams, by a system that says how much luck there is in a game; and newcomers may meet each other.
    fn check_draw_probability(&self, rating: &RatingSpec, teams: Option<&TeamsSpec>) {
        let (QualitySpec::DrawProbability { threshold }, Some(measure), Some(teams)) =
            (self.queue.quality, self.quality_element(), teams)
        else {
            return;
        };
        let Some(beta) = rating.system.beta() else {
            let what =
                format!("<DrawProbability> goes by the luck in a game, and `{}` says none", rating.system.as_str());
            return self.report(
                measure.name_span,
                what,
                "rate by `trueskill` or `plackett_luce`, or measure in another way",
            );
        };
        let count = teams.team_sizes.len();
        if count != 2 {
            let what = format!("<DrawProbability> is that of two teams, and a match has {count}");
            return self.report(measure.name_span, what, "make it two teams, or measure in another way");
        }
        let newcomers = |size: &u16| (0..*size).map(|_| rating.initial_skill().estimate).collect::<TeamStrength>();
        let reached = relative_draw_probability(beta, &teams.team_sizes.iter().map(newcomers).collect::<Vec<_>>());
        if reached < threshold && self.queue.wait_bonus.is_none() {
            let what = format!("the least quality is {threshold}, and a match of newcomers has {reached:.3}");
            self.report(measure.name_span, what, "give a `Threshold` that newcomers pass, or add a <WaitBonus>");
        }
    }

    /// Bars that nobody can clear, waiting or not.
    fn check_quality_threshold_reachable(&self) {
        let Some(measure) = self.quality_element().filter(|_| self.queue.wait_bonus.is_none()) else { return };
        match self.queue.quality {
            QualitySpec::LeaderboardGauss { scale, threshold, .. } if scale < threshold => {
                let what = format!("the least quality is {threshold}, and neighbours on the leaderboard have {scale}");
                self.report(measure.name_span, what, "give `Threshold` at most `Scale`, or add a <WaitBonus>");
            }
            QualitySpec::AverageSimilarity { required_percent, .. }
            | QualitySpec::CategorySimilarity { required_percent, .. }
                if 100.0 <= required_percent =>
            {
                let what = format!("<{}> asks for more than 100 % similarity", measure.name);
                self.report(measure.name_span, what, "give `RequiredPercent` less than 100: it must be exceeded");
            }
            _ => {}
        }
    }
}
