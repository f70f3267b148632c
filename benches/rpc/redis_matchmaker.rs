//! Reference of QD6: a small matchmaker on Redis with the messages of the drive.
//!
//! A ticket is a string with a TTL, and its id is in a list. A script pairs the oldest tickets of the list, writes the
//! matches into their strings, and adds them to a stream. Each frontend reads the stream and sends the matches to its watches. A watch
//! first reads its ticket, so that a frontend may restart. Calls that wait are sent to Redis together, over several connections.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use fireteam_client::pb;
use futures_core::future::BoxFuture;
use http::{Request, Response};
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::streams::StreamReadReply;
use tokio::sync::{mpsc, oneshot};
use tokio::time::MissedTickBehavior;
use tonic::Status;
use tonic::body::Body;
use tonic::server::{Grpc, NamedService, ServerStreamingService, UnaryService};
use tonic_prost::ProstCodec;
use tower::Service;

use crate::rpc::echo::serve_on_free_port;
use crate::rpc::queue_drive::{ENTER, WATCH};
use crate::rpc::redis_server::connect;

const WAITING: &str = "waiting";
const ASSIGNED: &str = "assigned";
/// Time to live of a ticket, seconds.
const TICKET_TTL_S: u64 = 600;
/// Calls that are sent to Redis together, at most.
const BATCH_MAX: usize = 256;
/// Tickets of one run of the script, at most. Lua passes some 8,000 arguments.
const TICKETS_PER_RUN: usize = 1_000;
/// Connections for new tickets, and as many for reading tickets.
const CONNECTIONS: usize = 2;
/// Calls that wait for a connection, at most.
const INBOX: usize = 4_096;

/// Id of a ticket or of a match.
type Id = [u8; 16];

/// A ticket to store, and the acknowledgement.
struct NewTicket {
    id: Id,
    value: Vec<u8>,
    stored: oneshot::Sender<()>,
}

/// A ticket to read, and its stored bytes, if it exists.
struct TicketToRead {
    id: Id,
    read: oneshot::Sender<Option<Vec<u8>>>,
}

/// Connections of one kind; each takes what waits in its inbox.
struct Inboxes<T> {
    senders: Vec<mpsc::Sender<T>>,
    next: AtomicUsize,
}

impl<T: Send + 'static> Inboxes<T> {
    /// Opens the connections. `work` runs for each.
    async fn open<F: Future<Output = ()> + Send + 'static>(
        redis: SocketAddr,
        work: fn(MultiplexedConnection, mpsc::Receiver<T>) -> F,
    ) -> Self {
        let mut senders = Vec::new();
        for _ in 0..CONNECTIONS {
            let (sender, inbox) = mpsc::channel(INBOX);
            tokio::spawn(work(connect(redis).await, inbox));
            senders.push(sender);
        }
        Self { senders, next: AtomicUsize::new(0) }
    }

    async fn send(&self, item: T) -> Result<(), Status> {
        let sender = &self.senders[self.next.fetch_add(1, Ordering::Relaxed) % CONNECTIONS];
        sender.send(item).await.map_err(|_| Status::unavailable("Redis failed"))
    }
}

fn key(id: Id) -> Vec<u8> {
    [b"ticket:".as_slice(), &id].concat()
}

/// Stores new tickets: each batch is one transaction.
async fn store_tickets(mut redis: MultiplexedConnection, mut inbox: mpsc::Receiver<NewTicket>) {
    let mut batch = Vec::new();
    while inbox.recv_many(&mut batch, BATCH_MAX).await != 0 {
        let mut transaction = redis::pipe();
        transaction.atomic();
        let mut push = redis::cmd("RPUSH");
        push.arg(WAITING);
        for ticket in &batch {
            transaction.cmd("SET").arg(key(ticket.id)).arg(&ticket.value).arg("EX").arg(TICKET_TTL_S).ignore();
            push.arg(&ticket.id);
        }
        transaction.add_command(push).ignore();
        transaction.query_async::<()>(&mut redis).await.expect("the tickets are stored");
        for ticket in batch.drain(..) {
            // A caller that has gone needs no acknowledgement.
            let _ = ticket.stored.send(());
        }
    }
}

/// Reads tickets: each batch is one command.
async fn read_tickets(mut redis: MultiplexedConnection, mut inbox: mpsc::Receiver<TicketToRead>) {
    let mut batch = Vec::new();
    while inbox.recv_many(&mut batch, BATCH_MAX).await != 0 {
        let mut read = redis::cmd("MGET");
        for ticket in &batch {
            read.arg(key(ticket.id));
        }
        let values: Vec<Option<Vec<u8>>> = read.query_async(&mut redis).await.expect("the tickets are read");
        for (ticket, value) in batch.drain(..).zip(values) {
            let _ = ticket.read.send(value);
        }
    }
}

/// Runs the script on each tick, as often as it finds a full batch.
async fn run_ticks(mut redis: MultiplexedConnection, tick: Duration) {
    let script = redis::Script::new(include_str!("redis_matchmaker.lua"));
    let mut ticks = tokio::time::interval(tick);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        loop {
            let mut run = script.prepare_invoke();
            run.key(WAITING).key(ASSIGNED).arg(TICKETS_PER_RUN).arg(&rand::random::<[u8; 8]>());
            let assigned: usize = run.invoke_async(&mut redis).await.expect("the script runs");
            if assigned < TICKETS_PER_RUN {
                break;
            }
        }
    }
}

/// Watches of this frontend, by ticket. A new watch of a ticket replaces the one before.
type Watches = Mutex<HashMap<Id, oneshot::Sender<Id>>>;

/// Sends the matches in the stream to their watches.
async fn read_assignments(mut redis: MultiplexedConnection, shared: Arc<Frontend>) {
    let mut last = "0".to_owned();
    loop {
        let mut read = redis::cmd("XREAD");
        read.arg("BLOCK").arg(0).arg("COUNT").arg(100).arg("STREAMS").arg(ASSIGNED).arg(&last);
        let reply: StreamReadReply = read.query_async(&mut redis).await.expect("the stream is read");
        let entries = reply.keys.into_iter().flat_map(|key| key.ids);
        for mut entry in entries {
            let assigned = entry.map.remove("assigned").expect("an entry has assignments");
            let assigned: Vec<u8> = redis::from_redis_value(assigned).expect("bytes");
            let mut watches = shared.watches.lock();
            for assignment in assigned.as_chunks::<32>().0 {
                let (ticket, found) = assignment.split_at(16);
                if let Some(watch) = watches.remove(ticket) {
                    let _ = watch.send(found.try_into().expect("16 bytes"));
                }
            }
            last = entry.id;
        }
    }
}

/// State of a frontend.
struct Frontend {
    new_tickets: Inboxes<NewTicket>,
    tickets_to_read: Inboxes<TicketToRead>,
    watches: Watches,
}

/// A watch; it leaves the table when its stream ends.
struct Watch {
    assigned: Option<oneshot::Receiver<Id>>,
    ticket: Id,
    shared: Arc<Frontend>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.assigned = None;
        let mut watches = self.shared.watches.lock();
        if watches.get(&self.ticket).is_some_and(oneshot::Sender::is_closed) {
            watches.remove(&self.ticket);
        }
    }
}

fn to_hex(id: Id) -> String {
    format!("{:032x}", u128::from_be_bytes(id))
}

fn from_hex(text: &str) -> Result<Id, Status> {
    let id = u128::from_str_radix(text, 16).map_err(|_| Status::invalid_argument("tickets[0].ticket_id is not hex"))?;
    Ok(id.to_be_bytes())
}

fn status(ticket: Id, state: pb::TicketState, found: Option<Id>) -> pb::TicketStatus {
    let found_match = found.map(|id| pb::MatchStatus { match_id: to_hex(id), player_count: 2, ..Default::default() });
    pb::TicketStatus { ticket_id: to_hex(ticket), state: state.into(), found_match, ..Default::default() }
}

type Statuses = Pin<Box<dyn tokio_stream::Stream<Item = Result<pb::QueueWatchResponse, Status>> + Send>>;

impl Frontend {
    /// Stores a ticket: `W`, its token, its party.
    async fn enter(&self, request: pb::QueueEnterRequest) -> Result<pb::QueueEnterResponse, Status> {
        let party = request.session_composition.ok_or_else(|| Status::invalid_argument("no session_composition"))?;
        let (id, token): (Id, Id) = (rand::random(), rand::random());
        let value = [b"W".as_slice(), &token, &prost::Message::encode_to_vec(&party)].concat();
        let (stored, acknowledged) = oneshot::channel();
        self.new_tickets.send(NewTicket { id, value, stored }).await?;
        acknowledged.await.map_err(|_| Status::unavailable("Redis failed"))?;
        Ok(pb::QueueEnterResponse {
            status: Some(status(id, pb::TicketState::Waiting, None)),
            ticket_token: token.to_vec(),
            expires_in_ms: TICKET_TTL_S * 1000,
            ..Default::default()
        })
    }

    /// A stream with one status: that of the match.
    async fn watch(self: Arc<Self>, request: pb::QueueWatchRequest) -> Result<Statuses, Status> {
        let [ticket] = <[_; 1]>::try_from(request.tickets).map_err(|_| Status::invalid_argument("not one ticket"))?;
        let id = from_hex(&ticket.ticket_id)?;
        let (sender, assigned) = oneshot::channel();
        self.watches.lock().insert(id, sender);
        let mut watch = Watch { assigned: Some(assigned), ticket: id, shared: Arc::clone(&self) };
        // A match that is made after this read is in the stream, and its watch is in the table.
        let (read, value) = oneshot::channel();
        self.tickets_to_read.send(TicketToRead { id, read }).await?;
        let value = value.await.map_err(|_| Status::unavailable("Redis failed"))?;
        let value = value.ok_or_else(|| Status::not_found("the ticket has expired"))?;
        let (state, token, rest) = (value[0], &value[1..17], &value[17..]);
        if token != ticket.ticket_token {
            return Err(Status::permission_denied("ticket_token is wrong"));
        }
        let known: Option<Id> = (state == b'M').then(|| rest.try_into().expect("16 bytes"));
        Ok(Box::pin(futures_util::stream::once(async move {
            let found = match (known, watch.assigned.take()) {
                (None, Some(assigned)) => assigned.await.map_err(|_| Status::aborted("another watch has begun"))?,
                (known, _) => known.expect("a match"),
            };
            Ok(pb::QueueWatchResponse { status: Some(status(id, pb::TicketState::Matched, Some(found))) })
        })))
    }
}

struct EnterCall(Arc<Frontend>);
struct WatchCall(Arc<Frontend>);

impl UnaryService<pb::QueueEnterRequest> for EnterCall {
    type Response = pb::QueueEnterResponse;
    type Future = BoxFuture<'static, Result<tonic::Response<Self::Response>, Status>>;

    fn call(&mut self, request: tonic::Request<pb::QueueEnterRequest>) -> Self::Future {
        let shared = Arc::clone(&self.0);
        Box::pin(async move { shared.enter(request.into_inner()).await.map(tonic::Response::new) })
    }
}

impl ServerStreamingService<pb::QueueWatchRequest> for WatchCall {
    type Response = pb::QueueWatchResponse;
    type ResponseStream = Statuses;
    type Future = BoxFuture<'static, Result<tonic::Response<Statuses>, Status>>;

    fn call(&mut self, request: tonic::Request<pb::QueueWatchRequest>) -> Self::Future {
        let shared = Arc::clone(&self.0);
        Box::pin(async move { shared.watch(request.into_inner()).await.map(tonic::Response::new) })
    }
}

/// The service, as `tonic_build` would generate it.
#[derive(Clone)]
struct RedisMatchmaker(Arc<Frontend>);

impl NamedService for RedisMatchmaker {
    const NAME: &'static str = "fireteam.v1.QueueService";
}

impl Service<Request<Body>> for RedisMatchmaker {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let shared = Arc::clone(&self.0);
        match request.uri().path() {
            ENTER => {
                Box::pin(async move { Ok(Grpc::new(ProstCodec::default()).unary(EnterCall(shared), request).await) })
            }
            WATCH => Box::pin(async move {
                Ok(Grpc::new(ProstCodec::default()).server_streaming(WatchCall(shared), request).await)
            }),
            _ => Box::pin(async { Ok(Status::unimplemented("Enter and Watch only").into_http()) }),
        }
    }
}

/// Serves on a free port and returns the address.
pub(crate) async fn serve(redis: SocketAddr, tick: Duration) -> SocketAddr {
    let new_tickets = Inboxes::open(redis, store_tickets).await;
    let tickets_to_read = Inboxes::open(redis, read_tickets).await;
    let shared = Arc::new(Frontend { new_tickets, tickets_to_read, watches: Watches::default() });
    tokio::spawn(read_assignments(connect(redis).await, Arc::clone(&shared)));
    tokio::spawn(run_ticks(connect(redis).await, tick));
    serve_on_free_port(RedisMatchmaker(shared)).await
}
