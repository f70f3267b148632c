//! State machine as an object of the interface: keeps what does not fit into the caller's buffer, and knows the RPC of each call.

use std::ffi::CStr;

use fireteam_client::matching::{CallError, CallId, MonotonicTime};

use crate::answer::AnswerParts;
use crate::panic_guard::PanicGuard;
use crate::rpc_by_call_id::RpcByCallId;
use crate::status::{FT_ERROR_MALFORMED, FT_ERROR_UNKNOWN_CALL};

/// State machine that asks for calls, and has outcomes.
pub(crate) trait LoopMachine {
    /// Event that it takes.
    type Event;
    /// Answer to one of its calls.
    type Answer;
    /// Request to the game, or news for it.
    type Outcome;
    /// RPC of a call.
    type Rpc: Copy;

    /// Takes an event.
    fn handle(&mut self, event: Self::Event, now: MonotonicTime);
    /// Call to make, with its request as bytes.
    fn poll_call(&mut self) -> Option<(CallId, Self::Rpc, Vec<u8>)>;
    /// Next outcome.
    fn poll_outcome(&mut self) -> Option<Self::Outcome>;
    /// Time of the next timeout.
    fn poll_timeout(&self) -> Option<MonotonicTime>;
    /// Path of the method in HTTP/2.
    fn path(rpc: Self::Rpc) -> &'static CStr;
    /// Answer from the bytes of a response. `None` if they are no response of this RPC.
    fn decode(rpc: Self::Rpc, body: &[u8]) -> Option<Self::Answer>;
    /// Event of an answer.
    fn answer_event(id: CallId, result: Result<Self::Answer, CallError>) -> Self::Event;
}

/// State machine of an object, which one thread at a time may use.
pub(crate) struct LoopObject<Machine: LoopMachine> {
    machine: PanicGuard<Machine>,
    rpc_by_call_id: RpcByCallId<Machine::Rpc>,
    call: Option<PendingCall>,
    outcome: Option<Machine::Outcome>,
}

/// Call that was not fetched yet.
pub(crate) struct PendingCall {
    pub(crate) id: CallId,
    pub(crate) path: &'static CStr,
    pub(crate) body: Vec<u8>,
}

impl<Machine: LoopMachine> LoopObject<Machine> {
    pub(crate) fn new(machine: Machine) -> Self {
        Self { machine: PanicGuard::new(machine), rpc_by_call_id: RpcByCallId::default(), call: None, outcome: None }
    }

    /// Machine, for `Debug`.
    pub(crate) fn machine(&self) -> &Machine {
        self.machine.object()
    }

    /// Runs a function of the machine, unless an earlier one has ended by a panic.
    pub(crate) fn run<T>(&mut self, function: impl FnOnce(&mut Machine) -> T) -> Result<T, i32> {
        self.machine.run(function)
    }

    /// Gives an event to the machine.
    pub(crate) fn handle(&mut self, event: Machine::Event, now_us: u64) -> Result<i32, i32> {
        self.run(|machine| machine.handle(event, MonotonicTime::from_micros(now_us)))?;
        Ok(0)
    }

    /// Gives an answer to the machine. An answer that cannot be read counts as a failure of the call, and is an error of the caller, too.
    pub(crate) fn handle_answer(&mut self, answer: &AnswerParts<'_>, now_us: u64) -> Result<i32, i32> {
        let rpc = self.rpc_by_call_id.rpc(answer.id.0).ok_or(FT_ERROR_UNKNOWN_CALL)?;
        let result = answer.result(|body| Machine::decode(rpc, body))?;
        let is_unreadable = answer.status == 0 && result.is_err();
        self.handle(Machine::answer_event(answer.id, result), now_us)?;
        if is_unreadable { Err(FT_ERROR_MALFORMED) } else { Ok(0) }
    }

    /// Next call, until [`Self::call_is_done`].
    pub(crate) fn next_call(&mut self) -> Result<Option<&PendingCall>, i32> {
        self.run(|_| ())?;
        if self.call.is_none()
            && let Some((id, rpc, body)) = self.run(Machine::poll_call)?
        {
            self.rpc_by_call_id.insert(id.0, rpc);
            self.call = Some(PendingCall { id, path: Machine::path(rpc), body });
        }
        Ok(self.call.as_ref())
    }

    pub(crate) fn call_is_done(&mut self) {
        self.call = None;
    }

    /// Next outcome, until [`Self::outcome_is_done`].
    pub(crate) fn next_outcome(&mut self) -> Result<Option<&Machine::Outcome>, i32> {
        self.run(|_| ())?;
        if self.outcome.is_none() {
            self.outcome = self.run(Machine::poll_outcome)?;
        }
        Ok(self.outcome.as_ref())
    }

    pub(crate) fn outcome_is_done(&mut self) {
        self.outcome = None;
    }

    /// Time of the next timeout, microseconds.
    pub(crate) fn timeout_us(&mut self) -> Result<Option<u64>, i32> {
        self.run(|machine| machine.poll_timeout().map(MonotonicTime::as_micros))
    }
}
