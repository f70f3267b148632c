//! Connect protocol, streams: watched tickets by HTTP/1.1, streams of requests by HTTP/2, and the last message of each end.

use http_body_util::BodyExt;
use serde_json::json;

use crate::api::connect_protocol::enter_json;
use crate::support::http_client::{HttpClient, prefixed, split_stream};
use crate::support::queue_server::{duel_ruleset, start_queue_server};
use crate::support::scripted_server::TEST_TIMEOUT;
use crate::support::server_process::ServerProcess;

const WATCH: &str = "/fireteam.v1.QueueService/Watch";

fn stream_client(address: std::net::SocketAddr) -> HttpClient {
    HttpClient::new(address).with_header("content-type", "application/connect+json")
}

/// Enters the queue, and returns the request to watch the ticket.
async fn enter_and_watch_request(client: &HttpClient, user: &str) -> String {
    let entered = client.call("/fireteam.v1.QueueService/Enter", &enter_json(user)).await.success();
    let ticket = json!({ "ticketId": entered["status"]["ticketId"], "ticketToken": entered["ticketToken"] });
    json!({ "tickets": [ticket] }).to_string()
}

/// A body that is read message by message.
struct StreamReader {
    body: hyper::body::Incoming,
    received: Vec<u8>,
    taken: usize,
}

impl StreamReader {
    async fn open(client: &HttpClient, request: &str) -> Self {
        let response = client.start("POST", WATCH, prefixed(0, request)).await;
        assert_eq!(
            (response.status().as_u16(), &response.headers()["content-type"]),
            (200, &"application/connect+json".parse().unwrap())
        );
        Self { body: response.into_body(), received: Vec::new(), taken: 0 }
    }

    /// Next message with its flags; `None` if the body ends or breaks off.
    async fn next(&mut self) -> Option<(u8, serde_json::Value)> {
        loop {
            let (mut messages, _) = split_stream(self.received.clone().into());
            if messages.len() > self.taken {
                self.taken += 1;
                return Some(messages.swap_remove(self.taken - 1));
            }
            let frame = tokio::time::timeout(TEST_TIMEOUT, self.body.frame()).await.expect("a frame in time")?.ok()?;
            self.received.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
        }
    }
}

/// A script watches its ticket by HTTP/1.1 until the match, and the drain ends the stream with an error in its last message.
#[tokio::test]
async fn connect_protocol_watch_sends_each_status_and_the_end() {
    let server = start_queue_server(&[&duel_ruleset(r#"<ReadyCheck TimeoutMs="600000"/>"#)]).await;
    let address = server.app.server.address;
    let client = HttpClient::new(address);
    let request = enter_and_watch_request(&client, "ana").await;
    let mut watch = StreamReader::open(&stream_client(address), &request).await;
    let (flags, first) = watch.next().await.expect("the status");
    assert_eq!((flags, &first["status"]["state"]), (0, &json!("TICKET_STATE_WAITING")), "{first}");
    enter_and_watch_request(&client, "ben").await;
    loop {
        let (flags, message) = watch.next().await.expect("a match");
        assert_eq!(flags, 0, "{message}");
        if message["status"]["foundMatch"]["matchId"].is_string() {
            break;
        }
    }
    server.app.server.start_drain().await;
    let end = loop {
        let (flags, message) = watch.next().await.expect("the end");
        if flags == 2 {
            break message;
        }
    };
    assert_eq!(end["error"]["code"], "unavailable", "{end}");
    assert_eq!(end["error"]["details"][0]["debug"]["reason"], "DRAINING", "{end}");
    assert!(watch.next().await.is_none(), "nothing follows the end");
}

/// A request that fails has the HTTP status 200 and the error in the last message, as the protocol asks.
#[tokio::test]
async fn connect_protocol_stream_errors_are_in_the_last_message() {
    let server = start_queue_server(&[&duel_ruleset("")]).await;
    let client = stream_client(server.app.server.address);
    let compressed = [&[1][..], &prefixed(0, "{}")[1..]].concat();
    let too_large = vec![0, 0, 2, 0, 1];
    for (body, code, text) in [
        (prefixed(0, "{}"), "invalid_argument", "tickets"),
        (
            prefixed(0, r#"{"ticket":[]}"#),
            "invalid_argument",
            "ticket: QueueWatchRequest has no such field; did you mean `tickets`?",
        ),
        (prefixed(0, "{"), "invalid_argument", "the body is not valid JSON"),
        (prefixed(9, "{}"), "invalid_argument", "the flags 9 of a message are unknown"),
        (compressed, "unimplemented", "compression, which is not served"),
        (too_large, "out_of_range", "the request is too large; send at most 131072 bytes"),
        (b"\0\0\0\0\x09{}".to_vec(), "invalid_argument", "the body ends within a message"),
        (b"{}".to_vec(), "invalid_argument", "the body ends within a message"),
        (Vec::new(), "invalid_argument", "request"),
    ] {
        let response = client.send("POST", WATCH, body.clone()).await;
        assert_eq!(response.status, 200);
        let (messages, is_whole) = split_stream(response.body.clone());
        let [(2, end)] = &*messages else { panic!("{body:?}: {messages:?}") };
        let message = end["error"]["message"].as_str().unwrap_or_default();
        assert!(is_whole && end["error"]["code"] == code && message.contains(text), "{body:?}: {end}");
    }
}

/// A stream of requests by HTTP/2: each request has its answer, and the end of the requests ends the stream without an error.
#[tokio::test]
async fn connect_protocol_carries_streams_of_requests_by_http2() {
    let server = start_queue_server(&[&duel_ruleset("")]).await;
    let client = HttpClient::http2(server.app.server.address).with_header("content-type", "application/connect+json");
    let request = |nonce: u32| {
        let configuration = json!({ "matchmakingSetId": 11 });
        prefixed(
            0,
            &json!({ "core": { "requestType": 4, "requestNonce": nonce, "getConfigurationRequest": configuration } })
                .to_string(),
        )
    };
    let body = [request(1), request(2)].concat();
    let response = client.send("POST", "/fireteam.v1.MatchmakingService/Connect", body).await;
    let (mut messages, is_whole) = split_stream(response.body.clone());
    assert!(is_whole);
    assert_eq!(messages.pop(), Some((2, json!({}))), "{messages:?}");
    let nonces: Vec<_> = messages.iter().map(|(_, message)| message["core"]["requestNonce"].clone()).collect();
    assert!(nonces.contains(&json!("1")) && nonces.contains(&json!("2")), "{messages:?}");
    let reflection = r#"{"listServices":""}"#;
    let response =
        client.send("POST", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", prefixed(0, reflection)).await;
    let (messages, _) = split_stream(response.body.clone());
    assert!(messages[0].1.to_string().contains("fireteam.v1.QueueService"), "{messages:?}");
}

/// A killed server cuts the stream: the last message is missing, so a client can tell it from an end.
#[tokio::test]
async fn connect_protocol_stream_of_a_killed_server_has_no_last_message() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("rules")).unwrap();
    std::fs::write(folder.path().join("rules/duel.xml"), duel_ruleset("")).unwrap();
    let server = ServerProcess::start(folder.path(), &["--rulesets", "rules"]);
    let request = enter_and_watch_request(&HttpClient::new(server.address), "ana").await;
    let mut watch = StreamReader::open(&stream_client(server.address), &request).await;
    assert_eq!(watch.next().await.expect("the status").0, 0);
    server.kill();
    while let Some((flags, message)) = watch.next().await {
        assert_eq!(flags, 0, "{message}");
    }
    let (_, is_whole) = split_stream(watch.received.into());
    assert!(is_whole, "messages are sent whole");
}
