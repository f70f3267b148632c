//! Threads that each serve their share of the connections on a runtime of their own: what a call needs stays on one core,
//! and nothing is stolen between them. A call costs about half of what it costs on a runtime of many threads.

use std::io;

use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use crate::server::incoming::{Arrival, Incoming};
use crate::server::port::Port;

/// Connections that may wait for one worker; when it has that many, accepting waits, and the kernel's backlog after it.
const WAITING_MAX: usize = 64;

/// What ends workers.
#[derive(Clone, Debug)]
pub(super) struct Ends {
    /// No more connections; those that are open may finish.
    pub(super) stopping: CancellationToken,
    /// Everything, now.
    pub(super) hard_stop: CancellationToken,
}

/// Serves what comes in on `count` threads, at least one. The tasks end when the last connection has ended.
pub(super) fn start(
    count: usize,
    incoming: Incoming,
    port: &Port,
    routes: &Routes,
    ends: &Ends,
) -> io::Result<Vec<JoinHandle<()>>> {
    let (mut doors, mut tasks) = (Vec::new(), Vec::new());
    for _ in 0..count.max(1) {
        let (door, arrivals) = mpsc::channel(WAITING_MAX);
        doors.push(door);
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (port, routes, ends) = (port.clone(), routes.clone(), ends.clone());
        tasks.push(tokio::task::spawn_blocking(move || runtime.block_on(work(arrivals, port, routes, ends))));
    }
    tasks.push(tokio::spawn(deal(incoming, doors, ends.stopping.clone())));
    Ok(tasks)
}

/// One worker. Connections that it still has at the hard stop go with its runtime.
async fn work(arrivals: mpsc::Receiver<Arrival>, port: Port, routes: Routes, ends: Ends) {
    let connections = ReceiverStream::new(arrivals).map(Arrival::move_in);
    tokio::select! {
        () = port.serve_clients(connections, routes, ends.stopping) => {}
        () = ends.hard_stop.cancelled() => {}
    }
}

/// Accepts connections and deals them out in turns: they live long, so a share of connections is a share of work.
async fn deal(mut incoming: Incoming, doors: Vec<mpsc::Sender<Arrival>>, stopping: CancellationToken) {
    for door in doors.iter().cycle() {
        let dealt = async {
            let arrival = incoming.next().await?;
            door.send(arrival).await.ok()
        };
        tokio::select! {
            () = stopping.cancelled() => return,
            dealt = dealt => if dealt.is_none() { return },
        }
    }
}
