//! Cross-checks: parts of a ruleset that are valid alone and contradict each other are reported with their position.

use fireteam::rules;

/// A ruleset with `inside`, and a duel's teams unless `inside` has teams.
fn file(inside: &str) -> String {
    let teams = if inside.contains("<Teams") { "" } else { "<Teams Count='2' Size='1'/>" };
    format!("<Ruleset Name='a' SetId='5'>{teams}{inside}</Ruleset>")
}

/// Asserts that a ruleset has one problem, with this message, at the text `at`.
#[track_caller]
fn check(inside: &str, at: &str, message: &str) {
    let text = if inside.starts_with("<Ruleset") { inside.to_owned() } else { file(inside) };
    let problems = rules::parse_ruleset("a.xml", &text).expect_err(&text);
    let lines: Vec<String> = problems.iter().map(|problem| problem.message()).collect();
    assert_eq!(lines, [message], "{text}");
    let column = problems[0].column as usize;
    let marked_text: String = text.chars().skip(column - 1).take(at.chars().count()).collect();
    assert_eq!(marked_text, at, "{text}");
}

#[track_caller]
fn assert_valid(inside: &str) {
    let text = file(inside);
    if let Err(problems) = rules::parse_ruleset("a.xml", &text) {
        panic!("{}\n{text}", problems.iter().map(|it| format!("{it}\n")).collect::<String>());
    }
}

#[test]
fn cross_check_queue_needs_teams() {
    check(
        "<Ruleset Name='a' SetId='5'><Queue/></Ruleset>",
        "Queue",
        "<Queue> needs <Teams>; add <Teams Count=\"2\" Size=\"…\"/>",
    );
    check(
        "<ReadyCheck/>",
        "ReadyCheck",
        "<ReadyCheck> needs matches, but there is no <Queue>; add a <Queue>, or remove it",
    );
    check(
        "<Hosting Mode='peer'/>",
        "Hosting",
        "<Hosting> needs matches, but there is no <Queue>; add a <Queue>, or remove it",
    );
}

/// Maximum weight matching pairs parties: it can fill two equal teams only.
#[test]
fn cross_check_maximum_weight_needs_two_equal_teams() {
    let message = "`maximum_weight` needs two teams of equal size; use two teams of equal size, or another `Mode`";
    let queue = "<Queue><Selection Mode='maximum_weight'/></Queue>";
    check(&format!("<Teams Count='3' Size='1'/>{queue}"), "maximum_weight", message);
    check(&format!("<Teams><Team Size='1'/><Team Size='4'/></Teams>{queue}"), "maximum_weight", message);
    assert_valid(&format!("<Teams><Team Size='4'/><Team Size='4'/></Teams>{queue}"));
}

#[test]
fn cross_check_max_candidates_can_fill_a_match() {
    check(
        "<Teams Count='2' Size='6'/><Queue><Selection Mode='nearest' MaxCandidates='10'/></Queue>",
        "10",
        "a match of 12 players is selected from 10 candidates; give `MaxCandidates` 11 or more, so that single players can fill a match",
    );
    assert_valid("<Teams Count='2' Size='6'/><Queue><Selection Mode='nearest' MaxCandidates='11'/></Queue>");
}

/// S2-9, D-5: leaderboard places and win probabilities need ratings.
#[test]
fn cross_check_quality_needs_what_it_measures() {
    check(
        "<Queue><Quality><LeaderboardGauss/></Quality></Queue>",
        "LeaderboardGauss",
        "<LeaderboardGauss> depends on leaderboard ranks, and there is no leaderboard; \
         add a <Rating System=\"…\"/>",
    );
    check(
        "<Queue><Quality><WinProbability/></Quality></Queue>",
        "WinProbability",
        "<WinProbability> depends on ratings, and there are none; add a <Rating System=\"…\"/>",
    );
    check(
        "<Queue><Quality><SoftScore MaxScore='1'/></Quality></Queue>",
        "SoftScore",
        "<SoftScore> depends on soft filters, and there are none; add <SoftFilters>, or use another measure",
    );
    assert_valid("<Queue><Quality><LeaderboardGauss/></Quality></Queue><Rating System='elo'/>");
    assert_valid("<Queue><Quality><WinProbability/></Quality></Queue><Rating System='elo'/>");
}

/// S2-4: a draw probability needs two teams, a rating system with beta, and a threshold that new players reach, at once
/// or by waiting.
#[test]
fn cross_check_draw_probability_needs_two_teams_and_beta() {
    let queue = |more: &str| format!("<Queue><Quality><DrawProbability Threshold='0.5'/></Quality>{more}</Queue>");
    let (without_bonus, bonus) = (queue(""), queue("<WaitBonus/>"));
    check(
        &without_bonus,
        "DrawProbability",
        "<DrawProbability> depends on ratings and deviations, and there are none; \
         add a <Rating System=\"…\"/>",
    );
    for system in ["elo", "glicko", "glicko2"] {
        check(
            &format!("{without_bonus}<Rating System='{system}'/>"),
            "DrawProbability",
            &format!(
                "<DrawProbability> needs a rating system with beta, and `{system}` has none; \
                 use `trueskill` or `plackett_luce`, or another measure"
            ),
        );
    }
    let plackett_luce = "<Rating System='plackett_luce'/>";
    check(
        &format!("<Teams Count='3' Size='1'/>{without_bonus}{plackett_luce}"),
        "DrawProbability",
        "<DrawProbability> needs two teams, and a match has 3; use two teams, or another measure",
    );
    check(
        &format!("{without_bonus}{plackett_luce}"),
        "DrawProbability",
        "the threshold is 0.5, and a match of new players has quality 0.447; \
         lower `Threshold`, or add a <WaitBonus>",
    );
    check(
        &format!("{}{plackett_luce}", without_bonus.replace("0.5", "1.1")),
        "1.1",
        "`Threshold` is `1.1`; give a number above 0 and at most 1",
    );
    assert_valid(&format!("{bonus}{plackett_luce}"));
    assert_valid(&format!("{without_bonus}<Rating System='trueskill'/>"));
    assert_valid(&format!("<Teams Count='2' Size='5'/>{}{plackett_luce}", without_bonus.replace("0.5", "0.4")));
}

/// S1-97: satisfaction needs ratings and a rating window.
#[test]
fn cross_check_satisfaction_needs_ratings_and_a_window() {
    check(
        "<Queue><RatingWindow/><Satisfaction LosingStreak='3' Widen='2'/></Queue>",
        "Satisfaction",
        "<Satisfaction> depends on match results, which are only recorded with <Rating>; add a <Rating System=\"…\"/>",
    );
    check(
        "<Queue><Satisfaction LosingStreak='3' Widen='2'/></Queue><Rating System='elo'/>",
        "Satisfaction",
        "<Satisfaction> adjusts a rating window, and there is none; add a <RatingWindow>, or remove it",
    );
    assert_valid("<Queue><RatingWindow/><Satisfaction LosingStreak='3' Widen='1.5'/></Queue><Rating System='elo'/>");
}

/// S1-97: wider limits need ratings, and limits.
#[test]
fn cross_check_wider_limits_need_ratings_and_limits() {
    let within = "<HardFilters><Within Attribute='latency' Limit='80'/></HardFilters>";
    let rule = "<Satisfaction LosingStreak='3' WidenLimits='2'/>";
    check(
        &format!("{rule}{within}"),
        "Satisfaction",
        "<Satisfaction> depends on match results, which are only recorded with <Rating>; add a <Rating System=\"…\"/>",
    );
    check(
        &format!("{rule}<Rating System='elo'/>"),
        "Satisfaction",
        "<Satisfaction> widens limits, and there are none; add a <Within> or an <ExpansionConfigs>, or move it into <Queue>",
    );
    assert_valid(&format!("{rule}{within}<Rating System='elo'/>"));
}

/// S1-97: satisfaction needs at least one sign and one effect, each within its range.
#[test]
fn cross_check_satisfaction_needs_a_sign_and_an_effect() {
    let inside =
        |attributes: &str| format!("<Queue><RatingWindow/><Satisfaction {attributes}/></Queue><Rating System='elo'/>");
    for (attributes, marked, expected) in [
        (
            "Widen='2'",
            "Satisfaction",
            "<Satisfaction> has no `LosingStreak`; add LosingStreak=\"…\" or AbandonedPercent=\"…\" or FeedbackBelow=\"…\"",
        ),
        ("FeedbackBelow='2'", "Satisfaction", "<Satisfaction> has no `Widen`; add Widen=\"…\" or ShiftDown=\"…\""),
        (
            "FeedbackBelwo='2' Widen='2'",
            "FeedbackBelwo",
            "<Satisfaction> has no attribute `FeedbackBelwo`; did you mean `FeedbackBelow`?",
        ),
        ("FeedbackBelow='1' Widen='2'", "1", "`FeedbackBelow` is `1`; give a number above 1 and at most 5"),
        (
            "AbandonedPercent='101' Widen='2'",
            "101",
            "`AbandonedPercent` is `101`; give a number above 0 and at most 100",
        ),
        ("LosingStreak='0' Widen='2'", "0", "`LosingStreak` is `0`; give a whole number from 1 to 1000"),
        ("LosingStreak='2' ShiftDown='0'", "0", "`ShiftDown` is `0`; give a number above 0 and at most 1000000"),
        (
            "LosingStreak='2' Widen='2' MinMatches='3'",
            "MinMatches",
            "`MinMatches` has no effect here; remove it: it does not affect `LosingStreak`",
        ),
        ("FeedbackBelow='2' Widen='2' MinMatches='0'", "0", "`MinMatches` is `0`; give a whole number from 1 to 1000"),
    ] {
        check(&inside(attributes), marked, expected);
    }
    assert_valid(&inside("AbandonedPercent='20' FeedbackBelow='2.5' MinMatches='10' ShiftDown='50'"));
}

#[test]
fn cross_check_quality_terms_need_a_quality() {
    let remedy = "has no effect without <Quality>; add a <Quality>, or remove it";
    check("<Queue><WaitBonus/></Queue>", "WaitBonus", &format!("<WaitBonus> {remedy}"));
    check("<Queue><Regions Mode='quality' Weight='1'/></Queue>", "quality", &format!("Mode=\"quality\" {remedy}"));
    check(
        "<Queue><Avoid Whom='blocked' How='prefer_not' Cost='1'/></Queue>",
        "Avoid",
        &format!("`prefer_not` {remedy}"),
    );
    check(
        "<Queue><Selection Mode='first_window'/></Queue>",
        "first_window",
        "`first_window` needs a quality threshold; \
         add a <Quality>: <AverageSimilarity> or <CategorySimilarity>, for example",
    );
}

#[test]
fn cross_check_win_probability_refuses_a_wait_bonus() {
    check(
        "<Queue><Quality><WinProbability/></Quality><WaitBonus/></Queue><Rating System='elo'/>",
        "WaitBonus",
        "<WaitBonus> has no effect with <WinProbability>, which is a range; \
         remove it, or widen the range",
    );
}

/// B-24, S4-9: a threshold above the maximum quality makes no match, ever.
#[test]
fn cross_check_threshold_is_reachable() {
    check(
        "<Queue><Quality><LeaderboardGauss Scale='0.5' Threshold='0.6'/></Quality></Queue><Rating System='elo'/>",
        "LeaderboardGauss",
        "the threshold is 0.6, and the maximum quality is 0.5; \
         give `Threshold` at most `Scale`, or add a <WaitBonus>",
    );
    assert_valid(
        "<Queue><Quality><LeaderboardGauss Threshold='0.6'/></Quality><WaitBonus/></Queue><Rating System='elo'/>",
    );
    check(
        "<Queue><Quality><AverageSimilarity RatingSpan='9' RequiredPercent='100'/></Quality></Queue>",
        "AverageSimilarity",
        "<AverageSimilarity> needs more than 100 % similarity; lower `RequiredPercent`, which must be exceeded",
    );
    check(
        "<Teams Count='4' Size='1'/><Queue><Quality><WinProbability MinPercent='30'/></Quality></Queue><Rating System='elo'/>",
        "WinProbability",
        "4 teams cannot all have a win probability from 30 to 70 %; include 25, the win probability in an even match",
    );
}

/// B-32: groups and categories are on the scale of the set's rating system.
#[test]
fn cross_check_scales_include_the_initial_rating() {
    let remedy = "extend the range, or change the initial rating in <Rating>";
    let groups = "<Queue><RatingGroups><RatingGroup Name='a' From='1000' To='4500'/></RatingGroups></Queue>";
    check(
        &format!("{groups}<Rating System='trueskill'/>"),
        "RatingGroups",
        &format!("groups range from 1000 to 4500, but the initial rating is 25; {remedy}"),
    );
    assert_valid(&format!("{groups}<Rating System='elo' Initial='1000'/>"));
    let categories = "<Queue><Quality><CategorySimilarity RequiredPercent='90'/></Quality></Queue>";
    check(
        &format!("{categories}<Rating System='glicko' Initial='0'/>"),
        "CategorySimilarity",
        &format!("categories range from 0 to 2600, but the initial rating is 0; {remedy}"),
    );
    assert_valid(&format!("{categories}<Rating System='glicko'/>"));
}

#[test]
fn cross_check_teammate_rules_need_larger_teams() {
    check(
        "<Queue><Avoid Whom='blocked' How='not_same_team'/></Queue>",
        "Avoid",
        "teams of one player have no teammates; avoid opponents, or remove it",
    );
    check(
        "<Queue PreferSamePartySize='true'/>",
        "PreferSamePartySize",
        "`PreferSamePartySize` needs parties of several players; remove it, or set `MaxPartySize` above 1",
    );
}

/// S4-16: an offer names another set.
#[test]
fn cross_check_offer_names_another_set() {
    check(
        "<Queue><Offer AfterMs='1' SetId='5'/></Queue>",
        "5",
        "`SetId` is `5`; name another set: waiting tickets are already in this one",
    );
    assert_valid("<Queue><Offer AfterMs='1' SetId='6'/></Queue>");
}

/// Cross-checks run only if all parts are valid: an error within a part is reported alone.
#[test]
fn cross_check_runs_on_valid_parts_only() {
    check(
        "<Queue><Gate MinWaitingPercent='200'/><Selection Mode='first_window'/></Queue>",
        "200",
        "`MinWaitingPercent` is `200`; give a number from 0 to 100",
    );
    check(
        "<Queue><Quality><LeaderboardGauss/></Quality></Queue><Raiting System='elo'/>",
        "Raiting",
        "<Ruleset> has no child element `Raiting`; did you mean `Rating`?",
    );
}
