//! Encoding of the core request on the wire, byte for byte.

use prost::Message;

use fireteam::api::pb;

use crate::support::generated_client;

/// Vectors of the core request's field table: name, request, bytes in hexadecimal.
fn vectors() -> Vec<(&'static str, generated_client::MatchmakingCoreRequest, &'static str)> {
    let empty = generated_client::MatchmakingCoreRequest::default;
    let all_fields = generated_client::MatchmakingCoreRequest {
        platform_type: Some(1),
        request_type: Some(2),
        request_nonce: Some(123_456_789),
        matchmaking_type: Some(1),
        matchmaking_set_id: Some(42),
        managed_session_index: Some(-1),
        ..empty()
    };
    vec![
        ("six scalars", all_fields, "0801100218959aef3a2001282a30ffffffffffffffffff01"),
        (
            "the largest nonce",
            generated_client::MatchmakingCoreRequest { request_nonce: Some(u64::MAX), ..empty() },
            "18ffffffffffffffffff01",
        ),
        (
            "an explicit zero",
            generated_client::MatchmakingCoreRequest { managed_session_index: Some(0), ..empty() },
            "3000",
        ),
        ("empty", empty(), ""),
    ]
}

/// S1-9: tags 1 to 6, varints, explicit presence. Both generated types agree with the printed bytes.
#[test]
fn core_request_encodes_to_the_printed_bytes() {
    for (name, request, expected) in vectors() {
        let bytes = request.encode_to_vec();
        assert_eq!(hex(&bytes), expected, "{name}");
        assert_eq!(generated_client::MatchmakingCoreRequest::decode(&*bytes).unwrap(), request, "{name}");
        assert_eq!(hex(&pb::CoreRequest::decode(&*bytes).unwrap().encode_to_vec()), expected, "{name}");
    }
}

/// S1-9: "absent" and "zero" differ for every scalar of the request.
#[test]
fn core_request_distinguishes_absent_from_zero() {
    let zeros: [&[u8]; 6] = [&[0x08, 0], &[0x10, 0], &[0x18, 0], &[0x20, 0], &[0x28, 0], &[0x30, 0]];
    for bytes in zeros {
        let request = generated_client::MatchmakingCoreRequest::decode(bytes).unwrap();
        assert_ne!(request, generated_client::MatchmakingCoreRequest::default(), "{bytes:?}");
        assert_eq!(request.encode_to_vec(), bytes);
    }
}

/// S1-9, S1-10: sub-requests have tags 7 to 10; the search's three fields have tags 1 to 3.
#[test]
fn core_request_sub_requests_use_the_inferred_tags() {
    let first_byte = |request: generated_client::MatchmakingCoreRequest| request.encode_to_vec()[0] >> 3;
    let empty = generated_client::MatchmakingCoreRequest::default;
    assert_eq!(
        first_byte(generated_client::MatchmakingCoreRequest { search_request: Some(Default::default()), ..empty() }),
        7
    );
    let update = Some(generated_client::MatchmakingUpdateAdvertisementRequest::default());
    assert_eq!(
        first_byte(generated_client::MatchmakingCoreRequest { update_advertisement_request: update, ..empty() }),
        8
    );
    let delete = Some(generated_client::MatchmakingDeleteAdvertisementRequest::default());
    assert_eq!(
        first_byte(generated_client::MatchmakingCoreRequest { delete_advertisement_request: delete, ..empty() }),
        9
    );
    let configuration = Some(generated_client::MatchmakingGetConfigurationRequest::default());
    assert_eq!(
        first_byte(generated_client::MatchmakingCoreRequest { get_configuration_request: configuration, ..empty() }),
        10
    );
    let search = generated_client::MatchmakingSearchRequest {
        session_composition: Some(Default::default()),
        service_configuration_hash: Some(0),
        search_config_overrides: Some(Default::default()),
        ..Default::default()
    };
    assert_eq!(hex(&search.encode_to_vec()), "0a0010001a00");
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
