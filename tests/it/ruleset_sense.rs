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
        "<Queue> makes matches but nothing says of what; add <Teams Count=\"2\" Size=\"…\"/>",
    );
    check(
        "<ReadyCheck/>",
        "ReadyCheck",
        "<ReadyCheck> says how matches are agreed to, but none are made; add a <Queue>, or leave it out",
    );
    check(
        "<Server Mode='peer'/>",
        "Server",
        "<Server> says how matches are played, but none are made; add a <Queue>, or leave it out",
    );
}

/// A maximum weight matching pairs parties: it can fill two equal teams and nothing else.
#[test]
fn all_at_once_is_for_two_equal_teams() {
    let said = "`maximum_weight` pairs parties, and this match is no pair; make it two teams of one size, or take another `Mode`";
    let queue = "<Queue><Selection Mode='maximum_weight'/></Queue>";
    check(&format!("<Teams Count='3' Size='1'/>{queue}"), "maximum_weight", said);
    check(&format!("<Teams><Team Size='1'/><Team Size='4'/></Teams>{queue}"), "maximum_weight", said);
    sound(&format!("<Teams><Team Size='4'/><Team Size='4'/></Teams>{queue}"));
}

#[test]
fn a_match_is_sought_among_enough() {
    check(
        "<Teams Count='2' Size='6'/><Queue><Selection Mode='nearest' LookAt='10'/></Queue>",
        "10",
        "a match of 12 is sought among 10 others; give `LookAt` 11 or more: players who come alone would never be enough",
    );
    sound("<Teams Count='2' Size='6'/><Queue><Selection Mode='nearest' LookAt='11'/></Queue>");
}

/// S2-9, D-5: places on a leaderboard and chances to win are made of ratings.
#[test]
fn some_qualities_need_what_they_measure() {
    check(
        "<Queue><Quality><LeaderboardGauss/></Quality></Queue>",
        "LeaderboardGauss",
        "<LeaderboardGauss> goes by places on a leaderboard, and there is none; \
         add a <Rating System=\"…\"/>, whose leaderboard it is",
    );
    check(
        "<Queue><Quality><WinProbability/></Quality></Queue>",
        "WinProbability",
        "<WinProbability> goes by ratings, and none are kept; add a <Rating System=\"…\"/>, by which chances are reckoned",
    );
    check(
        "<Queue><Quality><SoftScore MaxScore='1'/></Quality></Queue>",
        "SoftScore",
        "<SoftScore> adds soft filters up, and there are none; add <SoftFilters>, or measure in another way",
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
        "<DrawProbability> goes by ratings and how sure they are, and none are kept; \
         add a <Rating System=\"…\"/>, by which draws are reckoned",
    );
    for system in ["elo", "glicko", "glicko2"] {
        check(
            &format!("{bare}<Rating System='{system}'/>"),
            "DrawProbability",
            &format!(
                "<DrawProbability> goes by the luck in a game, and `{system}` says none; \
                 rate by `trueskill` or `plackett_luce`, or measure in another way"
            ),
        );
    }
    let luce = "<Rating System='plackett_luce'/>";
    check(
        &format!("<Teams Count='3' Size='1'/>{bare}{luce}"),
        "DrawProbability",
        "<DrawProbability> is that of two teams, and a match has 3; make it two teams, or measure in another way",
    );
    check(
        &format!("{bare}{luce}"),
        "DrawProbability",
        "the least quality is 0.5, and a match of newcomers has 0.447; \
         give a `Threshold` that newcomers pass, or add a <WaitBonus>",
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
        "<Queue><Window/><Satisfaction LosingStreak='3' Widen='2'/></Queue>",
        "Satisfaction",
        "<Satisfaction> goes by what came of matches, and nobody keeps that; add a <Rating System=\"…\"/>, which does",
    );
    check(
        "<Queue><Satisfaction LosingStreak='3' Widen='2'/></Queue><Rating System='elo'/>",
        "Satisfaction",
        "<Satisfaction> widens or moves a window, and there is none; add a <Window>, or leave it out",
    );
    sound("<Queue><Window/><Satisfaction LosingStreak='3' Widen='1.5'/></Queue><Rating System='elo'/>");
}

/// S1-97: one sign at least, and something that is done about it; each within what it can be.
#[test]
fn satisfaction_says_whom_it_looks_after_and_how() {
    let inside =
        |attributes: &str| format!("<Queue><Window/><Satisfaction {attributes}/></Queue><Rating System='elo'/>");
    for (attributes, marked, wanted) in [
        (
            "Widen='2'",
            "Satisfaction",
            "<Satisfaction> lacks `LosingStreak`; add LosingStreak=\"…\" or AbandonedPercent=\"…\" or ScoreBelow=\"…\"",
        ),
        ("ScoreBelow='2'", "Satisfaction", "<Satisfaction> lacks `Widen`; add Widen=\"…\" or ShiftDown=\"…\""),
        (
            "ScoreBelwo='2' Widen='2'",
            "ScoreBelwo",
            "<Satisfaction> has no attribute `ScoreBelwo`; did you mean `ScoreBelow`?",
        ),
        ("ScoreBelow='1' Widen='2'", "1", "`ScoreBelow` is `1`; give a number above 1 and at most 5"),
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
            "`MinMatches` changes nothing here; leave it out: a streak says itself how many matches it takes",
        ),
        ("ScoreBelow='2' Widen='2' MinMatches='0'", "0", "`MinMatches` is `0`; give a whole number from 1 to 1000"),
    ] {
        check(&inside(attributes), marked, wanted);
    }
    sound(&inside("AbandonedPercent='20' ScoreBelow='2.5' MinMatches='10' ShiftDown='50'"));
}

#[test]
fn what_counts_in_quality_needs_one() {
    let right = "but without <Quality> every match is as good; add a <Quality> for it to count in, or leave it out";
    check("<Queue><WaitBonus/></Queue>", "WaitBonus", &format!("waiting adds to quality, {right}"));
    check(
        "<Queue><Regions Mode='quality' Weight='1'/></Queue>",
        "quality",
        &format!("far regions take from quality, {right}"),
    );
    check(
        "<Queue><Avoid Whom='blocked' How='rather_not' Cost='1'/></Queue>",
        "Avoid",
        &format!("`rather_not` takes from quality, {right}"),
    );
    check(
        "<Queue><Selection Mode='best_window'/></Queue>",
        "best_window",
        "`best_window` takes the first players that are good enough, and anyone is; \
         add a <Quality>: <AverageSimilarity> or <CategorySimilarity>, for example",
    );
}

#[test]
fn a_band_takes_no_bonus() {
    check(
        "<Queue><Quality><WinProbability/></Quality><WaitBonus/></Queue><Rating System='elo'/>",
        "WaitBonus",
        "waiting adds to quality, but <WinProbability> is a band, and no bonus brings a match into it; \
         leave it out, or make the band wider",
    );
}

/// B-24, S4-9: a bar that nobody clears makes no match, ever.
#[test]
fn a_bar_can_be_cleared() {
    check(
        "<Queue><Quality><LeaderboardGauss Scale='0.5' Threshold='0.6'/></Quality></Queue><Rating System='elo'/>",
        "LeaderboardGauss",
        "the least quality is 0.6, and neighbours on the leaderboard have 0.5; \
         give `Threshold` at most `Scale`, or add a <WaitBonus>",
    );
    sound("<Queue><Quality><LeaderboardGauss Threshold='0.6'/></Quality><WaitBonus/></Queue><Rating System='elo'/>");
    check(
        "<Queue><Quality><AverageSimilarity RatingSpan='9' RequiredPercent='100'/></Quality></Queue>",
        "AverageSimilarity",
        "<AverageSimilarity> asks for more than 100 % similarity; give `RequiredPercent` less than 100: it must be exceeded",
    );
    check(
        "<Teams Count='4' Size='1'/><Queue><Quality><WinProbability MinPercent='30'/></Quality></Queue><Rating System='elo'/>",
        "WinProbability",
        "4 teams cannot all have a chance from 30 to 70 %; chances add up to 100: let the band hold 25, as in an even match",
    );
}

/// B-32: groups and categories are on the scale of the set's rating system.
#[test]
fn scales_are_not_mixed() {
    let right = "let them span the ratings of <Rating>, or let newcomers begin among them";
    let groups = "<Queue><Groups><Group Name='a' From='1000' To='4500'/></Groups></Queue>";
    check(
        &format!("{groups}<Rating System='trueskill'/>"),
        "Groups",
        &format!("groups go from 1000 to 4500, but a newcomer is rated 25; {right}"),
    );
    sound(&format!("{groups}<Rating System='elo' Initial='1000'/>"));
    let categories = "<Queue><Quality><CategorySimilarity RequiredPercent='90'/></Quality></Queue>";
    check(
        &format!("{categories}<Rating System='glicko' Initial='0'/>"),
        "CategorySimilarity",
        &format!("categories go from 0 to 2600, but a newcomer is rated 0; {right}"),
    );
    sound(&format!("{categories}<Rating System='glicko'/>"));
}

#[test]
fn teams_of_one_have_no_teammates() {
    check(
        "<Queue><Avoid Whom='blocked' How='not_same_team'/></Queue>",
        "Avoid",
        "nobody has teammates in teams of one; avoid opponents, or leave it out",
    );
    check(
        "<Queue LikePartiesFirst='true'/>",
        "LikePartiesFirst",
        "parties of like size come first, but every party is one player; leave it out, or let `MaxPartySize` be more than 1",
    );
}

/// S4-16: who waits is offered something else.
#[test]
fn another_set_is_offered() {
    check(
        "<Queue><Offer AfterMs='1' SetId='5'/></Queue>",
        "5",
        "`SetId` is `5`; name another set: those who wait are in this one already",
    );
    sound("<Queue><Offer AfterMs='1' SetId='6'/></Queue>");
}

/// A mistake within a part is told alone: whether the part goes with others nobody can say yet.
#[test]
fn sense_is_asked_of_sound_parts() {
    check(
        "<Queue><Gate MinWaitingPercent='200'/><Selection Mode='best_window'/></Queue>",
        "200",
        "`MinWaitingPercent` is `200`; give a number from 0 to 100",
    );
    check(
        "<Queue><Quality><LeaderboardGauss/></Quality></Queue><Raiting System='elo'/>",
        "Raiting",
        "<Ruleset> takes no element `Raiting`; did you mean `Rating`?",
    );
}
