//! Operator port: the Host and Origin headers of a web page are refused, also on loopback, and paths that do not exist are 404
//! on both ports.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Code;
use tonic::transport::Endpoint;

use crate::support::generated_client;
use crate::support::generated_client::operator_service_client::OperatorServiceClient;
use crate::support::test_server::TestServer;

/// Response to an HTTP/1.1 request with these header lines.
pub(super) async fn exchange(address: SocketAddr, request_line: &str, headers: &str) -> String {
    let mut socket = TcpStream::connect(address).await.unwrap();
    let request = format!("{request_line} HTTP/1.1\r\n{headers}connection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    socket.read_to_string(&mut response).await.unwrap();
    response
}

pub(super) fn status_of(response: &str) -> &str {
    response.split(' ').nth(1).unwrap_or_default()
}

/// SEC-4: a page in the operator's browser reaches the port on loopback under the page's own name (DNS rebinding), or from
/// another origin. Both are refused, for pages and calls. Addresses, `localhost` and configured names are served.
#[tokio::test]
async fn web_pages_cannot_read_the_operator_port() {
    let server = TestServer::start_with_config(|config| config.operator_hosts = vec!["ops.example".into()]).await;
    let address = server.app.server.operator_address;
    for (headers, expected) in [
        (format!("host: {address}\r\n"), "200"),
        (format!("host: localhost:{}\r\n", address.port()), "200"),
        ("host: OPS.example\r\n".into(), "200"),
        (format!("host: {address}\r\norigin: http://{address}\r\n"), "200"),
        (format!("host: evil.example:{}\r\n", address.port()), "403"),
        ("host: localhost.evil.example\r\n".into(), "403"),
        (format!("host: {address}\r\norigin: http://evil.example\r\n"), "403"),
        (format!("host: {address}\r\norigin: null\r\n"), "403"),
    ] {
        for path in ["/metrics", "/readyz", "/no-such-page"] {
            let response = exchange(address, &format!("GET {path}"), &headers).await;
            let expected = if expected == "200" && path == "/no-such-page" { "404" } else { expected };
            assert_eq!(status_of(&response), expected, "{path} {headers}: {response}");
        }
    }
    let metrics = server.app.metrics.render();
    for line in ["{reason=\"wrong_host\"} 6", "{reason=\"cross_origin\"} 6"] {
        assert!(metrics.contains(&format!("fireteam_auth_failures_total{line}")), "{metrics}");
    }

    let call = async |authority: String| {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        let endpoint = endpoint.origin(format!("http://{authority}").parse().unwrap());
        let mut operator = OperatorServiceClient::new(endpoint.connect().await.unwrap());
        operator.list_rulesets(generated_client::ListRulesetsRequest {}).await.map_err(|status| status.code())
    };
    assert!(call(address.to_string()).await.is_ok());
    assert!(call("localhost".into()).await.is_ok());
    assert_eq!(call("evil.example".into()).await.unwrap_err(), Code::PermissionDenied);
}

/// A path that does not exist is 404 on both ports; a gRPC method that does not exist is UNIMPLEMENTED. Both ports serve the
/// public keys of match credentials.
#[tokio::test]
async fn unknown_paths_are_404_on_both_ports() {
    let server = TestServer::start().await;
    let ports = [server.app.server.address, server.app.server.operator_address];
    let mut key_sets = Vec::new();
    for address in ports {
        let host = format!("host: {address}\r\n");
        for line in [
            "GET /",
            "GET /no-such-page",
            "GET /fireteam.v1.OperatorService/NoSuchMethod",
            "GET /grpc.health.v1.Health/x",
            "GET /metrics/x",
            "HEAD /robots.txt",
        ] {
            assert_eq!(status_of(&exchange(address, line, &host).await), "404", "{address} {line}");
        }
        let method = "POST /fireteam.v1.MatchmakingService/Search";
        let with_type = format!("{host}content-type: text/plain\r\ncontent-length: 0\r\n");
        assert_eq!(status_of(&exchange(address, method, &with_type).await), "415", "{address}");
        let jwks = exchange(address, "GET /.well-known/jwks.json", &host).await;
        assert_eq!(status_of(&jwks), "200", "{address}: {jwks}");
        key_sets.push(jwks.split_once("\r\n\r\n").unwrap().1.to_owned());

        let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
        let mut grpc = tonic::client::Grpc::new(channel);
        grpc.ready().await.unwrap();
        let codec = tonic_prost::ProstCodec::<(), ()>::default();
        let path = "/fireteam.v1.OperatorService/NoSuchMethod".parse().unwrap();
        let status = grpc.unary(tonic::Request::new(()), path, codec).await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented, "{address}: {status:?}");
    }
    assert!(key_sets[0].contains("Ed25519") && key_sets[0] == key_sets[1], "{key_sets:?}");
}
