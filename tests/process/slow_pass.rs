//! A pass that takes long: what it finds has its full time.

use fireteam_client::pb;

use crate::support::party::party_session;
use crate::support::server_process::{ServerProcess, TEST_TIMEOUT};

const SET_ID: u32 = 12;
/// Time of each pass, milliseconds.
const PASS_MS: u64 = 4_000;
/// Time to answer a ready check, milliseconds.
const READY_CHECK_MS: u64 = 10_000;

/// The time to answer begins when the match is proposed, not when the pass that found it began.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ready_check_after_a_slow_pass_has_its_full_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let rules = format!(
        r#"<Ruleset Name="Duel" SetId="{SET_ID}">
  <Teams Count="2" Size="1"/>
  <Queue PassIntervalMs="10"/>
  <ReadyCheck TimeoutMs="{READY_CHECK_MS}"/>
</Ruleset>"#
    );
    std::fs::create_dir(folder.path().join("rules")).expect("a folder");
    std::fs::write(folder.path().join("rules/duel.xml"), rules).expect("a ruleset");
    let fault = format!("slow_pass=sleep({PASS_MS})");
    let server = ServerProcess::start_with(folder.path(), &["--rulesets", "rules"], &[("FAILPOINTS", &fault)]);
    let client = server.client().await;
    let mut tickets = Vec::new();
    for name in ["ann", "bob"] {
        let request = pb::QueueEnterRequest {
            session_composition: Some(party_session(&[(name, 20.0)])),
            matchmaking_set_id: Some(SET_ID),
            ..Default::default()
        };
        tickets.push(client.enter_queue(request).await.expect("enter"));
    }
    let mut statuses = tickets[0].watch();
    let proposed = async {
        loop {
            let status = statuses.next().await.expect("the stream is open").expect("the ticket has not ended");
            if status.state() == pb::TicketState::Proposed {
                return status.found_match.expect("a match");
            }
        }
    };
    let found = tokio::time::timeout(TEST_TIMEOUT, proposed).await.expect("proposed in time");
    let left_ms = found.deadline_in_ms.expect("a deadline");
    // Without the time of the pass it would be less than six seconds.
    assert!((READY_CHECK_MS - PASS_MS / 2..=READY_CHECK_MS).contains(&left_ms), "{left_ms} ms left");
}
