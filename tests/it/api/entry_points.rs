//! The three entry points of a complete server give the same answers; session compositions and configurations arrive
//! unchanged.

use fireteam_client::{Client, Code, pb};
use prost::Message;

use crate::support::test_server::{TestServer, advertise_request, party_session};

fn envelope(kind: pb::MatchmakingCoreRequestType) -> pb::MatchmakingCoreRequest {
    pb::MatchmakingCoreRequest {
        request_type: Some(kind.into()),
        request_nonce: Some(u64::MAX),
        managed_session_index: Some(-1),
        ..Default::default()
    }
}

/// Sends the envelope by Core and by Connect. The responses differ only in the nonce, which the connection chooses.
async fn send_by_core_and_connect(
    client: &Client,
    core: pb::MatchmakingCoreRequest,
) -> [pb::MatchmakingCoreResponse; 2] {
    let called = client.send_core_request(core.clone()).await.expect("core");
    assert_eq!((called.request_nonce, called.managed_session_index), (Some(u64::MAX), Some(-1)));
    assert_eq!(called.request_type, core.request_type);
    let (connection, _events) = client.open_stream().await.expect("open");
    let streamed = connection.send(core).await.expect("send").wait().await.expect("a response");
    assert_eq!((streamed.request_nonce, streamed.managed_session_index), (Some(1), Some(-1)));
    [
        pb::MatchmakingCoreResponse { request_nonce: None, ..called },
        pb::MatchmakingCoreResponse { request_nonce: None, ..streamed },
    ]
}

/// S1-9, S1-10, S1-16: the same request gets the same bytes from each entry point, except for the nonce. Tokens are
/// equal too, because time stands still.
#[tokio::test]
async fn entry_points_return_the_same_bytes() {
    use pb::MatchmakingCoreRequestType as Type;
    let server = TestServer::start().await;
    let client = server.client_from("71.20.133.126").await;
    for (name, skill) in [("one", 10.0), ("two", -20.0), ("far", 500.0)] {
        client.advertise(advertise_request(&[(name, skill)], 3)).await.expect("advertise");
    }
    let search = pb::MatchmakingSearchRequest {
        session_composition: Some(pb::SessionCompositionData {
            locality_info: Some(pb::LocalityData {
                locality_x: Some(4_000.0),
                locality_y: Some(0.0),
                locality_z: Some(0.0),
                ..Default::default()
            }),
            ..party_session(&[("guest", 0.0)])
        }),
        matchmaking_set_id: Some(1),
        ..Default::default()
    };
    let typed = client.search(search.clone()).await.expect("search");
    assert_eq!(
        (typed.candidates.len(), &*typed.ignored_fields),
        (2, ["session_composition.locality_info".into()].as_slice())
    );
    for answer in send_by_core_and_connect(
        &client,
        pb::MatchmakingCoreRequest { search_request: Some(search), ..envelope(Type::Search) },
    )
    .await
    {
        assert_eq!(answer.search_response.expect("a response").encode_to_vec(), typed.encode_to_vec());
    }

    let update = pb::MatchmakingUpdateAdvertisementRequest {
        idempotency_key: "0123456789abcdef".into(),
        ..advertise_request(&[("three", 0.0)], 3)
    };
    let created = client.update_advertisement(update.clone()).await.expect("create");
    let typed = client.update_advertisement(update.clone()).await.expect("retry");
    assert_eq!(pb::MatchmakingUpdateAdvertisementResponse { created: true, ..typed.clone() }, created);
    let core = pb::MatchmakingCoreRequest {
        update_advertisement_request: Some(update),
        ..envelope(Type::UpdateAdvertisement)
    };
    for answer in send_by_core_and_connect(&client, core).await {
        assert_eq!(answer.update_advertisement_response.expect("a response").encode_to_vec(), typed.encode_to_vec());
    }

    let get = pb::MatchmakingGetConfigurationRequest { matchmaking_set_id: Some(1), ..Default::default() };
    let typed = client.get_configuration(get).await.expect("get");
    let core = pb::MatchmakingCoreRequest { get_configuration_request: Some(get), ..envelope(Type::GetConfiguration) };
    for answer in send_by_core_and_connect(&client, core).await {
        assert_eq!(answer.get_configuration_response.expect("a response").encode_to_vec(), typed.encode_to_vec());
    }

    let delete = pb::MatchmakingDeleteAdvertisementRequest {
        advertisement_id: created.advertisement_id,
        advertisement_token: created.advertisement_token,
    };
    client.delete_advertisement(delete.clone()).await.expect("delete");
    let core = pb::MatchmakingCoreRequest {
        delete_advertisement_request: Some(delete),
        ..envelope(Type::DeleteAdvertisement)
    };
    for answer in send_by_core_and_connect(&client, core).await {
        assert!(answer.delete_advertisement_response.is_some(), "deleting again succeeds");
    }
}

/// S1-48, B-13: the ruleset is returned byte for byte as written, but without comments, with the hash that searches
/// return. A client that has this hash gets `not_modified` only.
#[tokio::test]
async fn configuration_is_the_ruleset_file_without_comments() {
    let server = TestServer::start().await;
    let client = server.client().await;
    let get =
        |hash| pb::MatchmakingGetConfigurationRequest { matchmaking_set_id: Some(1), service_configuration_hash: hash };
    let configuration = client.get_configuration(get(None)).await.expect("get");
    let file = include_str!("../../../rulesets/destiny_control_6v6.xml");
    assert!(
        configuration.ruleset_xml == fireteam::rules::xml::delete_comments_and_their_lines(file),
        "byte for byte, without comments"
    );
    assert!(file.contains("<!--") && !configuration.ruleset_xml.contains("<!--"));
    assert!(!configuration.not_modified);
    let found = client.new_search(1, party_session(&[("guest", 0.0)])).search().await.expect("search");
    assert_eq!(configuration.service_configuration_hash, found.service_configuration_hash);
    let known = client.get_configuration(get(Some(configuration.service_configuration_hash))).await.expect("get");
    assert!(known.not_modified && known.ruleset_xml.is_empty());
    assert_eq!(known.service_configuration_hash, configuration.service_configuration_hash);
    let old = client.get_configuration(get(Some(1))).await.expect("configuration for an old hash");
    assert_eq!(old, configuration);
    let unknown_set = pb::MatchmakingGetConfigurationRequest { matchmaking_set_id: Some(77), ..get(None) };
    assert_eq!(client.get_configuration(unknown_set).await.expect_err("unknown set").code(), Some(Code::NotFound));
}

/// S1-13, S1-43, B-14: besides the printed fields, a composition has a big-party count, players with skill, and named
/// attributes. The casual set refuses two big parties, matches by common modes, and rejects an empty composition.
#[tokio::test]
async fn session_composition_passes_players_and_attributes_to_the_filters() {
    let server = TestServer::start().await;
    let client = server.client().await;
    let string_list = |values: &[&str]| {
        let values = values.iter().map(|&value| value.to_owned()).collect();
        pb::AttributeValue { value: Some(pb::attribute_value::Value::StringList(pb::StringList { values })) }
    };
    let mut fits = String::new();
    let composition = |name: &str, big: i32, modes: &[&str]| pb::SessionCompositionData {
        big_party_count: Some(big),
        attributes: [("modes".to_owned(), string_list(modes))].into_iter().collect(),
        max_allowed_join_reservation_count: Some(4),
        ..party_session(&[(name, 0.0)])
    };
    for (name, big, modes) in
        [("fits", 1, ["clash", "rift"]), ("crowd", 2, ["clash", "rift"]), ("elsewhere", 0, ["rift", "mayhem"])]
    {
        let request = pb::MatchmakingUpdateAdvertisementRequest {
            matchmaking_set_id: Some(2),
            session_composition: Some(composition(name, big, &modes)),
            ..Default::default()
        };
        let advertised = client.advertise(request).await.expect("advertise");
        if name == "fits" {
            fits = advertised.id().to_owned();
        }
    }
    let found = client.new_search(2, composition("guest", 2, &["clash", "control"])).search().await.expect("search");
    let shown: Vec<&str> = found.candidates.iter().map(|candidate| &*candidate.advertisement_id).collect();
    assert_eq!(shown, [fits]);
    for (rule, count) in [("big_parties", 1), ("modes", 1)] {
        let row = found.refusals.iter().find(|count| count.rule == rule).unwrap_or_else(|| panic!("{rule}: {found:?}"));
        assert_eq!(row.count, count, "{rule}");
    }
    let error = client.new_search(2, Default::default()).search().await.expect_err("no players");
    assert_eq!(error.fields()[0].field, "session_composition.party_size_composition");
    let mut invalid = composition("guest", 0, &["clash"]);
    invalid.attributes.insert(
        "modes".into(),
        pb::AttributeValue { value: Some(pb::attribute_value::Value::StringValue("clash".into())) },
    );
    invalid.attributes.insert("mood".into(), string_list(&["good"]));
    let error = client.new_search(2, invalid).search().await.expect_err("one attribute of another type, one unknown");
    let paths: Vec<&str> = error.fields().iter().map(|violation| &*violation.field).collect();
    assert_eq!(paths, ["session_composition.attributes[\"modes\"]", "session_composition.attributes[\"mood\"]"]);
}

/// S1-28: a latency report lists the ignored fields too.
#[tokio::test]
async fn latency_report_lists_ignored_fields() {
    let server = TestServer::start().await;
    let client = server.client().await;
    let advertised = client.advertise(advertise_request(&[("host", 0.0)], 1)).await.expect("advertise");
    let mut searching = client.new_search(
        1,
        pb::SessionCompositionData {
            locality_info: Some(pb::LocalityData {
                locality_x: Some(4_000.0),
                locality_y: Some(0.0),
                locality_z: Some(0.0),
                ..Default::default()
            }),
            ..party_session(&[("guest", 0.0)])
        },
    );
    searching.search().await.expect("search");
    let measured = [(advertised.id().to_owned(), Some(-0.0))];
    let answer = searching.report_latency(pb::LatencyPhase::Quick, measured).await.expect("report");
    assert_eq!(answer.ignored_fields, ["session_composition.locality_info"]);
    assert_eq!(
        answer.candidates[0].round_trip_ms.map(f32::to_bits),
        Some(0.0_f32.to_bits()),
        "negative zero becomes zero"
    );
    for wrong in [f32::NAN, -1.0, f32::INFINITY] {
        let measured = [(advertised.id().to_owned(), Some(wrong))];
        let error = searching.report_latency(pb::LatencyPhase::Quick, measured).await.expect_err("invalid round trip");
        assert_eq!(error.fields()[0].field, "measurements[0].round_trip_ms");
    }
}
