//! Tickets: entering a queue, receiving a status on a watch stream, and proposing matches.

use bytes::Bytes;
use fireteam::store::memory::MemoryStore;
use fireteam::store::queues::{QueueOutcome, QueueStore as _, QueueWrite};
use fireteam_client::pb;
use prost::Message;
use tonic::body::Body;

use crate::count;
use crate::queue_rows::{enter as enter_write, new_match, propose as propose_write, ticket};
use crate::server::{InProcessServer, Messages, Responses, encoded};

/// Tickets in a counted section.
const TICKETS: usize = 64;

const ENTER: &str = "/fireteam.v1.QueueService/Enter";
const LEAVE: &str = "/fireteam.v1.QueueService/Leave";
const WATCH: &str = "/fireteam.v1.QueueService/Watch";

/// 1v1: no two tickets match, because their ratings lie 10 buckets apart. A counted section has no pass.
const RULESET: &str = r#"<Ruleset Name="gate" SetId="1">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="3000" Trust="client"/></Attributes>
  <Teams Count="2" Size="1"/>
  <Queue PassIntervalMs="60000" TicketTtlMs="3600000">
    <RatingWindow BucketWidth="1" Start="0" Step="1" StepEveryMs="60000" Clock="ticket"/>
  </Queue>
</Ruleset>"#;

fn enter_request(section: usize, number: usize) -> Bytes {
    let player = pb::PlayerData {
        user_id: format!("player {section} {number}"),
        skill: Some(100.0 + 10.0 * number as f64),
        ..Default::default()
    };
    encoded(&pb::QueueEnterRequest {
        session_composition: Some(pb::SessionCompositionData { players: vec![player], ..Default::default() }),
        matchmaking_set_id: Some(1),
        idempotency_key: format!("ticket of the gate {section:010} {number:010}"),
        ..Default::default()
    })
}

fn enter_requests(section: usize) -> Vec<Bytes> {
    (0..TICKETS).map(|number| enter_request(section, number)).collect()
}

async fn enter_all(server: &InProcessServer, requests: &[Bytes]) -> Vec<pb::TicketReference> {
    let mut tickets = Vec::with_capacity(requests.len());
    for request in requests {
        let answer = pb::QueueEnterResponse::decode(server.unary(ENTER, request).await).expect("a response");
        tickets.push(pb::TicketReference {
            ticket_id: answer.status.expect("a status").ticket_id,
            ticket_token: answer.ticket_token,
            ..Default::default()
        });
    }
    tickets
}

/// Watches tickets and reads their first statuses.
async fn watch(server: &InProcessServer, tickets: Vec<pb::TicketReference>) -> Responses {
    let count = tickets.len();
    let request = encoded(&pb::QueueWatchRequest { tickets, ..Default::default() });
    let mut statuses = server.call(WATCH, Body::new(Messages::one(request))).await;
    for _ in 0..count {
        statuses.next().await.expect("a status");
    }
    statuses
}

/// Enters a party of one player by a unary call.
pub(crate) fn enter() {
    let server = InProcessServer::start(RULESET);
    // The first tickets start the queue's task and its only pass.
    server.runtime.block_on(enter_all(&server, &enter_requests(usize::MAX)));
    count(enter_requests, |requests| {
        server.runtime.block_on(async {
            for request in requests.iter() {
                server.unary(ENTER, request).await;
            }
        });
        requests.len()
    });
}

/// Delivers the end of a ticket to its watch stream.
pub(crate) fn ticket_status() {
    let server = InProcessServer::start(RULESET);
    let prepare = |section| {
        server.runtime.block_on(async {
            let tickets = enter_all(&server, &enter_requests(section)).await;
            let statuses = watch(&server, tickets.clone()).await;
            for pb::TicketReference { ticket_id, ticket_token, .. } in tickets {
                server
                    .unary(LEAVE, &encoded(&pb::QueueLeaveRequest { ticket_id, ticket_token, ..Default::default() }))
                    .await;
            }
            statuses
        })
    };
    count(prepare, |statuses| {
        server.runtime.block_on(async {
            for _ in 0..TICKETS {
                statuses.next().await.expect("a status");
            }
        });
        TICKETS
    });
}

/// Commits proposals of two tickets each: all of their tickets are taken, or none.
pub(crate) fn propose() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let prepare = |_| {
        let store = MemoryStore::new();
        let tickets: Vec<u32> = (1..=TICKETS as u32).collect();
        let entries: Vec<QueueWrite> = tickets.iter().map(|&n| enter_write(ticket(n, 1, &[n]), 50, 0)).collect();
        runtime.block_on(store.commit_queues(&entries)).expect("the tickets enter");
        let pairs = tickets.chunks(2);
        let matches =
            pairs.map(|pair| propose_write(new_match(pair[0], 1, &[(pair[0], &pair[..1]), (pair[1], &pair[1..])]), 5));
        (store, matches.collect::<Vec<QueueWrite>>())
    };
    count(prepare, |(store, writes)| {
        let outcomes = runtime.block_on(store.commit_queues(writes)).expect("a memory store commits");
        assert!(outcomes.iter().all(|outcome| matches!(outcome, QueueOutcome::MatchWritten { .. })));
        writes.len()
    });
}
