//! What is fuzzed (SEC-3): everything that reads bytes from outside. A target takes any bytes; it must not panic, nor take
//! long, nor accept what it would not accept again.

use std::future::Future;
use std::net::IpAddr;
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Waker};

use fireteam::api::convert::EntryPoint;
use fireteam::api::pb;
use fireteam::auth::authenticator::Authenticator;
use fireteam::auth::forwarded_for::client_address;
use fireteam::auth::issuing_key::IssuingKey;
use fireteam::auth::token::{AdvertisementClaim, Claim, ReservationClaim, SearchClaim, TokenSigner};
use fireteam::clock::SystemClock;
use fireteam::config::{Config, JwtSettings};
use fireteam::domain::attribute::ValueOrigin;
use fireteam::engine::command::Caller;
use fireteam::geo::{GeoIpLocator, LocatorSettings};
use fireteam::rules;
use fireteam::server::proxy_header;
use ipnet::IpNet;
use prost::Message;

/// One of them.
pub(crate) type Target = fn(&[u8]);

/// All, by the names of their corpora.
pub(crate) const TARGETS: [(&str, Target); 8] = [
    ("requests", requests),
    ("rulesets", rulesets),
    ("tokens", tokens),
    ("credentials", credentials),
    ("proxied", proxied),
    ("forwarded", forwarded),
    ("localities", localities),
    ("settings", settings),
];

/// Any request of a client, from its bytes to the domain: the first byte says which, and who sends it.
pub(crate) fn requests(bytes: &[u8]) {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let origin = if first < 128 { ValueOrigin::Client } else { ValueOrigin::GameServer };
    let caller = Caller { origin, ..Caller::default() };
    let door = EntryPoint { field_prefix: "", envelope_set_id: None, envelope_nonce: Some(u64::from(first)) };
    match first % 8 {
        0 => drop(pb::SearchRequest::decode(rest).map(|wire| door.search_command(&caller, wire).map_err(said))),
        1 => drop(
            pb::UpdateAdvertisementRequest::decode(rest).map(|wire| door.update_command(&caller, wire).map_err(said)),
        ),
        2 => drop(pb::DeleteAdvertisementRequest::decode(rest).map(|wire| door.delete_command(wire).map_err(said))),
        3 => drop(pb::GetConfigurationRequest::decode(rest).map(|wire| door.configuration_query(wire).map_err(said))),
        4 => drop(pb::ReserveRequest::decode(rest).map(|wire| door.reserve_command(&caller, wire).map_err(said))),
        5 => drop(pb::ReleaseRequest::decode(rest).map(|wire| door.release_command(wire).map_err(said))),
        6 => drop(
            pb::ReportLatencyRequest::decode(rest).map(|wire| door.report_latency_command(&caller, wire).map_err(said)),
        ),
        _ => drop(pb::CoreRequest::decode(rest).map(|wire| wire.encoded_len())),
    }
}

/// A refusal goes back in headers, which are small.
fn said(rejection: fireteam::api::status::Rejection) {
    assert!(rejection.fields.len() <= 16);
    let status = rejection.into_status();
    assert!(status.details().len() <= 8 * 1024, "{} bytes of details", status.details().len());
}

/// A ruleset's or a fragment's file.
pub(crate) fn rulesets(bytes: &[u8]) {
    let read = rules::decode_utf8("fuzz.xml", bytes).and_then(|text| rules::parse_ruleset_file("fuzz.xml", text));
    if let Err(problems) = read {
        assert!(!problems.is_empty() && problems.iter().all(|problem| !problem.to_string().contains('\n')));
    }
}

/// A token of our own, of each kind: what opens was sealed, and seals to the same bytes.
pub(crate) fn tokens(bytes: &[u8]) {
    let signer = signer();
    same_again::<AdvertisementClaim>(&signer, bytes);
    same_again::<SearchClaim>(&signer, bytes);
    same_again::<ReservationClaim>(&signer, bytes);
}

/// What a caller shows: an `authorization` header, and a certificate. Whoever is let in has shown a token of the one key.
pub(crate) fn credentials(bytes: &[u8]) {
    static DOOR: LazyLock<Authenticator> = LazyLock::new(door);
    if DOOR.authenticate(Some(bytes), None).is_ok() {
        let token = bytes.split(|byte| *byte == b' ').next_back().unwrap_or_default();
        assert_eq!(token.split(|byte| *byte == b'.').count(), 3, "a token has three parts");
    }
    let _ = DOOR.authenticate(None, Some(bytes));
}

/// Whose tokens the door takes; no secret.
pub(crate) fn issuer() -> IssuingKey {
    IssuingKey::from_seed(&[7; 32]).expect("a key")
}

fn door() -> Authenticator {
    // Keys are read from files, so there is one for as long as that takes.
    let file = std::env::temp_dir().join(format!("fireteam-fuzz-{}.jwks.json", std::process::id()));
    std::fs::write(&file, issuer().public_key_set()).expect("a file");
    let auth = JwtSettings { keys: vec![file.clone()], issuer: "fuzz".into(), audience: "fuzz".into() };
    let door = Authenticator::new(Some(auth), Arc::new(SystemClock::start())).expect("a key set");
    let _ = std::fs::remove_file(file);
    door
}

/// How a connection from a proxy begins: a header of the PROXY protocol, and no more of it is taken than a header may have.
pub(crate) fn proxied(bytes: &[u8]) {
    let mut rest = bytes;
    let taken = {
        let mut reading = pin!(proxy_header::read_client_address(&mut rest));
        match reading.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(read) => read.is_ok(),
            Poll::Pending => unreachable!("bytes in memory are all there"),
        }
    };
    let header = bytes.len() - rest.len();
    assert!(header <= proxy_header::BYTES_MAX);
    assert!(!taken || 12 <= header, "no header is shorter");
}

/// The key that the corpus is signed with; no secret.
pub(crate) fn signer() -> TokenSigner {
    TokenSigner::new([7; 32], Some([8; 32]))
}

fn same_again<C: Claim>(signer: &TokenSigner, bytes: &[u8]) {
    if let Some(claim) = signer.verify::<C>(bytes) {
        assert!(!signer.is_signed_with_current_key(bytes) || signer.sign(&claim) == bytes);
    }
}

/// What proxies, or strangers, wrote into x-forwarded-for; a line for each header.
pub(crate) fn forwarded(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let headers: Vec<&str> = text.lines().collect();
    let trusted: [IpNet; 2] = ["10.0.0.0/8", "fd00::/8"].map(|it| it.parse().expect("a network"));
    let (stranger, proxy) = (IpAddr::from([9, 9, 9, 9]), IpAddr::from([10, 0, 0, 1]));
    assert_eq!(client_address(stranger, &headers, &trusted), stranger, "a stranger is not believed");
    let client = client_address(proxy, &headers, &trusted);
    assert_eq!(client, client.to_canonical());
}

/// A locality file: refused, or asked.
pub(crate) fn localities(bytes: &[u8]) {
    let Ok(locator) = GeoIpLocator::from_bytes(Path::new("fuzz.mmdb"), bytes.to_vec(), LocatorSettings::default())
    else {
        return;
    };
    for address in ["71.20.133.126", "2001:db8::1", "255.255.255.255", "2a00::"] {
        let _ = locator.locate(address.parse().expect("an address"));
    }
}

/// A configuration file: refused, or one that can be printed and read again.
pub(crate) fn settings(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let name = Path::new("fuzz.toml");
    if let Ok(config) = Config::from_toml(name, text) {
        let printed = config.to_toml().expect("what came from TOML goes there");
        assert!(Config::from_toml(name, &printed).is_ok() || printed.contains("***"), "{printed}");
    }
}
