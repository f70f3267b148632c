//! Queue loop as an object of the interface: the watch of its ticket, and the address and credentials of its match.

use std::ffi::CStr;
use std::fmt;

use fireteam_client::matching::{CallError, CallId, MonotonicTime};
use fireteam_client::pb;
use fireteam_client::queueing::{QueueAnswer, QueueCall, QueueEvent, QueueOutcome, Queueing, QueueingState};
use prost::Message;

use crate::answer::{AnswerParts, unreadable_answer_error};
use crate::identifier::all_fit_id_text;
use crate::loop_object::{LoopMachine, LoopObject};
use crate::queue_call_codec::{QueueRpc, decode_watch_message};
use crate::queue_types;
use crate::status::{FT_ERROR_MALFORMED, FT_ERROR_UNKNOWN_CALL, FT_ERROR_VALUE};

/// Queue loop of one party. One thread at a time may use it.
pub struct FtQueueing {
    pub(crate) object: LoopObject<Queueing>,
    /// Watch that was not fetched yet.
    watch: Option<PendingWatch>,
    /// Number of the latest watch, from 1.
    latest_watch_id: u64,
}

/// Watch to open.
pub(crate) struct PendingWatch {
    pub(crate) id: u64,
    pub(crate) body: Vec<u8>,
}

impl LoopMachine for Queueing {
    type Event = QueueEvent;
    type Answer = QueueAnswer;
    type Outcome = QueueOutcome;
    type Rpc = QueueRpc;

    fn handle(&mut self, event: QueueEvent, now: MonotonicTime) {
        Queueing::handle(self, event, now);
    }

    fn poll_call(&mut self) -> Option<(CallId, QueueRpc, Vec<u8>)> {
        let QueueCall { id, request } = Queueing::poll_call(self)?;
        let (rpc, body) = QueueRpc::encode_request(&request);
        Some((id, rpc, body))
    }

    fn poll_outcome(&mut self) -> Option<QueueOutcome> {
        Queueing::poll_outcome(self)
    }

    fn poll_timeout(&self) -> Option<MonotonicTime> {
        Queueing::poll_timeout(self)
    }

    fn path(rpc: QueueRpc) -> &'static CStr {
        rpc.path()
    }

    fn decode(rpc: QueueRpc, body: &[u8]) -> Option<QueueAnswer> {
        rpc.decode(body)
    }

    fn answer_event(id: CallId, result: Result<QueueAnswer, CallError>) -> QueueEvent {
        QueueEvent::Answer { id, result }
    }
}

impl FtQueueing {
    /// Loop that enters with this request: a `QueueEnterRequest` with a set and players.
    pub(crate) fn new(request: &[u8], seed: [u8; 32]) -> Result<Self, i32> {
        let request = pb::QueueEnterRequest::decode(request).map_err(|_| FT_ERROR_MALFORMED)?;
        let has_players = request.session_composition.as_ref().is_some_and(|party| !party.players.is_empty());
        if !has_players || request.matchmaking_set_id.is_none() {
            return Err(FT_ERROR_VALUE);
        }
        Ok(Self::with_machine(Queueing::new(request, seed)))
    }

    /// Loop that goes on from saved bytes.
    pub(crate) fn from_saved_bytes(saved: &[u8], seed: [u8; 32]) -> Result<Self, i32> {
        let queueing = Queueing::from_saved_bytes(saved, seed).ok_or(FT_ERROR_MALFORMED)?;
        Ok(Self::with_machine(queueing))
    }

    fn with_machine(queueing: Queueing) -> Self {
        Self { object: LoopObject::new(queueing), watch: None, latest_watch_id: 0 }
    }

    /// Gives an event to the loop.
    pub(crate) fn handle(&mut self, event: QueueEvent, now_us: u64) -> Result<i32, i32> {
        self.object.handle(event, now_us)
    }

    /// Next watch, until [`Self::watch_is_done`]. A later one takes the place of one that was not fetched.
    pub(crate) fn next_watch(&mut self) -> Result<Option<&PendingWatch>, i32> {
        if let Some(request) = self.object.run(Queueing::poll_watch)? {
            self.latest_watch_id += 1;
            self.watch = Some(PendingWatch { id: self.latest_watch_id, body: request.encode_to_vec() });
        }
        // None is needed after the end.
        if matches!(self.state()?, queue_types::FT_QUEUEING_ENDING | queue_types::FT_QUEUEING_ENDED) {
            self.watch = None;
        }
        Ok(self.watch.as_ref())
    }

    pub(crate) fn watch_is_done(&mut self) {
        self.watch = None;
    }

    /// Gives a message of a watch. One that cannot be read counts as the end of the watch, and is an error of the caller, too.
    pub(crate) fn handle_watch_message(&mut self, watch_id: u64, message: &[u8], now_us: u64) -> Result<i32, i32> {
        if !self.is_latest_watch(watch_id)? {
            return Ok(0);
        }
        match decode_watch_message(message) {
            Some(pb::QueueWatchResponse { status: Some(status) }) => {
                self.handle(QueueEvent::Status(Box::new(status)), now_us)
            }
            Some(_) => Ok(0),
            None => {
                self.handle(QueueEvent::WatchEnded(Some(unreadable_answer_error())), now_us)?;
                Err(FT_ERROR_MALFORMED)
            }
        }
    }

    /// Says that a watch has ended, or could not be opened.
    pub(crate) fn handle_watch_end(&mut self, end: &AnswerParts<'_>, now_us: u64) -> Result<i32, i32> {
        let failure = end.result(|_| Some(()))?.err();
        if !self.is_latest_watch(end.id.0)? {
            return Ok(0);
        }
        self.handle(QueueEvent::WatchEnded(failure), now_us)
    }

    /// Whether a watch is the latest one. Earlier ones are ignored.
    fn is_latest_watch(&self, watch_id: u64) -> Result<bool, i32> {
        let was_fetched =
            (1..=self.latest_watch_id).contains(&watch_id) && self.watch.as_ref().is_none_or(|it| it.id != watch_id);
        if was_fetched { Ok(watch_id == self.latest_watch_id) } else { Err(FT_ERROR_UNKNOWN_CALL) }
    }

    /// Reply of the players to a ready check.
    pub(crate) fn respond(&mut self, match_id: &str, accept: bool, now_us: u64) -> Result<i32, i32> {
        let match_id = match_id.to_owned();
        if match_id.is_empty() || !all_fit_id_text([&match_id].into_iter()) {
            return Err(FT_ERROR_VALUE);
        }
        self.handle(QueueEvent::Respond { match_id, accept }, now_us)
    }

    /// The loop as bytes.
    pub(crate) fn saved_bytes(&mut self) -> Result<Vec<u8>, i32> {
        self.object.run(|queueing| queueing.saved_bytes())
    }

    /// Connect data of the match's game server, by the latest status. `None` if no game server hosts it.
    pub(crate) fn connect_data(&mut self) -> Result<Option<Vec<u8>>, i32> {
        self.object.run(|queueing| {
            let found = queueing.status()?.found_match.as_ref()?;
            match found.assignment.as_ref()?.host.as_ref()? {
                pb::assignment::Host::GameServer(server) => Some(server.connect_data.clone()),
                _ => None,
            }
        })
    }

    /// Credential of an own player in the match, by the latest status. `None` if there is none.
    pub(crate) fn credential(&mut self, player: u32) -> Result<Option<String>, i32> {
        self.object.run(|queueing| {
            let found = queueing.status()?.found_match.as_ref()?;
            let own_player = found.own_players.get(usize::try_from(player).ok()?)?;
            Some(own_player.credential.clone()).filter(|credential| !credential.is_empty())
        })
    }

    /// State, as `FT_QUEUEING_*`.
    pub(crate) fn state(&mut self) -> Result<i32, i32> {
        self.object.run(|queueing| match queueing.state() {
            QueueingState::Idle => queue_types::FT_QUEUEING_IDLE,
            QueueingState::Entering => queue_types::FT_QUEUEING_ENTERING,
            QueueingState::Watching => queue_types::FT_QUEUEING_WATCHING,
            QueueingState::Connecting => queue_types::FT_QUEUEING_CONNECTING,
            QueueingState::Playing => queue_types::FT_QUEUEING_PLAYING,
            QueueingState::Ending => queue_types::FT_QUEUEING_ENDING,
            QueueingState::Ended => queue_types::FT_QUEUEING_ENDED,
        })
    }
}

impl fmt::Debug for FtQueueing {
    /// Prints no token: the messages hide theirs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FtQueueing").field("queueing", self.object.machine()).finish_non_exhaustive()
    }
}
