//! The operator port: its service, its pages, and reflection on both ports.

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

use crate::support::generated_client;
use crate::support::scripted_engine::SET_ID;
use crate::support::scripted_server::{ScriptedServer, search_request};

#[tokio::test]
async fn operator_checks_lists_and_reloads_rulesets() {
    let server = ScriptedServer::start().await;
    let mut operator = server.operator_client().await;
    let check = |file_name: &str, xml: &str| generated_client::CheckRulesetRequest {
        file_name: file_name.into(),
        ruleset_xml: xml.into(),
    };
    let good = operator.check_ruleset(check("", "<Ruleset/>")).await.unwrap().into_inner();
    assert_eq!((good.problems.len(), good.service_configuration_hash), (0, Some(5)));
    let bad = operator.check_ruleset(check("", "<Nonsense/>")).await.unwrap().into_inner();
    let problem = &bad.problems[0];
    assert_eq!((&*problem.file_name, problem.line, problem.column), ("ruleset.xml", 2, 3));
    assert_eq!(bad.service_configuration_hash, None);
    let too_large = operator.check_ruleset(check("", &" ".repeat(256 * 1024 + 1))).await.unwrap_err();
    assert_eq!(too_large.code(), Code::InvalidArgument);

    let reloaded = operator.reload_rulesets(generated_client::ReloadRulesetsRequest {}).await.unwrap().into_inner();
    let change = &reloaded.changes[0];
    assert_eq!((change.matchmaking_set_id, change.previous_hash, change.current_hash), (SET_ID, Some(1), Some(2)));
    let listed = operator.list_rulesets(generated_client::ListRulesetsRequest {}).await.unwrap().into_inner();
    assert_eq!(listed.rulesets[0].state(), generated_client::RulesetState::Retired);
    assert_eq!((&*listed.rulesets[0].file_name, listed.rulesets[0].loaded_at_unix_ms), ("duel.xml", 77));
    assert_eq!(&*listed.rulesets[0].loaded_by, "operator ana (studio)");
    assert!(listed.swap_obstacle.contains("bundled rulesets"), "{listed:?}");
}

/// The response of a consistency check has all fields, and lists at most as many differences as requested.
#[tokio::test]
async fn consistency_check_response_has_all_fields() {
    let server = ScriptedServer::start().await;
    let mut operator = server.operator_client().await;
    let report = operator
        .check_consistency(generated_client::CheckConsistencyRequest { max_differences: Some(2) })
        .await
        .unwrap()
        .into_inner();
    assert_eq!((report.advertisements, report.reservations, report.difference_count), (7, 6, 3));
    assert_eq!((report.not_yet_durable, report.changing, report.complete, report.took_ms), (2, 1, false, 5));
    assert_eq!(report.differences.len(), 2);
    assert_eq!(report.differences[1].advertisement_id, "01".repeat(16));
    let kinds: Vec<_> = report.differences[1].kinds().collect();
    assert_eq!(
        kinds,
        [generated_client::ConsistencyDifferenceKind::Reservations, generated_client::ConsistencyDifferenceKind::Index]
    );
    let all =
        operator.check_consistency(generated_client::CheckConsistencyRequest::default()).await.unwrap().into_inner();
    assert_eq!(all.differences.len(), 3);
    let error = operator
        .check_consistency(generated_client::CheckConsistencyRequest { max_differences: Some(1_001) })
        .await
        .unwrap_err();
    assert_eq!((error.code(), error.message().contains("max_differences")), (Code::InvalidArgument, true), "{error}");
}

async fn operator_page(server: &ScriptedServer, path: &str) -> String {
    let mut socket = TcpStream::connect(server.operator_address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    answer
}

/// Drain is the first step of a shutdown: not ready, not serving, no new streams. Calls are still answered.
#[tokio::test]
async fn drained_server_answers_calls_but_opens_no_streams() {
    let server = ScriptedServer::start().await;
    assert!(operator_page(&server, "/readyz").await.starts_with("HTTP/1.1 200"));
    assert!(operator_page(&server, "/metrics").await.contains("openmetrics-text"));
    let mut operator = server.operator_client().await;
    assert!(!operator.drain(generated_client::DrainRequest {}).await.unwrap().into_inner().already_draining);
    assert!(operator.drain(generated_client::DrainRequest {}).await.unwrap().into_inner().already_draining);
    assert!(operator_page(&server, "/readyz").await.starts_with("HTTP/1.1 503"));
    assert!(operator_page(&server, "/healthz").await.starts_with("HTTP/1.1 200"), "alive, but draining");
    let mut client = server.matchmaking_client().await;
    client.search(search_request()).await.unwrap();
    let stream = client.connect(tokio_stream::pending::<generated_client::MatchmakingConnectRequest>()).await;
    assert_eq!(stream.unwrap_err().code(), Code::Unavailable);
}

fn reflection_names(response: ServerReflectionResponse) -> Vec<String> {
    match response.message_response.unwrap() {
        MessageResponse::ListServicesResponse(list) => list.service.into_iter().map(|service| service.name).collect(),
        MessageResponse::FileDescriptorResponse(files) => vec![format!("{} files", files.file_descriptor_proto.len())],
        MessageResponse::ErrorResponse(error) => vec![error.error_message],
        other => panic!("{other:?}"),
    }
}

async fn ask_reflection(at: std::net::SocketAddr, request: MessageRequest) -> Vec<String> {
    let channel = Endpoint::from_shared(format!("http://{at}")).unwrap().connect().await.unwrap();
    let stream_item = ServerReflectionRequest { host: String::new(), message_request: Some(request) };
    let mut client = ServerReflectionClient::new(channel);
    let mut answers = client.server_reflection_info(tokio_stream::once(stream_item)).await.unwrap().into_inner();
    match answers.next().await.unwrap() {
        Ok(answer) => reflection_names(answer),
        Err(status) => vec![status.message().to_owned()],
    }
}

/// G8: reflection describes the service, health and error details. The client port does not list the operator service.
#[tokio::test]
async fn reflection_lists_only_the_services_of_its_port() {
    let server = ScriptedServer::start().await;
    let list = || MessageRequest::ListServices(String::new());
    let on_clients = ask_reflection(server.address, list()).await;
    assert!(on_clients.contains(&"fireteam.v1.MatchmakingService".into()), "{on_clients:?}");
    assert!(on_clients.contains(&"grpc.health.v1.Health".into()), "{on_clients:?}");
    assert!(!on_clients.contains(&"fireteam.v1.OperatorService".into()), "{on_clients:?}");
    let on_operators = ask_reflection(server.operator_address, list()).await;
    assert!(on_operators.contains(&"fireteam.v1.OperatorService".into()), "{on_operators:?}");
    assert!(!on_operators.contains(&"fireteam.v1.MatchmakingService".into()), "{on_operators:?}");

    let symbol = |name: &str| MessageRequest::FileContainingSymbol(name.into());
    for name in ["google.rpc.BadRequest", "google.rpc.ErrorInfo", "google.rpc.RetryInfo", "fireteam.v1.Candidate"] {
        assert_eq!(ask_reflection(server.address, symbol(name)).await, ["1 files"], "{name}");
    }
    let hidden = ask_reflection(server.address, symbol("fireteam.v1.OperatorService")).await;
    assert_eq!(hidden, ["symbol 'fireteam.v1.OperatorService' not found"]);
}

#[tokio::test]
async fn reflection_supports_v1alpha() {
    use v1alpha::server_reflection_client::ServerReflectionClient;
    use v1alpha::server_reflection_request::MessageRequest;
    use v1alpha::server_reflection_response::MessageResponse;
    let server = ScriptedServer::start().await;
    let message_request = Some(MessageRequest::ListServices(String::new()));
    let request = v1alpha::ServerReflectionRequest { host: String::new(), message_request };
    let mut client = ServerReflectionClient::new(server.client_channel().await);
    let mut answers = client.server_reflection_info(tokio_stream::once(request)).await.unwrap().into_inner();
    let answer = answers.next().await.unwrap().unwrap().message_response.unwrap();
    let MessageResponse::ListServicesResponse(list) = answer else { panic!("{answer:?}") };
    assert!(list.service.iter().any(|service| service.name == "fireteam.v1.MatchmakingService"));
}
