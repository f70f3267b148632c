//! The operator's port: its service, its pages, and what reflection shows on which port.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_stream::StreamExt;
use tonic::Code;
use tonic::transport::Endpoint;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};
use tonic_reflection::pb::v1alpha;

use crate::plain;
use crate::scripted::SET;
use crate::stage::{Stage, search};

#[tokio::test]
async fn rulesets_are_checked_listed_and_reloaded() {
    let house = Stage::open().await;
    let mut operator = house.operator().await;
    let check = |file_name: &str, xml: &str| plain::CheckRulesetRequest {
        file_name: file_name.into(),
        ruleset_xml: xml.into(),
    };
    let good = operator.check_ruleset(check("", "<Ruleset/>")).await.unwrap().into_inner();
    assert_eq!((good.problems.len(), good.service_configuration_hash), (0, Some(5)));
    let bad = operator.check_ruleset(check("", "<Nonsense/>")).await.unwrap().into_inner();
    let problem = &bad.problems[0];
    assert_eq!((&*problem.file_name, problem.line, problem.column), ("ruleset.xml", 2, 3));
    assert_eq!(bad.service_configuration_hash, None);
    let huge = operator.check_ruleset(check("", &" ".repeat(256 * 1024 + 1))).await.unwrap_err();
    assert_eq!(huge.code(), Code::InvalidArgument);

    let reloaded = operator.reload_rulesets(plain::ReloadRulesetsRequest {}).await.unwrap().into_inner();
    let change = &reloaded.changes[0];
    assert_eq!((change.matchmaking_set_id, change.previous_hash, change.current_hash), (SET, Some(1), Some(2)));
    let listed = operator.list_rulesets(plain::ListRulesetsRequest {}).await.unwrap().into_inner();
    assert_eq!(listed.rulesets[0].state(), plain::RulesetState::Retired);
    assert_eq!((&*listed.rulesets[0].file_name, listed.rulesets[0].loaded_at_unix_ms), ("duel.xml", 77));
}

/// An audit's answer has every word of what was found, and names as much as was asked for.
#[tokio::test]
async fn an_audit_is_told_whole() {
    let house = Stage::open().await;
    let mut operator = house.operator().await;
    let told = operator
        .check_consistency(plain::CheckConsistencyRequest { max_differences: Some(2) })
        .await
        .unwrap()
        .into_inner();
    assert_eq!((told.advertisements, told.reservations, told.difference_count), (7, 6, 3));
    assert_eq!((told.not_yet_durable, told.changing, told.complete, told.took_ms), (2, 1, false, 5));
    assert_eq!(told.differences.len(), 2);
    assert_eq!(told.differences[1].advertisement_id, "01".repeat(16));
    let kinds: Vec<_> = told.differences[1].kinds().collect();
    assert_eq!(kinds, [plain::ConsistencyDifferenceKind::Reservations, plain::ConsistencyDifferenceKind::Index]);
    let all = operator.check_consistency(plain::CheckConsistencyRequest::default()).await.unwrap().into_inner();
    assert_eq!(all.differences.len(), 3);
    let refused =
        operator.check_consistency(plain::CheckConsistencyRequest { max_differences: Some(1_001) }).await.unwrap_err();
    assert_eq!((refused.code(), refused.message().contains("max_listed")), (Code::InvalidArgument, true), "{refused}");
}

async fn page(house: &Stage, path: &str) -> String {
    let mut socket = TcpStream::connect(house.operator_address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    answer
}

/// Drain is the first half of a shutdown: not ready, not serving, no new streams; calls are still answered.
#[tokio::test]
async fn a_drained_server_still_answers_calls() {
    let house = Stage::open().await;
    assert!(page(&house, "/readyz").await.starts_with("HTTP/1.1 200"));
    assert!(page(&house, "/metrics").await.contains("openmetrics-text"));
    let mut operator = house.operator().await;
    assert!(!operator.drain(plain::DrainRequest {}).await.unwrap().into_inner().already_draining);
    assert!(operator.drain(plain::DrainRequest {}).await.unwrap().into_inner().already_draining);
    assert!(page(&house, "/readyz").await.starts_with("HTTP/1.1 503"));
    assert!(page(&house, "/healthz").await.starts_with("HTTP/1.1 200"), "alive, but going");
    let mut client = house.client().await;
    client.search(search()).await.unwrap();
    let stream = client.connect(tokio_stream::pending::<plain::MatchmakingConnectRequest>()).await;
    assert_eq!(stream.unwrap_err().code(), Code::Unavailable);
}

fn names(response: ServerReflectionResponse) -> Vec<String> {
    match response.message_response.unwrap() {
        MessageResponse::ListServicesResponse(list) => list.service.into_iter().map(|service| service.name).collect(),
        MessageResponse::FileDescriptorResponse(files) => vec![format!("{} files", files.file_descriptor_proto.len())],
        MessageResponse::ErrorResponse(error) => vec![error.error_message],
        other => panic!("{other:?}"),
    }
}

async fn ask(at: std::net::SocketAddr, question: MessageRequest) -> Vec<String> {
    let channel = Endpoint::from_shared(format!("http://{at}")).unwrap().connect().await.unwrap();
    let request = ServerReflectionRequest { host: String::new(), message_request: Some(question) };
    let mut client = ServerReflectionClient::new(channel);
    let mut answers = client.server_reflection_info(tokio_stream::once(request)).await.unwrap().into_inner();
    match answers.next().await.unwrap() {
        Ok(answer) => names(answer),
        Err(status) => vec![status.message().to_owned()],
    }
}

/// G8: reflection knows the service, health and error details; what is for operators is not shown to players.
#[tokio::test]
async fn reflection_shows_each_port_its_own() {
    let house = Stage::open().await;
    let list = || MessageRequest::ListServices(String::new());
    let on_clients = ask(house.address, list()).await;
    assert!(on_clients.contains(&"fireteam.v1.MatchmakingService".into()), "{on_clients:?}");
    assert!(on_clients.contains(&"grpc.health.v1.Health".into()), "{on_clients:?}");
    assert!(!on_clients.contains(&"fireteam.v1.OperatorService".into()), "{on_clients:?}");
    let on_operators = ask(house.operator_address, list()).await;
    assert!(on_operators.contains(&"fireteam.v1.OperatorService".into()), "{on_operators:?}");
    assert!(!on_operators.contains(&"fireteam.v1.MatchmakingService".into()), "{on_operators:?}");

    let symbol = |name: &str| MessageRequest::FileContainingSymbol(name.into());
    for name in ["google.rpc.BadRequest", "google.rpc.ErrorInfo", "google.rpc.RetryInfo", "fireteam.v1.Candidate"] {
        assert_eq!(ask(house.address, symbol(name)).await, ["1 files"], "{name}");
    }
    let hidden = ask(house.address, symbol("fireteam.v1.OperatorService")).await;
    assert_eq!(hidden, ["symbol 'fireteam.v1.OperatorService' not found"]);
}

#[tokio::test]
async fn reflection_speaks_the_old_version_too() {
    use v1alpha::server_reflection_client::ServerReflectionClient;
    use v1alpha::server_reflection_request::MessageRequest;
    use v1alpha::server_reflection_response::MessageResponse;
    let house = Stage::open().await;
    let question = Some(MessageRequest::ListServices(String::new()));
    let request = v1alpha::ServerReflectionRequest { host: String::new(), message_request: question };
    let mut client = ServerReflectionClient::new(house.channel().await);
    let mut answers = client.server_reflection_info(tokio_stream::once(request)).await.unwrap().into_inner();
    let answer = answers.next().await.unwrap().unwrap().message_response.unwrap();
    let MessageResponse::ListServicesResponse(list) = answer else { panic!("{answer:?}") };
    assert!(list.service.iter().any(|service| service.name == "fireteam.v1.MatchmakingService"));
}
