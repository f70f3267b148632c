//! Win probabilities over the wire, of two and of more sides, by both forms of Plackett-Luce.

use fireteam_client::{Client, pb};
use pb::TicketState;

use crate::support::generated_client::{ImportRatingsRequest, RatingRow};
use crate::support::queue_server::{QueuedParty, SET_ID, operator_client, start_queue_server, wait_until};
use crate::support::test_server::TestServer;

/// A free-for-all of three, each with a chance of 25 to 45 percent.
fn three_players(prediction: &str) -> String {
    format!(
        r#"<Ruleset Name="Three" SetId="{SET_ID}">
  <Teams Count="3" Size="1"/>
  <Queue PassIntervalMs="10"><Quality><WinProbability MinPercent="25" MaxPercent="45"/></Quality></Queue>
  <Rating System="plackett_luce" {prediction}/>
</Ruleset>"#
    )
}

/// Ann and bob of 25 with deviation 3, cid of 20, and eve of 24.
async fn start(prediction: &str) -> (TestServer, Client) {
    let server = start_queue_server(&[&three_players(prediction)]).await;
    let row = |(user_id, rating): (&str, f64)| RatingRow {
        user_id: user_id.to_owned(),
        rating: Some(rating),
        deviation: Some(3.0),
        ..Default::default()
    };
    let ratings = [("ann", 25.0), ("bob", 25.0), ("cid", 20.0), ("eve", 24.0)].map(row).into();
    let request = ImportRatingsRequest { matchmaking_set_id: Some(SET_ID), ratings };
    operator_client(&server).await.import_ratings(request).await.expect("import");
    let client = server.client().await;
    (server, client)
}

/// Chance of the first of three normal performances to be the best, by a sum over its values.
fn chance_of_best(means: [f64; 3], deviation: f64) -> f64 {
    let below = |x: f64| {
        // The sum of the density up to x.
        let steps = 2_000;
        let width = (x + 10.0 * deviation).max(0.0) / f64::from(steps);
        let at = |step: i32| -10.0 * deviation + width * (f64::from(step) + 0.5);
        (0..steps).map(|step| (-0.5 * (at(step) / deviation).powi(2)).exp()).sum::<f64>() * width
            / (deviation * (2.0 * std::f64::consts::PI).sqrt())
    };
    let steps = 2_000;
    let width = 20.0 * deviation / f64::from(steps);
    let at = |step: i32| -10.0 * deviation + width * (f64::from(step) + 0.5);
    let best = |step: i32| {
        let x = means[0] + at(step);
        (-0.5 * (at(step) / deviation).powi(2)).exp() * below(x - means[1]) * below(x - means[2])
    };
    (0..steps).map(best).sum::<f64>() * width / (deviation * (2.0 * std::f64::consts::PI).sqrt())
}

/// The chances of three sides sum to one. The probit form gives the chance of the best performance, the logistic form
/// shares in proportion to `exp(mu / c)`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn predictions_of_three_sides_are_chances_of_the_first_place() {
    let beta = 25.0_f64 / 6.0;
    for (prediction, is_probit) in [("", false), (r#"Prediction="logistic""#, false), (r#"Prediction="probit""#, true)]
    {
        let (_server, client) = start(prediction).await;
        let sides: [&[&str]; 3] = [&["ann"], &["bob"], &["cid"]];
        let found = client.predict_outcome(SET_ID, &sides).await.expect("predict");
        assert!((found.iter().sum::<f64>() - 1.0).abs() < 1e-12, "{found:?}");
        let deviation = (9.0 + beta * beta).sqrt();
        let expected = if is_probit {
            chance_of_best([25.0, 25.0, 20.0], deviation)
        } else {
            let strengths = [25.0, 25.0, 20.0].map(|mu: f64| (mu / (3.0_f64.sqrt() * deviation)).exp());
            strengths[0] / strengths.iter().sum::<f64>()
        };
        assert!((found[0] - expected).abs() < 1e-6 && (found[0] - found[1]).abs() < 1e-9, "{found:?} {expected}");
    }
}

/// The quality rule of a free-for-all uses the same chances: cid's chance is below a quarter, so that the three wait for eve.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn win_probability_of_a_free_for_all_follows_the_prediction() {
    let (server, client) = start(r#"Prediction="probit""#).await;
    let chances = client.predict_outcome(SET_ID, &[&["ann"], &["bob"], &["cid"]]).await.expect("predict");
    assert!(chances[2] < 0.25, "{chances:?}");
    let mut players = Vec::new();
    for name in ["cid", "ann", "bob"] {
        players.push(QueuedParty::enter(&server, SET_ID, &[(name, 0.0)]).await);
    }
    wait_until("a pass of three", async || players[0].current_status().await.blocking_rule == "quality").await;
    let mut eve = QueuedParty::enter(&server, SET_ID, &[("eve", 0.0)]).await;
    eve.wait_for_state(TicketState::Matched).await;
    players[1].wait_for_state(TicketState::Matched).await;
    players[2].wait_for_state(TicketState::Matched).await;
    assert_eq!(players[0].current_status().await.state(), TicketState::Waiting);
}
