//! Runs the domain in time: takes commands, decides with memory, has the store confirm, tells who must hear.

mod adopt;
mod answer;
mod apply;
mod audit;
pub mod command;
mod core;
mod directory;
mod events;
pub mod fault;
mod hear;
mod job;
#[cfg(feature = "mutants")]
mod mutant;
mod others;
mod outage;
mod overrides;
mod party;
mod prepare;
pub mod queues;
pub mod ratings;
mod receipt;
mod reload;
mod run;
mod search;
mod seats;
mod seeker;
pub mod settings;
mod sharing;
mod shelf;
mod sweep;
mod updates;
mod writer;

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::domain::id::{AdvertisementId, RulesetHash, SetId};
use crate::domain::ruleset::Ruleset;
use crate::domain::time::UnixMs;
use crate::store::{Feed, News, StoreError, mutant as planted};

use self::command::{
    Caller, CandidateView, ReportLatency, ReportLatencyAnswer, ReservationAnswer, RoleAnswer, Search, SearchAnswer,
};
use self::core::Core;
use self::fault::Fault;
use self::job::Job;
use self::queues::Queues;
use self::sharing::{Recent, Sharing};
use self::shelf::Record;

pub use self::core::Parts;
pub use self::directory::EncodeStatic;
pub use self::events::Listener;

/// An answer that is there already, or that comes when the store has confirmed it. Dropping it cancels nothing: what
/// was submitted happens.
#[derive(Debug)]
pub enum Submitted<T> {
    /// Done.
    Done(T),
    /// On its way.
    Waiting(oneshot::Receiver<Result<T, Fault>>),
}

impl<T> Submitted<T> {
    /// Waits for the answer.
    pub async fn settle(self) -> Result<T, Fault> {
        match self {
            Submitted::Done(answer) => Ok(answer),
            Submitted::Waiting(answer) => answer.await.unwrap_or(Err(Fault::Internal)),
        }
    }
}

/// The matchmaker at work.
#[derive(Debug)]
pub struct Engine {
    core: Arc<Core>,
    inbox: mpsc::Sender<Job>,
    draining: AtomicBool,
    stop: CancellationToken,
    /// Held while rulesets change hands: who builds views must know what the others are about to put in force.
    rules_turn: tokio::sync::Mutex<()>,
    /// Held while memory and store are compared: one at a time.
    audit_turn: tokio::sync::Mutex<()>,
    queues: Queues,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Engine {
    /// Loads what the store has and starts the tasks. Ready to serve when it returns.
    pub async fn start(parts: Parts) -> Result<Self, StoreError> {
        let feed = parts.store.feed().await;
        let sharing = feed.is_some().then(|| Arc::new(Sharing::default()));
        let core = Arc::new(Core::new(parts, sharing.clone()));
        let stop = CancellationToken::new();
        let (inbox, jobs) = mpsc::channel(writer::INBOX_MAX);
        core.directory.set_living(core.catalog.living());
        let mut tasks = Vec::new();
        match (feed, sharing) {
            (Some(mut feed), Some(sharing)) => {
                let (news, asked) = first_news(&core, &mut *feed).await?;
                if !planted::is("expiry_by_the_local_clock") {
                    core.clock.follow(news.at, asked);
                }
                sharing.heard(core.clock.now());
                core.adopt(news, 0, &mut Recent::default(), &sharing);
                let hearing = hear::run(Arc::clone(&core), sharing, feed, inbox.clone(), stop.clone());
                tasks.push(tokio::spawn(hearing));
            }
            _ => load(&core).await?,
        }
        // Whoever asks before the first sweep must not hear that there is nothing.
        sweep::count(&core);
        tasks.push(tokio::spawn(writer::run(Arc::clone(&core), jobs, stop.clone())));
        tasks.push(tokio::spawn(sweep::run(Arc::clone(&core), inbox.clone(), stop.clone())));
        let (queues, of_queues) = Queues::start(Arc::clone(&core), inbox.clone(), &stop).await?;
        tasks.extend(of_queues);
        Ok(Self {
            core,
            inbox,
            draining: AtomicBool::new(false),
            stop,
            rules_turn: tokio::sync::Mutex::default(),
            audit_turn: tokio::sync::Mutex::default(),
            queues,
            tasks: Mutex::new(tasks),
        })
    }

    /// Where parties wait.
    pub fn queues(&self) -> &Queues {
        &self.queues
    }

    /// How long the store has been out of reach, if it is one that servers share and has been for a moment.
    pub fn stale_for_ms(&self) -> Option<u64> {
        self.core.stale_for_ms(self.core.clock.now())
    }

    /// Finds sessions; `each` sees the candidates, best first, while the set's index is held, and must be quick.
    pub fn search(
        &self,
        caller: &Caller,
        search: Search,
        each: &mut dyn FnMut(CandidateView<'_>),
    ) -> Result<SearchAnswer, Fault> {
        self.core.search(caller, search, each)
    }

    /// Orders candidates by measured round trips (S1-28 to S1-31); `each` sees those still standing, best first.
    pub fn report_latency(
        &self,
        caller: &Caller,
        report: ReportLatency,
        each: &mut dyn FnMut(CandidateView<'_>),
    ) -> Result<ReportLatencyAnswer, Fault> {
        self.core.report_latency(caller, report, each)
    }

    /// Draws a role from the ruleset's chances for this size of party (S1-5 to S1-8).
    pub fn choose_role(&self, set_id: SetId, party_size: u16) -> Result<RoleAnswer, Fault> {
        let ruleset = self.core.ruleset(set_id, None)?;
        let role = ruleset.chances.draw(party_size, self.core.clock.dice());
        Ok(RoleAnswer { role, advertise_percent: ruleset.chances.percent(party_size) })
    }

    /// The ruleset of a set: the current one, or the one of `hash` while it is still known.
    pub fn ruleset(&self, set_id: SetId, hash: Option<RulesetHash>) -> Result<Arc<Ruleset>, Fault> {
        self.core.ruleset(set_id, hash)
    }

    /// The ruleset that a search went by: the one of `hash`, else the one that its token names, else the current one.
    pub fn searched_by(&self, set_id: SetId, hash: Option<RulesetHash>, token: &[u8]) -> Result<Arc<Ruleset>, Fault> {
        self.core.searched_by(set_id, hash, token)
    }

    /// Lets `listener` hear of an advertisement's reservations from now on, and says which there are: none that is taken
    /// at this very moment falls between the two.
    pub fn subscribe(&self, id: AdvertisementId, listener: &Listener) -> Vec<ReservationAnswer> {
        self.core.events.subscribe(id, listener);
        self.core.reservations_of(id)
    }

    /// Takes what is due out now rather than at the next sweep, and returns when it is out; for tests that turn the
    /// clock.
    pub async fn sweep(&self) {
        sweep::sweep(&self.core, &self.inbox).await;
        let _ = self.written().await;
    }

    /// Takes no more changes; searches and what was submitted before go on.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// Drains, writes what was submitted, closes the store.
    pub async fn close(&self) {
        self.drain();
        self.stop.cancel();
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        for task in tasks {
            let _ = task.await;
        }
        self.core.store.close().await;
    }

    /// Waits until the writer has done everything that it was given so far.
    async fn written(&self) -> Result<(), Fault> {
        let (passed, written) = oneshot::channel();
        self.inbox.send(Job::Mark(passed)).await.map_err(|_| Fault::Draining)?;
        written.await.map_err(|_| Fault::Draining)
    }

    /// Puts a change in the writer's inbox; from here on nobody can cancel it.
    fn submit(&self, job: Job) -> Result<(), Fault> {
        if self.draining.load(Ordering::Acquire) {
            return Err(Fault::Draining);
        }
        self.inbox.try_send(job).map_err(|refused| match refused {
            TrySendError::Full(_) => Fault::Overloaded { retry_after_ms: writer::RETRY_AFTER_MS },
            TrySendError::Closed(_) => Fault::Draining,
        })
    }
}

/// How often a start begins to read: a store that has just answered may be busy, as when many servers start at once.
const READ_MAX: usize = 5;

/// Everything there is, and when it was asked for. A start has more time than a call: it asks again when the answer is late.
async fn first_news(core: &Core, feed: &mut dyn Feed) -> Result<(News, UnixMs), StoreError> {
    let mut read = 0;
    loop {
        let asked = core.clock.now();
        read += 1;
        match feed.read(&[]).await {
            Err(StoreError::Unavailable(why)) if read < READ_MAX => {
                tracing::warn!(why, "the store is slow to say what there is");
            }
            news => return Ok((news?, asked)),
        }
    }
}

/// Fills memory from the store.
async fn load(core: &Core) -> Result<(), StoreError> {
    for stored in core.store.load(core.clock.now()).await? {
        let time_to_live_ms = core.settings.time_to_live_default_ms;
        let record = Record {
            encoded: (core.encode)(&stored.advertisement),
            expires: stored.expires,
            stored_expires: stored.expires,
            time_to_live_ms,
            reservations: stored.reservations,
            version: stored.version,
            held: true,
            pending: false,
            advertisement: stored.advertisement,
        };
        core.directory.shelf_or_new(record.advertisement.set_id).write().put(record);
    }
    Ok(())
}
