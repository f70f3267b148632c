//! A host's whole life: advertise, keep alive, and print who takes seats until Ctrl-C.
//!
//! `cargo run --example host -- http://127.0.0.1:50051 1`

use std::time::Duration;

use fireteam_client::{Advertised, Client, Connection, Error, Events, pb};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let endpoint = arguments.next().unwrap_or_else(|| "http://127.0.0.1:50051".to_owned());
    let set_id = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(1);

    let client = Client::connect(endpoint).await?;
    // The stream hears of reservations; what is updated on it is what it hears about.
    let (connection, mut events) = client.open().await?;
    let mut advertised = connection.advertise(session(set_id)).await?;
    println!("advertised as {}, believed for {} ms", advertised.id(), advertised.expires_in_ms);

    tokio::select! {
        failed = host(&client, &mut advertised, &mut events) => failed?,
        _ = tokio::signal::ctrl_c() => println!("closing"),
    }
    advertised.delete().await
}

/// Keeps the advertisement alive and prints what happens to its seats; reconnects when the server goes away.
async fn host(client: &Client, advertised: &mut Advertised, events: &mut Events) -> Result<(), Error> {
    loop {
        // Three heartbeats a lifetime: two may be lost.
        let pause = Duration::from_millis(u64::from(advertised.expires_in_ms / 3).max(100));
        tokio::select! {
            event = events.next() => match event {
                Ok(event) => seats_changed(advertised, event).await?,
                Err(why) => {
                    println!("{why}; connecting again");
                    let (connection, renewed) = reconnect(client).await;
                    *events = renewed;
                    advertised.over(connection);
                    let answer = advertised.heartbeat().await?;
                    println!("back with {} reservations", answer.reservations.len());
                }
            },
            () = tokio::time::sleep(pause) => { advertised.heartbeat().await?; }
        }
    }
}

async fn seats_changed(advertised: &mut Advertised, event: pb::ReservationEvent) -> Result<(), Error> {
    let state = event.state();
    let Some(reservation) = event.reservation else { return Ok(()) };
    println!("{} seats {}: reservation {}", reservation.seats, state.as_str_name(), reservation.reservation_id);
    if state == pb::ReservationState::Held {
        // A game would wait here until it sees the party arrive.
        advertised.confirm(vec![reservation.reservation_id]).await?;
    }
    Ok(())
}

/// Tries until it works. A crowd that was cut off at one moment should not come back in step: a game adds jitter here.
async fn reconnect(client: &Client) -> (Connection, Events) {
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if let Ok(opened) = client.open().await {
            return opened;
        }
    }
}

fn session(set_id: u32) -> pb::MatchmakingUpdateAdvertisementRequest {
    let host = pb::PlayerData { user_id: "host".into(), skill: Some(200.0), ..Default::default() };
    pb::MatchmakingUpdateAdvertisementRequest {
        matchmaking_set_id: Some(set_id),
        session_composition: Some(pb::SessionCompositionData {
            players: vec![host],
            max_allowed_join_reservation_count: Some(11),
            ..Default::default()
        }),
        connect_data: b"203.0.113.7:7777".to_vec(),
        ..Default::default()
    }
}
