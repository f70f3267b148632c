//! Typed client: one function per RPC, with deadlines, authentication and retries.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::UdpSocket;
use tonic::Status;
use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue, MetadataMap};
#[cfg(feature = "tls")]
use tonic::transport::ClientTlsConfig;
use tonic::transport::{Channel, Endpoint};

use crate::advertisement::{Advertisement, UpdateChannel};
use crate::beacons_run;
use crate::error::Error;
use crate::latency_tokens::LatencyTokens;
use crate::matching::MatchingOptions;
use crate::matching_run::MatchingRun;
use crate::matchmaking_stream::{HostEvents, MatchmakingStream};
use crate::pb;
use crate::pb::matchmaking_service_client::MatchmakingServiceClient;
use crate::pb::queue_service_client::QueueServiceClient;
use crate::queueing::Queueing;
use crate::queueing_run::QueueingRun;
use crate::random::{self, ensure_idempotency_key};
use crate::retry::RetryPolicy;
use crate::retrying_channel::RetryingChannel;
use crate::search::SearchSession;
use crate::ticket::{Ticket, TicketStream};
use crate::token_source::TokenSource;

/// Default deadline of one attempt; [`Client::with_attempt_deadline`] changes it.
const DEFAULT_ATTEMPT_DEADLINE: Duration = Duration::from_secs(5);
/// Timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval of HTTP/2 keepalive pings on an idle connection. Routers drop idle connections after some minutes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);

/// Client of a fireteam server. Cloning is cheap: clones share one HTTP/2 connection.
#[derive(Clone, Debug)]
pub struct Client {
    channel: RetryingChannel,
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
        let channel = RetryingChannel {
            channel,
            metadata: MetadataMap::new(),
            token_source: None,
            retry_policy: RetryPolicy::default(),
            attempt_timeout: DEFAULT_ATTEMPT_DEADLINE,
        };
        Self { channel }
    }

    /// Sends a token of `token_source` with every call and every stream. A call that fails with UNAUTHENTICATED is
    /// repeated once if the source can provide another token.
    pub fn with_token_source(mut self, token_source: TokenSource) -> Self {
        self.channel.token_source = Some(token_source);
        self
    }

    /// Sends `key: value` with every call and every stream.
    pub fn with_metadata(mut self, key: &str, value: &str) -> Result<Self, Error> {
        let invalid = || Error::InvalidMetadata(key.to_owned());
        let header: AsciiMetadataKey = key.parse().map_err(|_| invalid())?;
        let value: AsciiMetadataValue = value.parse().map_err(|_| invalid())?;
        self.channel.metadata.insert(header, value);
        Ok(self)
    }

    /// Sets the retry policy.
    pub fn with_retry_policy(mut self, retry_policy: RetryPolicy) -> Self {
        self.channel.retry_policy = retry_policy;
        self
    }

    /// Sets the deadline of each attempt, and of each response on a [`MatchmakingStream`].
    pub fn with_attempt_deadline(mut self, deadline: Duration) -> Self {
        self.channel.attempt_timeout = deadline;
        self
    }

    /// Generated stub of the matchmaking service. It adds no token, metadata or idempotency key, and never retries.
    pub fn matchmaking_stub(&self) -> MatchmakingServiceClient<Channel> {
        self.channel.matchmaking_stub()
    }

    /// Generated stub of the queue service. It adds no token, metadata or idempotency key, and never retries.
    pub fn queue_stub(&self) -> QueueServiceClient<Channel> {
        self.channel.queue_stub()
    }

    /// Publishes a session and returns its handle. Leave the id and token of `request` empty.
    pub async fn advertise(&self, request: pb::MatchmakingUpdateAdvertisementRequest) -> Result<Advertisement, Error> {
        Advertisement::publish(UpdateChannel::Unary(Box::new(self.channel.clone())), request).await
    }

    /// Creates a search of `set_id` for `party`. Sends no request yet.
    pub fn new_search(&self, set_id: u32, party: pb::SessionCompositionData) -> SearchSession {
        SearchSession::new(self.channel.clone(), set_id, party)
    }

    /// Search loop of `party` in `set_id`, with the default options. Nothing happens before [`MatchingRun::run`].
    pub fn matching_run(&self, set_id: u32, party: pb::SessionCompositionData) -> MatchingRun {
        self.matching_run_with_options(MatchingOptions::new(set_id, party))
    }

    /// Search loop with options.
    pub fn matching_run_with_options(&self, options: MatchingOptions) -> MatchingRun {
        MatchingRun::new(self.channel.clone(), options)
    }

    /// Queue loop of a party. Nothing happens before [`QueueingRun::run`].
    pub fn queueing_run(&self, request: pb::QueueEnterRequest) -> QueueingRun {
        QueueingRun::new(self.channel.clone(), Queueing::new(request, random::bytes()))
    }

    /// Queue loop that goes on where [`QueueingRun::saved_bytes`] was called, also in another process. `None` if the bytes are of another version.
    pub fn restored_queueing_run(&self, saved: &[u8]) -> Option<QueueingRun> {
        Some(QueueingRun::new(self.channel.clone(), Queueing::from_saved_bytes(saved, random::bytes())?))
    }

    /// Measures the round trips to the nearest beacons once, and reports the receipts. Send the token of the answer as
    /// `SessionCompositionData.latency_token` while it is good. `None` if the server has no beacons or did not answer. It takes some seconds,
    /// and up to a minute while the server is unavailable. Datagrams that arrive meanwhile and are no answers of beacons are lost.
    pub async fn measure_beacons(&self, socket: &UdpSocket) -> Option<pb::ReportTripsResponse> {
        beacons_run::measure_once(self.channel.clone(), socket).await
    }

    /// Measures beacons on this socket, and again before each token expires, until the last clone of the result is dropped. For a client
    /// that enters a queue without [`Self::queueing_run`]: enter with the [first](LatencyTokens::first), and let the [`Ticket`] send the
    /// later ones. Other datagrams that arrive meanwhile are lost.
    pub fn latency_tokens(&self, socket: impl Into<Arc<UdpSocket>>) -> LatencyTokens {
        LatencyTokens::start(self.channel.clone(), socket.into())
    }

    /// Opens a stream with many requests in flight, which also receives reservation events.
    pub async fn open_stream(&self) -> Result<(MatchmakingStream, HostEvents), Error> {
        self.channel.open_core_stream_once().await
    }

    /// Sends a core request: an envelope with one of four requests.
    pub async fn send_core_request(
        &self,
        mut request: pb::MatchmakingCoreRequest,
    ) -> Result<pb::MatchmakingCoreResponse, Error> {
        if let Some(update) = request.update_advertisement_request.as_mut() {
            ensure_idempotency_key(update);
        }
        self.channel.call_matchmaking(request, |mut stub, request| async move { stub.core(request).await }).await
    }

    /// Searches once. A [`SearchSession`] keeps the token between searches.
    pub async fn search(&self, request: pb::MatchmakingSearchRequest) -> Result<pb::MatchmakingSearchResponse, Error> {
        self.channel.call_matchmaking(request, |mut stub, request| async move { stub.search(request).await }).await
    }

    /// Publishes or replaces an advertisement, or extends its TTL. Adds an idempotency key to a new advertisement
    /// without one.
    pub async fn update_advertisement(
        &self,
        mut request: pb::MatchmakingUpdateAdvertisementRequest,
    ) -> Result<pb::MatchmakingUpdateAdvertisementResponse, Error> {
        ensure_idempotency_key(&mut request);
        self.channel
            .call_matchmaking(request, |mut stub, request| async move { stub.update_advertisement(request).await })
            .await
    }

    /// Deletes an advertisement. Succeeds if it is already deleted.
    pub async fn delete_advertisement(
        &self,
        request: pb::MatchmakingDeleteAdvertisementRequest,
    ) -> Result<pb::MatchmakingDeleteAdvertisementResponse, Error> {
        self.channel
            .call_matchmaking(request, |mut stub, request| async move { stub.delete_advertisement(request).await })
            .await
    }

    /// Fetches the ruleset of a set.
    pub async fn get_configuration(
        &self,
        request: pb::MatchmakingGetConfigurationRequest,
    ) -> Result<pb::MatchmakingGetConfigurationResponse, Error> {
        self.channel
            .call_matchmaking(request, |mut stub, request| async move { stub.get_configuration(request).await })
            .await
    }

    /// Reserves seats. Adds an idempotency key to a request without one.
    pub async fn reserve(
        &self,
        mut request: pb::MatchmakingReserveRequest,
    ) -> Result<pb::MatchmakingReserveResponse, Error> {
        if request.idempotency_key.is_empty() {
            request.idempotency_key = random::idempotency_key();
        }
        self.channel.call_matchmaking(request, |mut stub, request| async move { stub.reserve(request).await }).await
    }

    /// Releases reserved seats.
    pub async fn release(
        &self,
        request: pb::MatchmakingReleaseRequest,
    ) -> Result<pb::MatchmakingReleaseResponse, Error> {
        self.channel.call_matchmaking(request, |mut stub, request| async move { stub.release(request).await }).await
    }

    /// Releases the seat that a reservation in this advertisement holds for this client's player, also if another player reserved it.
    pub async fn release_own_seat(&self, advertisement_id: &str) -> Result<(), Error> {
        let advertisement_id = advertisement_id.to_owned();
        self.release(pb::MatchmakingReleaseRequest { advertisement_id, ..Default::default() }).await.map(drop)
    }

    /// Starts a match of a session, as its host. Adds an idempotency key to a request without one.
    pub async fn start_match(
        &self,
        mut request: pb::MatchmakingStartMatchRequest,
    ) -> Result<pb::MatchmakingStartMatchResponse, Error> {
        if request.idempotency_key.is_empty() {
            request.idempotency_key = random::idempotency_key();
        }
        self.channel.call_matchmaking(request, |mut stub, request| async move { stub.start_match(request).await }).await
    }

    /// Reports measured round trips and returns the candidates in their new order.
    pub async fn report_latency(
        &self,
        request: pb::MatchmakingReportLatencyRequest,
    ) -> Result<pb::MatchmakingReportLatencyResponse, Error> {
        self.channel
            .call_matchmaking(request, |mut stub, request| async move { stub.report_latency(request).await })
            .await
    }

    /// Returns whether a party of `party_size` should search or advertise.
    pub async fn choose_action(
        &self,
        set_id: u32,
        party_size: u32,
    ) -> Result<pb::MatchmakingChooseActionResponse, Error> {
        let request = pb::MatchmakingChooseActionRequest { matchmaking_set_id: Some(set_id), party_size };
        self.channel
            .call_matchmaking(request, |mut stub, request| async move { stub.choose_action(request).await })
            .await
    }

    /// Allows a leader to include this client's player in its party, once. Pass the returned token to the leader's client,
    /// which sends it as `consent_token`.
    pub async fn grant_party_consent(
        &self,
        request: pb::MatchmakingGrantConsentRequest,
    ) -> Result<pb::MatchmakingGrantConsentResponse, Error> {
        self.channel
            .call_matchmaking(request, |mut stub, request| async move { stub.grant_consent(request).await })
            .await
    }

    /// Revokes a consent that this client's player granted.
    pub async fn revoke_party_consent(
        &self,
        consent_token: &[u8],
    ) -> Result<pb::MatchmakingRevokeConsentResponse, Error> {
        let request = pb::MatchmakingRevokeConsentRequest { consent_token: consent_token.to_vec() };
        self.channel
            .call_matchmaking(request, |mut stub, request| async move { stub.revoke_consent(request).await })
            .await
    }

    /// Changes the durable block list of this client's player, or of the named user if the caller has none. Returns its length.
    pub async fn update_block_list(&self, request: pb::MatchmakingUpdateBlockListRequest) -> Result<u32, Error> {
        let updated = self
            .channel
            .call_matchmaking(request, |mut stub, request| async move { stub.update_block_list(request).await })
            .await?;
        Ok(updated.blocked_user_count)
    }

    /// Cooldowns of this client's player, and the tickets that the player is in, also those that others entered. A ticket that
    /// another client entered acts for the own seat alone.
    pub async fn own_tickets_and_cooldowns(&self) -> Result<(Vec<Ticket>, Vec<pb::QueueCooldown>), Error> {
        let request = pb::QueueMineRequest {};
        let own = self.channel.call_queue(request, |mut stub, request| async move { stub.mine(request).await }).await?;
        let tickets = own.tickets.into_iter().map(|ticket| Ticket::from_own_ticket(self.channel.clone(), ticket));
        Ok((tickets.collect::<Result<_, _>>()?, own.cooldowns))
    }

    /// Enters a party into a queue and returns the handle of its ticket. Adds an idempotency key to a request without one.
    pub async fn enter_queue(&self, mut request: pb::QueueEnterRequest) -> Result<Ticket, Error> {
        if request.idempotency_key.is_empty() {
            request.idempotency_key = random::idempotency_key();
        }
        let entered =
            self.channel.call_queue(request, |mut stub, request| async move { stub.enter(request).await }).await?;
        Ticket::new(self.channel.clone(), entered)
    }

    /// Removes a ticket from its queue, or returns the match that it already has.
    pub async fn leave_queue(&self, request: pb::QueueLeaveRequest) -> Result<pb::QueueLeaveResponse, Error> {
        self.channel.call_queue(request, |mut stub, request| async move { stub.leave(request).await }).await
    }

    /// Accepts or declines a proposed match.
    pub async fn respond_to_ready_check(
        &self,
        request: pb::QueueRespondRequest,
    ) -> Result<pb::QueueRespondResponse, Error> {
        self.channel.call_queue(request, |mut stub, request| async move { stub.respond(request).await }).await
    }

    /// Extends the TTL of tickets, and reports connected players. `connected_user_ids` count in the sets that
    /// `connected_matchmaking_set_ids` names, and in no set without it.
    pub async fn heartbeat_tickets(
        &self,
        request: pb::QueueHeartbeatRequest,
    ) -> Result<pb::QueueHeartbeatResponse, Error> {
        self.channel.call_queue(request, |mut stub, request| async move { stub.heartbeat(request).await }).await
    }

    /// Confirms matches as their host, keeps them alive or gives them up. A [`crate::MatchHost`] does this for all matches
    /// of an advertisement.
    pub async fn host_heartbeat(
        &self,
        request: pb::QueueHostHeartbeatRequest,
    ) -> Result<pb::QueueHostHeartbeatResponse, Error> {
        self.channel.call_queue(request, |mut stub, request| async move { stub.host_heartbeat(request).await }).await
    }

    /// Ends a match, or reports that it could not be hosted.
    pub async fn end_match(&self, request: pb::QueueEndMatchRequest) -> Result<pb::QueueEndMatchResponse, Error> {
        self.channel.call_queue(request, |mut stub, request| async move { stub.end_match(request).await }).await
    }

    /// Streams the updates of tickets; waiting tickets do not expire meanwhile. Reconnects automatically.
    pub fn watch_tickets(&self, tickets: impl IntoIterator<Item = pb::TicketReference>) -> TicketStream {
        TicketStream::new(self.channel.clone(), tickets.into_iter().collect(), None)
    }

    /// Channel with the settings of this client.
    pub(crate) fn channel(&self) -> &RetryingChannel {
        &self.channel
    }
}
