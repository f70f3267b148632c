//! A host's whole life: advertise, keep alive, and print who takes seats until Ctrl-C.
//!
//! `cargo run --example host -- http://127.0.0.1:50051 1`

use std::time::Duration;

use fireteam_client::{Advertisement, Client, Error, ReservationEvents, pb};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let endpoint = arguments.next().unwrap_or_else(|| "http://127.0.0.1:50051".to_owned());
    let set_id = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(1);

    let client = Client::connect(endpoint).await?;
    // The stream hears of reservations; what is updated on it is what it hears about.
    let (connection, mut events) = client.open_stream().await?;
    let mut advertised = connection.advertise(publish_request(set_id)).await?;
    println!("advertised as {}, believed for {} ms", advertised.id(), advertised.expires_in_ms);

    tokio::select! {
        failed = run_host(&client, &mut advertised, &mut events) => failed?,
        _ = tokio::signal::ctrl_c() => println!("closing"),
    }
    advertised.delete().await
}

/// Keeps the advertisement alive and prints what happens to its seats; connects again when the server goes away.
async fn run_host(
    client: &Client,
    advertised: &mut Advertisement,
    events: &mut ReservationEvents,
) -> Result<(), Error> {
    loop {
        // Three heartbeats a lifetime: two may be lost.
        let pause = Duration::from_millis(u64::from(advertised.expires_in_ms / 3).max(100));
        let done = tokio::select! {
            event = events.next() => match event {
                Ok(event) => handle_reservation_event(advertised, event).await,
                Err(why) => Err(why),
            },
            () = tokio::time::sleep(pause) => advertised.heartbeat().await.map(|_| ()),
        };
        let Err(why) = done else { continue };
        if !matches!(why, Error::StreamEnded(_) | Error::EventBufferOverflow) {
            return Err(why);
        }
        println!("{why}; connecting again");
        // A crowd that was cut off at one moment should not come back in step: a game adds jitter here.
        tokio::time::sleep(Duration::from_secs(1)).await;
        if let Ok((connection, renewed)) = client.open_stream().await {
            *events = renewed;
            advertised.use_connection(connection);
            // Subscribes the new stream; when that fails too, the next round sees it.
            let _ = advertised.heartbeat().await;
        }
    }
}

async fn handle_reservation_event(advertised: &mut Advertisement, event: pb::ReservationEvent) -> Result<(), Error> {
    let state = event.state();
    let Some(reservation) = event.reservation else { return Ok(()) };
    println!("{} seats {}: reservation {}", reservation.seats, state.as_str_name(), reservation.reservation_id);
    if state == pb::ReservationState::Held {
        // A game would wait here until it sees the party arrive.
        advertised.confirm(vec![reservation.reservation_id]).await?;
    }
    Ok(())
}

fn publish_request(set_id: u32) -> pb::MatchmakingUpdateAdvertisementRequest {
    let host = pb::PlayerData { user_id: "host".into(), skill: Some(200.0), ..Default::default() };
    let (players, seats) = (vec![host], Some(11));
    let session =
        pb::SessionCompositionData { players, max_allowed_join_reservation_count: seats, ..Default::default() };
    pb::MatchmakingUpdateAdvertisementRequest {
        matchmaking_set_id: Some(set_id),
        session_composition: Some(session),
        connect_data: b"203.0.113.7:7777".to_vec(),
        ..Default::default()
    }
}
