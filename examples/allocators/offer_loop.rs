//! Loop of an allocator: receives offers, starts a game server for each, answers, and stops servers that are not wanted.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use fireteam_client::pb;
use pb::allocate_request::Message as Request;
use pb::allocate_response::Message as Response;
use pb::allocation_service_client::AllocationServiceClient;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::transport::Channel;

/// Pause before the stream is opened again.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);

/// Starts and stops game servers.
pub(crate) trait ServerStarter: Send + Sync + 'static {
    /// Starts a game server for the match. Returns the players' connect data, or the reason of a refusal.
    fn start(&self, offer: pb::AllocationOffer) -> impl Future<Output = Result<Vec<u8>, String>> + Send;

    /// Stops the game server that was started for an offer: its place came too late, or the match has ended.
    fn stop(&self, offer_token: &[u8]) -> impl Future<Output = ()> + Send;
}

/// Serves offers until the task is dropped. `authorization` is sent as header.
pub(crate) async fn serve_offers<S: ServerStarter>(
    channel: Channel,
    authorization: Option<String>,
    registration: pb::AllocatorRegistration,
    starter: Arc<S>,
) {
    let mut starts: JoinSet<Request> = JoinSet::new();
    // Answers without an acknowledgement, by offer token. They are repeated on the next stream.
    let mut unacknowledged: BTreeMap<Vec<u8>, Request> = BTreeMap::new();
    loop {
        let stream = (channel.clone(), authorization.as_deref());
        match serve_stream(stream, &registration, &starter, &mut starts, &mut unacknowledged).await {
            Ok(()) => println!("the stream has ended; connecting again"),
            Err(status) => println!("{status}; connecting again"),
        }
        tokio::time::sleep(RECONNECT_DELAY).await;
    }
}

async fn serve_stream<S: ServerStarter>(
    (channel, authorization): (Channel, Option<&str>),
    registration: &pb::AllocatorRegistration,
    starter: &Arc<S>,
    starts: &mut JoinSet<Request>,
    unacknowledged: &mut BTreeMap<Vec<u8>, Request>,
) -> Result<(), Status> {
    let (outbox, messages) = mpsc::channel(64);
    let mut request = tonic::Request::new(ReceiverStream::new(messages));
    if let Some(header) = authorization {
        let header = header.parse().map_err(|_| Status::invalid_argument("the authorization is not ASCII"))?;
        request.metadata_mut().insert("authorization", header);
    }
    let mut inbox = AllocationServiceClient::new(channel).allocate(request).await?.into_inner();
    let send = async |message: Request| {
        let message = pb::AllocateRequest { message: Some(message) };
        outbox.send(message).await.map_err(|_| Status::unavailable("the stream has ended"))
    };
    send(Request::Register(registration.clone())).await?;
    for answer in unacknowledged.values() {
        send(answer.clone()).await?;
    }
    loop {
        tokio::select! {
            message = inbox.message() => match message?.map(|message| message.message) {
                None => return Ok(()),
                Some(Some(Response::Offer(offer))) => {
                    println!("match {} wants {} seats", offer.match_id, offer.seats);
                    let starter = Arc::clone(starter);
                    starts.spawn(async move { answer(&*starter, offer).await });
                }
                Some(Some(Response::Ack(ack))) => {
                    let answered = unacknowledged.remove(&ack.offer_token);
                    if ack.outcome() == pb::AnswerOutcome::NotWanted && matches!(answered, Some(Request::Place(_))) {
                        starter.stop(&ack.offer_token).await;
                    }
                }
                Some(Some(Response::Registered(_)) | None) => println!("registered"),
            },
            Some(Ok(answer)) = starts.join_next() => {
                unacknowledged.insert(token_of(&answer), answer.clone());
                send(answer).await?;
            }
        }
    }
}

/// Starts a server for an offer. An answer that would come too late is a refusal.
async fn answer(starter: &impl ServerStarter, offer: pb::AllocationOffer) -> Request {
    let offer_token = offer.offer_token.clone();
    let within = Duration::from_millis(offer.answer_within_ms);
    let reason = match tokio::time::timeout(within, starter.start(offer)).await {
        Ok(Ok(connect_data)) => return Request::Place(pb::PlaceAnswer { offer_token, connect_data }),
        Ok(Err(reason)) => reason,
        Err(_) => {
            starter.stop(&offer_token).await;
            "no server started in time".to_owned()
        }
    };
    println!("refused: {reason}");
    let reason = reason.chars().take(16).collect();
    Request::Refuse(pb::RefuseAnswer { offer_token, reason })
}

fn token_of(answer: &Request) -> Vec<u8> {
    match answer {
        Request::Place(place) => place.offer_token.clone(),
        Request::Refuse(refusal) => refusal.offer_token.clone(),
        Request::Register(_) => Vec::new(),
    }
}
