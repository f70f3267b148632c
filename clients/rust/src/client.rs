//! Typed calls: each door of the server as one function, repeated when the server is out of reach.

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

/// How long one attempt may take, unless [`Client::with_deadline`] says otherwise.
const DEFAULT_DEADLINE: Duration = Duration::from_secs(5);
/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a quiet connection is asked whether it is still there. Routers forget idle ones after some minutes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);

/// A fireteam server, seen from a game. Cloning is cheap: clones share one HTTP/2 connection.
#[derive(Clone, Debug)]
pub struct Client {
    channel: Channel,
    metadata: MetadataMap,
    token_source: Option<TokenSource>,
    retry_policy: RetryPolicy,
    deadline: Duration,
}

impl Client {
    /// Connects to `endpoint`, a URI such as `http://127.0.0.1:50051`. Fails at once when nobody answers there; later
    /// the connection is renewed by itself.
    pub async fn connect(endpoint: impl Into<String>) -> Result<Self, Error> {
        let uri = endpoint.into();
        let endpoint = Endpoint::from_shared(uri.clone()).map_err(|_| Error::InvalidEndpoint(uri))?;
        Self::connect_to(endpoint).await
    }

    /// Connects to `endpoint`, a URI such as `https://match.example:443`, by TLS as `tls` has it: whose certificates are
    /// believed, which name is expected, and the certificate to show, where the server asks for one.
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

    /// Speaks over a channel that the caller has made, with TLS or a balancer of its own.
    pub fn from_channel(channel: Channel) -> Self {
        Self {
            channel,
            metadata: MetadataMap::new(),
            token_source: None,
            retry_policy: RetryPolicy::default(),
            deadline: DEFAULT_DEADLINE,
        }
    }

    /// Shows a token of `tokens` with every call and every stream. A call that a server refuses as UNAUTHENTICATED is
    /// made once more if another token can be had.
    pub fn with_token_source(mut self, tokens: TokenSource) -> Self {
        self.token_source = Some(tokens);
        self
    }

    /// Sends `key: value` with every call and every stream.
    pub fn with_metadata(mut self, key: &str, value: &str) -> Result<Self, Error> {
        let wrong = || Error::InvalidMetadata(key.to_owned());
        let header: AsciiMetadataKey = key.parse().map_err(|_| wrong())?;
        let value: AsciiMetadataValue = value.parse().map_err(|_| wrong())?;
        self.metadata.insert(header, value);
        Ok(self)
    }

    /// Repeats calls so and no other way.
    pub fn with_retry_policy(mut self, retries: RetryPolicy) -> Self {
        self.retry_policy = retries;
        self
    }

    /// Gives each attempt this long, and each answer on a [`Connection`].
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// The generated stub, for calls that shall go out exactly as they are: no token, no metadata, no key, no second
    /// attempt.
    pub fn matchmaking_stub(&self) -> MatchmakingServiceClient<Channel> {
        MatchmakingServiceClient::new(self.channel.clone())
    }

    /// The same, of the queues.
    pub fn queue_stub(&self) -> QueueServiceClient<Channel> {
        QueueServiceClient::new(self.channel.clone())
    }

    /// Publishes a session and returns the handle that keeps it alive. The id and token of `request` stay empty.
    pub async fn advertise(&self, request: pb::MatchmakingUpdateAdvertisementRequest) -> Result<Advertisement, Error> {
        Advertisement::publish(UpdateChannel::Unary(Box::new(self.clone())), request).await
    }

    /// Begins a search of `set_id` for `party`. Asks nothing yet.
    pub fn search_session(&self, set_id: u32, party: pb::SessionCompositionData) -> SearchSession {
        SearchSession::new(self.clone(), set_id, party)
    }

    /// Opens the stream on which many requests are in flight and reservations are heard of.
    pub async fn open_stream(&self) -> Result<(Connection, ReservationEvents), Error> {
        let (metadata, shown) = self.request_metadata().await?;
        let opened = connection::open_connection(self.matchmaking_stub(), metadata, self.deadline).await;
        match opened {
            Err(error) if self.can_renew_token(&error, shown.as_ref()).await => {
                connection::open_connection(self.matchmaking_stub(), self.request_metadata().await?.0, self.deadline)
                    .await
            }
            opened => opened,
        }
    }

    /// The envelope with one of the four core requests.
    pub async fn core(&self, mut request: pb::MatchmakingCoreRequest) -> Result<pb::MatchmakingCoreResponse, Error> {
        if let Some(update) = request.update_advertisement_request.as_mut() {
            ensure_idempotency_key(update);
        }
        self.call_matchmaking(request, |mut stub, request| async move { stub.core(request).await }).await
    }

    /// Searches once. [`Searching`] keeps the token between searches.
    pub async fn search(&self, request: pb::MatchmakingSearchRequest) -> Result<pb::MatchmakingSearchResponse, Error> {
        self.call_matchmaking(request, |mut stub, request| async move { stub.search(request).await }).await
    }

    /// Publishes, replaces or keeps alive. A new advertisement without a key is given one.
    pub async fn update_advertisement(
        &self,
        mut request: pb::MatchmakingUpdateAdvertisementRequest,
    ) -> Result<pb::MatchmakingUpdateAdvertisementResponse, Error> {
        ensure_idempotency_key(&mut request);
        self.call_matchmaking(request, |mut stub, request| async move { stub.update_advertisement(request).await })
            .await
    }

    /// Withdraws an advertisement; one that is gone already is a success.
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

    /// Takes seats. A request without a key is given one.
    pub async fn reserve(
        &self,
        mut request: pb::MatchmakingReserveRequest,
    ) -> Result<pb::MatchmakingReserveResponse, Error> {
        if request.idempotency_key.is_empty() {
            request.idempotency_key = random::idempotency_key();
        }
        self.call_matchmaking(request, |mut stub, request| async move { stub.reserve(request).await }).await
    }

    /// Gives seats back.
    pub async fn release(
        &self,
        request: pb::MatchmakingReleaseRequest,
    ) -> Result<pb::MatchmakingReleaseResponse, Error> {
        self.call_matchmaking(request, |mut stub, request| async move { stub.release(request).await }).await
    }

    /// Tells measured round trips and gets the new order.
    pub async fn report_latency(
        &self,
        request: pb::MatchmakingReportLatencyRequest,
    ) -> Result<pb::MatchmakingReportLatencyResponse, Error> {
        self.call_matchmaking(request, |mut stub, request| async move { stub.report_latency(request).await }).await
    }

    /// Asks whether a party of `party_size` shall search or advertise.
    pub async fn choose_action(
        &self,
        set_id: u32,
        party_size: u32,
    ) -> Result<pb::MatchmakingChooseActionResponse, Error> {
        let request = pb::MatchmakingChooseActionRequest { matchmaking_set_id: Some(set_id), party_size };
        self.call_matchmaking(request, |mut stub, request| async move { stub.choose_action(request).await }).await
    }

    /// Lets `leader` take this client's player along: the token goes to that player's game, which sends it as
    /// `consent_token`.
    pub async fn grant_consent(&self, leader: &str) -> Result<pb::MatchmakingGrantConsentResponse, Error> {
        let request = pb::MatchmakingGrantConsentRequest { leader_user_id: leader.to_owned() };
        self.call_matchmaking(request, |mut stub, request| async move { stub.grant_consent(request).await }).await
    }

    /// Has a party wait in a queue, and returns the handle that knows its ticket. A request without a key is given one.
    pub async fn enter(&self, mut request: pb::QueueEnterRequest) -> Result<Ticket, Error> {
        if request.idempotency_key.is_empty() {
            request.idempotency_key = random::idempotency_key();
        }
        let entered = self.call_queue(request, |mut stub, request| async move { stub.enter(request).await }).await?;
        Ticket::new(self.clone(), entered)
    }

    /// A party no longer waits, or hears that it has a match.
    pub async fn leave(&self, request: pb::QueueLeaveRequest) -> Result<pb::QueueLeaveResponse, Error> {
        self.call_queue(request, |mut stub, request| async move { stub.leave(request).await }).await
    }

    /// Agrees to a match, or declines it.
    pub async fn respond(&self, request: pb::QueueRespondRequest) -> Result<pb::QueueRespondResponse, Error> {
        self.call_queue(request, |mut stub, request| async move { stub.respond(request).await }).await
    }

    /// Keeps tickets alive, and says that players are connected.
    pub async fn heartbeat(&self, request: pb::QueueHeartbeatRequest) -> Result<pb::QueueHeartbeatResponse, Error> {
        self.call_queue(request, |mut stub, request| async move { stub.heartbeat(request).await }).await
    }

    /// Says that a match is over, or could not be hosted.
    pub async fn end_match(&self, request: pb::QueueEndMatchRequest) -> Result<pb::QueueEndMatchResponse, Error> {
        self.call_queue(request, |mut stub, request| async move { stub.end_match(request).await }).await
    }

    /// Watches tickets, of which the server keeps those alive that wait. It goes on by itself when the server goes away.
    pub fn watch(&self, tickets: impl IntoIterator<Item = pb::TicketReference>) -> TicketStream {
        TicketStream::new(self.clone(), tickets.into_iter().collect())
    }

    /// Opens the stream of news of tickets, once.
    pub(crate) async fn open_watch_stream(
        &self,
        request: pb::QueueWatchRequest,
    ) -> Result<Streaming<pb::QueueWatchResponse>, Error> {
        let mut renewed = false;
        loop {
            let mut asked = Request::new(request.clone());
            let (metadata, shown) = self.request_metadata().await?;
            *asked.metadata_mut() = metadata;
            match self.queue_stub().watch(asked).await.map_err(Error::from) {
                Ok(response) => return Ok(response.into_inner()),
                Err(error) if !renewed && self.can_renew_token(&error, shown.as_ref()).await => renewed = true,
                Err(error) => return Err(error),
            }
        }
    }

    /// How this client repeats calls.
    pub(crate) fn retry_policy(&self) -> RetryPolicy {
        self.retry_policy
    }

    async fn call_queue<Question, Reply, Asked>(
        &self,
        question: Question,
        ask: impl Fn(QueueServiceClient<Channel>, Request<Question>) -> Asked,
    ) -> Result<Reply, Error>
    where
        Question: Clone,
        Asked: Future<Output = Result<Response<Reply>, Status>>,
    {
        self.call_with_retries(question, |channel, request| ask(QueueServiceClient::new(channel), request)).await
    }

    async fn call_matchmaking<Question, Reply, Asked>(
        &self,
        question: Question,
        ask: impl Fn(MatchmakingServiceClient<Channel>, Request<Question>) -> Asked,
    ) -> Result<Reply, Error>
    where
        Question: Clone,
        Asked: Future<Output = Result<Response<Reply>, Status>>,
    {
        self.call_with_retries(question, |channel, request| ask(MatchmakingServiceClient::new(channel), request)).await
    }

    /// What goes with a call, and which token is among it.
    async fn request_metadata(&self) -> Result<(MetadataMap, Option<AsciiMetadataValue>), Error> {
        let mut metadata = self.metadata.clone();
        let Some(tokens) = &self.token_source else { return Ok((metadata, None)) };
        let header = tokens.authorization_header().await?;
        metadata.insert("authorization", header.clone());
        Ok((metadata, Some(header)))
    }

    /// Whether a call that failed with `error` may be made with another token than the one `shown`.
    async fn can_renew_token(&self, error: &Error, shown: Option<&AsciiMetadataValue>) -> bool {
        match (&self.token_source, shown) {
            (Some(tokens), Some(shown)) if error.code() == Some(Code::Unauthenticated) => {
                tokens.invalidate(shown).await
            }
            _ => false,
        }
    }

    /// Makes one call, and makes it again while [`Retries`] says so.
    pub(crate) async fn call_with_retries<Question, Reply, Asked>(
        &self,
        question: Question,
        ask: impl Fn(Channel, Request<Question>) -> Asked,
    ) -> Result<Reply, Error>
    where
        Question: Clone,
        Asked: Future<Output = Result<Response<Reply>, Status>>,
    {
        let (mut made, mut renewed) = (0, false);
        loop {
            let mut request = Request::new(question.clone());
            let (metadata, shown) = self.request_metadata().await?;
            *request.metadata_mut() = metadata;
            request.set_timeout(self.deadline);
            let error = match ask(self.channel.clone(), request).await {
                Ok(response) => return Ok(response.into_inner()),
                Err(status) => Error::from(status),
            };
            if !renewed && self.can_renew_token(&error, shown.as_ref()).await {
                renewed = true;
                continue;
            }
            made += 1;
            match self.retry_policy.backoff_after(made, &error, random::jitter()) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return Err(error),
            }
        }
    }
}

/// Gives a create the key without which repeating it would make a second advertisement.
pub(crate) fn ensure_idempotency_key(update: &mut pb::MatchmakingUpdateAdvertisementRequest) {
    if update.advertisement_id.is_empty() && update.idempotency_key.is_empty() {
        update.idempotency_key = random::idempotency_key();
    }
}
