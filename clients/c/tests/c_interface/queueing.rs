//! Queue loop: enter, watch, ready check, connect, report and leave, as a C program drives it.

use std::ptr::{null, null_mut};

use fireteam_c::queue_types::*;
use fireteam_c::queueing_exports::*;
use fireteam_c::status::*;
use fireteam_c::types::FtCall;
use fireteam_client::pb;
use prost::Message;

use crate::functions::{answer, c, text};
use crate::queue_functions::{Queue, enter_request, filled, new_queue, restored_queue};

const ENTER: &str = "/fireteam.v1.QueueService/Enter";
const WATCH: &str = "/fireteam.v1.QueueService/Watch";

fn status(state: pb::TicketState) -> pb::TicketStatus {
    let own_player =
        pb::TicketPlayer { player_key: "ada in it".into(), credential: "a.credential".into(), ..Default::default() };
    let server = pb::GameServerAssignment { advertisement_id: "server".into(), connect_data: b"here".to_vec() };
    let found = pb::MatchStatus {
        match_id: "match".into(),
        player_count: 2,
        accepted_count: 1,
        team: 1,
        deadline_in_ms: (state == pb::TicketState::Proposed).then_some(9_000),
        own_players: vec![own_player],
        assignment: (state == pb::TicketState::Matched)
            .then_some(pb::Assignment { host: Some(pb::assignment::Host::GameServer(server)) }),
        ..Default::default()
    };
    pb::TicketStatus {
        ticket_id: "ticket".into(),
        state: state.into(),
        found_match: (state != pb::TicketState::Waiting).then_some(found),
        ..Default::default()
    }
}

fn entered() -> Vec<u8> {
    pb::QueueEnterResponse {
        status: Some(status(pb::TicketState::Waiting)),
        ticket_token: b"secret token".to_vec(),
        expires_in_ms: 30_000,
        ..Default::default()
    }
    .encode_to_vec()
}

fn message(status: pb::TicketStatus) -> Vec<u8> {
    pb::QueueWatchResponse { status: Some(status) }.encode_to_vec()
}

/// Loop whose ticket waits, at 1 s. Its watch has the number 1.
fn waiting() -> Queue {
    let queue = new_queue(&enter_request()).unwrap();
    assert_eq!(c!(ft_queueing_start(queue.0, 1_000_000)), 0);
    let (id, path, request) = queue.poll_call().unwrap();
    assert_eq!(path, ENTER);
    assert_eq!(pb::QueueEnterRequest::decode(&*request).unwrap().idempotency_key.len(), 32);
    assert_eq!(queue.answer(id, 0, &entered(), 1_000_000), 0);
    assert_eq!(queue.state(), FT_QUEUEING_WATCHING);
    let (watch_id, path, request) = queue.poll_watch().unwrap();
    assert_eq!((watch_id, path.as_str()), (1, WATCH));
    assert_eq!(pb::QueueWatchRequest::decode(&*request).unwrap().tickets[0].ticket_token, b"secret token");
    assert_eq!(queue.poll_watch().unwrap_err(), FT_NONE);
    let (kinds, last) = queue.outcomes();
    assert_eq!((kinds, text(&last.unwrap().0.ticket_id)), (vec![FT_QUEUE_OUTCOME_STATUS], "ticket".into()));
    queue
}

/// Loop in a match.
fn playing() -> Queue {
    let queue = waiting();
    assert_eq!(queue.watch_message(1, &message(status(pb::TicketState::Matched)), 1_000_000), 0);
    assert_eq!(queue.outcomes().0, [FT_QUEUE_OUTCOME_STATUS, FT_QUEUE_OUTCOME_CONNECT]);
    assert_eq!(c!(ft_queueing_connected(queue.0, 1_000_000)), 0);
    assert_eq!(queue.state(), FT_QUEUEING_PLAYING);
    queue
}

/// A ticket is entered and watched, its ready check is answered, and the game learns address and credential.
#[test]
fn queueing_accepts_and_connects_with_address_and_credential() {
    let queue = waiting();
    let credential = |player| filled(|buffer, capacity| c!(ft_queueing_credential(queue.0, player, buffer, capacity)));
    let connect_data = || filled(|buffer, capacity| c!(ft_queueing_connect_data(queue.0, buffer, capacity)));
    assert_eq!((connect_data(), credential(0)), (Err(FT_NONE), Err(FT_NONE)));
    assert_eq!(queue.watch_message(1, &message(status(pb::TicketState::Proposed)), 2_000_000), 0);
    let (kinds, last) = queue.outcomes();
    assert_eq!(kinds, [FT_QUEUE_OUTCOME_STATUS, FT_QUEUE_OUTCOME_READY_CHECK]);
    let (ready, data) = last.unwrap();
    assert_eq!((text(&ready.match_id), ready.deadline_ms, ready.player_count), ("match".into(), 9_000, 2));
    assert_eq!((ready.accepted_count, ready.team, ready.host), (1, 1, FT_HOST_NONE));
    assert_eq!(pb::MatchStatus::decode(&*data).unwrap(), status(pb::TicketState::Proposed).found_match.unwrap());
    assert_eq!(queue.respond("match", 1, 2_000_000), 0);
    let (id, path, request) = queue.poll_call().unwrap();
    assert_eq!(path, "/fireteam.v1.QueueService/Respond");
    let respond = pb::QueueRespondRequest::decode(&*request).unwrap();
    assert_eq!((respond.match_id.as_str(), respond.accept), ("match", true));
    let response = pb::QueueRespondResponse { status: Some(status(pb::TicketState::Matched)) };
    assert_eq!(queue.answer(id, 0, &response.encode_to_vec(), 2_000_000), 0);

    let (kinds, last) = queue.outcomes();
    assert_eq!(kinds, [FT_QUEUE_OUTCOME_STATUS, FT_QUEUE_OUTCOME_CONNECT]);
    let (connect, data) = last.unwrap();
    assert_eq!((connect.host, text(&connect.host_id)), (FT_HOST_GAME_SERVER, "server".into()));
    assert_eq!((connect.own_player_count, connect.deadline_ms, connect.is_own_host), (1, -1, 0));
    assert_eq!(pb::MatchStatus::decode(&*data).unwrap().match_id, "match");
    assert_eq!((connect_data().unwrap(), credential(0).unwrap()), (b"here".to_vec(), b"a.credential".to_vec()));
    assert_eq!(credential(1), Err(FT_NONE));
    assert_eq!(c!(ft_queueing_connected(queue.0, 3_000_000)), 0);
    let ended = pb::TicketStatus { end_reason: pb::TicketEndReason::Played.into(), ..status(pb::TicketState::Ended) };
    assert_eq!(queue.watch_message(1, &message(ended), 3_000_000), 0);
    let (ended, _) = queue.outcomes().1.unwrap();
    assert_eq!(
        (ended.kind, ended.end_reason, ended.ticket_end_reason),
        (FT_QUEUE_OUTCOME_ENDED, FT_QUEUE_END_TICKET, 3)
    );
    assert_eq!((queue.state(), queue.timeout_us()), (FT_QUEUEING_ENDED, Err(FT_NONE)));
}

/// A player who hosts, and a match without a host.
#[test]
fn queueing_tells_other_hosts() {
    let host_of = |host| {
        let queue = waiting();
        let mut matched = status(pb::TicketState::Matched);
        matched.found_match.as_mut().unwrap().assignment = Some(pb::Assignment { host: Some(host) });
        assert_eq!(queue.watch_message(1, &message(matched), 1_000_000), 0);
        let connect = queue.outcomes().1.unwrap().0;
        (connect.host, text(&connect.host_id), connect.is_own_host)
    };
    let peer = pb::PeerHostAssignment { player_key: "ben".into(), is_own: true };
    assert_eq!(host_of(pb::assignment::Host::PeerHost(peer)), (FT_HOST_PLAYER, "ben".into(), 1));
    let none = pb::UnhostedAssignment {};
    assert_eq!(host_of(pb::assignment::Host::Unhosted(none)), (FT_HOST_UNHOSTED, String::new(), 0));
}

/// A lost watch is opened again until the ticket has expired. Messages and ends of earlier watches change nothing.
#[test]
fn queueing_watches_through_an_outage_until_the_ticket_expires() {
    let queue = waiting();
    let mut watch_id = 1;
    let mut now_us = 1_000_000;
    for _ in 0..1_000 {
        assert_eq!(queue.watch_end(watch_id, 14, now_us), 0);
        let Ok(at_us) = queue.timeout_us() else { break };
        now_us = at_us.max(now_us);
        assert_eq!(c!(ft_queueing_handle_timeout(queue.0, now_us)), 0);
        if let Ok((id, ..)) = queue.poll_watch() {
            assert_eq!(id, watch_id + 1);
            let matched = message(status(pb::TicketState::Matched));
            assert_eq!(queue.watch_message(watch_id, &matched, now_us), 0, "of an earlier watch");
            assert_eq!(queue.state(), FT_QUEUEING_WATCHING);
            assert_eq!(queue.watch_end(watch_id, 5, now_us), 0);
            watch_id = id;
        }
        if queue.state() == FT_QUEUEING_ENDED {
            break;
        }
    }
    assert!((31_000_000..32_000_000).contains(&now_us) && watch_id > 6, "{now_us} {watch_id}");
    let ended = queue.outcomes().1.unwrap().0;
    assert_eq!((ended.kind, ended.end_reason), (FT_QUEUE_OUTCOME_ENDED, FT_QUEUE_END_LOST));
}

/// A message of the watch that cannot be read ends the watch, and the loop opens another.
#[test]
fn queueing_replaces_a_watch_that_cannot_be_read() {
    let queue = waiting();
    let mut endless = status(pb::TicketState::Proposed);
    endless.found_match.as_mut().unwrap().match_id = "x".repeat(64);
    for unreadable in [b"\xff".to_vec(), message(endless)] {
        let watch_id = queue.poll_watch().map_or(1, |(id, ..)| id);
        assert_eq!(queue.watch_message(watch_id, &unreadable, 1_000_000), FT_ERROR_MALFORMED);
        let at_us = queue.timeout_us().unwrap();
        assert_eq!(c!(ft_queueing_handle_timeout(queue.0, at_us)), 0);
    }
    assert_eq!(queue.poll_watch().unwrap().0, 3);
    assert_eq!(queue.watch_message(3, b"", 1_000_000), 0, "no status is no news");
    assert_eq!(queue.outcomes().0.len(), 0);
}

/// A latency token that arrives while the ticket waits is sent once with a heartbeat, and with later watches.
#[test]
fn queueing_renews_the_round_trips_of_a_waiting_ticket() {
    let queue = waiting();
    assert_eq!(c!(ft_queueing_set_latency_token(queue.0, b"newer".as_ptr(), 5, 1_000_000)), 0);
    let (id, path, request) = queue.poll_call().unwrap();
    assert_eq!(path, "/fireteam.v1.QueueService/Heartbeat");
    let heartbeat = pb::QueueHeartbeatRequest::decode(&*request).unwrap();
    assert_eq!(
        (heartbeat.latency_token.as_slice(), heartbeat.tickets[0].ticket_id.as_str()),
        (&b"newer"[..], "ticket")
    );
    let renewed = pb::QueueHeartbeatResponse::default().encode_to_vec();
    assert_eq!(queue.answer(id, 0, &renewed, 1_000_000), 0);
    assert_eq!(queue.poll_call().unwrap_err(), FT_NONE, "once");
    assert_eq!(queue.watch_end(1, 14, 1_000_000), 0);
    let at_us = queue.timeout_us().unwrap();
    assert_eq!(c!(ft_queueing_handle_timeout(queue.0, at_us)), 0);
    let (_, _, watch) = queue.poll_watch().unwrap();
    assert_eq!(pb::QueueWatchRequest::decode(&*watch).unwrap().latency_token, b"newer");
}

/// Players report the result of their match, once; it is sent again through an outage.
#[test]
fn queueing_reports_the_result() {
    let queue = playing();
    let ranks = [FtTeamRank { team: 0, rank: 2 }, FtTeamRank { team: 1, rank: 1 }];
    assert_eq!(c!(ft_queueing_report(queue.0, ranks.as_ptr(), 2, 1_000_000)), 0);
    let (id, path, request) = queue.poll_call().unwrap();
    assert_eq!(path, "/fireteam.v1.RatingService/ReportResult");
    let report = pb::ReportResultRequest::decode(&*request).unwrap();
    assert_eq!((report.team_ranks[1].team, report.team_ranks[1].rank, report.match_id.as_str()), (1, 1, "match"));
    assert_eq!(queue.answer(id, 14, b"", 1_000_000), 0);
    let at_us = queue.timeout_us().unwrap();
    assert_eq!(c!(ft_queueing_handle_timeout(queue.0, at_us)), 0);
    assert_eq!(queue.poll_call().unwrap(), (id, path, request));
    assert_eq!(c!(ft_queueing_report(queue.0, ranks.as_ptr(), 2, at_us)), 0);
    assert_eq!(queue.poll_call().unwrap_err(), FT_NONE, "one report");
}

/// A saved loop goes on in another process, with its ticket or with the same enter. A cancelled one leaves.
#[test]
fn queueing_is_saved_and_restored() {
    let entering = new_queue(&enter_request()).unwrap();
    assert_eq!(c!(ft_queueing_set_latency_token(entering.0, b"proof".as_ptr(), 5, 0)), 0);
    assert_eq!(c!(ft_queueing_start(entering.0, 0)), 0);
    let (_, _, first) = entering.poll_call().unwrap();
    let session = pb::QueueEnterRequest::decode(&*first).unwrap().session_composition.unwrap();
    assert_eq!(session.latency_token, b"proof");
    let restored = restored_queue(&entering.saved()).unwrap();
    assert_eq!(c!(ft_queueing_start(restored.0, 7)), 0);
    assert_eq!(restored.poll_call().unwrap().2, first);

    let saved = playing().saved();
    let restored = restored_queue(&saved).unwrap();
    assert_eq!((restored.state(), c!(ft_queueing_start(restored.0, 7))), (FT_QUEUEING_IDLE, 0));
    assert_eq!(restored.poll_call().unwrap_err(), FT_NONE);
    let (watch_id, _, request) = restored.poll_watch().unwrap();
    assert_eq!(pb::QueueWatchRequest::decode(&*request).unwrap().tickets[0].ticket_id, "ticket");
    assert_eq!(restored.watch_message(watch_id, &message(status(pb::TicketState::Matched)), 8), 0);
    assert_eq!(restored.state(), FT_QUEUEING_CONNECTING);
    for failures in 1..=5 {
        let (kinds, _) = restored.outcomes();
        assert_eq!(kinds.last(), Some(&FT_QUEUE_OUTCOME_CONNECT), "{failures}");
        assert_eq!(c!(ft_queueing_connect_failed(restored.0, failures * 1_000_000)), 0);
        assert_eq!(c!(ft_queueing_handle_timeout(restored.0, (failures + 1) * 1_000_000)), 0);
    }
    let (id, path, _) = restored.poll_call().unwrap();
    assert_eq!(path, "/fireteam.v1.QueueService/Leave");
    assert_eq!(restored.answer(id, 0, b"", 9_000_000), 0);
    assert_eq!(restored.outcomes().1.unwrap().0.end_reason, FT_QUEUE_END_COULD_NOT_CONNECT);

    for end in 0..saved.len() {
        assert_eq!(restored_queue(&saved[..end]).err(), Some(FT_ERROR_MALFORMED), "{end}");
    }
    assert_eq!(restored_queue(&[b"FTQ\x02", &saved[4..]].concat()).err(), Some(FT_ERROR_MALFORMED));
    let debug = format!("{:?}", c!(&*restored.0));
    assert!(debug.contains("ticket") && !debug.contains("secret token"), "{debug}");
    assert!(!debug.contains(&format!("{:?}", b"secret token")), "{debug}");
}

/// A cancel leaves the ticket, and takes back a watch that was not fetched.
#[test]
fn queueing_cancel_leaves_the_ticket() {
    let queue = waiting();
    assert_eq!(queue.watch_end(1, 14, 1_000_000), 0);
    let at_us = queue.timeout_us().unwrap();
    assert_eq!(c!(ft_queueing_handle_timeout(queue.0, at_us)), 0);
    let mut watch = FtCall { id: 0, path: null(), timeout_ms: 0 };
    assert!(c!(ft_queueing_poll_watch(queue.0, &mut watch, null_mut(), 0)) > 0, "too small a buffer");
    assert_eq!(queue.watch_message(2, b"", at_us), FT_ERROR_UNKNOWN_CALL, "not fetched yet");
    assert_eq!(c!(ft_queueing_cancel(queue.0, at_us)), 0);
    assert_eq!(queue.poll_watch().unwrap_err(), FT_NONE);
    let (id, path, request) = queue.poll_call().unwrap();
    assert_eq!(path, "/fireteam.v1.QueueService/Leave");
    assert_eq!(pb::QueueLeaveRequest::decode(&*request).unwrap().ticket_token, b"secret token");
    assert_eq!(queue.answer(id, 0, b"", at_us), 0);
    assert_eq!(queue.outcomes().1.unwrap().0.end_reason, FT_QUEUE_END_CANCELLED);
}

/// A refused enter ends the loop with its reason.
#[test]
fn queueing_ends_by_a_refusal() {
    let queue = new_queue(&enter_request()).unwrap();
    assert_eq!(c!(ft_queueing_start(queue.0, 0)), 0);
    let (id, ..) = queue.poll_call().unwrap();
    let mut refusal = answer(id, 7, b"");
    refusal.reason = c"QUEUE_COOLDOWN".as_ptr();
    assert_eq!(c!(ft_queueing_handle_answer(queue.0, &refusal, 0)), 0);
    let ended = queue.outcomes().1.unwrap().0;
    assert_eq!((ended.end_reason, ended.status), (FT_QUEUE_END_FAILED, 7));
    assert_eq!(text(&ended.reason), "QUEUE_COOLDOWN");
}

#[test]
fn queueing_misuse_is_refused() {
    let request = enter_request();
    let mut made = null_mut();
    let random = [5_u8; 32];
    assert_eq!(c!(ft_queueing_new(null(), 4, random.as_ptr(), 32, &mut made)), FT_ERROR_NULL);
    assert_eq!(c!(ft_queueing_new(request.as_ptr(), request.len(), null(), 32, &mut made)), FT_ERROR_NULL);
    assert_eq!(c!(ft_queueing_new(request.as_ptr(), request.len(), random.as_ptr(), 31, &mut made)), FT_ERROR_LENGTH);
    assert_eq!(c!(ft_queueing_new(request.as_ptr(), request.len(), [0; 32].as_ptr(), 32, &mut made)), FT_ERROR_VALUE);
    assert_eq!(c!(ft_queueing_new(request.as_ptr(), request.len(), random.as_ptr(), 32, null_mut())), FT_ERROR_NULL);
    assert_eq!(c!(ft_queueing_new(request.as_ptr(), usize::MAX, random.as_ptr(), 32, &mut made)), FT_ERROR_LENGTH);
    assert!(made.is_null());
    assert_eq!(new_queue(b"\xff").err(), Some(FT_ERROR_MALFORMED));
    assert_eq!(new_queue(b"").err(), Some(FT_ERROR_VALUE), "no player");
    assert_eq!(new_queue(&request[..request.len() - 2]).err(), Some(FT_ERROR_VALUE), "no set");
    assert_eq!(c!(ft_queueing_free(null_mut())), 0);

    let queue = waiting();
    let odd = queue.0.wrapping_byte_add(1);
    for (pointer, error) in [(null_mut(), FT_ERROR_NULL), (odd, FT_ERROR_ALIGNMENT)] {
        let mut at_us = 0;
        assert_eq!(c!(ft_queueing_start(pointer, 0)), error);
        assert_eq!(c!(ft_queueing_cancel(pointer, 0)), error);
        assert_eq!(c!(ft_queueing_state(pointer)), error);
        assert_eq!(c!(ft_queueing_connected(pointer, 0)), error);
        assert_eq!(c!(ft_queueing_connect_failed(pointer, 0)), error);
        assert_eq!(c!(ft_queueing_handle_timeout(pointer, 0)), error);
        assert_eq!(c!(ft_queueing_poll_timeout(pointer, &mut at_us)), error);
        assert_eq!(c!(ft_queueing_save(pointer, null_mut(), 0)), error);
        assert_eq!(c!(ft_queueing_credential(pointer, 0, null_mut(), 0)), error);
        assert_eq!(c!(ft_queueing_connect_data(pointer, null_mut(), 0)), error);
        assert_eq!(c!(ft_queueing_respond(pointer, c"match".as_ptr(), 1, 0)), error);
        assert_eq!(c!(ft_queueing_handle_answer(pointer, &answer(0, 0, b""), 0)), error);
    }
    let ranks = [FtTeamRank { team: 0, rank: 0 }];
    assert_eq!(c!(ft_queueing_report(queue.0, null(), 1, 0)), FT_ERROR_NULL);
    assert_eq!(c!(ft_queueing_report(queue.0, ranks.as_ptr(), 0, 0)), FT_ERROR_LENGTH);
    assert_eq!(c!(ft_queueing_report(queue.0, ranks.as_ptr(), 129, 0)), FT_ERROR_LENGTH);
    assert_eq!(c!(ft_queueing_report(queue.0, ranks.as_ptr(), 1, 0)), FT_ERROR_VALUE, "ranks start with 1");
    assert_eq!(c!(ft_queueing_report(queue.0, ranks.as_ptr().wrapping_byte_add(1), 1, 0)), FT_ERROR_ALIGNMENT);
    assert_eq!(c!(ft_queueing_set_latency_token(queue.0, random.as_ptr(), 1_025, 0)), FT_ERROR_LENGTH);
    assert_eq!(queue.respond("match", 2, 0), FT_ERROR_VALUE);
    assert_eq!((queue.respond("", 1, 0), queue.respond("a match", 1, 0)), (FT_ERROR_VALUE, FT_ERROR_VALUE));
    assert_eq!(queue.respond(&"m".repeat(100), 1, 0), FT_ERROR_LENGTH);
    assert_eq!((queue.watch_message(0, b"", 0), queue.watch_message(2, b"", 0)), (FT_ERROR_UNKNOWN_CALL, -7));
    assert_eq!((queue.watch_end(1, 17, 0), queue.watch_end(1, -1, 0)), (FT_ERROR_VALUE, FT_ERROR_VALUE));
    assert_eq!(queue.answer(99, 0, b"", 0), FT_ERROR_UNKNOWN_CALL);
    assert_eq!(queue.state(), FT_QUEUEING_WATCHING, "misuse changes nothing");

    // A short buffer loses nothing.
    let mut outcome = std::mem::MaybeUninit::uninit();
    assert_eq!(queue.watch_message(1, &message(status(pb::TicketState::Proposed)), 0), 0);
    let needed = c!(ft_queueing_poll_outcome(queue.0, outcome.as_mut_ptr(), null_mut(), 0));
    assert!(needed > 10);
    assert_eq!(c!(ft_queueing_poll_outcome(queue.0, outcome.as_mut_ptr(), null_mut(), 9_999)), FT_ERROR_NULL);
    assert_eq!(queue.poll_outcome().unwrap().1.len(), usize::try_from(needed).unwrap());
    assert!(c!(ft_queueing_save(queue.0, null_mut(), 0)) > 10, "the needed capacity");
}
