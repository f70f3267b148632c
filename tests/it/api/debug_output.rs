//! `Debug` output of the Rust client: no handle and no message prints a token, a credential or connect data.

use std::collections::BTreeSet;
use std::fmt::Debug;

use fireteam_client::{Client, Error, HostEvent, MatchHost, RetryPolicy, SecretBytes, TokenSource, pb};

use crate::support::queue_server::enter_request;
use crate::support::source_tree;
use crate::support::test_server::{TestServer, advertise_request, party_session};

const CONNECT_DATA: &[u8] = b"connect-canary-7";
const METADATA: &str = "metadata-canary-7";
const BEARER: &str = "bearer-canary-7";

/// Public names without a value to format. `Token` and `CredentialVerifier` have no `Debug`; an admitted player has no secret;
/// `normalized_code` is a function; the others are parts of `Error`, or names of a type that has none of its own.
const UNFORMATTED: [&str; 9] = [
    "AdmittedPlayer",
    "CredentialError",
    "CredentialVerifier",
    "DEFAULT_REMEMBERED_CREDENTIALS_MAX",
    "Token",
    "FieldViolation",
    "ServerError",
    "UserIdsOfOneSide",
    "normalized_code",
];

/// Formatted handles by type name, and the secrets that none of them may contain.
#[derive(Default)]
struct Formatted {
    outputs: Vec<(&'static str, String)>,
    secrets: Vec<(&'static str, Vec<u8>)>,
}

impl Formatted {
    fn format(&mut self, name: &'static str, handle: &impl Debug) {
        self.outputs.push((name, format!("{handle:?}")));
        self.outputs.push((name, format!("{handle:#?}")));
    }

    fn add_secret(&mut self, name: &'static str, secret: &[u8]) {
        assert!(secret.len() >= 8, "{name}: {} bytes are found by chance", secret.len());
        self.secrets.push((name, secret.to_vec()));
    }

    /// Each secret is looked for as text, and as a list of bytes on one line or on several.
    fn assert_no_secret(&self) {
        for (secret_name, secret) in &self.secrets {
            let text = String::from_utf8_lossy(secret).into_owned();
            let bytes: Vec<String> = secret.iter().take(6).map(ToString::to_string).collect();
            for (name, output) in &self.outputs {
                let on_one_line = output.split_whitespace().collect::<Vec<_>>().join(" ");
                assert!(!output.contains(&text), "{name} prints {secret_name}: {output}");
                assert!(!on_one_line.contains(&bytes.join(", ")), "{name} prints {secret_name}: {output}");
            }
        }
    }
}

/// Names of the client's public types, from its list of modules.
fn public_types() -> BTreeSet<String> {
    let source = std::fs::read_to_string(source_tree::repository_root().join("clients/rust/src/lib.rs")).unwrap();
    let uses = source.lines().filter_map(|line| line.strip_prefix("pub use ")?.strip_suffix(';'));
    let own = uses.filter(|path| !path.starts_with("tonic"));
    let names = own.flat_map(|path| path.rsplit("::").next().unwrap().trim_matches(['{', '}']).split(", "));
    names.map(str::to_owned).collect()
}

/// Formats everything about a match of two players, with its credential.
async fn format_queue_handles(client: &Client, formatted: &mut Formatted) {
    let mut tickets = Vec::new();
    for name in ["ana", "ben"] {
        tickets.push(client.enter_queue(enter_request(3, &[(name, 1_500.0)])).await.unwrap());
    }
    let mut updates = tickets[0].watch();
    while updates.next().await.unwrap().expect("the ticket waits").state() == pb::TicketState::Waiting {}
    tickets[0].heartbeat().await.unwrap();
    formatted.add_secret("the ticket token", &tickets[0].reference().ticket_token);
    formatted.add_secret("the resume token", &tickets[0].status.resume_token);
    if let Some(found) = &tickets[0].status.found_match {
        formatted.format("MatchStatus", found);
    }
    formatted.format("Ticket", &tickets[0]);
    formatted.format("TicketStream", &updates);
    formatted.format("TicketReference", &tickets[0].reference());
}

/// SEC-9: each public handle of the Rust client, and the messages that hold a secret, are formatted after real calls.
#[tokio::test]
async fn debug_output_of_each_client_handle_has_no_secret() {
    let server = TestServer::start().await;
    let mut formatted = Formatted::default();
    for (name, secret) in
        [("connect data", CONNECT_DATA), ("metadata", METADATA.as_bytes()), ("the token", BEARER.as_bytes())]
    {
        formatted.add_secret(name, secret);
    }
    let token_source = TokenSource::fixed(BEARER).unwrap();
    let client =
        server.client().await.with_metadata("x-game-key", METADATA).unwrap().with_token_source(token_source.clone());
    let (connection, mut events) = client.open_stream().await.unwrap();
    let mut request = advertise_request(&[("host", 0.0)], 3);
    request.connect_data = CONNECT_DATA.to_vec();
    formatted.format("MatchmakingUpdateAdvertisementRequest", &request);
    let advertisement = connection.advertise(request).await.unwrap();
    formatted.add_secret("the advertisement token", advertisement.token());

    let mut session = client.new_search(1, party_session(&[("guest", 0.0)]));
    let found = session.search().await.unwrap();
    formatted.add_secret("the search token", &found.search_token);
    let reservation = session.reserve(&found.candidates[0].advertisement_id).await.unwrap();
    assert_eq!(reservation.connect_data, CONNECT_DATA);
    let event = events.next_host_event().await.unwrap();
    let consent =
        pb::MatchmakingGrantConsentResponse { consent_token: b"consent-canary".to_vec(), ..Default::default() };
    formatted.add_secret("the consent token", &consent.consent_token);
    let started = pb::MatchmakingStartMatchResponse { ticket_token: b"ticket-canary".to_vec(), ..Default::default() };
    formatted.add_secret("the ticket token of a started match", &started.ticket_token);
    formatted.format("MatchmakingStartMatchResponse", &started);
    let credential = pb::TicketPlayer { credential: "credential-canary".into(), ..Default::default() };
    formatted.add_secret("the credential", credential.credential.as_bytes());
    let player = pb::PlayerData { consent_token: consent.consent_token.clone(), ..Default::default() };
    let pending = connection.send(pb::MatchmakingCoreRequest::default()).await.unwrap();

    formatted.format("MatchmakingGrantConsentResponse", &consent);
    formatted.format("TicketPlayer", &credential);
    formatted.format("PlayerData", &player);
    formatted.format("MatchmakingSearchResponse", &found);
    formatted.format("Advertisement", &advertisement);
    formatted.format("Client", &client);
    formatted.format("MatchmakingStream", &connection);
    formatted.format("HostEvent", &event);
    formatted.format("HostEvent", &HostEvent::Match(Box::default()));
    formatted.format("MatchHost", &MatchHost::new(client.clone(), &advertisement));
    formatted.format("Reservation", &reservation);
    formatted.format("HostEvents", &events);
    formatted.format("PendingResponse", &pending);
    formatted.format("RetryPolicy", &RetryPolicy::default());
    formatted.format("SearchSession", &session);
    formatted.format("TokenSource", &token_source);
    formatted.format("Error", &session.reserve("no-such-id").await.map(drop).unwrap_err());
    formatted.format("Error", &Error::MissingField("status"));
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    formatted.format("LatencyTokens", &client.latency_tokens(socket));
    formatted.add_secret("a latency token", b"token of beacons");
    formatted.format("SecretBytes", &SecretBytes(b"token of beacons".to_vec()));
    format_queue_handles(&client, &mut formatted).await;
    formatted.assert_no_secret();

    let names: BTreeSet<&str> = formatted.outputs.iter().map(|(name, _)| *name).collect();
    for public in public_types() {
        assert!(UNFORMATTED.contains(&&*public) || names.contains(&*public), "{public} is not formatted by this test");
    }
}
