//! The console's files and the gRPC-Web calls of its script: policy, host and origin checks, and the operator's role.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use fireteam::auth::identity::Role;

use crate::security::operator_access::{exchange, status_of};
use crate::support::test_server::TestServer;
use crate::support::tokens::start_authenticated_server;

/// SEC-16: each file of the console has a policy that allows nothing inline and nothing of another origin.
#[tokio::test]
async fn console_files_have_a_strict_content_policy() {
    let server = TestServer::start().await;
    let address = server.app.server.operator_address;
    let host = format!("host: {address}\r\n");
    for (path, content_type) in [
        ("/console/", "text/html; charset=utf-8"),
        ("/console/console.js", "text/javascript; charset=utf-8"),
        ("/console/console.css", "text/css; charset=utf-8"),
    ] {
        let response = exchange(address, &format!("GET {path}"), &host).await;
        let head = response.split_once("\r\n\r\n").unwrap().0.to_lowercase();
        assert_eq!(status_of(&response), "200", "{path}: {head}");
        assert!(head.contains(&format!("content-type: {content_type}")), "{path}: {head}");
        let policy = head.split_once("content-security-policy: ").unwrap().1.lines().next().unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self';"), "{policy}");
        for forbidden in ["unsafe", "http:", "https:", "*"] {
            assert!(!policy.contains(forbidden), "{path}: {policy}");
        }
        assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
        let elsewhere = exchange(address, &format!("GET {path}"), "host: evil.example\r\n").await;
        assert_eq!(status_of(&elsewhere), "403", "{path}");
        let on_client_port = exchange(server.app.server.address, &format!("GET {path}"), &host).await;
        assert_eq!(status_of(&on_client_port), "404", "{path}");
    }
    let without_slash = exchange(address, "GET /console", &host).await;
    assert_eq!(status_of(&without_slash), "308");
    assert!(without_slash.contains("location: /console/"), "{without_slash}");
}

/// SEC-4: the console's calls by gRPC-Web need the operator's role as others do, and the port's own origin. A browser gets no
/// permission to call from another origin.
#[tokio::test]
async fn console_calls_need_the_role_and_the_origin() {
    let (server, issuer) = start_authenticated_server().await;
    let address = server.app.server.operator_address;
    let call = async |headers: String| {
        let mut socket = TcpStream::connect(address).await.unwrap();
        let head = format!(
            "POST /fireteam.v1.OperatorService/ListRulesets HTTP/1.1\r\nhost: {address}\r\n{headers}\
             content-type: application/grpc-web+proto\r\ncontent-length: 5\r\nconnection: close\r\n\r\n"
        );
        socket.write_all(head.as_bytes()).await.unwrap();
        socket.write_all(&[0; 5]).await.unwrap();
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).await.unwrap();
        let text = String::from_utf8_lossy(&answer).to_lowercase().replace("grpc-status: ", "grpc-status:");
        assert!(!text.contains("access-control-allow-origin"), "{text}");
        text.split_once("grpc-status:")
            .unwrap_or_else(|| panic!("{text}"))
            .1
            .chars()
            .take_while(char::is_ascii_digit)
            .collect::<String>()
    };
    let token = |role| format!("authorization: {}\r\n", issuer.authorization_header(role, "ana"));
    assert_eq!(call(String::new()).await, "16");
    assert_eq!(call(token(Role::Client)).await, "7");
    assert_eq!(call(token(Role::GameServer)).await, "7");
    assert_eq!(call(token(Role::Operator)).await, "0");
    assert_eq!(call(format!("{}origin: http://{address}\r\n", token(Role::Operator))).await, "0");
    assert_eq!(call(format!("{}origin: http://evil.example\r\n", token(Role::Operator))).await, "7");
    let preflight = "access-control-request-method: POST\r\naccess-control-request-headers: x-grpc-web\r\n";
    let headers = format!("host: {address}\r\norigin: http://evil.example\r\n{preflight}");
    let response = exchange(address, "OPTIONS /fireteam.v1.OperatorService/ListRulesets", &headers).await;
    assert_eq!(status_of(&response), "403", "{response}");
}
