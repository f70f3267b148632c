//! Search or advertise: the thesis's table, its formula, and the random choice.

use fireteam::domain::matchmaking_action::{AdvertiseChances, MatchmakingAction};
use fireteam::rules;

/// S1-6: the table for six against six, in percent.
const TABLE: [f64; 6] = [16.0, 33.0, 50.0, 66.0, 83.0, 99.0];

fn from_xml(inside: &str) -> AdvertiseChances {
    let text = format!("<Ruleset Name='chances' SetId='1'>{inside}</Ruleset>");
    rules::parse_ruleset("chances.xml", &text).expect("a valid ruleset").advertise_chances
}

/// S1-6, S1-7, B-38: table and formula are equal for a game of twelve; a full party has 99 %, never 100 %.
#[test]
fn advertise_chances_table_equals_the_formula() {
    let rows: String = TABLE
        .iter()
        .zip(1..)
        .map(|(percent, size)| format!("<Chance PartySize='{size}' Percent='{percent}'/>"))
        .collect();
    let table = from_xml(&format!("<AdvertiseChances>{rows}</AdvertiseChances>"));
    let rule = from_xml("<AdvertiseChances GameSize='12'/>");
    assert_eq!(table.percents(), TABLE);
    assert_eq!(rule.percents(), TABLE);
    assert_eq!(
        (table.percent_for_party(7), table.percent_for_party(64)),
        (99.0, 99.0),
        "larger parties have the last entry's probability"
    );
}

/// S1-7: the formula for other sizes of game, party size over half the game, rounded down: (game, party, percent).
#[test]
fn advertise_chances_formula_for_other_games() {
    let expected = [
        (2, 1, 99.0),
        (2, 2, 99.0),
        (4, 1, 50.0),
        (4, 2, 99.0),
        (6, 1, 33.0),
        (6, 2, 66.0),
        (6, 3, 99.0),
        (8, 1, 25.0),
        (8, 3, 75.0),
        (8, 6, 99.0),
        (10, 1, 20.0),
        (10, 4, 80.0),
        (16, 1, 12.0),
        (16, 3, 37.0),
        (16, 6, 75.0),
        (24, 1, 8.0),
        (24, 2, 16.0),
        (24, 8, 66.0),
        (24, 12, 99.0),
    ];
    for (game, party, percent) in expected {
        let chances = from_xml(&format!("<AdvertiseChances GameSize='{game}'/>"));
        assert_eq!(chances.percent_for_party(party), percent, "party of {party} in a game of {game}");
    }
}

/// S1-5: the choice is random; a random number equal to the probability means search.
#[test]
fn advertise_chances_are_compared_with_a_random_number() {
    let chances = from_xml("<AdvertiseChances GameSize='12'/>");
    let expected = [
        (1, 0.0, MatchmakingAction::Advertise),
        (1, 0.1599, MatchmakingAction::Advertise),
        (1, 0.16, MatchmakingAction::Search),
        (1, 0.99, MatchmakingAction::Search),
        (3, 0.4999, MatchmakingAction::Advertise),
        (3, 0.5, MatchmakingAction::Search),
        (6, 0.9899, MatchmakingAction::Advertise),
        (6, 0.99, MatchmakingAction::Search),
        (6, 0.995, MatchmakingAction::Search),
    ];
    for (party, random_unit, action) in expected {
        assert_eq!(chances.choose_action(party, random_unit), action, "party of {party}, {random_unit}");
    }
}

/// S1-8: the probabilities are per set; by default they follow from its teams, or are 50 %.
#[test]
fn advertise_chances_default_to_the_teams() {
    assert_eq!(from_xml("<Teams Count='2' Size='6'/>").percents(), TABLE);
    assert_eq!(from_xml("").percents(), [50.0]);
}
