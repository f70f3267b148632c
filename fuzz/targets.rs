//! Fuzz targets: one for each parser of external input. For any bytes a target must not panic or take long, and
//! accepted input must be accepted again after it is encoded.

use std::future::Future;
use std::net::IpAddr;
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Waker};

use fireteam::api::convert::RequestReader;
use fireteam::api::pb;
use fireteam::auth::authenticator::Authenticator;
use fireteam::auth::forwarded_for::client_address;
use fireteam::auth::jwt_signing_key::JwtSigningKey;
use fireteam::auth::token::{
    AdvertisementClaim, Claim, HmacTokenSigner, LatencyClaim, MeasuredSearchClaim, ReservationClaim, SearchClaim,
};
use fireteam::clock::SystemClock;
use fireteam::config::{Config, JwtSettings};
use fireteam::domain::attribute::ValueOrigin;
use fireteam::engine::command::Caller;
use fireteam::geo::{GeoIpLocator, LocatorSettings};
use fireteam::rules;
use fireteam::server::proxy_header;
use fireteam_probe::{
    ArrivalAndAnswerTime, BeaconCookieKey, BeaconResponder, Challenge, EchoReply, FleetKey, HostCookieKey,
    HostResponder, INVOLVED_BYTES_MAX, InvolvedReply, ProbeKey, Receipt, Verdict,
};
use ipnet::IpNet;
use prost::Message;

/// A fuzz target.
pub(crate) type Target = fn(&[u8]);

/// All targets, by the names of their corpora.
pub(crate) const TARGETS: [(&str, Target); 9] = [
    ("requests", requests),
    ("rulesets", rulesets),
    ("tokens", tokens),
    ("credentials", credentials),
    ("proxied", proxied),
    ("forwarded", forwarded),
    ("localities", localities),
    ("settings", settings),
    ("probes", probes),
];

/// Any request, from its bytes to domain types: the first byte selects the request and the origin of its values.
pub(crate) fn requests(bytes: &[u8]) {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let origin = if first < 128 { ValueOrigin::Client } else { ValueOrigin::GameServer };
    let caller = Caller { program_kind: origin, ..Caller::default() };
    let entry_point = RequestReader { field_prefix: "", envelope_set_id: None, envelope_nonce: Some(u64::from(first)) };
    match first % 8 {
        0 => drop(
            pb::SearchRequest::decode(rest)
                .map(|wire| entry_point.search_command(&caller, wire).map_err(check_rejection)),
        ),
        1 => drop(
            pb::UpdateAdvertisementRequest::decode(rest)
                .map(|wire| entry_point.update_command(&caller, wire).map_err(check_rejection)),
        ),
        2 => drop(
            pb::DeleteAdvertisementRequest::decode(rest)
                .map(|wire| entry_point.delete_command(wire).map_err(check_rejection)),
        ),
        3 => drop(
            pb::GetConfigurationRequest::decode(rest)
                .map(|wire| entry_point.configuration_query(wire).map_err(check_rejection)),
        ),
        4 => drop(
            pb::ReserveRequest::decode(rest)
                .map(|wire| entry_point.reserve_command(&caller, wire).map_err(check_rejection)),
        ),
        5 => drop(
            pb::ReleaseRequest::decode(rest).map(|wire| entry_point.release_command(wire).map_err(check_rejection)),
        ),
        6 => drop(
            pb::ReportLatencyRequest::decode(rest)
                .map(|wire| entry_point.report_latency_command(&caller, wire).map_err(check_rejection)),
        ),
        _ => drop(pb::CoreRequest::decode(rest).map(|wire| wire.encoded_len())),
    }
}

/// A rejection is sent in headers, which are limited.
fn check_rejection(rejection: fireteam::api::status::Rejection) {
    assert!(rejection.fields.len() <= 16);
    let status = rejection.into_status();
    assert!(status.details().len() <= 8 * 1024, "{} bytes of details", status.details().len());
}

/// A ruleset file or a fragment file.
pub(crate) fn rulesets(bytes: &[u8]) {
    let read = rules::ruleset_text_from_bytes("fuzz.xml", bytes)
        .and_then(|text| rules::parse_ruleset_or_expansion_fragment("fuzz.xml", text));
    if let Err(problems) = read {
        assert!(!problems.is_empty() && problems.iter().all(|problem| !problem.to_string().contains('\n')));
    }
}

/// A signed token of each kind: a token that verifies has the same bytes when it is signed again.
pub(crate) fn tokens(bytes: &[u8]) {
    let signer = signer();
    check_round_trip::<AdvertisementClaim>(&signer, bytes);
    check_round_trip::<SearchClaim>(&signer, bytes);
    check_round_trip::<MeasuredSearchClaim>(&signer, bytes);
    check_round_trip::<ReservationClaim>(&signer, bytes);
    check_round_trip::<LatencyClaim>(&signer, bytes);
}

/// An `authorization` header, and a certificate. A caller that is authenticated has a token in three parts.
pub(crate) fn credentials(bytes: &[u8]) {
    static AUTHENTICATOR: LazyLock<Authenticator> = LazyLock::new(authenticator);
    if AUTHENTICATOR.authenticate(Some(bytes), None).is_ok() {
        let token = bytes.split(|byte| *byte == b' ').next_back().unwrap_or_default();
        assert_eq!(token.split(|byte| *byte == b'.').count(), 3, "a token has three parts");
    }
    let _ = AUTHENTICATOR.authenticate(None, Some(bytes));
}

/// Issuer of the tokens that the authenticator accepts; not a secret.
pub(crate) fn issuer() -> JwtSigningKey {
    JwtSigningKey::from_seed(&[7; 32]).expect("a key")
}

fn authenticator() -> Authenticator {
    // Keys are read from a file, which is removed afterwards.
    let file = std::env::temp_dir().join(format!("fireteam-fuzz-{}.jwks.json", std::process::id()));
    std::fs::write(&file, issuer().public_key_set()).expect("a file");
    let auth = JwtSettings::of_one_issuer("fuzz", "fuzz", std::slice::from_ref(&file));
    let authenticator = Authenticator::new(Some(auth), Arc::new(SystemClock::start())).expect("a key set");
    let _ = std::fs::remove_file(file);
    authenticator
}

/// A PROXY protocol header: the parser reads no more bytes than a header may have.
pub(crate) fn proxied(bytes: &[u8]) {
    let mut rest = bytes;
    let taken = {
        let mut reading = pin!(proxy_header::read_client_address(&mut rest));
        match reading.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(read) => read.is_ok(),
            Poll::Pending => unreachable!("a slice is always ready"),
        }
    };
    let header = bytes.len() - rest.len();
    assert!(header <= proxy_header::BYTES_MAX);
    assert!(!taken || 12 <= header, "an accepted header has at least 12 bytes");
}

/// The key that signs the tokens of the corpus; not a secret.
pub(crate) fn signer() -> HmacTokenSigner {
    HmacTokenSigner::new([7; 32], Some([8; 32]))
}

fn check_round_trip<C: Claim>(signer: &HmacTokenSigner, bytes: &[u8]) {
    if let Some(claim) = signer.verify::<C>(bytes) {
        assert!(!signer.is_signed_with_current_key(bytes) || signer.sign(&claim) == bytes);
    }
}

/// `x-forwarded-for` headers, one per line, of arbitrary bytes.
pub(crate) fn forwarded(bytes: &[u8]) {
    let headers = || bytes.split(|byte| *byte == b'\n');
    let trusted: [IpNet; 2] = ["10.0.0.0/8", "fd00::/8"].map(|it| it.parse().expect("a network"));
    let (untrusted, proxy) = (IpAddr::from([9, 9, 9, 9]), IpAddr::from([10, 0, 0, 1]));
    assert_eq!(
        client_address(untrusted, headers(), &trusted),
        untrusted,
        "the header of an untrusted peer has no effect"
    );
    let client = client_address(proxy, headers(), &trusted);
    assert_eq!(client, client.to_canonical());
    let appended = headers().chain([&b"2.2.2.2"[..]]).collect::<Vec<_>>();
    assert_eq!(
        client_address(proxy, appended, &trusted),
        IpAddr::from([2, 2, 2, 2]),
        "no byte hides the address that the proxy appends"
    );
}

/// UDP packets to a host, to a beacon, and to a client. An answer is one packet, never longer than the question, which is never a question
/// itself; what is read is what was written.
pub(crate) fn probes(bytes: &[u8]) {
    let key = probe_key();
    let from = (IpAddr::from([192, 0, 2, 77]), 50_123).into();
    let time = ArrivalAndAnswerTime { arrived_us: 1_000_000, now_us: 1_000_000 };
    let mut host = HostResponder::new(HostCookieKey([0x77; 32]));
    host.set_advertisement([0xa5; 16], key.clone());
    let answer = host.handle(bytes, from, time, |data, answer| {
        answer.extend(data.iter().chain(&[1; 64]));
        Verdict::Fits
    });
    if let Some(answer) = answer {
        assert!(answer.len() <= bytes.len() && host.handle(&answer, from, time, |_, _| Verdict::Full).is_none());
        assert!(EchoReply::decode(&answer, &key).is_ok() || InvolvedReply::decode(&answer, &key).is_ok());
    }
    let beacon_key = FleetKey([1; 32]).beacon_key(7);
    let mut beacon = BeaconResponder::new(7, beacon_key.clone(), BeaconCookieKey([0x55; 32]), 1_000);
    if let Some(answer) = beacon.handle(bytes, from, 1_023_456, 1_700_000_000) {
        assert!(answer.len() == bytes.len() && beacon.handle(&answer, from, 1_023_456, 1).is_none());
        let is_receipt = |receipt: Receipt| receipt.is_signed_by(&beacon_key) && 0 < receipt.claims.round_trip_us;
        assert!(Challenge::decode(&answer).is_ok() || Receipt::decode(&answer).is_ok_and(is_receipt));
    }
    if let Ok(receipt) = Receipt::decode(bytes) {
        assert!(!receipt.is_signed_by(&beacon_key) || receipt.claims.sign(&beacon_key) == *bytes);
    }
    if let Ok(reply) = InvolvedReply::decode(bytes, &key) {
        assert_eq!(reply.encode(&key, INVOLVED_BYTES_MAX).as_deref(), Some(bytes));
    }
    if let Ok(reply) = EchoReply::decode(bytes, &key) {
        assert_eq!(reply.encode(&key), *bytes);
    }
}

/// Key of the corpus.
pub(crate) fn probe_key() -> ProbeKey {
    ProbeKey::new(&[0x10; 32]).expect("a length that is allowed")
}

/// A geolocation file: rejected, or used for lookups.
pub(crate) fn localities(bytes: &[u8]) {
    let Ok(locator) = GeoIpLocator::from_bytes(Path::new("fuzz.mmdb"), bytes.to_vec(), LocatorSettings::default())
    else {
        return;
    };
    for address in ["71.20.133.126", "2001:db8::1", "255.255.255.255", "2a00::"] {
        let _ = locator.locate(address.parse().expect("an address"));
    }
}

/// A configuration file: rejected, or accepted and then accepted again as printed.
pub(crate) fn settings(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let name = Path::new("fuzz.toml");
    if let Ok(config) = Config::from_toml(name, text) {
        let printed = config.to_toml().expect("a configuration from TOML can be printed as TOML");
        assert!(Config::from_toml(name, &printed).is_ok() || printed.contains("***"), "{printed}");
    }
}
