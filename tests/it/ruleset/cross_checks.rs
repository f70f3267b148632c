//! Parts of a ruleset that are right by themselves and make no sense together: each is a mistake, told where it stands.

use fireteam::rules;

/// A duel's teams and a bare queue, for what a case does not say itself.
fn file(inside: &str) -> String {
    let teams = if inside.contains("<Teams") { "" } else { "<Teams Count='2' Size='1'/>" };
    format!("<Ruleset Name='a' SetId='5'>{teams}{inside}</Ruleset>")
}

/// The only mistake of a ruleset, after what stands at its place.
#[track_caller]
fn check(inside: &str, at: &str, said: &str) {
    let text = if inside.starts_with("<Ruleset") { inside.to_owned() } else { file(inside) };
    let problems = rules::parse_ruleset("a.xml", &text).expect_err(&text);
    let lines: Vec<String> = problems.iter().map(|problem| problem.message()).collect();
    assert_eq!(lines, [said], "{text}");
    let column = problems[0].column as usize;
    let there: String = text.chars().skip(column - 1).take(at.chars().count()).collect();
    assert_eq!(there, at, "{text}");
}

#[track_caller]
fn sound(inside: &str) {
    let text = file(inside);
    if let Err(problems) = rules::parse_ruleset("a.xml", &text) {
        panic!("{}\n{text}", problems.iter().map(|it| format!("{it}\n")).collect::<String>());
    }
}

#[test]
fn matches_are_made_of_teams_by_queues() {
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

/// A maximum weight matching pairs parties: it can fill two equal teams and nothing else.
#[test]
fn all_at_once_is_for_two_equal_teams() {
    let said = "`maximum_weight` needs two teams of equal size; use two teams of equal size, or another `Mode`";
    let queue = "<Queue><Selection Mode='maximum_weight'/></Queue>";
    check(&format!("<Teams Count='3' Size='1'/>{queue}"), "maximum_weight", said);
    check(&format!("<Teams><Team Size='1'/><Team Size='4'/></Teams>{queue}"), "maximum_weight", said);
    sound(&format!("<Teams><Team Size='4'/><Team Size='4'/></Teams>{queue}"));
}

#[test]
fn a_match_is_sought_among_enough() {
    check(
        "<Teams Count='2' Size='6'/><Queue><Selection Mode='nearest' MaxCandidates='10'/></Queue>",
        "10",
        "a match of 12 players is selected from 10 candidates; give `MaxCandidates` 11 or more, so that single players can fill a match",
    );
    sound("<Teams Count='2' Size='6'/><Queue><Selection Mode='nearest' MaxCandidates='11'/></Queue>");
}

/// S2-9, D-5: places on a leaderboard and chances to win are made of ratings.
#[test]
fn some_qualities_need_what_they_measure() {
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
    sound("<Queue><Quality><LeaderboardGauss/></Quality></Queue><Rating System='elo'/>");
    sound("<Queue><Quality><WinProbability/></Quality></Queue><Rating System='elo'/>");
}

/// S2-4: a draw is that of two teams, by ratings that know how much luck there is in a game; and newcomers meet, at once or by waiting.
#[test]
fn draws_need_two_teams_a_system_with_luck_and_a_bar_that_newcomers_clear() {
    let queue = |more: &str| format!("<Queue><Quality><DrawProbability Threshold='0.5'/></Quality>{more}</Queue>");
    let (bare, bonus) = (queue(""), queue("<WaitBonus/>"));
    check(
        &bare,
        "DrawProbability",
        "<DrawProbability> depends on ratings and deviations, and there are none; \
         add a <Rating System=\"…\"/>",
    );
    for system in ["elo", "glicko", "glicko2"] {
        check(
            &format!("{bare}<Rating System='{system}'/>"),
            "DrawProbability",
            &format!(
                "<DrawProbability> needs a rating system with beta, and `{system}` has none; \
                 use `trueskill` or `plackett_luce`, or another measure"
            ),
        );
    }
    let luce = "<Rating System='plackett_luce'/>";
    check(
        &format!("<Teams Count='3' Size='1'/>{bare}{luce}"),
        "DrawProbability",
        "<DrawProbability> needs two teams, and a match has 3; use two teams, or another measure",
    );
    check(
        &format!("{bare}{luce}"),
        "DrawProbability",
        "the threshold is 0.5, and a match of new players has quality 0.447; \
         lower `Threshold`, or add a <WaitBonus>",
    );
    check(
        &format!("{}{luce}", bare.replace("0.5", "1.1")),
        "1.1",
        "`Threshold` is `1.1`; give a number above 0 and at most 1",
    );
    sound(&format!("{bonus}{luce}"));
    sound(&format!("{bare}<Rating System='trueskill'/>"));
    sound(&format!("<Teams Count='2' Size='5'/>{}{luce}", bare.replace("0.5", "0.4")));
}

/// S1-97.
#[test]
fn who_is_looked_after_is_known_by_ratings_and_has_a_window() {
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
    sound("<Queue><RatingWindow/><Satisfaction LosingStreak='3' Widen='1.5'/></Queue><Rating System='elo'/>");
}

/// S1-97: one sign at least, and something that is done about it; each within what it can be.
#[test]
fn satisfaction_says_whom_it_looks_after_and_how() {
    let inside =
        |attributes: &str| format!("<Queue><RatingWindow/><Satisfaction {attributes}/></Queue><Rating System='elo'/>");
    for (attributes, marked, wanted) in [
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
        check(&inside(attributes), marked, wanted);
    }
    sound(&inside("AbandonedPercent='20' FeedbackBelow='2.5' MinMatches='10' ShiftDown='50'"));
}

#[test]
fn what_counts_in_quality_needs_one() {
    let right = "has no effect without <Quality>; add a <Quality>, or remove it";
    check("<Queue><WaitBonus/></Queue>", "WaitBonus", &format!("<WaitBonus> {right}"));
    check("<Queue><Regions Mode='quality' Weight='1'/></Queue>", "quality", &format!("Mode=\"quality\" {right}"));
    check(
        "<Queue><Avoid Whom='blocked' How='prefer_not' Cost='1'/></Queue>",
        "Avoid",
        &format!("`prefer_not` {right}"),
    );
    check(
        "<Queue><Selection Mode='first_window'/></Queue>",
        "first_window",
        "`first_window` needs a quality threshold; \
         add a <Quality>: <AverageSimilarity> or <CategorySimilarity>, for example",
    );
}

#[test]
fn a_band_takes_no_bonus() {
    check(
        "<Queue><Quality><WinProbability/></Quality><WaitBonus/></Queue><Rating System='elo'/>",
        "WaitBonus",
        "<WaitBonus> has no effect with <WinProbability>, which is a range; \
         remove it, or widen the range",
    );
}

/// B-24, S4-9: a bar that nobody clears makes no match, ever.
#[test]
fn a_bar_can_be_cleared() {
    check(
        "<Queue><Quality><LeaderboardGauss Scale='0.5' Threshold='0.6'/></Quality></Queue><Rating System='elo'/>",
        "LeaderboardGauss",
        "the threshold is 0.6, and the maximum quality is 0.5; \
         give `Threshold` at most `Scale`, or add a <WaitBonus>",
    );
    sound("<Queue><Quality><LeaderboardGauss Threshold='0.6'/></Quality><WaitBonus/></Queue><Rating System='elo'/>");
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
fn scales_are_not_mixed() {
    let right = "extend the range, or change the initial rating in <Rating>";
    let groups = "<Queue><RatingGroups><RatingGroup Name='a' From='1000' To='4500'/></RatingGroups></Queue>";
    check(
        &format!("{groups}<Rating System='trueskill'/>"),
        "RatingGroups",
        &format!("groups range from 1000 to 4500, but the initial rating is 25; {right}"),
    );
    sound(&format!("{groups}<Rating System='elo' Initial='1000'/>"));
    let categories = "<Queue><Quality><CategorySimilarity RequiredPercent='90'/></Quality></Queue>";
    check(
        &format!("{categories}<Rating System='glicko' Initial='0'/>"),
        "CategorySimilarity",
        &format!("categories range from 0 to 2600, but the initial rating is 0; {right}"),
    );
    sound(&format!("{categories}<Rating System='glicko'/>"));
}

#[test]
fn teams_of_one_have_no_teammates() {
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

/// S4-16: who waits is offered something else.
#[test]
fn another_set_is_offered() {
    check(
        "<Queue><Offer AfterMs='1' SetId='5'/></Queue>",
        "5",
        "`SetId` is `5`; name another set: waiting tickets are already in this one",
    );
    sound("<Queue><Offer AfterMs='1' SetId='6'/></Queue>");
}

/// A mistake within a part is told alone: whether the part goes with others nobody can say yet.
#[test]
fn sense_is_asked_of_sound_parts() {
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
