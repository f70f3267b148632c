//! Disks: strangers who call as fast as they can fill neither the log nor the audit log, and each operator call is recorded.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fireteam::auth::identity::Role;
use fireteam::auth::jwt_signing_key::JwtSigningKey;
use fireteam::clock::SystemClock;
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request};
use tonic_prost::ProstCodec;

use crate::support::generated_client;
use crate::support::generated_client::operator_service_client::OperatorServiceClient;
use crate::support::server_process::ServerProcess;
use crate::support::tokens::{AUDIENCE, ISSUER, TokenIssuer};

/// Bytes that the log and the audit log may grow in a minute.
const BYTES_PER_MINUTE_MAX: usize = 1_000_000;
/// Duration of the flood.
const FLOOD: Duration = Duration::from_secs(5);
/// Callers at the same time, for each port.
const FLOODING_CALLERS: usize = 12;

const OPERATOR_METHODS: [&str; 3] = [
    "/fireteam.v1.OperatorService/Drain",
    "/fireteam.v1.OperatorService/ListRulesets",
    "/fireteam.v1.OperatorService/CancelMatch",
];
const OTHER_PATHS: [&str; 4] = [
    "/fireteam.v1.MatchmakingService/Search",
    "/fireteam.v1.QueueService/Enter",
    "/no.such.Service/Method",
    "/fireteam.v1.OperatorService/NoSuchMethod",
];

/// A message that no method can decode.
#[derive(Clone, PartialEq, prost::Message)]
struct Unreadable {
    #[prost(uint64, tag = "1")]
    number: u64,
}

/// A server with identities, and tokens of its issuer.
struct FloodedServer {
    server: ServerProcess,
    folder: tempfile::TempDir,
    issuer: TokenIssuer,
}

impl FloodedServer {
    fn start(flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let issuer = TokenIssuer::new(&SystemClock::start());
        issuer.write_jwt_settings(folder.path());
        let auth = ["--auth-keys", "jwks.json", "--auth-issuer", ISSUER, "--auth-audience", AUDIENCE];
        let files = ["--audit-log-file", "audit.jsonl", "--store", "memory:"];
        let server = ServerProcess::start(folder.path(), &[&auth[..], &files[..], flags].concat());
        Self { server, folder, issuer }
    }

    async fn operator(&self) -> OperatorServiceClient<Channel> {
        OperatorServiceClient::new(channel(self.server.operator_address).await)
    }

    fn operator_request<T>(&self, id: &str, message: T) -> Request<T> {
        let mut request = self.issuer.operator_request("ana", message);
        request.metadata_mut().insert("x-request-id", id.parse().unwrap());
        request
    }

    /// Texts of all files in the server's folder whose names start with `start`, joined.
    fn files_named(&self, start: &str) -> String {
        let mut names: Vec<_> = fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.retain(|path| path.file_name().unwrap().to_string_lossy().starts_with(start));
        names.iter().map(|path| fs::read_to_string(path).unwrap()).collect()
    }
}

async fn channel(address: std::net::SocketAddr) -> Channel {
    Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
}

/// Calls paths with credentials, both in turn, until `end`. Returns the number of refused calls of operator methods.
async fn flood(
    address: std::net::SocketAddr,
    credentials: Vec<Option<String>>,
    end: Instant,
    calls: Arc<AtomicU64>,
) -> u64 {
    let channel = channel(address).await;
    let paths: Vec<&'static str> = OPERATOR_METHODS.into_iter().chain(OTHER_PATHS).collect();
    let mut refused = 0;
    for number in 0.. {
        if end <= Instant::now() {
            break;
        }
        let (path, credential) = (paths[number % paths.len()], &credentials[number % credentials.len()]);
        let mut request = Request::new(Unreadable { number: 7 });
        if let Some(header) = credential {
            request.metadata_mut().insert("authorization", header.parse().unwrap());
        }
        let mut grpc = tonic::client::Grpc::new(channel.clone());
        grpc.ready().await.unwrap();
        let result = grpc.unary(request, path.parse().unwrap(), ProstCodec::<Unreadable, Unreadable>::default()).await;
        let status = result.expect_err("a stranger");
        assert_ne!(status.code(), Code::Internal, "{path}: {status:?}");
        calls.fetch_add(1, Ordering::Relaxed);
        refused += u64::from(OPERATOR_METHODS.contains(&path));
    }
    refused
}

/// SEC-11, SEC-19: strangers without a token, with junk, with another issuer's token and with a player's token call both ports
/// as fast as they can. The log and the audit log together grow by less than a megabyte in the minute. Each call of an operator
/// is in the audit log, and the number of the refused ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_fill_neither_log_nor_audit_log() {
    let flooded = FloodedServer::start(&[]);
    let other_key = JwtSigningKey::from_seed(&[9; 32]).unwrap();
    let forged = other_key.sign_jwt(&flooded.issuer.claims(Role::Operator, "eve")).unwrap();
    let credentials = vec![
        None,
        Some("Bearer junk".to_owned()),
        Some(format!("Bearer {forged}")),
        Some(flooded.issuer.authorization_header(Role::Client, "eve")),
        Some("Basic YTpi".to_owned()),
    ];
    let (calls, end) = (Arc::new(AtomicU64::new(0)), Instant::now() + FLOOD);
    let mut floods = tokio::task::JoinSet::new();
    for address in [flooded.server.address, flooded.server.operator_address] {
        for caller in 0..FLOODING_CALLERS {
            let mut credentials = credentials.clone();
            credentials.rotate_left(caller % 5);
            let is_operator_port = address == flooded.server.operator_address;
            let flood = flood(address, credentials, end, calls.clone());
            floods.spawn(async move { (is_operator_port, flood.await) });
        }
    }
    let (mut operator, mut ids) = (flooded.operator().await, Vec::new());
    while Instant::now() < end {
        let id = format!("own-{}", ids.len());
        operator
            .list_rulesets(flooded.operator_request(&id, generated_client::ListRulesetsRequest {}))
            .await
            .expect("an operator");
        ids.push(id);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut refused = 0;
    while let Some(flood) = floods.join_next().await {
        let (is_operator_port, calls) = flood.unwrap();
        refused += if is_operator_port { calls } else { 0 };
    }
    let FloodedServer { server, folder, issuer } = flooded;
    server.terminate();
    let ended = server.wait_for_exit();
    assert_eq!(ended.exit_code, Some(0), "{}", ended.log);

    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let (actions, rejections) = (read("audit.jsonl"), read("audit.rejected.jsonl"));
    let bytes = [ended.log.len(), actions.len(), rejections.len()];
    println!(
        "{} calls in {} s, {refused} of them refused operator calls; {} bytes of log, {} of operators' actions ({} calls), \
         {} of rejected calls",
        calls.load(Ordering::Relaxed),
        FLOOD.as_secs(),
        bytes[0],
        bytes[1],
        ids.len(),
        bytes[2],
    );
    assert!(bytes.iter().sum::<usize>() < BYTES_PER_MINUTE_MAX, "{bytes:?}");
    drop(issuer);
    let lines: Vec<serde_json::Value> = actions.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let recorded: Vec<&str> = lines.iter().map(|line| line["request_id"].as_str().unwrap()).collect();
    assert_eq!(recorded, ids, "each call of the operator, and no other");
    let counts = rejections.lines().map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        line["count"].as_u64().unwrap_or(1)
    });
    assert_eq!(counts.sum::<u64>(), refused, "no refused call is missing from the numbers: {rejections}");
}

/// A full audit file is renamed, and no call of an operator is missing from the files.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rotated_audit_log_keeps_each_operator_call() {
    const CALLS: usize = 2_400;
    let flooded = Arc::new(FloodedServer::start(&["--audit-log-max-mib", "1", "--rate-limits", "off"]));
    let next = Arc::new(AtomicU64::new(0));
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let (flooded, next) = (flooded.clone(), next.clone());
        callers.spawn(async move {
            let mut operator = flooded.operator().await;
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if CALLS as u64 <= number {
                    break;
                }
                let check = generated_client::CheckRulesetRequest { file_name: "x".repeat(250), ..Default::default() };
                operator.check_ruleset(flooded.operator_request(&format!("own-{number}"), check)).await.unwrap();
            }
        });
    }
    while let Some(caller) = callers.join_next().await {
        caller.unwrap();
    }
    let text = flooded.files_named("audit.jsonl");
    let mut ids: Vec<u64> = text
        .lines()
        .map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            line["request_id"].as_str().unwrap().strip_prefix("own-").unwrap().parse().unwrap()
        })
        .collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..CALLS as u64).collect::<Vec<_>>());
    let current = fs::metadata(flooded.folder.path().join("audit.jsonl")).unwrap().len();
    assert!(current < 1 << 20 && (current as usize) < text.len(), "the file was renamed: {current} of {}", text.len());
}
