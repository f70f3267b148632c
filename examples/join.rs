//! Example player: searches with limits that relax over time, and reserves seats in the best session.
//!
//! `cargo run --example join -- http://127.0.0.1:50051 1`

use std::time::Duration;

use fireteam_client::{Client, Code, Error, Reservation, SearchSession, pb};

/// Maximum time between searches, milliseconds.
const SEARCH_INTERVAL_MS_MAX: u64 = 5_000;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let endpoint = arguments.next().unwrap_or_else(|| "http://127.0.0.1:50051".to_owned());
    let set_id = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(1);

    let client = Client::connect(endpoint).await?;
    let player = pb::PlayerData { user_id: "ada".into(), skill: Some(250.0), ..Default::default() };
    let party = pb::SessionCompositionData { players: vec![player], ..Default::default() };
    let mut search_session = client.new_search(set_id, party);

    // A game would search until its player cancels; this example stops after two minutes.
    let result = tokio::time::timeout(Duration::from_secs(120), search_and_reserve(&mut search_session)).await;
    match result {
        Ok(reservation) => {
            let reservation = reservation?;
            let host = String::from_utf8_lossy(&reservation.connect_data).into_owned();
            println!("{} seats reserved for {} ms at {host}", reservation.seats, reservation.expires_in_ms);
            // A game would connect now; this example releases the seats.
            reservation.release().await
        }
        Err(_) => {
            println!("no session found within two minutes");
            Ok(())
        }
    }
}

/// Searches until seats are reserved. The limits of each search depend on the time waited.
async fn search_and_reserve(search_session: &mut SearchSession) -> Result<Reservation, Error> {
    loop {
        let found = search_session.search().await?;
        println!("{} candidates among {} after {} ms", found.candidates.len(), found.evaluated, found.searching_for_ms);
        for refusal in &found.refusals {
            println!("  refused {}: {:?} {}", refusal.count, refusal.kind(), refusal.rule);
        }
        for candidate in &found.candidates {
            let terms = candidate.terms.iter().map(|term| format!("{} {:.3}", term.name, term.value));
            let terms: Vec<String> = terms.collect();
            println!("  {} score {:.3} = {}", candidate.advertisement_id, candidate.score, terms.join(" + "));
            match search_session.reserve(&candidate.advertisement_id).await {
                Ok(reservation) => return Ok(reservation),
                // The seats are taken or the session changed: exclude it and try the next candidate.
                Err(error) if matches!(error.code(), Some(Code::FailedPrecondition | Code::NotFound)) => {
                    println!("  reservation failed: {error}");
                    search_session.exclude(&candidate.advertisement_id);
                }
                Err(error) => return Err(error),
            }
        }
        let next_expansion_in_ms = search_session.next_expansion_in_ms.unwrap_or(SEARCH_INTERVAL_MS_MAX);
        let wait_ms = next_expansion_in_ms.clamp(250, SEARCH_INTERVAL_MS_MAX);
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
    }
}
