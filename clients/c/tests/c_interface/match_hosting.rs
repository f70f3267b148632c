//! Host of matches: heartbeats, matches, ends and reports, as a C program drives it.

use std::ffi::CString;
use std::ptr::{null, null_mut};

use fireteam_c::library_exports::ft_result_text;
use fireteam_c::match_host_exports::*;
use fireteam_c::queue_types::*;
use fireteam_c::status::*;
use fireteam_client::pb;
use prost::Message;

use crate::functions::{answer, c, text};
use crate::queue_functions::{Matches, new_matches};

const HEARTBEAT: &str = "/fireteam.v1.QueueService/HostHeartbeat";

fn beat(state: pb::HostedMatchState, ids: &[&str]) -> Vec<u8> {
    let hosted = pb::HostedMatch { match_id: "match".into(), state: state.into(), ..Default::default() };
    let is_named = state != pb::HostedMatchState::Unspecified;
    pb::QueueHostHeartbeatResponse {
        matches: is_named.then_some(hosted).into_iter().collect(),
        hosted_match_ids: ids.iter().map(|&id| id.to_owned()).collect(),
        next_beat_in_ms: 5_000,
    }
    .encode_to_vec()
}

/// Host of a match that is played, at 1 s.
fn playing() -> Matches {
    let host = new_matches(b"secret token").unwrap();
    assert_eq!(c!(ft_match_host_start(host.0, 1_000_000)), 0);
    let (id, path, request) = host.poll_call().unwrap();
    let request = pb::QueueHostHeartbeatRequest::decode(&*request).unwrap();
    assert_eq!((path.as_str(), request.advertisement_token.as_slice()), (HEARTBEAT, b"secret token".as_slice()));
    assert_eq!(host.answer(id, 0, &beat(pb::HostedMatchState::Unspecified, &["match"]), 1_000_000), 0);
    let (id, path, request) = host.poll_call().unwrap();
    let request = pb::QueueHostHeartbeatRequest::decode(&*request).unwrap();
    assert_eq!((path.as_str(), request.matches[0].match_id.as_str()), (HEARTBEAT, "match"));
    assert_eq!(host.answer(id, 0, &beat(pb::HostedMatchState::Playing, &["match"]), 1_000_000), 0);
    let (outcome, data) = host.poll_outcome().unwrap();
    assert_eq!((outcome.kind, outcome.match_state), (FT_MATCH_OUTCOME_MATCH, FT_MATCH_PLAYING));
    assert_eq!(text(&outcome.match_id), pb::HostedMatch::decode(&*data).unwrap().match_id);
    host
}

fn report(host: &Matches, match_id: &str, ranks: &[FtTeamRank], now_us: u64) -> i32 {
    let match_id = CString::new(match_id).unwrap();
    c!(ft_match_host_report(host.0, match_id.as_ptr(), ranks.as_ptr(), ranks.len(), now_us))
}

/// A full list of matches is an outcome, once: others are not confirmed.
#[test]
fn match_host_tells_that_the_list_of_matches_is_full() {
    let host = playing();
    let ids: Vec<String> = (0..256).map(|number| format!("match-{number}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    assert_eq!(ids.len(), usize::try_from(FT_HOSTED_MATCHES_MAX).unwrap());
    let mut kinds = Vec::new();
    for listed in [&ids[..255], &ids[..], &ids[..]] {
        let now_us = host.timeout_us().unwrap();
        assert_eq!(c!(ft_match_host_handle_timeout(host.0, now_us)), 0);
        while let Ok((id, ..)) = host.poll_call() {
            assert_eq!(host.answer(id, 0, &beat(pb::HostedMatchState::Playing, listed), now_us), 0);
        }
        kinds
            .push(std::iter::from_fn(|| host.poll_outcome().ok()).map(|(outcome, _)| outcome.kind).collect::<Vec<_>>());
    }
    assert_eq!(kinds, [vec![], vec![FT_MATCH_OUTCOME_LIST_FULL], vec![]]);
}

/// Matches are confirmed, kept alive through an outage, reported and ended.
#[test]
fn match_host_keeps_matches_alive_and_reports() {
    let host = playing();
    let mut now_us = 1_000_000;
    for _ in 0..20 {
        now_us = host.timeout_us().unwrap();
        assert_eq!(c!(ft_match_host_handle_timeout(host.0, now_us)), 0);
        let (id, _, request) = host.poll_call().unwrap();
        assert_eq!(pb::QueueHostHeartbeatRequest::decode(&*request).unwrap().matches.len(), 1);
        assert_eq!(host.answer(id, 14, b"", now_us), 0);
    }
    assert!(now_us < 30_000_000, "about one a second: {now_us}");
    let ranks = [FtTeamRank { team: 0, rank: 1 }, FtTeamRank { team: 1, rank: 2 }];
    assert_eq!(report(&host, "match", &ranks, now_us), 0);
    let (id, path, request) = host.poll_call().unwrap();
    let request = pb::ReportResultRequest::decode(&*request).unwrap();
    assert_eq!(path, "/fireteam.v1.RatingService/ReportResult");
    assert_eq!((request.advertisement_token.as_slice(), request.team_ranks.len()), (b"secret token".as_slice(), 2));
    let response = pb::ReportResultResponse { rated: true, ..Default::default() };
    assert_eq!(host.answer(id, 0, &response.encode_to_vec(), now_us), 0);
    let (reported, data) = host.poll_outcome().unwrap();
    assert_eq!((reported.kind, reported.is_rated), (FT_MATCH_OUTCOME_REPORTED, 1));
    assert_eq!(pb::ReportResultResponse::decode(&*data).unwrap(), response);

    assert_eq!(c!(ft_match_host_end_match(host.0, c"match".as_ptr(), 1, now_us)), 0);
    let (id, path, request) = host.poll_call().unwrap();
    assert_eq!(path, "/fireteam.v1.QueueService/EndMatch");
    assert!(pb::QueueEndMatchRequest::decode(&*request).unwrap().failed);
    let ended = pb::QueueEndMatchResponse { end_reason: pb::MatchEndReason::ServerFailed.into() };
    assert_eq!(host.answer(id, 0, &ended.encode_to_vec(), now_us), 0);
    let ended = host.poll_outcome().unwrap().0;
    assert_eq!((ended.kind, ended.match_end_reason), (FT_MATCH_OUTCOME_MATCH_ENDED, 6));

    let full = pb::ReportResultRequest {
        match_id: "match".into(),
        player_ranks: vec![pb::PlayerRank { player_key: "ada".into(), rank: 1 }],
        ..Default::default()
    };
    let bytes = full.encode_to_vec();
    assert_eq!(c!(ft_match_host_report_result(host.0, bytes.as_ptr(), bytes.len(), now_us)), 0);
    let (id, ..) = host.poll_call().unwrap();
    let mut refusal = answer(id, 9, b"");
    refusal.reason = c"ALREADY_REPORTED".as_ptr();
    assert_eq!(c!(ft_match_host_handle_answer(host.0, &refusal, now_us)), 0);
    let refused = host.poll_outcome().unwrap().0;
    assert_eq!((refused.kind, refused.status), (FT_MATCH_OUTCOME_REFUSED, 9));
    assert_eq!(text(&refused.reason), "ALREADY_REPORTED");
}

/// News and a match that is given up are sent at once. A stop ends the host; a heartbeat that is refused for good does, too.
#[test]
fn match_host_gives_up_and_ends() {
    let host = playing();
    assert_eq!(c!(ft_match_host_matches_changed(host.0, 1_500_000)), 0);
    let (id, ..) = host.poll_call().unwrap();
    assert_eq!(c!(ft_match_host_give_up(host.0, c"match".as_ptr(), 1_500_000)), 0);
    assert_eq!(host.answer(id, 0, &beat(pb::HostedMatchState::Playing, &["match"]), 1_500_000), 0);
    let (id, _, request) = host.poll_call().unwrap();
    assert!(pb::QueueHostHeartbeatRequest::decode(&*request).unwrap().matches[0].gives_up);
    assert_eq!(host.answer(id, 0, &beat(pb::HostedMatchState::NotHosted, &[]), 1_500_000), 0);
    assert_eq!(host.poll_outcome().unwrap().0.match_state, FT_MATCH_NOT_HOSTED);
    assert_eq!(c!(ft_match_host_stop(host.0, 1_500_000)), 0);
    let ended = host.poll_outcome().unwrap().0;
    assert_eq!((ended.kind, ended.end_reason), (FT_MATCH_OUTCOME_ENDED, FT_MATCH_HOST_END_STOPPED));
    assert_eq!((c!(ft_match_host_state(host.0)), host.timeout_us()), (FT_MATCH_HOST_ENDED, Err(FT_NONE)));

    let host = new_matches(b"t").unwrap();
    assert_eq!(c!(ft_match_host_start(host.0, 0)), 0);
    let (id, ..) = host.poll_call().unwrap();
    assert_eq!(host.answer(id, 7, b"", 0), 0);
    let (ended, message) = host.poll_outcome().unwrap();
    assert_eq!((ended.end_reason, ended.status), (FT_MATCH_HOST_END_FAILED, 7));
    assert!(!message.is_empty());
}

#[test]
fn match_host_misuse_is_refused() {
    assert_eq!(new_matches(b"").err(), Some(FT_ERROR_LENGTH));
    assert_eq!(new_matches(&[1; 1_025]).err(), Some(FT_ERROR_LENGTH));
    let (random, mut made) = ([5_u8; 32], null_mut());
    assert_eq!(c!(ft_match_host_new(null(), 3, random.as_ptr(), 32, &mut made)), FT_ERROR_NULL);
    assert_eq!(c!(ft_match_host_new(random.as_ptr(), 3, [0; 32].as_ptr(), 32, &mut made)), FT_ERROR_VALUE);
    assert_eq!(c!(ft_match_host_new(random.as_ptr(), 3, random.as_ptr(), 32, null_mut())), FT_ERROR_NULL);
    assert_eq!(c!(ft_match_host_free(null_mut())), 0);

    let host = playing();
    let odd = host.0.wrapping_byte_add(1);
    for (pointer, error) in [(null_mut(), FT_ERROR_NULL), (odd, FT_ERROR_ALIGNMENT)] {
        let mut at_us = 0;
        assert_eq!(c!(ft_match_host_start(pointer, 0)), error);
        assert_eq!(c!(ft_match_host_stop(pointer, 0)), error);
        assert_eq!(c!(ft_match_host_state(pointer)), error);
        assert_eq!(c!(ft_match_host_handle_timeout(pointer, 0)), error);
        assert_eq!(c!(ft_match_host_matches_changed(pointer, 0)), error);
        assert_eq!(c!(ft_match_host_poll_timeout(pointer, &mut at_us)), error);
        assert_eq!(c!(ft_match_host_give_up(pointer, c"match".as_ptr(), 0)), error);
        assert_eq!(c!(ft_match_host_handle_answer(pointer, &answer(0, 0, b""), 0)), error);
    }
    let good = [FtTeamRank { team: 0, rank: 1 }];
    assert_eq!(report(&host, "match", &[], 0), FT_ERROR_LENGTH);
    assert_eq!(report(&host, "match", &[FtTeamRank { team: 0, rank: 0 }], 0), FT_ERROR_VALUE);
    assert_eq!(report(&host, "", &good, 0), FT_ERROR_VALUE);
    assert_eq!(report(&host, &"m".repeat(64), &good, 0), FT_ERROR_VALUE);
    assert_eq!(report(&host, &"m".repeat(65), &good, 0), FT_ERROR_LENGTH);
    assert_eq!(c!(ft_match_host_report_result(host.0, b"\xff".as_ptr(), 1, 0)), FT_ERROR_MALFORMED);
    assert_eq!(c!(ft_match_host_report_result(host.0, null(), 0, 0)), FT_ERROR_VALUE);
    assert_eq!(c!(ft_match_host_end_match(host.0, c"match".as_ptr(), 2, 0)), FT_ERROR_VALUE);
    assert_eq!(c!(ft_match_host_end_match(host.0, null(), 0, 0)), FT_ERROR_NULL);
    assert_eq!(host.poll_call().unwrap_err(), FT_NONE, "misuse changes nothing");
    assert_eq!(host.poll_outcome().err(), Some(FT_NONE));
    let debug = format!("{:?}", c!(&*host.0));
    assert!(debug.contains("match") && !debug.contains("secret token"), "{debug}");
}

/// Each result code has a text of its own.
#[test]
fn result_codes_have_texts() {
    let of = |code| c!(std::ffi::CStr::from_ptr(ft_result_text(code))).to_str().unwrap();
    let known: Vec<&str> = (-100..0).map(of).filter(|text| *text != of(-99)).collect();
    let distinct: std::collections::BTreeSet<_> = known.iter().collect();
    assert_eq!((known.len(), distinct.len()), (23, 23));
    assert_eq!((of(0), of(i32::MAX), of(i32::MIN)), ("success", "success", "unknown result code"));
}
