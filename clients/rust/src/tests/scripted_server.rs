//! Scripted server: implements the generated service trait, answers from a script and records the requests.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status, Streaming};

use crate::client::Client;
use crate::pb;
use crate::pb::latency_service_server::LatencyServiceServer;
use crate::pb::matchmaking_service_server::{MatchmakingService, MatchmakingServiceServer};

use super::scripted_beacon::ScriptedBeacon;

type RecordedRequests<T> = Mutex<Vec<T>>;
/// Sender of the messages that the server pushes on an open stream.
pub(crate) type ResponseSender = mpsc::Sender<Result<pb::MatchmakingConnectResponse, Status>>;

/// Failures to return and requests received. Each failure is returned once.
#[derive(Debug, Default)]
pub(crate) struct ServerScript {
    pub(crate) failures: Mutex<Vec<Status>>,
    pub(crate) metadata: RecordedRequests<MetadataMap>,
    pub(crate) searches: RecordedRequests<pb::MatchmakingSearchRequest>,
    pub(crate) updates: RecordedRequests<pb::MatchmakingUpdateAdvertisementRequest>,
    pub(crate) deletes: RecordedRequests<pb::MatchmakingDeleteAdvertisementRequest>,
    pub(crate) reserves: RecordedRequests<pb::MatchmakingReserveRequest>,
    pub(crate) releases: RecordedRequests<pb::MatchmakingReleaseRequest>,
    pub(crate) reports: RecordedRequests<pb::MatchmakingReportLatencyRequest>,
    /// Answer to searches, instead of one candidate without a plan.
    pub(crate) found: Mutex<Option<pb::MatchmakingSearchResponse>>,
    /// Id of the client's advertisement, instead of "ad".
    pub(crate) advertisement_id: Mutex<Option<String>>,
    /// Parties advertise.
    pub(crate) advertises: AtomicBool,
    /// Server's ends of the open streams: received requests, and the sender of responses.
    pub(crate) streams: Mutex<Vec<(Streaming<pb::MatchmakingConnectRequest>, ResponseSender)>>,
}

impl ServerScript {
    /// Starts a server with this script, and connects a client to it.
    pub(crate) async fn start(self) -> (Arc<ServerScript>, Client) {
        self.start_with(None).await
    }

    /// The same with beacons.
    pub(crate) async fn start_with(self, beacon: Option<Arc<ScriptedBeacon>>) -> (Arc<ServerScript>, Client) {
        let script = Arc::new(self);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}", listener.local_addr().unwrap());
        let server = tonic::transport::Server::builder()
            .add_service(MatchmakingServiceServer::new(ScriptedServer(script.clone())))
            .add_optional_service(beacon.map(LatencyServiceServer::from_arc));
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        (script, Client::connect(uri).await.unwrap())
    }

    /// Server's end of the latest stream.
    pub(crate) fn latest_stream(&self) -> (Streaming<pb::MatchmakingConnectRequest>, ResponseSender) {
        self.streams.lock().unwrap().pop().expect("a stream is open")
    }

    fn record_request<T>(
        &self,
        metadata: &MetadataMap,
        requests: &RecordedRequests<T>,
        request: T,
    ) -> Result<(), Status> {
        self.metadata.lock().unwrap().push(metadata.clone());
        requests.lock().unwrap().push(request);
        match self.failures.lock().unwrap().pop() {
            Some(status) => Err(status),
            None => Ok(()),
        }
    }
}

struct ScriptedServer(Arc<ServerScript>);

#[tonic::async_trait]
impl MatchmakingService for ScriptedServer {
    async fn core(
        &self,
        request: Request<pb::MatchmakingCoreRequest>,
    ) -> Result<Response<pb::MatchmakingCoreResponse>, Status> {
        let request_nonce = request.into_inner().request_nonce;
        Ok(Response::new(pb::MatchmakingCoreResponse { request_nonce, ..Default::default() }))
    }

    type ConnectStream = ReceiverStream<Result<pb::MatchmakingConnectResponse, Status>>;

    async fn connect(
        &self,
        request: Request<Streaming<pb::MatchmakingConnectRequest>>,
    ) -> Result<Response<Self::ConnectStream>, Status> {
        let (responses, answers) = mpsc::channel(1_024);
        self.0.streams.lock().unwrap().push((request.into_inner(), responses));
        Ok(Response::new(ReceiverStream::new(answers)))
    }

    async fn search(
        &self,
        request: Request<pb::MatchmakingSearchRequest>,
    ) -> Result<Response<pb::MatchmakingSearchResponse>, Status> {
        let (metadata, _, search) = request.into_parts();
        let search_token = [search.search_token.as_slice(), b"+"].concat();
        self.0.record_request(&metadata, &self.0.searches, search)?;
        if let Some(found) = self.0.found.lock().unwrap().clone() {
            return Ok(Response::new(pb::MatchmakingSearchResponse { search_token, ..found }));
        }
        let answer = pb::MatchmakingSearchResponse {
            search_token,
            next_expansion_in_ms: Some(10_000),
            candidates: vec![pb::Candidate { advertisement_id: "ad".into(), ..Default::default() }],
            ..Default::default()
        };
        Ok(Response::new(answer))
    }

    async fn update_advertisement(
        &self,
        request: Request<pb::MatchmakingUpdateAdvertisementRequest>,
    ) -> Result<Response<pb::MatchmakingUpdateAdvertisementResponse>, Status> {
        let (metadata, _, update) = request.into_parts();
        let created = update.advertisement_id.is_empty();
        self.0.record_request(&metadata, &self.0.updates, update)?;
        let answer = pb::MatchmakingUpdateAdvertisementResponse {
            advertisement_id: self.0.advertisement_id.lock().unwrap().clone().unwrap_or_else(|| "ad".into()),
            advertisement_token: b"mine".to_vec(),
            created,
            expires_in_ms: 30_000,
            ..Default::default()
        };
        Ok(Response::new(answer))
    }

    async fn delete_advertisement(
        &self,
        request: Request<pb::MatchmakingDeleteAdvertisementRequest>,
    ) -> Result<Response<pb::MatchmakingDeleteAdvertisementResponse>, Status> {
        let (metadata, _, delete) = request.into_parts();
        self.0.record_request(&metadata, &self.0.deletes, delete)?;
        Ok(Response::new(Default::default()))
    }

    async fn get_configuration(
        &self,
        _: Request<pb::MatchmakingGetConfigurationRequest>,
    ) -> Result<Response<pb::MatchmakingGetConfigurationResponse>, Status> {
        Ok(Response::new(Default::default()))
    }

    async fn reserve(
        &self,
        request: Request<pb::MatchmakingReserveRequest>,
    ) -> Result<Response<pb::MatchmakingReserveResponse>, Status> {
        let (metadata, _, reserve) = request.into_parts();
        self.0.record_request(&metadata, &self.0.reserves, reserve)?;
        let reservation = pb::Reservation {
            reservation_id: "seat".into(),
            reservation_token: b"ours".to_vec(),
            seats: 2,
            expires_in_ms: 15_000,
        };
        let connect_data = b"host:1".to_vec();
        Ok(Response::new(pb::MatchmakingReserveResponse { reservation: Some(reservation), connect_data }))
    }

    async fn release(
        &self,
        request: Request<pb::MatchmakingReleaseRequest>,
    ) -> Result<Response<pb::MatchmakingReleaseResponse>, Status> {
        let (metadata, _, release) = request.into_parts();
        self.0.record_request(&metadata, &self.0.releases, release)?;
        Ok(Response::new(Default::default()))
    }

    async fn report_latency(
        &self,
        request: Request<pb::MatchmakingReportLatencyRequest>,
    ) -> Result<Response<pb::MatchmakingReportLatencyResponse>, Status> {
        let (metadata, _, report) = request.into_parts();
        self.0.record_request(&metadata, &self.0.reports, report.clone())?;
        let mut answered = report.measurements;
        answered.retain(|measurement| measurement.outcome() == pb::ProbeOutcome::Answered);
        answered.sort_by(|left, right| left.round_trip_ms().total_cmp(&right.round_trip_ms()));
        let candidate = |measurement: pb::LatencyMeasurement| pb::Candidate {
            advertisement_id: measurement.advertisement_id,
            round_trip_ms: measurement.round_trip_ms,
            ..Default::default()
        };
        Ok(Response::new(pb::MatchmakingReportLatencyResponse {
            candidates: answered.into_iter().map(candidate).collect(),
            involved_phase_may_start: report.phase == pb::LatencyPhase::Quick as i32,
            search_token: [report.search_token.as_slice(), b"!"].concat(),
            ..Default::default()
        }))
    }

    async fn choose_action(
        &self,
        _: Request<pb::MatchmakingChooseActionRequest>,
    ) -> Result<Response<pb::MatchmakingChooseActionResponse>, Status> {
        let advertises = self.0.advertises.load(Ordering::SeqCst);
        let action = if advertises { pb::MatchmakingAction::Advertise } else { pb::MatchmakingAction::Search };
        Ok(Response::new(pb::MatchmakingChooseActionResponse { action: action.into(), ..Default::default() }))
    }

    async fn start_match(
        &self,
        _: Request<pb::MatchmakingStartMatchRequest>,
    ) -> Result<Response<pb::MatchmakingStartMatchResponse>, Status> {
        Ok(Response::new(Default::default()))
    }

    async fn grant_consent(
        &self,
        _: Request<pb::MatchmakingGrantConsentRequest>,
    ) -> Result<Response<pb::MatchmakingGrantConsentResponse>, Status> {
        Ok(Response::new(Default::default()))
    }

    async fn update_block_list(
        &self,
        _: Request<pb::MatchmakingUpdateBlockListRequest>,
    ) -> Result<Response<pb::MatchmakingUpdateBlockListResponse>, Status> {
        Ok(Response::new(Default::default()))
    }

    async fn revoke_consent(
        &self,
        _: Request<pb::MatchmakingRevokeConsentRequest>,
    ) -> Result<Response<pb::MatchmakingRevokeConsentResponse>, Status> {
        Ok(Response::new(Default::default()))
    }
}
