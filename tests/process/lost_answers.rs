//! R5: lost answers. A call that is repeated at another server takes effect once and has the same answer. A server whose
//! commit was not answered finds out whether it was made.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use fireteam_client::{Client, Code, Error, pb};

use crate::cluster::{Cluster, client};
use crate::history::{CallOutcome, History, Operation, call_outcome};
use crate::load_client::{LONG_TTL_MS, SEATS};
use crate::proxy::{ClientProxy, CommitFault, PostgresAddress, StoreProxy};
use crate::report::{TestReport, TestRng, scaled};
use crate::support::database::{PostgresCluster, TestDatabase};
use crate::support::party::{advertise_request, party_session};
use crate::support::server_process::TEST_TIMEOUT;

/// Lost answers between client and server, and commits with a fault, at `SCALE=1`.
const ANSWERS: usize = 2_000;
const COMMITS: usize = 400;

/// Concurrent sessions of a caller. A search returns 50, and each session is used until it is full.
const SESSIONS_PER_CALLER: usize = 8;

/// Time between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// One caller, which makes its calls one after another.
struct Caller {
    number: usize,
    /// The server that it calls first, and the one for repeated calls.
    servers: [usize; 2],
    cluster: Arc<Cluster>,
    history: History,
    rng: TestRng,
    calls_made: usize,
    sessions: Vec<(String, Vec<u8>)>,
    violations: Vec<String>,
}

/// A repeatable call, with the user for a reservation.
enum Call {
    Publish(Box<pb::MatchmakingUpdateAdvertisementRequest>),
    Reserve(Box<pb::MatchmakingReserveRequest>, String),
    Delete(pb::MatchmakingDeleteAdvertisementRequest),
}

/// Parts of an answer that must be equal when a call is repeated: id, seats, and token or connect data.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Answer(String, u32, Vec<u8>);

impl Call {
    async fn make(&self, client: &Client) -> Result<Answer, Error> {
        match self {
            Call::Publish(request) => match client.update_advertisement((**request).clone()).await? {
                answer if answer.not_yet_durable => Err(Error::MissingField("acknowledgement of the store")),
                answer => Ok(Answer(answer.advertisement_id, 0, answer.advertisement_token)),
            },
            Call::Reserve(request, _) => client.reserve((**request).clone()).await.map(|answer| {
                let reservation = answer.reservation.expect("a reservation");
                Answer(reservation.reservation_id, reservation.seats, answer.connect_data)
            }),
            Call::Delete(request) => {
                client.delete_advertisement(request.clone()).await.map(|_| Answer(String::new(), 0, Vec::new()))
            }
        }
    }

    fn operation(&self, answer: Option<&Answer>) -> Operation {
        let id = answer.map_or(String::new(), |answer| answer.0.clone());
        match self {
            Call::Publish(request) => {
                let word = String::from_utf8(request.connect_data.clone()).expect("text").parse().expect("a number");
                Operation::Publish { key: request.idempotency_key.clone(), advertisement: id, word }
            }
            Call::Reserve(request, user) => {
                let advertisement = request.advertisement_id.clone();
                Operation::Reserve { user: user.clone(), advertisement, seats: 1, reservation: id }
            }
            Call::Delete(request) => Operation::Delete { advertisement: request.advertisement_id.clone() },
        }
    }
}

impl Caller {
    fn new(number: usize, servers: [usize; 2], cluster: &Arc<Cluster>, history: &History, rng: TestRng) -> Self {
        let (cluster, history) = (Arc::clone(cluster), history.clone());
        Self { number, servers, cluster, history, rng, calls_made: 0, sessions: Vec::new(), violations: Vec::new() }
    }

    fn silo(&self) -> u64 {
        self.number as u64 + 1
    }

    /// The next call, mostly a reservation.
    async fn next_call(&mut self) -> Call {
        self.calls_made += 1;
        let name = format!("{:06} of caller {:02}, some padding", self.calls_made, self.number);
        let silo = Some(self.silo());
        if self.sessions.len() < SESSIONS_PER_CALLER {
            let mut request = pb::MatchmakingUpdateAdvertisementRequest {
                time_to_live_ms: Some(LONG_TTL_MS),
                connect_data: self.calls_made.to_string().into_bytes(),
                idempotency_key: format!("session {name}"),
                ..advertise_request(&[(&format!("host {name}"), 0.0)], SEATS as i32)
            };
            request.session_composition.as_mut().expect("a session").silo_id = silo;
            return Call::Publish(Box::new(request));
        }
        if self.rng.chance(0.2) {
            let (advertisement_id, advertisement_token) =
                self.sessions.swap_remove(self.rng.below(SESSIONS_PER_CALLER));
            return Call::Delete(pb::MatchmakingDeleteAdvertisementRequest { advertisement_id, advertisement_token });
        }
        let user = format!("guest {name}");
        let (session, search_token) = self.search_as(&user).await;
        let advertisement_id = self.sessions[self.rng.below(SESSIONS_PER_CALLER)].0.clone();
        let request = pb::MatchmakingReserveRequest {
            advertisement_id,
            idempotency_key: user.clone(),
            hold_for_ms: Some(LONG_TTL_MS),
            search_token,
            session_composition: Some(session),
            ..Default::default()
        };
        Call::Reserve(Box::new(request), user)
    }

    /// Searches with a party of one, and returns the party and the search token.
    async fn search_as(&self, user: &str) -> (pb::SessionCompositionData, Vec<u8>) {
        let session = pb::SessionCompositionData { silo_id: Some(self.silo()), ..party_session(&[(user, 0.0)]) };
        let client = self.cluster.client(self.servers[1], self.number).expect("a server is running");
        let found = client.new_search(1, session.clone()).search().await.expect("a search");
        (session, found.search_token)
    }

    async fn make(&self, call: &Call, client: &Client) -> Result<Answer, Error> {
        let start = self.history.now();
        let answer = call.make(client).await;
        let operation = call.operation(answer.as_ref().ok());
        self.history.add(self.number, operation, start, call_outcome(&answer));
        answer
    }

    /// Repeats a call until its outcome is known.
    async fn call_until_known(&self, call: &Call, client: &Client) -> Result<Answer, Error> {
        let started = Instant::now();
        loop {
            match self.make(call, client).await {
                Err(error)
                    if matches!(error.code(), None | Some(Code::Unavailable)) && started.elapsed() < TEST_TIMEOUT => {}
                answer => return answer,
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// Repeats a call at both servers until its outcome is known. Each answer must equal `before`, if that is given.
    /// Then the same idempotency key with another request must be rejected.
    async fn repeat_and_compare(&mut self, call: &Call, before: Option<Answer>) {
        let mut known = before;
        for at in [self.servers[1], self.servers[0]] {
            let client = self.cluster.client(at, self.number).expect("a server is running");
            let answer = self.call_until_known(call, &client).await;
            match (&known, answer) {
                (Some(known), Ok(answer)) if *known != answer => {
                    self.violations.push(format!("different answers: {known:?}, then {answer:?}"));
                }
                (Some(known), Err(error)) => self.violations.push(format!("{known:?}, then {error}")),
                (_, Ok(answer)) => known = Some(answer),
                (None, Err(error)) if error.code() == Some(Code::FailedPrecondition) => {}
                (None, Err(error)) => self.violations.push(format!("repeated call: {error}")),
            }
        }
        let Some(known) = known else { return };
        if let Call::Reserve(request, user) = call {
            let (session, search_token) = self.search_as(&format!("not {user}")).await;
            let other = pb::MatchmakingReserveRequest {
                session_composition: Some(session),
                search_token,
                ..(**request).clone()
            };
            let client = self.cluster.client(self.servers[1], self.number).expect("a server is running");
            let refused = client.reserve(other).await.err().and_then(|error| error.code());
            // While the server with the lost commit still sees the store as unavailable, it decides nothing.
            if ![Some(Code::AlreadyExists), Some(Code::Unavailable)].contains(&refused) {
                self.violations.push(format!("same idempotency key for another request: {refused:?}"));
            }
        }
        if let Call::Publish(_) = call {
            self.sessions.push((known.0, known.2));
        }
    }

    /// Loses one answer between this client and a server.
    async fn lose_answer(&mut self, proxy: &ClientProxy) {
        let call = self.next_call().await;
        let affected = client(&proxy.address);
        if let Ok(answer) = self.make(&call, &affected).await {
            self.violations.push(format!("received an answer that should be lost: {answer:?}"));
        }
        self.repeat_and_compare(&call, None).await;
    }

    /// Injects a fault into one commit of the caller's first server.
    async fn lose_commit(
        &mut self,
        proxy: &StoreProxy,
        affected: &Client,
        fault: CommitFault,
        stored_check: &StoredCheck<'_>,
    ) {
        let call = self.next_call().await;
        proxy.inject_next(fault);
        let answer = self.make(&call, affected).await;
        let not_injected = proxy.disarm();
        let is_stored = stored_check.is_stored(&call).await;
        match &answer {
            _ if not_injected => {}
            // The fault may have hit a commit of the server's own, such as heartbeats that it writes after an outage.
            // Then the call is acknowledged, and its change must be stored.
            Ok(_) if !is_stored => self.violations.push(format!("{fault:?}: acknowledged but not stored")),
            Err(error) if is_stored => {
                self.violations.push(format!("{fault:?}: committed, but answered {error} at {:?}", self.history.now()))
            }
            _ => {}
        }
        let known = answer.ok();
        self.repeat_and_compare(&call, known).await;
        // Until the server reaches the store again, it would reject all calls without sending a commit.
        let started = Instant::now();
        while let Some((id, token)) = self.sessions.first() {
            assert!(started.elapsed() < TEST_TIMEOUT, "the server does not commit again");
            let heartbeat = pb::MatchmakingUpdateAdvertisementRequest {
                advertisement_id: id.clone(),
                advertisement_token: token.clone(),
                time_to_live_ms: Some(LONG_TTL_MS),
                ..Default::default()
            };
            if affected.update_advertisement(heartbeat).await.is_ok_and(|answer| !answer.not_yet_durable) {
                return;
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }
}

/// Checks in the tables whether a change was made.
struct StoredCheck<'a>(&'a TestDatabase);

impl StoredCheck<'_> {
    async fn is_stored(&self, call: &Call) -> bool {
        let mut connection = self.0.connect().await;
        let query = match call {
            Call::Reserve(_, user) => {
                let user = fireteam::domain::id::UserKey::from_name(user);
                let query = sqlx::query_scalar("select exists (select from reservation where users = $1)");
                query.bind(user.as_bytes().to_vec())
            }
            // A publication is one statement that ends with its idempotency key, so a cancelled one may still be committed.
            Call::Publish(request) => {
                let silo = request.session_composition.as_ref().and_then(|session| session.silo_id).unwrap_or(0);
                let text = "select exists (select from advertisement where connect_data = $1 and silo_id = $2)";
                sqlx::query_scalar(text).bind(request.connect_data.clone()).bind(silo.cast_signed())
            }
            Call::Delete(request) => {
                let text =
                    "select not exists (select from advertisement where advertisement_id = $1 and body is not null)";
                sqlx::query_scalar(text).bind(request.advertisement_id.parse::<sqlx::types::Uuid>().expect("an id"))
            }
        };
        query.fetch_one(&mut connection).await.expect("an answer")
    }
}

/// R5: the client does not receive the answer, and repeats the call at another server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_answer_is_repeated_by_another_server() {
    let mut report = TestReport::start("lost answers").await;
    let Some(database) =
        crate::support::database::create_test_database("lost_answer_is_repeated_by_another_server").await
    else {
        return;
    };
    const CALLERS: usize = 8;
    let cluster = Arc::new(Cluster::start(&database.url, 2));
    let history = History::start();
    let mut callers = Vec::new();
    for number in 0..CALLERS {
        let mut caller =
            Caller::new(number, [number % 2, (number + 1) % 2], &cluster, &history, report.rng(number as u64));
        let address = cluster.with(number % 2, |server| server.address.to_string());
        callers.push(tokio::spawn(async move {
            let proxy = ClientProxy::listen(address).await;
            proxy.arm(true);
            for _ in 0..scaled(ANSWERS).div_ceil(CALLERS) {
                caller.lose_answer(&proxy).await;
            }
            (proxy.lost.load(Ordering::SeqCst), caller.violations)
        }));
    }
    let mut lost = 0;
    for caller in callers {
        let (more, violations) = caller.await.expect("the task ends");
        lost += more;
        report.violations(violations);
    }
    report.record("lost answers", lost);
    assert!(scaled(ANSWERS) <= lost, "{lost}: too few lost answers");
    crate::seats::check(&mut report, &database, &cluster, &history, "lost_answers").await;
    report.finish();
}

/// R5: the server does not receive the answer to its commit, and must not report an outcome that it does not know.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_commit_outcome_is_resolved() {
    let mut report = TestReport::start("lost commits").await;
    let Some(postgres) = PostgresCluster::start("lost_commit_outcome_is_resolved") else { return };
    const CALLERS: usize = 2;
    let database = postgres.create_database("fireteam").await;
    // The last server has no fault: repeated calls go there.
    let cluster = Arc::new(Cluster::new(&database.url, CALLERS + 1));
    let history = History::start();
    let mut proxies = Vec::new();
    for at in 0..=CALLERS {
        let proxy = StoreProxy::listen(PostgresAddress::Socket(postgres.folder.clone()));
        let (cluster, url) = (Arc::clone(&cluster), proxy.url("fireteam"));
        let url = (at < CALLERS).then_some(url);
        tokio::task::spawn_blocking(move || cluster.fill(at, url.as_deref(), &[])).await.expect("the server starts");
        proxies.push(proxy);
    }
    let mut callers = Vec::new();
    for (number, proxy) in proxies.into_iter().take(CALLERS).enumerate() {
        let mut caller = Caller::new(number, [number, CALLERS], &cluster, &history, report.rng(number as u64));
        let (affected, url) = (cluster.client(number, 0).expect("a server is running"), database.url.clone());
        callers.push(tokio::spawn(async move {
            let database = TestDatabase { url };
            for turn in 0..scaled(COMMITS) / CALLERS {
                let fault = [
                    CommitFault::LoseAnswer,
                    CommitFault::LoseCommit,
                    CommitFault::LoseAnswer,
                    CommitFault::DelayCommit,
                ][turn % 4];
                caller.lose_commit(&proxy, &affected, fault, &StoredCheck(&database)).await;
            }
            // Returned because the server still uses it.
            (proxy, caller.violations)
        }));
    }
    let mut proxies = Vec::new();
    for caller in callers {
        let (proxy, violations) = caller.await.expect("the task ends");
        proxies.push(proxy);
        report.violations(violations);
    }
    let lost: usize = proxies.iter().map(StoreProxy::lost).sum();
    report.record("lost commits", lost);
    assert!(scaled(COMMITS) * 3 / 4 <= lost, "{lost}: too few lost commits");
    crate::seats::check(&mut report, &database, &cluster, &history, "lost_commits").await;
    assert!(history.count(CallOutcome::Succeeded) > 0);
    report.finish();
}
