//! An allocator: registers, receives offers, and answers them.

use std::collections::VecDeque;
use std::net::SocketAddr;

use fireteam_client::pb;
use pb::AnswerOutcome;
use pb::allocate_request::Message as Request;
use pb::allocate_response::Message as Response;
use pb::allocation_service_client::AllocationServiceClient;
use pb::queue_service_client::QueueServiceClient;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Status, Streaming};

use crate::support::server_process::TEST_TIMEOUT;

/// A connected allocator; disconnects on drop.
pub(crate) struct TestAllocator {
    outbox: mpsc::Sender<pb::AllocateRequest>,
    inbox: Streaming<pb::AllocateResponse>,
    offers: VecDeque<pb::AllocationOffer>,
    /// Connection of the game servers that it starts. They have no identity.
    hosts: Option<QueueServiceClient<Channel>>,
}

impl TestAllocator {
    /// Connects and registers.
    pub(crate) async fn connect(address: SocketAddr, registration: pb::AllocatorRegistration) -> Self {
        Self::try_connect(address, None, registration).await.expect("registered")
    }

    /// Connects with an `authorization` header, and registers.
    pub(crate) async fn try_connect(
        address: SocketAddr,
        authorization: Option<&str>,
        registration: pb::AllocatorRegistration,
    ) -> Result<Self, Status> {
        let mut allocator = Self::open(address, authorization).await?;
        allocator.send(Request::Register(registration)).await;
        match allocator.next_response().await? {
            Response::Registered(_) => Ok(allocator),
            other => panic!("not registered: {other:?}"),
        }
    }

    /// Opens a stream without a registration.
    pub(crate) async fn open(address: SocketAddr, authorization: Option<&str>) -> Result<Self, Status> {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
        let channel: Channel = endpoint.connect().await.expect("connect");
        let (outbox, requests) = mpsc::channel(64);
        let mut request = tonic::Request::new(ReceiverStream::new(requests));
        if let Some(authorization) = authorization {
            request.metadata_mut().insert("authorization", authorization.parse().expect("a header"));
        }
        let hosts = authorization.is_none().then(|| QueueServiceClient::new(channel.clone()));
        let inbox = AllocationServiceClient::new(channel).allocate(request).await?.into_inner();
        Ok(Self { outbox, inbox, offers: VecDeque::new(), hosts })
    }

    /// Sends a message.
    pub(crate) async fn send(&self, message: Request) {
        self.outbox.send(pb::AllocateRequest { message: Some(message) }).await.expect("the stream is open");
    }

    /// Next message of the server.
    pub(crate) async fn next_response(&mut self) -> Result<Response, Status> {
        let message = tokio::time::timeout(TEST_TIMEOUT, self.inbox.message()).await.expect("in time")?;
        Ok(message.expect("the stream is open").message.expect("a message"))
    }

    /// Next offer.
    pub(crate) async fn next_offer(&mut self) -> pb::AllocationOffer {
        if let Some(offer) = self.offers.pop_front() {
            return offer;
        }
        match self.next_response().await.expect("a message") {
            Response::Offer(offer) => offer,
            other => panic!("not an offer: {other:?}"),
        }
    }

    /// Answers an offer with a place, and returns the acknowledgement. The game server that runs there confirms the match.
    pub(crate) async fn place(&mut self, offer: &pb::AllocationOffer, connect_data: &str) -> AnswerOutcome {
        let (offer_token, connect_data) = (offer.offer_token.clone(), connect_data.as_bytes().to_vec());
        self.send(Request::Place(pb::PlaceAnswer { offer_token, connect_data })).await;
        let outcome = self.next_ack(offer).await;
        if let Some(host) = self.hosts.as_mut().filter(|_| outcome == AnswerOutcome::Accepted) {
            host.host_heartbeat(host_heartbeat(offer)).await.expect("a heartbeat");
        }
        outcome
    }

    /// Refuses an offer, and returns the acknowledgement.
    pub(crate) async fn refuse(&mut self, offer: &pb::AllocationOffer) -> AnswerOutcome {
        let (offer_token, reason) = (offer.offer_token.clone(), "no capacity".to_owned());
        self.send(Request::Refuse(pb::RefuseAnswer { offer_token, reason })).await;
        self.next_ack(offer).await
    }

    async fn next_ack(&mut self, offer: &pb::AllocationOffer) -> AnswerOutcome {
        loop {
            match self.next_response().await.expect("a message") {
                Response::Offer(further) => self.offers.push_back(further),
                Response::Ack(ack) => {
                    assert_eq!(ack.offer_token, offer.offer_token);
                    return ack.outcome();
                }
                Response::Registered(_) => panic!("registered twice"),
            }
        }
    }
}

/// Registration for `max_open_offers` offers of any set and region.
pub(crate) fn any_match(max_open_offers: u32) -> pb::AllocatorRegistration {
    pb::AllocatorRegistration { max_open_offers: Some(max_open_offers), ..Default::default() }
}

/// Heartbeat of the game server that runs at the place of an offer: it names the match.
pub(crate) fn host_heartbeat(offer: &pb::AllocationOffer) -> pb::QueueHostHeartbeatRequest {
    let beat = pb::HostedMatchBeat { match_id: offer.match_id.clone(), gives_up: false };
    pb::QueueHostHeartbeatRequest { advertisement_token: offer.host_token.clone(), matches: vec![beat] }
}
