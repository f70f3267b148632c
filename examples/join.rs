//! A player's whole life: search, widen the search as time passes, and take the best seats there are.
//!
//! `cargo run --example join -- http://127.0.0.1:50051 1`

use std::time::Duration;

use fireteam_client::{Client, Code, Error, Reservation, SearchSession, pb};

/// How long to wait between searches when nothing is due to relax, milliseconds.
const SEARCH_INTERVAL_MS_MAX: u64 = 5_000;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let endpoint = arguments.next().unwrap_or_else(|| "http://127.0.0.1:50051".to_owned());
    let set_id = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(1);

    let client = Client::connect(endpoint).await?;
    let player = pb::PlayerData { user_id: "ada".into(), skill: Some(250.0), ..Default::default() };
    let party = pb::SessionCompositionData { players: vec![player], ..Default::default() };
    let mut searching = client.search_session(set_id, party);

    // A game would stop when its player does; this one stops after two minutes.
    let found = tokio::time::timeout(Duration::from_secs(120), search_and_reserve(&mut searching)).await;
    match found {
        Ok(reserved) => {
            let reserved = reserved?;
            let host = String::from_utf8_lossy(&reserved.connect_data).into_owned();
            println!("{} seats held for {} ms at {host}", reserved.seats, reserved.expires_in_ms);
            // A game would connect now; this one has seen enough.
            reserved.release().await
        }
        Err(_) => {
            println!("nobody suits, not even with the widest limits");
            Ok(())
        }
    }
}

/// Searches until seats are taken. Each round the limits are as wide as the time waited allows.
async fn search_and_reserve(searching: &mut SearchSession) -> Result<Reservation, Error> {
    loop {
        let found = searching.search().await?;
        println!("{} candidates among {} after {} ms", found.candidates.len(), found.evaluated, found.searching_for_ms);
        for refusal in &found.refusals {
            println!("  refused {}: {:?} {}", refusal.count, refusal.kind(), refusal.rule);
        }
        for candidate in &found.candidates {
            let terms: Vec<String> = candidate.terms.iter().map(|it| format!("{} {:.3}", it.name, it.value)).collect();
            println!("  {} score {:.3} = {}", candidate.advertisement_id, candidate.score, terms.join(" + "));
            match searching.reserve(&candidate.advertisement_id).await {
                Ok(reserved) => return Ok(reserved),
                // Someone was faster, or the host has changed its mind: the next best, and not this one again.
                Err(error) if matches!(error.code(), Some(Code::FailedPrecondition | Code::NotFound)) => {
                    println!("  not this one: {error}");
                    searching.exclude(&candidate.advertisement_id);
                }
                Err(error) => return Err(error),
            }
        }
        let pause_ms = searching
            .next_expansion_in_ms
            .map_or(SEARCH_INTERVAL_MS_MAX, |due_ms| due_ms.clamp(250, SEARCH_INTERVAL_MS_MAX));
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
    }
}
