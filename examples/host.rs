//! Example host: publishes an advertisement, sends heartbeats and prints reservations until Ctrl-C.
//!
//! `cargo run --example host -- http://127.0.0.1:50051 1`

use std::time::Duration;

use fireteam_client::{Advertisement, Client, Error, HostEvent, HostEvents, MatchHost, pb};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let endpoint = arguments.next().unwrap_or_else(|| "http://127.0.0.1:50051".to_owned());
    let set_id = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(1);

    let client = Client::connect(endpoint).await?;
    // The stream receives the reservation events of advertisements that are updated on it.
    let (connection, mut events) = client.open_stream().await?;
    let mut advertisement = connection.advertise(publish_request(set_id)).await?;
    println!("published advertisement {}, expires in {} ms", advertisement.id(), advertisement.expires_in_ms);

    tokio::select! {
        result = run_host(&client, &mut advertisement, &mut events) => result?,
        _ = tokio::signal::ctrl_c() => println!("interrupted, deleting the advertisement"),
    }
    advertisement.delete().await
}

/// Sends heartbeats and handles reservation events; opens another stream when the current one ends.
async fn run_host(client: &Client, advertisement: &mut Advertisement, events: &mut HostEvents) -> Result<(), Error> {
    // Confirms matches that fill the session, and keeps them alive.
    let mut match_host = MatchHost::new(client.clone(), advertisement);
    loop {
        // Three heartbeats per TTL, so that two may be lost.
        let heartbeat_interval = Duration::from_millis((advertisement.expires_in_ms / 3).max(100));
        let result = tokio::select! {
            event = events.next_host_event() => match event {
                Ok(HostEvent::Reservation(event)) => handle_reservation_event(advertisement, event).await,
                Ok(HostEvent::Match(_)) => confirm_matches(&mut match_host).await,
                Err(error) => Err(error),
            },
            () = tokio::time::sleep(match_host.time_to_next_heartbeat()) => confirm_matches(&mut match_host).await,
            () = tokio::time::sleep(heartbeat_interval) => advertisement.heartbeat().await.map(|_| ()),
        };
        let Err(error) = result else { continue };
        if !matches!(error, Error::StreamEnded(_) | Error::EventBufferOverflow) {
            return Err(error);
        }
        println!("{error}; reconnecting");
        // A game adds jitter here, so that clients that lost the same server do not reconnect together.
        tokio::time::sleep(Duration::from_secs(1)).await;
        if let Ok((connection, new_events)) = client.open_stream().await {
            *events = new_events;
            advertisement.use_stream(connection);
            // Subscribes the new stream to reservation events. After a failure the next iteration tries again.
            let _ = advertisement.heartbeat().await;
        }
    }
}

async fn confirm_matches(match_host: &mut MatchHost) -> Result<(), Error> {
    for hosted in match_host.heartbeat().await? {
        println!("match {}: {}", hosted.match_id, hosted.state().as_str_name());
    }
    Ok(())
}

async fn handle_reservation_event(advertisement: &mut Advertisement, event: pb::ReservationEvent) -> Result<(), Error> {
    let state = event.state();
    let Some(reservation) = event.reservation else { return Ok(()) };
    println!("{} seats {}: reservation {}", reservation.seats, state.as_str_name(), reservation.reservation_id);
    if state == pb::ReservationState::Held {
        // A game would wait here until the party connects.
        advertisement.confirm_reservations(vec![reservation.reservation_id]).await?;
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
