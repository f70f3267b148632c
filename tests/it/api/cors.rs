//! CORS of the client port by setting: none by default, listed origins, and all.

use fireteam::config::Config;

use crate::support::http_client::{HttpClient, HttpResponse};
use crate::support::test_server::TestServer;

const GAME: &str = "https://game.example";
const PATH: &str = "/fireteam.v1.MatchmakingService/GetConfiguration";

async fn server_with(origins: &[&str]) -> TestServer {
    let origins = origins.iter().map(|&origin| origin.to_owned()).collect();
    TestServer::start_with_config(|config: &mut Config| config.cors_origins = origins).await
}

async fn preflight(client: &HttpClient, origin: &str) -> HttpResponse {
    let client = client
        .clone()
        .with_header("origin", origin)
        .with_header("access-control-request-method", "POST")
        .with_header("access-control-request-headers", "authorization,content-type,connect-protocol-version");
    client.send("OPTIONS", PATH, "").await
}

async fn call_from(client: &HttpClient, origin: &str) -> HttpResponse {
    client.clone().with_header("origin", origin).call(PATH, r#"{"matchmakingSetId":1}"#).await
}

#[tokio::test]
async fn cors_is_off_by_default() {
    let server = server_with(&[]).await;
    let client = HttpClient::new(server.app.server.address);
    let refused = preflight(&client, GAME).await;
    assert_eq!(refused.status, 405);
    assert!(!refused.headers.contains_key("access-control-allow-origin"));
    let response = call_from(&client, GAME).await;
    response.success();
    assert!(
        !response.headers.keys().any(|name| name.as_str().starts_with("access-control-")),
        "{:?}",
        response.headers
    );
}

/// Only a listed origin is allowed. The preflight may be cached, and allows the headers of tokens, which a wildcard does not.
#[tokio::test]
async fn cors_allows_the_listed_origins_only() {
    let server = server_with(&[GAME, "http://localhost:8080"]).await;
    let client = HttpClient::new(server.app.server.address);
    for origin in [GAME, "http://localhost:8080"] {
        let allowed = preflight(&client, origin).await;
        assert_eq!(allowed.status, 200);
        assert_eq!(allowed.headers["access-control-allow-origin"], origin);
        assert_eq!(allowed.headers["access-control-allow-methods"], "POST");
        assert_eq!(allowed.headers["access-control-max-age"], "3600");
        let headers = allowed.headers["access-control-allow-headers"].to_str().unwrap().to_lowercase();
        for name in ["authorization", "content-type", "connect-protocol-version"] {
            assert!(headers.contains(name), "{headers}");
        }
        let response = call_from(&client, origin).await;
        response.success();
        assert_eq!(response.headers["access-control-allow-origin"], origin);
        assert!(!response.headers.contains_key("access-control-allow-credentials"));
        let exposed = response.headers["access-control-expose-headers"].to_str().unwrap();
        for name in ["grpc-status", "grpc-message", "grpc-status-details-bin", "grpc-retry-pushback-ms"] {
            assert!(exposed.contains(name), "{exposed}");
        }
        // Caches must not give the answer for one origin to another.
        let varies = response.headers.get_all("vary").iter().any(|value| value.to_str().unwrap().contains("origin"));
        assert!(varies, "{:?}", response.headers);
    }
    for origin in ["https://evil.example", "http://game.example", "https://game.example:8443", "null"] {
        for response in [preflight(&client, origin).await, call_from(&client, origin).await] {
            assert!(!response.headers.contains_key("access-control-allow-origin"), "{origin}: {:?}", response.headers);
        }
    }
}

/// Errors have the headers too, or a page could not read them. The operator port has none in any case.
#[tokio::test]
async fn cors_of_all_origins_covers_errors_and_leaves_the_operator_port_out() {
    let server = server_with(&["*"]).await;
    let client = HttpClient::new(server.app.server.address);
    assert_eq!(preflight(&client, GAME).await.headers["access-control-allow-origin"], "*");
    let failed = client.clone().with_header("origin", GAME).call(PATH, "{").await;
    failed.failure(400, "invalid_argument");
    assert_eq!(failed.headers["access-control-allow-origin"], "*");
    let operators = HttpClient::new(server.app.server.operator_address);
    for response in [preflight(&operators, GAME).await, call_from(&operators, GAME).await] {
        assert_eq!(response.status, 403);
        assert!(!response.headers.contains_key("access-control-allow-origin"));
    }
}
