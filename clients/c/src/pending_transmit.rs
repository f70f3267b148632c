//! Datagrams of a state machine, of which one waits until the caller's buffer is large enough.

use fireteam_client::matching::Transmit;

use crate::raw::Caller;
use crate::status::FT_NONE;
use crate::types::FtAddress;

/// Datagram that was not fetched yet.
#[derive(Debug, Default)]
pub(crate) struct PendingTransmit(Option<Transmit>);

impl PendingTransmit {
    /// Fetches a datagram: into the buffer, its destination into `to`. `poll` has the next one.
    pub(crate) fn write_to_caller(
        &mut self,
        caller: &Caller,
        poll: impl FnOnce() -> Result<Option<Transmit>, i32>,
        to: *mut FtAddress,
        (buffer, capacity): (*mut u8, usize),
    ) -> Result<i32, i32> {
        caller.check_place(to)?;
        if self.0.is_none() {
            self.0 = poll()?;
        }
        let transmit = self.0.as_ref().ok_or(FT_NONE)?;
        let length = caller.fill(&transmit.packet, buffer, capacity)?;
        if transmit.packet.len() <= capacity {
            caller.write(to, transmit.to.into())?;
            self.0 = None;
        }
        Ok(length)
    }
}
