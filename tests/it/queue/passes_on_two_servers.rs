//! Queues of one database that two servers share: each runs the passes of its own.

use std::collections::BTreeMap;

use fireteam::auth::identity::Role;
use fireteam_client::{Client, Ticket, pb};
use pb::TicketState;

use crate::support::generated_client as wire;
use crate::support::party_site::{PartySite, by_operator, pairs_ruleset, wait_for_state};
use crate::support::queue_server::{SET_ID, enter_request, operator_client, wait_until};

/// Queues that each server runs.
const QUEUES_PER_SERVER: usize = 3;

/// Most queues that are begun to get these. The server that receives the first ticket of a queue runs it, unless that server is so busy
/// that the other one is first.
const QUEUES_MAX: u64 = 24;

/// Matches of each queue under load.
const MATCHES: usize = 12;

/// Number of passes of each silo's queue, at a server that runs it.
async fn passes_run_by(site: &PartySite, server: usize) -> BTreeMap<u64, u64> {
    let mut operator = operator_client(&site.servers[server]).await;
    let request = wire::GetStatisticsRequest::default();
    let statistics = operator.get_statistics(by_operator(site, request)).await.expect("statistics").into_inner();
    statistics.queues.iter().filter(|queue| queue.runs_here).map(|queue| (queue.silo_id, queue.passes)).collect()
}

async fn enter(client: &Client, silo: u64, name: &str) -> Ticket {
    let mates = [format!("{name} one"), format!("{name} two")];
    let mut request = enter_request(SET_ID, &[(&mates[0], 20.0), (&mates[1], 20.0)]);
    request.session_composition.as_mut().expect("a party").silo_id = Some(silo);
    client.enter_queue(request).await.expect("enter")
}

/// Begins queues until each server runs some, each by a ticket that comes to a server which lacks one. Returns the silos of each server, and
/// the tickets.
async fn begin_queues(site: &PartySite, clients: &[Client]) -> ([Vec<u64>; 2], Vec<Ticket>) {
    let (mut silos, mut tickets): ([Vec<u64>; 2], Vec<Ticket>) = Default::default();
    for silo in 1..=QUEUES_MAX {
        let Some(lacking) = silos.iter().position(|it| it.len() < QUEUES_PER_SERVER) else { break };
        tickets.push(enter(&clients[lacking], silo, &format!("first of {silo}")).await);
        let mut runs_at = None;
        wait_until("a server runs the queue", async || {
            for server in 0..2 {
                if passes_run_by(site, server).await.contains_key(&silo) {
                    runs_at = Some(server);
                }
            }
            runs_at.is_some()
        })
        .await;
        silos[runs_at.expect("a server")].push(silo);
    }
    assert!(silos.iter().all(|it| QUEUES_PER_SERVER <= it.len()), "{silos:?}");
    (silos, tickets)
}

/// S3-5: the stage that makes matches scales by servers. Queues run where their first ticket came, some on each server. Under load, whose
/// tickets come to the other server than the queue's, each server runs passes of its own queues only, and all are matched. When a
/// server stops, the other one runs all queues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passes_of_different_queues_run_on_different_servers() {
    let test = "passes_of_different_queues_run_on_different_servers";
    let Some(mut site) = PartySite::on_postgres(test, &pairs_ruleset("")).await else { return };
    let mut clients = Vec::new();
    for (server, name) in site.servers.iter().zip(["eu-1", "eu-2"]) {
        clients.push(site.issuer.client_with_token(server, Role::GameServer, name).await);
    }
    let (silos_by_server, mut first_tickets) = begin_queues(&site, &clients).await;
    let before = [passes_run_by(&site, 0).await, passes_run_by(&site, 1).await];

    let mut tickets = Vec::new();
    for number in 1..2 * MATCHES {
        for (silos, client) in silos_by_server.iter().zip(clients.iter().rev()) {
            for silo in silos {
                tickets.push(enter(client, *silo, &format!("{number} of {silo}")).await);
            }
        }
    }
    for ticket in tickets.iter_mut().chain(&mut first_tickets) {
        wait_for_state(ticket, TicketState::Matched).await;
    }
    for (server, before) in before.iter().enumerate() {
        let after = passes_run_by(&site, server).await;
        assert!(after.keys().eq(&silos_by_server[server]), "server {server}: {after:?}");
        for (silo, passes) in &after {
            assert!(*passes > before[silo], "server {server}, silo {silo}: {passes} passes, before {}", before[silo]);
        }
    }

    site.servers.pop().expect("a server").app.shutdown().await;
    let mut all = silos_by_server.concat();
    all.sort_unstable();
    wait_until("the other server runs all queues", async || passes_run_by(&site, 0).await.keys().eq(&all)).await;
    site.shut_down().await;
}
