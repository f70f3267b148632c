//! Search tokens, ruleset hashes of searches, and search overrides.

use std::collections::HashMap;

use fireteam_client::{Client, Code, Error, pb};

use crate::support::ruleset_dir::RulesetDirectory;
use crate::support::test_server::{TestServer, advertise_request, party_session};

fn search_request(session: pb::SessionCompositionData, search_token: Vec<u8>) -> pb::MatchmakingSearchRequest {
    pb::MatchmakingSearchRequest {
        session_composition: Some(session),
        matchmaking_set_id: Some(1),
        search_token,
        ..Default::default()
    }
}

fn guest_session() -> pb::SessionCompositionData {
    party_session(&[("guest", 0.0)])
}

/// The error names one field: `path`.
fn assert_field_error(error: &Error, path: &str) {
    let paths: Vec<&str> = error.fields().iter().map(|violation| &*violation.field).collect();
    assert_eq!((error.code(), &*paths), (Some(Code::InvalidArgument), [path].as_slice()), "{error}");
}

/// S1-32: the token carries the start of the search, also over a restart, because the server keeps no state of a search
/// (S1-41). It expires after 60 s without use; each use renews it.
#[tokio::test]
async fn search_token_keeps_the_start_until_it_expires() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let mut token = Vec::new();
    for (turn_ms, running_ms) in [(0, 0), (60_000, 60_000), (59_999, 119_999), (60_001, 0), (5, 5)] {
        server.clock.advance_ms(turn_ms);
        let answer = client.search(search_request(guest_session(), token)).await.expect("search");
        assert_eq!(answer.searching_for_ms, running_ms);
        token = answer.search_token;
    }
    let server = server.restart().await;
    client = server.client().await;
    server.clock.advance_ms(10);
    assert_eq!(client.search(search_request(guest_session(), token)).await.expect("search").searching_for_ms, 15);
}

/// A token is valid for its party, set and silo only. An invalid token is an error; it does not silently start a new
/// search.
#[tokio::test]
async fn search_token_is_bound_to_party_set_and_silo() {
    let server = TestServer::start().await;
    let client = server.client().await;
    let token = client.search(search_request(guest_session(), Vec::new())).await.expect("search").search_token;
    let good = search_request(guest_session(), token.clone());
    let mut flipped = token.clone();
    flipped[20] ^= 1;
    let invalid = [
        search_request(party_session(&[("other", 0.0)]), token.clone()),
        search_request(party_session(&[("guest", 0.0), ("friend", 0.0)]), token.clone()),
        search_request(pb::SessionCompositionData { silo_id: Some(7), ..guest_session() }, token.clone()),
        pb::MatchmakingSearchRequest { matchmaking_set_id: Some(2), ..good.clone() },
        search_request(guest_session(), flipped),
        search_request(guest_session(), vec![1; 40]),
    ];
    for request in invalid {
        assert_field_error(&client.search(request).await.expect_err("token of another search"), "search_token");
    }
    let other_skill = search_request(party_session(&[("guest", 900.0)]), token);
    client.search(other_skill).await.expect("the same party may change its skill");
    client.search(good).await.expect("the token is still valid");
}

/// S1-11, S1-37: an unknown hash gets an error with the current one; no hash means the current one.
#[tokio::test]
async fn unknown_ruleset_hash_error_names_the_current_hash() {
    let server = TestServer::start().await;
    let client = server.client().await;
    let current =
        client.search(search_request(guest_session(), Vec::new())).await.expect("search").service_configuration_hash;
    let with_hash = |hash| pb::MatchmakingSearchRequest {
        service_configuration_hash: Some(hash),
        ..search_request(guest_session(), Vec::new())
    };
    let answer = client.search(with_hash(current)).await.expect("search");
    assert_eq!(answer.service_configuration_hash, current);
    let update = pb::MatchmakingUpdateAdvertisementRequest {
        service_configuration_hash: Some(current ^ 1),
        ..advertise_request(&[("host", 0.0)], 1)
    };
    let errors = [
        client.search(with_hash(current ^ 1)).await.expect_err("unknown"),
        client.advertise(update).await.expect_err("unknown"),
    ];
    for error in errors {
        let status = error.as_server_error().expect("a status");
        assert_eq!((status.code, status.reason.as_deref()), (Code::FailedPrecondition, Some("STALE_CONFIGURATION")));
        assert_eq!(status.reason_metadata["current_hash"], current.to_string());
    }
    let unknown_set =
        pb::MatchmakingSearchRequest { matchmaking_set_id: Some(77), ..search_request(guest_session(), Vec::new()) };
    assert_eq!(client.search(unknown_set).await.expect_err("unknown set").code(), Some(Code::NotFound));
}

fn name_map(numbers: &[(&str, f64)]) -> HashMap<String, f64> {
    numbers.iter().map(|&(name, number)| (name.to_owned(), number)).collect()
}

async fn search_with_overrides(
    client: &Client,
    overrides: pb::MatchmakingSearchConfigOverrides,
) -> Result<pb::MatchmakingSearchResponse, Error> {
    let request = pb::MatchmakingSearchRequest {
        search_config_overrides: Some(overrides),
        ..search_request(guest_session(), Vec::new())
    };
    client.search(request).await
}

/// S1-12: overrides are refused, empty ones too, unless the server allows them.
#[tokio::test]
async fn search_overrides_are_refused_unless_allowed() {
    let server = TestServer::start().await;
    let error =
        search_with_overrides(&server.client().await, Default::default()).await.expect_err("overrides are not allowed");
    assert_eq!(error.code(), Some(Code::PermissionDenied));
    assert_eq!(error.as_server_error().expect("a status").reason.as_deref(), Some("OVERRIDES_FORBIDDEN"));
}

/// S1-12: allowed overrides change weights, limits, bounds and waiting time for one search only.
#[tokio::test]
async fn search_overrides_change_only_one_search() {
    let server = TestServer::start_with_config(|config| config.allow_search_overrides = true).await;
    let client = server.client().await;
    for (name, skill) in [("near", 100.0), ("far", 400.0)] {
        client.advertise(advertise_request(&[(name, skill)], 1)).await.expect("advertise");
    }
    let without_overrides = client.search(search_request(guest_session(), Vec::new())).await.expect("search");
    assert_eq!(without_overrides.candidates.len(), 1);
    let overrides = |limits: &[(&str, f64)], weights: &[(&str, f64)]| pb::MatchmakingSearchConfigOverrides {
        limits: name_map(limits),
        weights: name_map(weights),
        ..Default::default()
    };
    let wide = overrides(&[("skill_pvp_exponential", 400.0)], &[("skill", 2.0), ("latency", 0.0)]);
    let found = search_with_overrides(&client, wide.clone()).await.expect("search");
    let scores: Vec<f64> = found.candidates.iter().map(|candidate| candidate.score).collect();
    assert_eq!(scores, [0.1, 0.4], "skill weight 2, latency weight 0");
    assert_eq!(found.service_configuration_hash, without_overrides.service_configuration_hash);
    let narrow = overrides(&[("skill_pvp_exponential", 99.0)], &[]);
    assert!(search_with_overrides(&client, narrow).await.expect("search").candidates.is_empty());

    let one = pb::MatchmakingSearchConfigOverrides { max_results: Some(1), ..wide.clone() };
    assert_eq!(search_with_overrides(&client, one).await.expect("search").candidates.len(), 1);
    let one_row = pb::MatchmakingSearchConfigOverrides { max_evaluated: Some(1), ..wide };
    let found = search_with_overrides(&client, one_row).await.expect("search");
    assert_eq!((found.evaluated, found.truncated), (1, true));

    server.clock.advance_ms(30_000);
    let late = pb::MatchmakingSearchConfigOverrides { searching_for_ms: Some(30_000), ..Default::default() };
    let found = search_with_overrides(&client, late).await.expect("search");
    assert_eq!((found.candidates.len(), found.searching_for_ms), (2, 30_000), "the limit is 600 points on both sides");
    let after = client.search(search_request(guest_session(), found.search_token)).await.expect("search");
    assert_eq!((after.candidates.len(), after.searching_for_ms), (1, 0), "the token keeps the real start");

    let invalid = [
        (overrides(&[("skil", 1.0)], &[]), "search_config_overrides.limits[\"skil\"]"),
        (overrides(&[], &[("skil", 1.0)]), "search_config_overrides.weights[\"skil\"]"),
        (overrides(&[], &[("skill", -1.0)]), "search_config_overrides.weights[\"skill\"]"),
        (overrides(&[], &[("skill", f64::NAN)]), "search_config_overrides.weights[\"skill\"]"),
    ];
    for (overrides, path) in invalid {
        assert_field_error(&search_with_overrides(&client, overrides).await.expect_err(path), path);
    }
}

/// S1-46, B-36: the ruleset limits the number of candidates and of evaluated rows. `truncated` is set exactly if there
/// were more rows.
#[tokio::test]
async fn search_respects_max_results_and_max_evaluated() {
    let xml = r#"<Ruleset Name="limits" SetId="1">
      <Attributes><Attribute Name="skill" Type="number" Min="0" Max="100" Trust="client"/></Attributes>
      <SoftFilters><SoftFilter Attribute="skill" Weight="1"/></SoftFilters>
      <Limits MaxResults="2" MaxEvaluated="5"/>
    </Ruleset>"#;
    let server = RulesetDirectory::with_files(&[("limits.xml", xml)]).start_server().await;
    let client = server.client().await;
    let mut advertised = 0_u32;
    let steps = [(1, 1, 1, false), (2, 2, 2, false), (5, 5, 2, false), (6, 5, 2, true), (40, 5, 2, true)];
    for (there, evaluated, shown, truncated) in steps {
        while advertised < there {
            advertised += 1;
            let skill = f64::from(advertised * 37 % 100);
            client.advertise(advertise_request(&[(&format!("host {advertised}"), skill)], 1)).await.expect("advertise");
        }
        let found = client.search(search_request(guest_session(), Vec::new())).await.expect("search");
        let outcome = (found.evaluated, found.candidates.len(), found.truncated);
        assert_eq!(outcome, (evaluated, shown, truncated), "{there} rows");
        assert!(found.candidates.is_sorted_by(|one, other| one.score <= other.score));
    }
}
