//! R5: the answer is lost on its way. Asked again on another server, the same thing has happened once, and the answer is
//! the same; and a server whose own commit was not answered finds out what became of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use fireteam_client::{Client, Code, Error, pb};

use crate::cluster::{Fleet, client};
use crate::history::{Asked, History, Outcome, outcome};
use crate::load_client::{LONG_MS, SEATS};
use crate::proxy::{Behind, ClientProxy, Loss, StoreProxy};
use crate::report::{Chapter, Dice, scaled};
use crate::support::database::{PostgresCluster, TestDatabase};
use crate::support::party::{advertise_request, party_session};
use crate::support::server_process::TEST_TIMEOUT;

/// Answers lost between a client and its server, and commits that something happens to, in the short form.
const ANSWERS: usize = 2_000;
const COMMITS: usize = 400;

/// Sessions of a lane at once: a search shows 50, and each is taken from until it is full.
const SESSIONS: usize = 8;

/// Between one asking and the next.
const PAUSE: Duration = Duration::from_millis(5);

/// One caller, who asks for one thing after the other.
struct Lane {
    number: usize,
    /// The server that it asks first, and another to ask again.
    servers: [usize; 2],
    fleet: Arc<Fleet>,
    history: History,
    dice: Dice,
    asked: usize,
    sessions: Vec<(String, Vec<u8>)>,
    wrong: Vec<String>,
}

/// A call that can be made again, with what it means.
enum Call {
    Publish(Box<pb::MatchmakingUpdateAdvertisementRequest>),
    Reserve(Box<pb::MatchmakingReserveRequest>, String),
    Delete(pb::MatchmakingDeleteAdvertisementRequest),
}

/// What must be the same in every answer.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Answer(String, u32, Vec<u8>);

impl Call {
    async fn make(&self, client: &Client) -> Result<Answer, Error> {
        match self {
            Call::Publish(request) => match client.update_advertisement((**request).clone()).await? {
                answer if answer.not_yet_durable => Err(Error::MissingField("what the store says")),
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

    fn asked(&self, answer: Option<&Answer>) -> Asked {
        let id = answer.map_or(String::new(), |answer| answer.0.clone());
        match self {
            Call::Publish(request) => {
                let word = String::from_utf8(request.connect_data.clone()).expect("text").parse().expect("a number");
                Asked::Publish { key: request.idempotency_key.clone(), advertisement: id, word }
            }
            Call::Reserve(request, user) => {
                let advertisement = request.advertisement_id.clone();
                Asked::Reserve { user: user.clone(), advertisement, seats: 1, reservation: id }
            }
            Call::Delete(request) => Asked::Delete { advertisement: request.advertisement_id.clone() },
        }
    }
}

impl Lane {
    fn new(number: usize, servers: [usize; 2], fleet: &Arc<Fleet>, history: &History, dice: Dice) -> Self {
        let (fleet, history) = (Arc::clone(fleet), history.clone());
        Self { number, servers, fleet, history, dice, asked: 0, sessions: Vec::new(), wrong: Vec::new() }
    }

    fn silo(&self) -> u64 {
        self.number as u64 + 1
    }

    /// The next thing to ask for: seats, mostly.
    async fn next(&mut self) -> Call {
        self.asked += 1;
        let name = format!("{:06} of lane {:02}, at length", self.asked, self.number);
        let silo = Some(self.silo());
        if self.sessions.len() < SESSIONS {
            let mut request = pb::MatchmakingUpdateAdvertisementRequest {
                time_to_live_ms: Some(LONG_MS),
                connect_data: self.asked.to_string().into_bytes(),
                idempotency_key: format!("session {name}"),
                ..advertise_request(&[(&format!("host {name}"), 0.0)], SEATS as i32)
            };
            request.session_composition.as_mut().expect("a session").silo_id = silo;
            return Call::Publish(Box::new(request));
        }
        if self.dice.chance(0.2) {
            let (advertisement_id, advertisement_token) = self.sessions.swap_remove(self.dice.below(SESSIONS));
            return Call::Delete(pb::MatchmakingDeleteAdvertisementRequest { advertisement_id, advertisement_token });
        }
        let user = format!("guest {name}");
        let (session, search_token) = self.searched(&user).await;
        let advertisement_id = self.sessions[self.dice.below(SESSIONS)].0.clone();
        let request = pb::MatchmakingReserveRequest {
            advertisement_id,
            idempotency_key: user.clone(),
            hold_for_ms: Some(LONG_MS),
            search_token,
            session_composition: Some(session),
            ..Default::default()
        };
        Call::Reserve(Box::new(request), user)
    }

    /// A party of one, which has searched.
    async fn searched(&self, user: &str) -> (pb::SessionCompositionData, Vec<u8>) {
        let session = pb::SessionCompositionData { silo_id: Some(self.silo()), ..party_session(&[(user, 0.0)]) };
        let client = self.fleet.client(self.servers[1], self.number).expect("somebody is there");
        let found = client.search_session(1, session.clone()).search().await.expect("a search");
        (session, found.search_token)
    }

    async fn make(&self, call: &Call, client: &Client) -> Result<Answer, Error> {
        let start = self.history.now();
        let answer = call.make(client).await;
        let asked = call.asked(answer.as_ref().ok());
        self.history.note(self.number, asked, start, outcome(&answer));
        answer
    }

    /// Asks until the answer is known.
    async fn insist(&self, call: &Call, client: &Client) -> Result<Answer, Error> {
        let begun = Instant::now();
        loop {
            match self.make(call, client).await {
                Err(error)
                    if matches!(error.code(), None | Some(Code::Unavailable)) && begun.elapsed() < TEST_TIMEOUT => {}
                answer => return answer,
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Asks again at another server, twice, until it is known; both answers are the same as `before`, if that was heard.
    /// Then the same name with something else in it is refused.
    async fn settle(&mut self, call: &Call, before: Option<Answer>) {
        let mut heard = before;
        for at in [self.servers[1], self.servers[0]] {
            let client = self.fleet.client(at, self.number).expect("somebody is there");
            let answer = self.insist(call, &client).await;
            match (&heard, answer) {
                (Some(heard), Ok(answer)) if *heard != answer => {
                    self.wrong.push(format!("another answer: {heard:?}, then {answer:?}"));
                }
                (Some(heard), Err(error)) => self.wrong.push(format!("{heard:?}, then {error}")),
                (_, Ok(answer)) => heard = Some(answer),
                (None, Err(error)) if error.code() == Some(Code::FailedPrecondition) => {}
                (None, Err(error)) => self.wrong.push(format!("asked again: {error}")),
            }
        }
        let Some(heard) = heard else { return };
        if let Call::Reserve(request, user) = call {
            let (session, search_token) = self.searched(&format!("not {user}")).await;
            let other = pb::MatchmakingReserveRequest {
                session_composition: Some(session),
                search_token,
                ..(**request).clone()
            };
            let client = self.fleet.client(self.servers[1], self.number).expect("somebody is there");
            let refused = client.reserve(other).await.err().and_then(|error| error.code());
            // While the server that was cut off still believes that the store is away, it decides nothing.
            if ![Some(Code::AlreadyExists), Some(Code::Unavailable)].contains(&refused) {
                self.wrong.push(format!("the same name for something else: {refused:?}"));
            }
        }
        if let Call::Publish(_) = call {
            self.sessions.push((heard.0, heard.2));
        }
    }

    /// Loses one answer between this client and a server.
    async fn lose_answer(&mut self, proxy: &ClientProxy) {
        let call = self.next().await;
        let cut_off = client(&proxy.address);
        if let Ok(answer) = self.make(&call, &cut_off).await {
            self.wrong.push(format!("answered in spite of all: {answer:?}"));
        }
        self.settle(&call, None).await;
    }

    /// Loses one commit of the server that this lane asks first, or the answer to it.
    async fn lose_commit(&mut self, proxy: &StoreProxy, cut_off: &Client, loss: Loss, present: &Present<'_>) {
        let call = self.next().await;
        proxy.lose_next(loss);
        let answer = self.make(&call, cut_off).await;
        let missed = proxy.disarm();
        let there = present.is(&call).await;
        match (&answer, loss) {
            _ if missed => {}
            (Ok(_), Loss::Commit) => self.wrong.push("acknowledged, and the commit was lost".into()),
            (Err(error), Loss::Answer) if there != Some(false) => {
                self.wrong.push(format!("it was committed, and said {error} at {:?}", self.history.now()))
            }
            (Ok(_), _) if there == Some(false) => self.wrong.push("acknowledged, and it is not there".into()),
            (Err(_), _) if there == Some(true) => {
                self.wrong.push(format!("{loss:?}: not acknowledged, and it is there"))
            }
            _ => {}
        }
        let heard = answer.ok();
        self.settle(&call, heard).await;
        // Until it hears the store again, the server that was cut off would refuse all without sending a commit.
        let begun = Instant::now();
        while let Some((id, token)) = self.sessions.first() {
            assert!(begun.elapsed() < TEST_TIMEOUT, "the server is not well again");
            let beat = pb::MatchmakingUpdateAdvertisementRequest {
                advertisement_id: id.clone(),
                advertisement_token: token.clone(),
                time_to_live_ms: Some(LONG_MS),
                ..Default::default()
            };
            if cut_off.update_advertisement(beat).await.is_ok_and(|answer| !answer.not_yet_durable) {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Whether something has happened, by the tables.
struct Present<'a>(&'a TestDatabase);

impl Present<'_> {
    /// `None` where a row cannot say.
    async fn is(&self, call: &Call) -> Option<bool> {
        let mut connection = self.0.connect().await;
        let query = match call {
            Call::Reserve(_, user) => {
                let user = fireteam::domain::id::UserKey::from_name(user);
                let query = sqlx::query_scalar("select exists (select from reservation where users = $1)");
                query.bind(user.as_bytes().to_vec())
            }
            // A publication is one statement and has its name at the end of it: whoever gives it up may be first.
            Call::Publish(request) => {
                let silo = request.session_composition.as_ref().and_then(|session| session.silo_id).unwrap_or(0);
                let text = "select exists (select from advertisement where connect_data = $1 and silo_id = $2)";
                sqlx::query_scalar(text).bind(request.connect_data.clone()).bind(silo.cast_signed())
            }
            Call::Delete(_) => return None,
        };
        Some(query.fetch_one(&mut connection).await.expect("an answer"))
    }
}

/// R5: the client never hears, and asks another server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_is_given_again() {
    let mut chapter = Chapter::begin("lost answers").await;
    let Some(database) = crate::support::database::create_test_database("a_lost_answer_is_given_again").await else {
        return;
    };
    const LANES: usize = 8;
    let fleet = Arc::new(Fleet::start(&database.url, 2));
    let history = History::begin();
    let mut lanes = Vec::new();
    for number in 0..LANES {
        let mut lane = Lane::new(number, [number % 2, (number + 1) % 2], &fleet, &history, chapter.dice(number as u64));
        let address = fleet.with(number % 2, |server| server.address.to_string());
        lanes.push(tokio::spawn(async move {
            let proxy = ClientProxy::listen(address).await;
            proxy.arm(true);
            for _ in 0..scaled(ANSWERS).div_ceil(LANES) {
                lane.lose_answer(&proxy).await;
            }
            (proxy.lost.load(Ordering::SeqCst), lane.wrong)
        }));
    }
    let mut lost = 0;
    for lane in lanes {
        let (more, wrong) = lane.await.expect("it ends by itself");
        lost += more;
        chapter.all_violated(wrong);
    }
    chapter.figure("lost", lost);
    assert!(scaled(ANSWERS) <= lost, "{lost}: too few were lost");
    crate::seats::check(&mut chapter, &database, &fleet, &history, "lost_answers").await;
    chapter.end();
}

/// R5: the server never hears, and must not say what it does not know.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_commit_is_found_out_about() {
    let mut chapter = Chapter::begin("lost commits").await;
    let Some(cluster) = PostgresCluster::start("a_lost_commit_is_found_out_about") else { return };
    const LANES: usize = 2;
    let database = cluster.create_database("fireteam").await;
    // The last one is in nobody's way: there everything is asked again.
    let fleet = Arc::new(Fleet::new(&database.url, LANES + 1));
    let history = History::begin();
    let mut proxies = Vec::new();
    for at in 0..=LANES {
        let proxy = StoreProxy::listen(Behind::Folder(cluster.folder.clone()));
        let (fleet, url) = (Arc::clone(&fleet), proxy.url("fireteam"));
        let url = (at < LANES).then_some(url);
        tokio::task::spawn_blocking(move || fleet.fill(at, url.as_deref(), &[])).await.expect("it starts");
        proxies.push(proxy);
    }
    let mut lanes = Vec::new();
    for (number, proxy) in proxies.into_iter().take(LANES).enumerate() {
        let mut lane = Lane::new(number, [number, LANES], &fleet, &history, chapter.dice(number as u64));
        let (cut_off, url) = (fleet.client(number, 0).expect("somebody is there"), database.url.clone());
        lanes.push(tokio::spawn(async move {
            let database = TestDatabase { url };
            for turn in 0..scaled(COMMITS) / LANES {
                let loss = [Loss::Answer, Loss::Commit, Loss::Answer, Loss::Late][turn % 4];
                lane.lose_commit(&proxy, &cut_off, loss, &Present(&database)).await;
            }
            // The server still needs it.
            (proxy, lane.wrong)
        }));
    }
    let mut proxies = Vec::new();
    for lane in lanes {
        let (proxy, wrong) = lane.await.expect("it ends by itself");
        proxies.push(proxy);
        chapter.all_violated(wrong);
    }
    let lost: usize = proxies.iter().map(StoreProxy::lost).sum();
    chapter.figure("lost", lost);
    assert!(scaled(COMMITS) * 3 / 4 <= lost, "{lost}: too few were lost");
    crate::seats::check(&mut chapter, &database, &fleet, &history, "lost_commits").await;
    assert!(history.count(Outcome::Done) > 0);
    chapter.end();
}
