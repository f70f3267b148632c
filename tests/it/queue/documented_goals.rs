//! What the five documents want of their systems beyond the examples that they work out: each aim by its shipped file,
//! with as few of its words changed as it takes.

use std::collections::BTreeSet;

use crate::queue::documented_systems::{Game, MINUTE, Room, SECOND, Solo, rated};

/// S0-4, S0-7, S0-8: who comes is looked at at once, in its own bucket and no other, whatever range the others have by
/// then; and looks further when the next tick has come.
#[test]
fn a_newcomer_looks_into_its_own_bucket_at_once() {
    let mut room = Room::of("teiserver_duel", &[]);
    room.enter("Pawn20", rated(20.2));
    let came = 20 * SECOND + 1;
    room.enter("neighbour", Solo { since_ms: came, ..rated(21.0) });
    assert_eq!(room.games(came), [], "Pawn20 looks one bucket further, the neighbour does not yet");
    room.enter("Grunt20", Solo { since_ms: came, ..rated(19.6) });
    assert_eq!(room.games(came)[0].names(), ["Grunt20", "Pawn20"]);
    room.waiting.remove("Grunt20");
    assert_eq!(room.games(40 * SECOND)[0].names(), ["Pawn20", "neighbour"]);
}

/// The quality of comprl's ladder, and what waiting adds to it.
const BY_PLACES: &str = "<LeaderboardGauss Sigma=\"20\" Scale=\"0.5\" Threshold=\"0.3\"/>";
const BONUS: &str = "<WaitBonus PerMinute=\"0.1\" FreeMinutes=\"1\"/>";

/// A ladder of sixty: the better, the further apart; from 75 down to the newcomers' 25.
fn sixty() -> impl Iterator<Item = Solo> {
    (0..60).map(|place| Solo { place: Some(place.into()), ..rated(25.0 + 50.0 * 0.9_f64.powi(place)) })
}

/// How many of the others each of the sixty could be matched with, by place, when everybody has waited so long.
fn partners(room: &mut Room, waited_ms: u64) -> Vec<usize> {
    let ladder: Vec<Solo> = sixty().collect();
    let mut partners = vec![0; ladder.len()];
    for one in 0..ladder.len() {
        for other in one + 1..ladder.len() {
            room.waiting.clear();
            room.enter("one", ladder[one].clone());
            room.enter("other", ladder[other].clone());
            let meet = room.games(waited_ms).len();
            partners[one] += meet;
            partners[other] += meet;
        }
    }
    partners
}

/// S2-4, S2-10: by chances, which is what was given up, the best of the ladder have nobody to play with, however long
/// they wait. By places everybody has twenty from the first moment on, and those who are not at an end of the ladder
/// forty.
#[test]
fn by_chances_the_best_have_nobody_and_by_places_everybody_has_many() {
    let chances = "<WinProbability MinPercent=\"40\" MaxPercent=\"60\"/>";
    let by_chances = partners(&mut Room::of("comprl_ladder", &[(BY_PLACES, chances), (BONUS, "")]), 60 * MINUTE);
    assert_eq!(by_chances[..5], [0; 5], "{by_chances:?}");
    assert!(20 < by_chances[59], "in the crowd everybody is even: {by_chances:?}");
    let by_places = partners(&mut Room::of("comprl_ladder", &[]), 0);
    assert_eq!((by_places[0], by_places[30], by_places[59]), (20, 40, 20));
    assert!(by_places.iter().all(|partners| 20 <= *partners), "{by_places:?}");
}

/// S2-13: bots meet people and no other bots, by a filter on a number of the game's own.
#[test]
fn bots_meet_people_alone() {
    let teams = "<Teams Count=\"2\" Size=\"1\"/>";
    let kept_apart = format!(
        "<Attributes><Attribute Name=\"bot\" Type=\"number\" Trust=\"client\"/></Attributes>
         <HardFilters><Compatible Attribute=\"bot\" Pairs=\"0-0 0-1\"/></HardFilters>{teams}"
    );
    let mut room = Room::of("comprl_ladder", &[(teams, &kept_apart)]);
    let who = |bot: f64| Solo { place: Some(1.0), numbers: vec![("bot", bot)], ..rated(25.0) };
    room.enter("a bot", who(1.0));
    room.enter("another", who(1.0));
    assert_eq!(room.games(60 * MINUTE), []);
    room.enter("ann", who(0.0));
    let games = room.games(0);
    assert!(games.len() == 1 && games[0].names().contains(&"ann".to_owned()), "{games:?}");
}

/// The strategy of OpenMatchmaking's leagues, and a duel instead of their five against five.
const BY_MEANS: &str = "<WinProbability MinPercent=\"46.4\" MaxPercent=\"53.6\"/>";
const FIVES: (&str, &str) = ("<Teams Count=\"2\" Size=\"5\"/>", "<Teams Count=\"2\" Size=\"1\"/>");

/// S3-9, S3-12: how two are weighed is one element of the file: Elo's chances, narrow or wide, likeness by rating or by
/// category, or nothing. Whatever it is, leagues and regions are what they were.
#[test]
fn the_strategy_is_one_element() {
    let wide = "<WinProbability MinPercent=\"36\" MaxPercent=\"64\"/>";
    let alike = "<AverageSimilarity RatingSpan=\"1000\" RequiredPercent=\"95\"/>";
    let category = "<CategorySimilarity Categories=\"24\" CategoryWidth=\"200\" RequiredPercent=\"99\"/>";
    let any = "<AverageSimilarity RatingSpan=\"1000\" RequiredPercent=\"1\"/>";
    for (strategy, near, far) in [
        // 25 points are 46.41 %, 99 points 36.1 %.
        (BY_MEANS, 25.0, Some(26.0)),
        (wide, 99.0, Some(101.0)),
        (alike, 99.0, Some(100.0)),
        (category, 99.0, Some(100.0)),
        (any, 399.0, None),
    ] {
        let with = |others: f64, regions: [&'static str; 2]| {
            let mut room = Room::of("openmatchmaking_leagues", &[FIVES, (BY_MEANS, strategy)]);
            for (rating, region) in [3_100.0, others].into_iter().zip(regions) {
                room.enter(region, Solo { regions: vec![("eu", 30.0), (region, 20.0)], ..rated(rating) });
            }
            room
        };
        let eu = |others: f64| with(others, ["eu-west", "eu-north"]);
        assert_eq!(eu(3_100.0 + near).games(0).len(), 1, "{strategy}");
        if let Some(far) = far {
            assert_eq!(eu(3_100.0 + far).games(0), [], "{strategy}");
        }
        // The league below is opened by waiting and by nothing else, however alike two are.
        let mut edge = Room::of("openmatchmaking_leagues", &[FIVES, (BY_MEANS, strategy)]);
        edge.enter("diamond", rated(3_000.0));
        edge.enter("platinum", rated(2_999.0));
        assert_eq!(edge.games(MINUTE - 1), [], "{strategy}");
        let mut apart = eu(3_100.0);
        for solo in apart.waiting.values_mut() {
            solo.regions.remove(0);
        }
        assert_eq!(apart.games(60 * MINUTE), [], "{strategy}: no region in common");
    }
}

/// S3-11: what a game counts of its players' play may weigh as well as their ratings do, or instead of them.
#[test]
fn play_may_be_what_is_weighed() {
    let numbers = "<Attributes><Attribute Name=\"damage\" Type=\"number\" Min=\"0\" Max=\"1000\" Trust=\"client\"/>
      <Attribute Name=\"deaths\" Type=\"number\" Min=\"0\" Max=\"40\" Trust=\"client\"/></Attributes>
      <SoftFilters><SoftFilter Attribute=\"damage\" Weight=\"75%\"/>
        <SoftFilter Attribute=\"deaths\" Weight=\"25%\"/></SoftFilters>
      <Teams Count=\"2\" Size=\"1\"/>";
    let by_play = "<SoftScore MaxScore=\"0.1\"/>";
    let pair = |damage: f64, deaths: f64| {
        let mut room = Room::of("openmatchmaking_leagues", &[(FIVES.0, numbers), (BY_MEANS, by_play)]);
        room.enter("one", Solo { numbers: vec![("damage", 500.0), ("deaths", 10.0)], ..rated(3_010.0) });
        room.enter("other", Solo { numbers: vec![("damage", damage), ("deaths", deaths)], ..rated(3_490.0) });
        room.games(0).len()
    };
    // 120 of 1000 are 0.09 of the score; 4 of 40 are 0.025.
    assert_eq!([pair(500.0, 10.0), pair(620.0, 10.0), pair(500.0, 14.0), pair(620.0, 14.0)], [1, 1, 1, 0]);
}

/// S1-69: of two dozen who wait in Seattle and in Tokyo twelve play in each, and either team is as strong as the other.
#[test]
fn the_ideal_match_is_near_and_even() {
    let mut room = Room::of("destiny_control_6v6", &[]);
    for number in 0..24 {
        // From -66 to 66 in steps of 12 in each city, who come from it by turns.
        let skill = f64::from(number / 2) * 12.0 - 66.0;
        let lives_at = (number % 2 == 1).then_some([35.7, 139.7]);
        let city = if lives_at.is_some() { "Tokyo" } else { "Seattle" };
        room.enter(&format!("{city} {number:02}"), Solo { skill: Some(skill), lives_at, ..rated(skill) });
    }
    let games = room.games(0);
    assert_eq!(games.len(), 2, "{games:?}");
    for game in &games {
        let cities: BTreeSet<&str> = game.teams.iter().flatten().filter_map(|name| name.split(' ').next()).collect();
        assert_eq!(cities.len(), 1, "{game:?}");
        assert_eq!(strengths(&room, game), [0.0, 0.0], "even to the last point");
    }
}

fn strengths(room: &Room, game: &Game) -> Vec<f64> {
    let of = |team: &Vec<String>| team.iter().map(|name| room.waiting[name].rating).sum();
    game.teams.iter().map(of).collect()
}
