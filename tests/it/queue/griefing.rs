//! Players who accept a match or enter the queue only to decline: how many proposals one of them spoils.

use std::collections::VecDeque;

use fireteam_client::pb;
use pb::{TicketEndReason, TicketState};

use crate::support::queue_server::{QueuedParty, SET_ID, duel_ruleset, enter_request, start_queue_server};

const HOUR_MS: u64 = 60 * 60 * 1_000;

/// SEC-13: a player who declines each proposal, after accepting it, and enters again as soon as possible, for 26 hours. Within any
/// hour at most three proposals are spoiled; the opponent keeps its waiting time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn griefer_spoils_at_most_three_proposals_per_hour() {
    let server = start_queue_server(&[&duel_ruleset(r#"<ReadyCheck TimeoutMs="20000"/>"#)]).await;
    let griefer = server.client().await;
    let (mut spoiled_at, mut within_hour, mut worst): (Vec<u64>, VecDeque<u64>, usize) =
        (Vec::new(), VecDeque::new(), 0);
    let mut now_ms = 0;
    while now_ms < 26 * HOUR_MS {
        let honest_name = format!("honest {now_ms}");
        let mut honest = QueuedParty::enter(&server, SET_ID, &[(&honest_name, 20.0)]).await;
        server.clock.advance_ms(1_000);
        now_ms += 1_000;
        let mut ticket = loop {
            match griefer.enter_queue(enter_request(SET_ID, &[("griefer", 20.0)])).await {
                Ok(ticket) => break ticket,
                Err(error) => {
                    let failure = error.as_server_error().expect("of the server");
                    assert_eq!(failure.reason.as_deref(), Some("QUEUE_COOLDOWN"), "{error}");
                    let wait_ms = failure.retry_after.expect("a delay").as_millis() as u64;
                    // The honest player gives up meanwhile; another comes.
                    honest.ticket.leave().await.expect("leave");
                    server.clock.advance_ms(wait_ms);
                    now_ms += wait_ms;
                    honest = QueuedParty::enter(&server, SET_ID, &[(&format!("honest {now_ms}"), 20.0)]).await;
                    server.clock.advance_ms(1_000);
                    now_ms += 1_000;
                }
            }
        };
        let proposed = honest.wait_for_state(TicketState::Proposed).await;
        let id = proposed.found_match.expect("a match").match_id;
        honest.ticket.respond_to_ready_check(&id, true).await.expect("accept");
        // Accepts nothing for long: the acceptance would start the match.
        let declined = ticket.respond_to_ready_check(&id, false).await.expect("decline");
        assert_eq!((declined.state(), declined.end_reason()), (TicketState::Ended, TicketEndReason::Declined));
        let waiting = honest.wait_for_state(TicketState::Waiting).await;
        assert_eq!(waiting.waited_ms, 1_000, "the opponent keeps its waiting time");
        honest.ticket.leave().await.expect("leave");
        spoiled_at.push(now_ms);
        within_hour.push_back(now_ms);
        while within_hour.front().is_some_and(|at| at + HOUR_MS <= now_ms) {
            within_hour.pop_front();
        }
        worst = worst.max(within_hour.len());
    }
    println!("{} proposals spoiled in 26 hours, at most {worst} within an hour", spoiled_at.len());
    assert_eq!(worst, 3);
}
