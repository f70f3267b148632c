//! A client that sends each call to a random server, and repeats it at another one while its outcome is unknown.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fireteam_client::{Client, Error, pb};

use crate::cluster::Cluster;
use crate::history::{CallOutcome, call_outcome};
use crate::report::{TestReport, TestRng};

/// Client `number` of a cluster.
pub(crate) struct RandomServerClient {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) number: usize,
    pub(crate) rng: TestRng,
}

impl RandomServerClient {
    /// Client `number`, with the random numbers of that stream.
    pub(crate) fn new(cluster: &Arc<Cluster>, number: usize, report: &TestReport) -> Self {
        Self { cluster: Arc::clone(cluster), number, rng: report.rng(number as u64) }
    }

    /// Repeats a call until its outcome is known. `None` if the test stops before.
    pub(crate) async fn call<Request: Clone, T>(
        &self,
        stop: &AtomicBool,
        request: Request,
        send: impl AsyncFn(Client, Request) -> Result<T, Error>,
    ) -> Option<Result<T, Error>> {
        while !stop.load(Ordering::SeqCst) {
            let first = self.rng.below(self.cluster.len());
            let mut slots = (0..self.cluster.len()).map(|more| (first + more) % self.cluster.len());
            let Some(server) = slots.find_map(|at| self.cluster.client(at, self.number)) else {
                tokio::time::sleep(Duration::from_millis(5)).await;
                continue;
            };
            let answer = send(server, request.clone()).await;
            if call_outcome(&answer) != CallOutcome::Unknown {
                return Some(answer);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        None
    }

    /// Heartbeat of one ticket, and its status. `None` if the test stops before.
    pub(crate) async fn status(&self, stop: &AtomicBool, ticket: &pb::TicketReference) -> Option<pb::TicketStatus> {
        let request = pb::QueueHeartbeatRequest { tickets: vec![ticket.clone()], ..Default::default() };
        let answer = self.call(stop, request, async |server, request| server.heartbeat_tickets(request).await).await?;
        answer.ok()?.statuses.into_iter().next()
    }
}
