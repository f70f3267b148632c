//! The example file `examples/rulesets/fresh_ladder.xml`: pairs by maximum weight, in a pass and over the wire.

use pb::TicketState;

use fireteam_client::pb;

use crate::queue::documented_systems::{ExampleQueue, ExampleTicket};
use crate::support::generated_client::{ImportRatingsRequest, RatingRow};
use crate::support::queue_server::{QueuedParty, operator_client, start_queue_server};

const FILE: &str = include_str!("../../../examples/rulesets/fresh_ladder.xml");
const SET: u32 = 22;

/// Pairs of a pass over players at these leaderboard places, of whom the first has waited longest.
fn pairs(selection: &str, places: [u32; 4]) -> Vec<Vec<String>> {
    let text = FILE.replace(r#"Mode="maximum_weight" ExactUpToTickets="1000""#, selection);
    let mut queue = ExampleQueue::from_text("fresh_ladder", &text);
    for (place, since_ms) in places.into_iter().zip(0..) {
        let example = ExampleTicket { place: Some(f64::from(place)), since_ms, ..Default::default() };
        queue.enter(&format!("{place:02}"), example);
    }
    let mut pairs: Vec<Vec<String>> = queue.matches(100).iter().map(|found| found.names()).collect();
    pairs.sort();
    pairs
}

/// The nearest two of four leave two over who are too far apart; the greatest sum lets all four play. Without such a conflict
/// both selections make the same pairs.
#[test]
fn maximum_weight_of_the_example_leaves_no_one_over() {
    let (maximum, nearest) = (r#"Mode="maximum_weight" ExactUpToTickets="1000""#, r#"Mode="nearest""#);
    assert_eq!(pairs(maximum, [20, 0, 21, 41]), [["00", "20"], ["21", "41"]]);
    assert_eq!(pairs(nearest, [20, 0, 21, 41]), [["20", "21"]]);
    for selection in [maximum, nearest] {
        assert_eq!(pairs(selection, [1, 0, 30, 31]), [["00", "01"], ["30", "31"]]);
    }
}

/// The file as it is, over the wire: ratings give places, four players are in two matches, and all accept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fresh_ladder_example_plays() {
    let server = start_queue_server(&[FILE]).await;
    let row = |place: u32| RatingRow {
        user_id: format!("place {place}"),
        rating: Some(100.0 - f64::from(place)),
        deviation: Some(1.0),
        ..Default::default()
    };
    let request = ImportRatingsRequest { matchmaking_set_id: Some(SET), ratings: (0..42).map(row).collect() };
    operator_client(&server).await.import_ratings(request).await.expect("import");
    let mut players = Vec::new();
    for place in [0, 41, 20, 21] {
        players.push(QueuedParty::enter(&server, SET, &[(&format!("place {place}"), 0.0)]).await);
    }
    for player in &mut players {
        player.respond_to_match(true).await;
    }
    let mut ids = Vec::new();
    for player in &mut players {
        ids.push(player.wait_for_state(TicketState::Matched).await.found_match.expect("a match").match_id);
    }
    assert!(ids[0] == ids[2] && ids[1] == ids[3] && ids[0] != ids[1], "{ids:?}");
}
