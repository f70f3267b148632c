//! DELAY: time from sending an update to the first search that finds it.

use bytes::Bytes;
use fireteam_client::pb;
use prost::Message;

use crate::harness::{clock, machine, quantile_of};
use crate::rpc::load::{call, channel, open};
use crate::rpc::messages::{CONNECT, SEARCH, composition, enveloped};
use crate::rpc::server_process::ServerProcess;
use crate::split_mix64::SplitMix64;

/// Updates that are timed.
const UPDATES: u32 = 3_000;

/// Replaces one advertisement on a connection while another connection searches until it finds the new number of seats.
pub(crate) async fn run() {
    let server = ServerProcess::start("fireteam", 0);
    let (host, searcher) = (channel(server.address).await, channel(server.address).await);
    let (sender, mut answers) = open(&host, CONNECT).await;
    let mut rng = SplitMix64(31);
    let (session, party) = (composition(&mut rng), composition(&mut rng));
    let update = |version: u32| {
        enveloped(pb::MatchmakingUpdateAdvertisementRequest {
            matchmaking_set_id: Some(1),
            session_composition: Some(pb::SessionCompositionData {
                max_allowed_join_reservation_count: Some(1 + (version % 999) as i32),
                ..session.clone()
            }),
            idempotency_key: "the one that is looked for".into(),
            ..Default::default()
        })
    };
    let search = pb::MatchmakingSearchRequest {
        matchmaking_set_id: Some(1),
        session_composition: Some(party),
        ..Default::default()
    };
    let search: Bytes = search.encode_to_vec().into();
    let (mut acked, mut found) = (Vec::new(), Vec::new());
    for version in 0..UPDATES {
        let message = update(version).encode_to_vec().into();
        let begin = clock();
        sender.send(message).await.expect("the stream is open");
        answers.message().await.expect("the stream is open").expect("an answer");
        acked.push(begin.elapsed().as_secs_f64() * 1e6);
        let answer = call(&searcher, SEARCH, search.clone()).await.expect("an answer");
        assert_eq!(version_of(&answer), Some(version), "acknowledged is searchable");
    }
    for version in UPDATES..2 * UPDATES {
        let message = update(version).encode_to_vec().into();
        let begin = clock();
        sender.send(message).await.expect("the stream is open");
        while version_of(&call(&searcher, SEARCH, search.clone()).await.expect("an answer")) != Some(version) {}
        found.push(begin.elapsed().as_secs_f64() * 1e6);
        answers.message().await.expect("the stream is open").expect("an answer");
    }
    for (what, times) in
        [("its acknowledgement", &mut acked), ("the answer of the first search that finds it", &mut found)]
    {
        let (p50, p99) = (quantile_of(times, 0.5), quantile_of(times, 0.99));
        let what = format!("us from sending an update to {what}, p50 and p99");
        println!("| DELAY | update_visibility: {what} | | {p50:.0}, {p99:.0} | | {UPDATES} | | | | {} |", machine());
    }
}

fn version_of(answer: &Bytes) -> Option<u32> {
    let answer = pb::MatchmakingSearchResponse::decode(answer.clone()).expect("an answer");
    answer.candidates.first()?.open_seats.checked_sub(1)
}
