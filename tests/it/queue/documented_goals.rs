//! Goals of the five documented systems beyond their worked examples: each tested with its shipped ruleset and few
//! changes.

use std::collections::BTreeSet;

use crate::queue::documented_systems::{ExampleMatch, ExampleQueue, ExampleTicket, MINUTE, SECOND, rated};

/// S0-4, S0-7, S0-8: a new ticket is compared at once, in its own bucket only, with any range of the others; it widens
/// at the next tick.
#[test]
fn bucket_of_a_new_ticket_is_compared_at_once() {
    let mut queue = ExampleQueue::from_file("teiserver_duel", &[]);
    queue.enter("Pawn20", rated(20.2));
    let entered_ms = 20 * SECOND + 1;
    queue.enter("neighbour", ExampleTicket { since_ms: entered_ms, ..rated(21.0) });
    assert_eq!(queue.matches(entered_ms), [], "Pawn20's range is one bucket, the neighbour's is zero");
    queue.enter("Grunt20", ExampleTicket { since_ms: entered_ms, ..rated(19.6) });
    assert_eq!(queue.matches(entered_ms)[0].names(), ["Grunt20", "Pawn20"]);
    queue.waiting.remove("Grunt20");
    assert_eq!(queue.matches(40 * SECOND)[0].names(), ["Pawn20", "neighbour"]);
}

/// Quality of comprl's ladder, and the bonus for waiting.
const BY_PLACES: &str = "<LeaderboardGauss Sigma=\"20\" Scale=\"0.5\" Threshold=\"0.3\"/>";
const BONUS: &str = "<WaitBonus PerMinute=\"0.1\" FreeMinutes=\"1\"/>";

/// A ladder of sixty: rating gaps grow towards the top, from 75 down to the initial 25.
fn sixty() -> impl Iterator<Item = ExampleTicket> {
    (0..60).map(|place| ExampleTicket { place: Some(place.into()), ..rated(25.0 + 50.0 * 0.9_f64.powi(place)) })
}

/// Number of possible partners by place, after all have waited this long.
fn partners(queue: &mut ExampleQueue, waited_ms: u64) -> Vec<usize> {
    let ladder: Vec<ExampleTicket> = sixty().collect();
    let mut partners = vec![0; ladder.len()];
    for one in 0..ladder.len() {
        for other in one + 1..ladder.len() {
            queue.waiting.clear();
            queue.enter("one", ladder[one].clone());
            queue.enter("other", ladder[other].clone());
            let matches = queue.matches(waited_ms).len();
            partners[one] += matches;
            partners[other] += matches;
        }
    }
    partners
}

/// S2-4, S2-10: with win probabilities, which the document gave up, the best of the ladder have no partner, with any
/// wait. With places all have twenty from the start, and those away from the ends forty.
#[test]
fn leaderboard_quality_gives_partners_to_the_whole_ladder() {
    let chances = "<WinProbability MinPercent=\"40\" MaxPercent=\"60\"/>";
    let by_chances =
        partners(&mut ExampleQueue::from_file("comprl_ladder", &[(BY_PLACES, chances), (BONUS, "")]), 60 * MINUTE);
    assert_eq!(by_chances[..5], [0; 5], "{by_chances:?}");
    assert!(20 < by_chances[59], "in the crowd win probabilities are even: {by_chances:?}");
    let by_places = partners(&mut ExampleQueue::from_file("comprl_ladder", &[]), 0);
    assert_eq!((by_places[0], by_places[30], by_places[59]), (20, 40, 20));
    assert!(by_places.iter().all(|partners| 20 <= *partners), "{by_places:?}");
}

/// S2-13: bots meet people and no other bots, by a hard filter on a game's own number.
#[test]
fn compatible_filter_keeps_bots_from_bots() {
    let teams = "<Teams Count=\"2\" Size=\"1\" Order=\"drawn\"/>";
    let kept_apart = format!(
        "<Attributes><Attribute Name=\"bot\" Type=\"number\" Trust=\"client\"/></Attributes>
         <HardFilters><Compatible Attribute=\"bot\" Pairs=\"0-0 0-1\"/></HardFilters>{teams}"
    );
    let mut queue = ExampleQueue::from_file("comprl_ladder", &[(teams, &kept_apart)]);
    let player = |bot: f64| ExampleTicket { place: Some(1.0), numbers: vec![("bot", bot)], ..rated(25.0) };
    queue.enter("a bot", player(1.0));
    queue.enter("another", player(1.0));
    assert_eq!(queue.matches(60 * MINUTE), []);
    queue.enter("ann", player(0.0));
    let matches = queue.matches(0);
    assert!(matches.len() == 1 && matches[0].names().contains(&"ann".to_owned()), "{matches:?}");
}

/// The strategy of OpenMatchmaking's leagues, and duels instead of five against five.
const BY_MEANS: &str = "<WinProbability MinPercent=\"46.4\" MaxPercent=\"53.6\"/>";
const FIVES: (&str, &str) = ("<Teams Count=\"2\" Size=\"5\"/>", "<Teams Count=\"2\" Size=\"1\"/>");

/// S3-9, S3-12: the strategy is one element of the file: Elo's win probability, narrow or wide, similarity by rating or
/// by category, or none. Leagues and regions stay the same.
#[test]
fn quality_strategy_is_one_element_of_the_ruleset() {
    let wide = "<WinProbability MinPercent=\"36\" MaxPercent=\"64\"/>";
    let similarity = "<AverageSimilarity RatingSpan=\"1000\" RequiredPercent=\"95\"/>";
    let category = "<CategorySimilarity Categories=\"24\" CategoryWidth=\"200\" RequiredPercent=\"99\"/>";
    let any = "<AverageSimilarity RatingSpan=\"1000\" RequiredPercent=\"1\"/>";
    for (strategy, near, far) in [
        // 25 points are 46.41 %, 99 points 36.1 %.
        (BY_MEANS, 25.0, Some(26.0)),
        (wide, 99.0, Some(101.0)),
        (similarity, 99.0, Some(100.0)),
        (category, 99.0, Some(100.0)),
        (any, 399.0, None),
    ] {
        let pair_of_diamonds = |others: f64, regions: [&'static str; 2]| {
            let mut queue = ExampleQueue::from_file("openmatchmaking_leagues", &[FIVES, (BY_MEANS, strategy)]);
            for (rating, region) in [3_100.0, others].into_iter().zip(regions) {
                queue.enter(region, ExampleTicket { regions: vec![("eu", 30.0), (region, 20.0)], ..rated(rating) });
            }
            queue
        };
        let in_europe = |others: f64| pair_of_diamonds(others, ["eu-west", "eu-north"]);
        assert_eq!(in_europe(3_100.0 + near).matches(0).len(), 1, "{strategy}");
        if let Some(far) = far {
            assert_eq!(in_europe(3_100.0 + far).matches(0), [], "{strategy}");
        }
        // The league below opens after a wait only, with any similarity.
        let mut edge = ExampleQueue::from_file("openmatchmaking_leagues", &[FIVES, (BY_MEANS, strategy)]);
        edge.enter("diamond", rated(3_000.0));
        edge.enter("platinum", rated(2_999.0));
        assert_eq!(edge.matches(MINUTE - 1), [], "{strategy}");
        let mut without_common_region = in_europe(3_100.0);
        for example in without_common_region.waiting.values_mut() {
            example.regions.remove(0);
        }
        assert_eq!(without_common_region.matches(60 * MINUTE), [], "{strategy}: no region in common");
    }
}

/// S3-11: numbers that the game reports about play may count beside ratings, or instead of them.
#[test]
fn soft_score_weighs_numbers_of_play() {
    let numbers = "<Attributes><Attribute Name=\"damage\" Type=\"number\" Min=\"0\" Max=\"1000\" Trust=\"client\"/>
      <Attribute Name=\"deaths\" Type=\"number\" Min=\"0\" Max=\"40\" Trust=\"client\"/></Attributes>
      <SoftFilters><SoftFilter Attribute=\"damage\" Weight=\"75%\"/>
        <SoftFilter Attribute=\"deaths\" Weight=\"25%\"/></SoftFilters>
      <Teams Count=\"2\" Size=\"1\"/>";
    let by_play = "<SoftScore MaxScore=\"0.1\"/>";
    let pair = |damage: f64, deaths: f64| {
        let mut queue = ExampleQueue::from_file("openmatchmaking_leagues", &[(FIVES.0, numbers), (BY_MEANS, by_play)]);
        queue.enter("one", ExampleTicket { numbers: vec![("damage", 500.0), ("deaths", 10.0)], ..rated(3_010.0) });
        queue.enter("other", ExampleTicket { numbers: vec![("damage", damage), ("deaths", deaths)], ..rated(3_490.0) });
        queue.matches(0).len()
    };
    // 120 of 1000 are 0.09 of the score; 4 of 40 are 0.025.
    assert_eq!([pair(500.0, 10.0), pair(620.0, 10.0), pair(500.0, 14.0), pair(620.0, 14.0)], [1, 1, 1, 0]);
}

/// S1-69: of 24 players in Seattle and Tokyo, twelve play in each city, with teams of equal strength.
#[test]
fn control_match_is_near_and_even() {
    let mut queue = ExampleQueue::from_file("destiny_control_6v6", &[]);
    for number in 0..24 {
        // From -66 to 66 in steps of 12 in each city; players alternate between the cities.
        let skill = f64::from(number / 2) * 12.0 - 66.0;
        let location_degrees = (number % 2 == 1).then_some([35.7, 139.7]);
        let city = if location_degrees.is_some() { "Tokyo" } else { "Seattle" };
        queue.enter(
            &format!("{city} {number:02}"),
            ExampleTicket { skill: Some(skill), location_degrees, ..rated(skill) },
        );
    }
    let matches = queue.matches(0);
    assert_eq!(matches.len(), 2, "{matches:?}");
    for found in &matches {
        let cities: BTreeSet<&str> = found.teams.iter().flatten().filter_map(|name| name.split(' ').next()).collect();
        assert_eq!(cities.len(), 1, "{found:?}");
        assert_eq!(strengths(&queue, found), [0.0, 0.0], "exactly even");
    }
}

fn strengths(queue: &ExampleQueue, found: &ExampleMatch) -> Vec<f64> {
    let sum = |team: &Vec<String>| team.iter().map(|name| queue.waiting[name].rating).sum();
    found.teams.iter().map(sum).collect()
}
