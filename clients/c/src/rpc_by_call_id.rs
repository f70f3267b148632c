//! RPCs of the calls that a loop has asked for: an answer has the id of its call alone.

use std::collections::VecDeque;

/// Calls whose late answers are still understood.
const KNOWN_CALLS_MAX: usize = 1_024;

/// RPCs of the latest calls, by call id.
#[derive(Debug)]
pub(crate) struct RpcByCallId<Rpc>(VecDeque<(u64, Rpc)>);

impl<Rpc> Default for RpcByCallId<Rpc> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<Rpc: Copy> RpcByCallId<Rpc> {
    /// Remembers a call.
    pub(crate) fn insert(&mut self, id: u64, rpc: Rpc) {
        if self.rpc(id).is_some() {
            return;
        }
        if KNOWN_CALLS_MAX <= self.0.len() {
            self.0.pop_front();
        }
        self.0.push_back((id, rpc));
    }

    /// RPC of a call.
    pub(crate) fn rpc(&self, id: u64) -> Option<Rpc> {
        self.0.iter().rev().find(|(known, _)| *known == id).map(|(_, rpc)| *rpc)
    }
}
