//! Cross-checks: valid sections of a ruleset that contradict each other, or settings that can never have an effect.

use crate::attribute::SourceField;
use crate::rating::{TeamStrength, relative_draw_probability};
use crate::ruleset::element_reader::ElementReader;
use crate::ruleset::queue::{AvoidStrictness, AvoidTarget, QualitySpec, QueueSpec, RegionUse, SelectionMode};
use crate::ruleset::rating::RatingSpec;
use crate::ruleset::raw::{RawAttribute, RawElement, Span, quoted_excerpt};
use crate::ruleset::spelling::closest_name;
use crate::ruleset::teams::TeamsSpec;

/// Reports a ruleset that lets parties join only what they have measured, and tells no endpoint that they could probe.
fn report_measured_join_without_probe_endpoints(root: &ElementReader<'_>) {
    let attribute = |section: &str, name: &str| root.element.child(section)?.attribute(name);
    let join = attribute("Latency", "Join").filter(|join| &*join.value == "measured");
    let handles = attribute("Limits", "Handles").filter(|handles| &*handles.value == "per_searcher");
    if let (Some(join), Some(_)) = (join, handles) {
        let problem = "Join=\"measured\" needs probe endpoints, which Handles=\"per_searcher\" tells to no searcher";
        root.report_at(join.value_span, problem.to_owned(), "remove one of the two");
    }
}

/// Reports sections that need another section that is missing. The sections may themselves be invalid.
pub(super) fn check_required_sections(root: &ElementReader<'_>) {
    // A misspelt section is reported as such; do not report it as missing too.
    let section = |name: &str| {
        root.element.children.iter().find(|child| &*child.name == name || closest_name(&child.name, [name]).is_some())
    };
    let has_section =
        |name: &str| section(name).is_some_and(|found| name != "SoftFilters" || !found.children.is_empty());
    if !has_section("Queue") {
        for name in ["ReadyCheck", "Hosting"] {
            if let Some(child) = root.element.child(name) {
                let fix = "add a <Queue>, or remove it";
                root.report_at(child.name_span, format!("<{name}> needs matches, but there is no <Queue>"), fix);
            }
        }
    }
    for attribute in root.element.child("Attributes").into_iter().flat_map(|attributes| &attributes.children) {
        let name = attribute.attribute("Name").filter(|_| !has_section("Rating"));
        let needs_ratings = |name: &&RawAttribute| {
            matches!(
                SourceField::of_attribute_name(&name.value),
                SourceField::RatingDeviation | SourceField::MatchesPlayed
            )
        };
        if let Some(name) = name.filter(needs_ratings) {
            let problem = format!("{} is kept with ratings, and there are none", quoted_excerpt(&name.value));
            root.report_at(name.value_span, problem, "add a <Rating System=\"…\"/>");
        }
    }
    report_measured_join_without_probe_endpoints(root);
    if let Some(child) = root.element.child("Satisfaction") {
        report_satisfaction_without_ratings(root, child, has_section("Rating"));
        if !has_section("ExpansionConfigs") && !has_within_filter(root.element) {
            let fix = "add a <Within> or an <ExpansionConfigs>, or move it into <Queue>";
            root.report_at(child.name_span, "<Satisfaction> widens limits, and there are none", fix);
        }
    }
    let Some(queue) = root.element.child("Queue") else { return };
    if !has_section("Teams") {
        let problem = "<Queue> needs <Teams>";
        root.report_at(queue.name_span, problem, "add <Teams Count=\"2\" Size=\"…\"/>");
    }
    if let Some(child) = queue.child("Satisfaction") {
        report_satisfaction_without_ratings(root, child, has_section("Rating"));
    }
    let quality_elements = queue.child("Quality").map_or(&[][..], |quality| &quality.children);
    for quality_element in quality_elements.iter().take(1) {
        let (required_section, problem, fix) = match &*quality_element.name {
            "LeaderboardGauss" => {
                ("Rating", "depends on leaderboard ranks, and there is no leaderboard", "a <Rating System=\"…\"/>")
            }
            "WinProbability" => ("Rating", "depends on ratings, and there are none", "a <Rating System=\"…\"/>"),
            "DrawProbability" => {
                ("Rating", "depends on ratings and deviations, and there are none", "a <Rating System=\"…\"/>")
            }
            "SoftScore" => {
                ("SoftFilters", "depends on soft filters, and there are none", "<SoftFilters>, or use another measure")
            }
            _ => continue,
        };
        if !has_section(required_section) {
            root.report_at(
                quality_element.name_span,
                format!("<{}> {problem}", quality_element.name),
                format!("add {fix}"),
            );
        }
    }
}

fn report_satisfaction_without_ratings(root: &ElementReader<'_>, satisfaction: &RawElement, has_rating: bool) {
    if !has_rating {
        let problem = "<Satisfaction> depends on match results, which are only recorded with <Rating>";
        root.report_at(satisfaction.name_span, problem, "add a <Rating System=\"…\"/>");
    }
}

/// Whether a hard filter has a limit of its own.
fn has_within_filter(root: &RawElement) -> bool {
    root.child("HardFilters").is_some_and(|filters| filters.child("Within").is_some())
}

/// Checks teams, queue and rating against each other; each must be valid.
pub(super) fn check_sections_agree(
    root: &ElementReader<'_>,
    teams: Option<&TeamsSpec>,
    queue: Option<&QueueSpec>,
    rating: Option<&RatingSpec>,
) {
    let Some((queue_element, queue)) = root.element.child("Queue").zip(queue) else { return };
    let checker = CrossChecker { root, queue_element, queue };
    if let Some(teams) = teams {
        checker.check_queue_fits_teams(teams);
        checker.check_settings_that_need_teammates(teams);
    }
    checker.check_settings_that_need_quality();
    checker.check_quality_threshold_reachable();
    if let Some(rating) = rating {
        checker.check_groups_contain_initial_rating(rating.system.initial_rating());
        checker.check_draw_probability_quality(rating, teams);
    }
}

struct CrossChecker<'a> {
    root: &'a ElementReader<'a>,
    queue_element: &'a RawElement,
    queue: &'a QueueSpec,
}

impl CrossChecker<'_> {
    fn report(&self, span: Span, problem: impl Into<String>, fix: impl Into<String>) {
        self.root.report_at(span, problem, fix);
    }

    /// Position of a child of `<Queue>`, or of `<Queue>`.
    fn queue_child_span(&self, name: &str) -> Span {
        self.queue_element.child(name).unwrap_or(self.queue_element).name_span
    }

    /// Position of an attribute value of a child of `<Queue>`, or of the child.
    fn queue_child_attribute_span(&self, step: &str, name: &str) -> Span {
        let raw = self.queue_element.child(step).and_then(|step| step.attribute(name));
        raw.map_or(self.queue_child_span(step), |raw| raw.value_span)
    }

    /// The child element of `<Quality>`.
    fn quality_measure_element(&self) -> Option<&RawElement> {
        self.queue_element.child("Quality").and_then(|quality| quality.children.first())
    }

    fn check_queue_fits_teams(&self, teams: &TeamsSpec) {
        let other_players = teams.players_per_match().saturating_sub(1);
        let selection = &self.queue.selection;
        if selection.max_candidates < other_players.into() {
            let problem = format!(
                "a match of {} players is selected from {} candidates",
                other_players + 1,
                selection.max_candidates
            );
            let fix = format!("give `MaxCandidates` {other_players} or more, so that single players can fill a match");
            self.report(self.queue_child_attribute_span("Selection", "MaxCandidates"), problem, fix);
        }
        let is_pair = matches!(&*teams.team_sizes, [first, second] if first == second);
        if selection.mode == SelectionMode::MaximumWeight && !is_pair {
            let fix = "use two teams of equal size, or another `Mode`";
            let problem = "`maximum_weight` needs two teams of equal size";
            self.report(self.queue_child_attribute_span("Selection", "Mode"), problem, fix);
        }
        if let (QualitySpec::WinProbability { min_percent, max_percent }, Some(quality_element)) =
            (self.queue.quality, self.quality_measure_element())
        {
            let even_percent = 100.0 / teams.team_sizes.len().max(1) as f64;
            if even_percent < min_percent || even_percent > max_percent {
                let problem = format!(
                    "{} teams cannot all have a win probability from {min_percent} to {max_percent} %",
                    teams.team_sizes.len()
                );
                let even_percent = (even_percent * 1_000.0).round() / 1_000.0;
                let fix = format!("include {even_percent}, the win probability in an even match");
                self.report(quality_element.name_span, problem, fix);
            }
        }
    }

    /// Reports settings that have no effect with teams or parties of one player.
    fn check_settings_that_need_teammates(&self, teams: &TeamsSpec) {
        if self.queue.prefer_same_party_size && teams.max_party_size == 1 {
            let span = self
                .queue_element
                .attribute("PreferSamePartySize")
                .map_or(self.queue_element.name_span, |raw| raw.name_span);
            let fix = "remove it, or set `MaxPartySize` above 1";
            self.report(span, "`PreferSamePartySize` needs parties of several players", fix);
        }
        if teams.largest_team_size() != 1 {
            return;
        }
        let elements = self.queue_element.children.iter().filter(|child| &*child.name == "Avoid");
        for (avoid, element) in self.queue.avoid.iter().zip(elements) {
            if avoid.how == AvoidStrictness::NotSameTeam || matches!(avoid.whom, AvoidTarget::RecentTeammates { .. }) {
                self.report(
                    element.name_span,
                    "teams of one player have no teammates",
                    "avoid opponents, or remove it",
                );
            }
        }
    }

    /// Reports settings that change quality without `<Quality>`, and a wait bonus that cannot help.
    fn check_settings_that_need_quality(&self) {
        if matches!(self.queue.quality, QualitySpec::WinProbability { .. }) && self.queue.wait_bonus.is_some() {
            let problem = "<WaitBonus> has no effect with <WinProbability>, which is a range";
            self.report(self.queue_child_span("WaitBonus"), problem, "remove it, or widen the range");
        }
        if self.queue.quality != QualitySpec::Any {
            return;
        }
        let fix = "add a <Quality>, or remove it";
        let ignored_without_quality = |problem: &str| format!("{problem} has no effect without <Quality>");
        if self.queue.wait_bonus.is_some() {
            self.report(self.queue_child_span("WaitBonus"), ignored_without_quality("<WaitBonus>"), fix);
        }
        if matches!(self.queue.regions, Some(RegionUse::Quality { .. })) {
            self.report(
                self.queue_child_attribute_span("Regions", "Mode"),
                ignored_without_quality("Mode=\"quality\""),
                fix,
            );
        }
        let elements = self.queue_element.children.iter().filter(|child| &*child.name == "Avoid");
        for (avoid, element) in self.queue.avoid.iter().zip(elements) {
            if matches!(avoid.how, AvoidStrictness::PreferNot { .. }) {
                self.report(element.name_span, ignored_without_quality("`prefer_not`"), fix);
            }
        }
        if self.queue.selection.mode == SelectionMode::FirstWindow {
            let fix = "add a <Quality>: <AverageSimilarity> or <CategorySimilarity>, for example";
            let problem = "`first_window` needs a quality threshold";
            self.report(self.queue_child_attribute_span("Selection", "Mode"), problem, fix);
        }
    }

    /// Reports rating groups and categories that do not contain the initial rating: all new players would be in the
    /// first or last.
    fn check_groups_contain_initial_rating(&self, initial_rating: f64) {
        let fix = "extend the range, or change the initial rating in <Rating>";
        if let Some(groups) = &self.queue.groups {
            let (from, to) =
                (groups.groups.first().map(|group| group.from), groups.groups.last().map(|group| group.to));
            if let (Some(from), Some(to)) = (from, to)
                && !(from..to).contains(&initial_rating)
            {
                let problem = format!("groups range from {from} to {to}, but the initial rating is {initial_rating}");
                self.report(self.queue_child_span("RatingGroups"), problem, fix);
            }
        }
        if let (QualitySpec::CategorySimilarity { categories, category_width, .. }, Some(quality_element)) =
            (self.queue.quality, self.quality_measure_element())
        {
            let to = f64::from(categories) * category_width;
            if initial_rating <= 0.0 || initial_rating >= to {
                let problem = format!("categories range from 0 to {to}, but the initial rating is {initial_rating}");
                self.report(quality_element.name_span, problem, fix);
            }
        }
    }

    /// Reports `<DrawProbability>` without two teams or a rating system with beta, or above the quality of a match of
    /// new players.
    fn check_draw_probability_quality(&self, rating: &RatingSpec, teams: Option<&TeamsSpec>) {
        let (QualitySpec::DrawProbability { threshold }, Some(quality_element), Some(teams)) =
            (self.queue.quality, self.quality_measure_element(), teams)
        else {
            return;
        };
        let Some(beta) = rating.system.beta() else {
            let problem =
                format!("<DrawProbability> needs a rating system with beta, and `{}` has none", rating.system.as_str());
            return self.report(
                quality_element.name_span,
                problem,
                "use `trueskill` or `plackett_luce`, or another measure",
            );
        };
        let team_count = teams.team_sizes.len();
        if team_count != 2 {
            let problem = format!("<DrawProbability> needs two teams, and a match has {team_count}");
            return self.report(quality_element.name_span, problem, "use two teams, or another measure");
        }
        let new_team = |size: &u16| (0..*size).map(|_| rating.initial_skill().estimate).collect::<TeamStrength>();
        let quality = relative_draw_probability(beta, &teams.team_sizes.iter().map(new_team).collect::<Vec<_>>());
        if quality < threshold && self.queue.wait_bonus.is_none() {
            let problem = format!("the threshold is {threshold}, and a match of new players has quality {quality:.3}");
            self.report(quality_element.name_span, problem, "lower `Threshold`, or add a <WaitBonus>");
        }
    }

    /// Reports thresholds that no match can reach.
    fn check_quality_threshold_reachable(&self) {
        let Some(quality_element) = self.quality_measure_element().filter(|_| self.queue.wait_bonus.is_none()) else {
            return;
        };
        match self.queue.quality {
            QualitySpec::LeaderboardGauss { scale, threshold, .. } if threshold > scale => {
                let problem = format!("the threshold is {threshold}, and the maximum quality is {scale}");
                self.report(
                    quality_element.name_span,
                    problem,
                    "give `Threshold` at most `Scale`, or add a <WaitBonus>",
                );
            }
            QualitySpec::AverageSimilarity { required_percent, .. }
            | QualitySpec::CategorySimilarity { required_percent, .. }
                if required_percent >= 100.0 =>
            {
                let problem = format!("<{}> needs more than 100 % similarity", quality_element.name);
                self.report(quality_element.name_span, problem, "lower `RequiredPercent`, which must be exceeded");
            }
            _ => {}
        }
    }
}
