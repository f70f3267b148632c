//! Typed client: one function per RPC, with deadlines, authentication and retries.

use std::time::Duration;

use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue, MetadataMap};
#[cfg(feature = "tls")]
use tonic::transport::ClientTlsConfig;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status, Streaming};

use crate::advertisement::{Advertisement, UpdateChannel};
use crate::connection::{self, Connection, ReservationEvents};
use crate::error::Error;
use crate::pb;
use crate::pb::matchmaking_service_client::MatchmakingServiceClient;
use crate::pb::queue_service_client::QueueServiceClient;
use crate::random;
use crate::retry::RetryPolicy;
use crate::search::SearchSession;
use crate::ticket::{Ticket, TicketStream};
use crate::token_source::TokenSource;

/// Default deadline of one attempt; [`Client::with_deadline`] changes it.
const DEFAULT_DEADLINE: Duration = Duration::from_secs(5);
/// Timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval of HTTP/2 keepalive pings on an idle connection. Routers drop idle connections after some minutes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);

/// Client of a fireteam server. Cloning is cheap: clones share one HTTP/2 connection.
#[derive(Clone, Debug)]
pub struct Client {
    channel: Channel,
    metadata: MetadataMap,
    token_source: Option<TokenSource>,
    retry_policy: RetryPolicy,
    deadline: Duration,
}

impl Client {
    /// Connects to `endpoint`, a URI such as `http://127.0.0.1:50051`. Fails at once if no server listens there; later
    /// the client reconnects automatically.
    pub async fn connect(endpoint: impl Into<String>) -> Result<Self, Error> {
        let uri = endpoint.into();
        let endpoint = Endpoint::from_shared(uri.clone()).map_err(|_| Error::InvalidEndpoint(uri))?;
        Self::connect_to(endpoint).await
    }

    /// Connects to `endpoint`, a URI such as `https://match.example:443`, with TLS. `tls` has the CA certificates, the
    /// expected name, and the client certificate for a server that requires one.
    #[cfg(feature = "tls")]
    pub async fn connect_tls(endpoint: impl Into<String>, tls: ClientTlsConfig) -> Result<Self, Error> {
        let uri = endpoint.into();
        let endpoint = Endpoint::from_shared(uri.clone()).map_err(|_| Error::InvalidEndpoint(uri))?;
        let endpoint = endpoint.tls_config(tls).map_err(|error| Status::from_error(Box::new(error)))?;
        Self::connect_to(endpoint).await
    }

    async fn connect_to(endpoint: Endpoint) -> Result<Self, Error> {
        let channel = endpoint
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
            .keep_alive_while_idle(true)
            .connect()
            .await
            .map_err(|error| Status::from_error(Box::new(error)))?;
        Ok(Self::from_channel(channel))
    }

    /// Uses a channel of the caller, such as one with its own TLS settings or load balancer.
    pub fn from_channel(channel: Channel) -> Self {
        Self {
            channel,
            metadata: MetadataMap::new(),
            token_source: None,
            retry_policy: RetryPolicy::default(),
            deadline: DEFAULT_DEADLINE,
        }
    }

    /// Sends a token of `token_source` with every call and every stream. A call that fails with UNAUTHENTICATED is
    /// repeated once if the source can provide another token.
    pub fn with_token_source(mut self, token_source: TokenSource) -> Self {
        self.token_source = Some(token_source);
        self
    }

    /// Sends `key: value` with every call and every stream.
    pub fn with_metadata(mut self, key: &str, value: &str) -> Result<Self, Error> {
        let invalid = || Error::InvalidMetadata(key.to_owned());
        let header: AsciiMetadataKey = key.parse().map_err(|_| invalid())?;
        let value: AsciiMetadataValue = value.parse().map_err(|_| invalid())?;
        self.metadata.insert(header, value);
        Ok(self)
    }

    /// Sets the retry policy.
    pub fn with_retry_policy(mut self, retry_policy: RetryPolicy) -> Self {
        self.retry_policy = retry_policy;
        self
    }

    /// Sets the deadline of each attempt, and of each response on a [`Connection`].
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Generated stub of the matchmaking service. It adds no token, metadata or idempotency key, and never retries.
    pub fn matchmaking_stub(&self) -> MatchmakingServiceClient<Channel> {
        MatchmakingServiceClient::new(self.channel.clone())
    }

    /// Generated stub of the queue service. It adds no token, metadata or idempotency key, and never retries.
    pub fn queue_stub(&self) -> QueueServiceClient<Channel> {
        QueueServiceClient::new(self.channel.clone())
    }

    /// Publishes a session and returns its handle. Leave the id and token of `request` empty.
    pub async fn advertise(&self, request: pb::MatchmakingUpdateAdvertisementRequest) -> Result<Advertisement, Error> {
        Advertisement::publish(UpdateChannel::Unary(Box::new(self.clone())), request).await
    }

    /// Creates a search of `set_id` for `party`. Sends no request yet.
    pub fn search_session(&self, set_id: u32, party: pb::SessionCompositionData) -> SearchSession {
        SearchSession::new(self.clone(), set_id, party)
    }

    /// Opens a stream with many requests in flight, which also receives reservation events.
    pub async fn open_stream(&self) -> Result<(Connection, ReservationEvents), Error> {
        let (metadata, sent_token) = self.request_metadata().await?;
        let result = connection::open_connection(self.matchmaking_stub(), metadata, self.deadline).await;
        match result {
            Err(error) if self.can_renew_token(&error, sent_token.as_ref()).await => {
                let (metadata, _) = self.request_metadata().await?;
                connection::open_connection(self.matchmaking_stub(), metadata, self.deadline).await
            }
            result => result,
        }
    }

    /// Sends a core request: an envelope with one of four requests.
    pub async fn core(&self, mut request: pb::MatchmakingCoreRequest) -> Result<pb::MatchmakingCoreResponse, Error> {
        if let Some(update) = request.update_advertisement_request.as_mut() {
            ensure_idempotency_key(update);
        }
        self.call_matchmaking(request, |mut stub, request| async move { stub.core(request).await }).await
    }

    /// Searches once. A [`SearchSession`] keeps the token between searches.
    pub async fn search(&self, request: pb::MatchmakingSearchRequest) -> Result<pb::MatchmakingSearchResponse, Error> {
        self.call_matchmaking(request, |mut stub, request| async move { stub.search(request).await }).await
    }

    /// Publishes or replaces an advertisement, or extends its TTL. Adds an idempotency key to a new advertisement
    /// without one.
    pub async fn update_advertisement(
        &self,
        mut request: pb::MatchmakingUpdateAdvertisementRequest,
    ) -> Result<pb::MatchmakingUpdateAdvertisementResponse, Error> {
        ensure_idempotency_key(&mut request);
        self.call_matchmaking(request, |mut stub, request| async move { stub.update_advertisement(request).await })
            .await
    }

    /// Deletes an advertisement. Succeeds if it is already deleted.
    pub async fn delete_advertisement(
        &self,
        request: pb::MatchmakingDeleteAdvertisementRequest,
    ) -> Result<pb::MatchmakingDeleteAdvertisementResponse, Error> {
        self.call_matchmaking(request, |mut stub, request| async move { stub.delete_advertisement(request).await })
            .await
    }

    /// Fetches the ruleset of a set.
    pub async fn get_configuration(
        &self,
        request: pb::MatchmakingGetConfigurationRequest,
    ) -> Result<pb::MatchmakingGetConfigurationResponse, Error> {
        self.call_matchmaking(request, |mut stub, request| async move { stub.get_configuration(request).await }).await
    }

    /// Reserves seats. Adds an idempotency key to a request without one.
    pub async fn reserve(
        &self,
        mut request: pb::MatchmakingReserveRequest,
    ) -> Result<pb::MatchmakingReserveResponse, Error> {
        if request.idempotency_key.is_empty() {
            request.idempotency_key = random::idempotency_key();
        }
        self.call_matchmaking(request, |mut stub, request| async move { stub.reserve(request).await }).await
    }

    /// Releases reserved seats.
    pub async fn release(
        &self,
        request: pb::MatchmakingReleaseRequest,
    ) -> Result<pb::MatchmakingReleaseResponse, Error> {
        self.call_matchmaking(request, |mut stub, request| async move { stub.release(request).await }).await
    }

    /// Reports measured round trips and returns the candidates in their new order.
    pub async fn report_latency(
        &self,
        request: pb::MatchmakingReportLatencyRequest,
    ) -> Result<pb::MatchmakingReportLatencyResponse, Error> {
        self.call_matchmaking(request, |mut stub, request| async move { stub.report_latency(request).await }).await
    }

    /// Returns whether a party of `party_size` should search or advertise.
    pub async fn choose_action(
        &self,
        set_id: u32,
        party_size: u32,
    ) -> Result<pb::MatchmakingChooseActionResponse, Error> {
        let request = pb::MatchmakingChooseActionRequest { matchmaking_set_id: Some(set_id), party_size };
        self.call_matchmaking(request, |mut stub, request| async move { stub.choose_action(request).await }).await
    }

    /// Allows `leader` to include this client's player in its party. Pass the returned token to the leader's client, which
    /// sends it as `consent_token`.
    pub async fn grant_consent(&self, leader: &str) -> Result<pb::MatchmakingGrantConsentResponse, Error> {
        let request = pb::MatchmakingGrantConsentRequest { leader_user_id: leader.to_owned() };
        self.call_matchmaking(request, |mut stub, request| async move { stub.grant_consent(request).await }).await
    }

    /// Enters a party into a queue and returns the handle of its ticket. Adds an idempotency key to a request without one.
    pub async fn enter(&self, mut request: pb::QueueEnterRequest) -> Result<Ticket, Error> {
        if request.idempotency_key.is_empty() {
            request.idempotency_key = random::idempotency_key();
        }
        let entered = self.call_queue(request, |mut stub, request| async move { stub.enter(request).await }).await?;
        Ticket::new(self.clone(), entered)
    }

    /// Removes a ticket from its queue, or returns the match that it already has.
    pub async fn leave(&self, request: pb::QueueLeaveRequest) -> Result<pb::QueueLeaveResponse, Error> {
        self.call_queue(request, |mut stub, request| async move { stub.leave(request).await }).await
    }

    /// Accepts or declines a proposed match.
    pub async fn respond(&self, request: pb::QueueRespondRequest) -> Result<pb::QueueRespondResponse, Error> {
        self.call_queue(request, |mut stub, request| async move { stub.respond(request).await }).await
    }

    /// Extends the TTL of tickets, and reports connected players.
    pub async fn heartbeat(&self, request: pb::QueueHeartbeatRequest) -> Result<pb::QueueHeartbeatResponse, Error> {
        self.call_queue(request, |mut stub, request| async move { stub.heartbeat(request).await }).await
    }

    /// Ends a match, or reports that it could not be hosted.
    pub async fn end_match(&self, request: pb::QueueEndMatchRequest) -> Result<pb::QueueEndMatchResponse, Error> {
        self.call_queue(request, |mut stub, request| async move { stub.end_match(request).await }).await
    }

    /// Streams the updates of tickets; waiting tickets do not expire meanwhile. Reconnects automatically.
    pub fn watch(&self, tickets: impl IntoIterator<Item = pb::TicketReference>) -> TicketStream {
        TicketStream::new(self.clone(), tickets.into_iter().collect())
    }

    /// Opens a stream of ticket updates, without retries except for a rejected token.
    pub(crate) async fn open_watch_stream(
        &self,
        request: pb::QueueWatchRequest,
    ) -> Result<Streaming<pb::QueueWatchResponse>, Error> {
        let mut renewed = false;
        loop {
            let mut attempt = Request::new(request.clone());
            let (metadata, sent_token) = self.request_metadata().await?;
            *attempt.metadata_mut() = metadata;
            match self.queue_stub().watch(attempt).await.map_err(Error::from) {
                Ok(response) => return Ok(response.into_inner()),
                Err(error) if !renewed && self.can_renew_token(&error, sent_token.as_ref()).await => renewed = true,
                Err(error) => return Err(error),
            }
        }
    }

    /// Retry policy of this client.
    pub(crate) fn retry_policy(&self) -> RetryPolicy {
        self.retry_policy
    }

    async fn call_queue<Req, Resp, Call>(
        &self,
        request: Req,
        call: impl Fn(QueueServiceClient<Channel>, Request<Req>) -> Call,
    ) -> Result<Resp, Error>
    where
        Req: Clone,
        Call: Future<Output = Result<Response<Resp>, Status>>,
    {
        self.call_with_retries(request, |channel, request| call(QueueServiceClient::new(channel), request)).await
    }

    async fn call_matchmaking<Req, Resp, Call>(
        &self,
        request: Req,
        call: impl Fn(MatchmakingServiceClient<Channel>, Request<Req>) -> Call,
    ) -> Result<Resp, Error>
    where
        Req: Clone,
        Call: Future<Output = Result<Response<Resp>, Status>>,
    {
        self.call_with_retries(request, |channel, request| call(MatchmakingServiceClient::new(channel), request)).await
    }

    /// Metadata of a call, and the `authorization` value in it, if any.
    async fn request_metadata(&self) -> Result<(MetadataMap, Option<AsciiMetadataValue>), Error> {
        let mut metadata = self.metadata.clone();
        let Some(token_source) = &self.token_source else { return Ok((metadata, None)) };
        let header = token_source.authorization_header().await?;
        metadata.insert("authorization", header.clone());
        Ok((metadata, Some(header)))
    }

    /// Whether a call that failed with `error` can be repeated with another token than `sent_token`.
    async fn can_renew_token(&self, error: &Error, sent_token: Option<&AsciiMetadataValue>) -> bool {
        match (&self.token_source, sent_token) {
            (Some(token_source), Some(sent_token)) if error.code() == Some(Code::Unauthenticated) => {
                token_source.invalidate(sent_token).await
            }
            _ => false,
        }
    }

    /// Makes a call, and repeats it as the [`RetryPolicy`] allows.
    pub(crate) async fn call_with_retries<Req, Resp, Call>(
        &self,
        request: Req,
        call: impl Fn(Channel, Request<Req>) -> Call,
    ) -> Result<Resp, Error>
    where
        Req: Clone,
        Call: Future<Output = Result<Response<Resp>, Status>>,
    {
        let (mut attempts, mut renewed) = (0, false);
        loop {
            let mut attempt = Request::new(request.clone());
            let (metadata, sent_token) = self.request_metadata().await?;
            *attempt.metadata_mut() = metadata;
            attempt.set_timeout(self.deadline);
            let error = match call(self.channel.clone(), attempt).await {
                Ok(response) => return Ok(response.into_inner()),
                Err(status) => Error::from(status),
            };
            if !renewed && self.can_renew_token(&error, sent_token.as_ref()).await {
                renewed = true;
                continue;
            }
            attempts += 1;
            match self.retry_policy.backoff_after(attempts, &error, random::jitter()) {
                Some(backoff) => tokio::time::sleep(backoff).await,
                None => return Err(error),
            }
        }
    }
}

/// Adds an idempotency key to a create request, so that a retry creates no second advertisement.
pub(crate) fn ensure_idempotency_key(update: &mut pb::MatchmakingUpdateAdvertisementRequest) {
    if update.advertisement_id.is_empty() && update.idempotency_key.is_empty() {
        update.idempotency_key = random::idempotency_key();
    }
}
