//! Reference of GEO: the nearest of many places by `GEOSEARCH`, behind the Search call.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use fireteam::domain::locality::{KM_PER_MILE, Locality};
use fireteam_client::pb;
use futures_core::future::BoxFuture;
use http::{Request, Response};
use redis::aio::MultiplexedConnection;
use tonic::Status;
use tonic::body::Body;
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic_prost::ProstCodec;
use tower::Service;

use crate::rpc::echo::serve_on_free_port;
use crate::rpc::redis_server::connect;

/// Sorted set of the places.
const PLACES: &str = "places";
/// Places of an answer.
const RESULTS: usize = 50;
/// Half of the Earth's circumference, km: no place is farther.
const RADIUS_MAX_KM: u64 = 20_038;
/// Connections; each call takes the next.
const CONNECTIONS: usize = 4;
/// Places of one GEOADD.
const ADDED_TOGETHER: usize = 1_000;

/// Adds places, numbered from 0.
pub(crate) async fn fill(redis: SocketAddr, places: impl Iterator<Item = (f64, f64)>) {
    let mut connection = connect(redis).await;
    let mut places = places.enumerate().peekable();
    while places.peek().is_some() {
        let mut add = redis::cmd("GEOADD");
        add.arg(PLACES);
        for (number, (latitude, longitude)) in places.by_ref().take(ADDED_TOGETHER) {
            add.arg(longitude).arg(latitude).arg(number);
        }
        add.query_async::<()>(&mut connection).await.expect("the places are added");
    }
}

/// State of the server.
struct Searcher {
    connections: Vec<MultiplexedConnection>,
    next: AtomicUsize,
    radius_km: u64,
}

impl Searcher {
    /// The nearest places. The radius doubles until it holds enough.
    async fn search(&self, request: pb::MatchmakingSearchRequest) -> Result<pb::MatchmakingSearchResponse, Status> {
        let party = request.session_composition.unwrap_or_default();
        let place = party.locality_info.unwrap_or_default();
        let (latitude, longitude) = match (place.locality_x, place.locality_y, place.locality_z) {
            (Some(x), Some(y), Some(z)) => Locality { x, y, z }.to_degrees(),
            _ => return Err(Status::invalid_argument("session_composition.locality_info: x, y and z are needed")),
        };
        let mut connection = self.connections[self.next.fetch_add(1, Ordering::Relaxed) % CONNECTIONS].clone();
        let mut radius_km = self.radius_km;
        loop {
            let mut search = redis::cmd("GEOSEARCH");
            search.arg(PLACES).arg("FROMLONLAT").arg(longitude).arg(latitude).arg("BYRADIUS").arg(radius_km).arg("km");
            search.arg("ASC").arg("COUNT").arg(RESULTS).arg("WITHDIST");
            let found: Vec<(String, f64)> =
                search.query_async(&mut connection).await.map_err(|error| Status::unavailable(error.to_string()))?;
            if found.len() < RESULTS && radius_km < RADIUS_MAX_KM {
                radius_km = RADIUS_MAX_KM.min(radius_km * 2);
                continue;
            }
            let candidates = found.into_iter().map(|(advertisement_id, distance_km)| pb::Candidate {
                advertisement_id,
                distance_miles: Some((distance_km / KM_PER_MILE) as f32),
                ..Default::default()
            });
            return Ok(pb::MatchmakingSearchResponse { candidates: candidates.collect(), ..Default::default() });
        }
    }
}

struct SearchCall(Arc<Searcher>);

impl UnaryService<pb::MatchmakingSearchRequest> for SearchCall {
    type Response = pb::MatchmakingSearchResponse;
    type Future = BoxFuture<'static, Result<tonic::Response<Self::Response>, Status>>;

    fn call(&mut self, request: tonic::Request<pb::MatchmakingSearchRequest>) -> Self::Future {
        let searcher = Arc::clone(&self.0);
        Box::pin(async move { searcher.search(request.into_inner()).await.map(tonic::Response::new) })
    }
}

/// The service, as `tonic_build` would generate it.
#[derive(Clone)]
struct RedisSearch(Arc<Searcher>);

impl NamedService for RedisSearch {
    const NAME: &'static str = "fireteam.v1.MatchmakingService";
}

impl Service<Request<Body>> for RedisSearch {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let searcher = Arc::clone(&self.0);
        Box::pin(async move { Ok(Grpc::new(ProstCodec::default()).unary(SearchCall(searcher), request).await) })
    }
}

/// Serves on a free port and returns the address. Each search begins with this radius.
pub(crate) async fn serve(redis: SocketAddr, radius_km: u64) -> SocketAddr {
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(connect(redis).await);
    }
    serve_on_free_port(RedisSearch(Arc::new(Searcher { connections, next: AtomicUsize::new(0), radius_km }))).await
}
