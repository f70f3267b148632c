//! Key of a queue.

use crate::domain::id::{SetId, SiloId};

/// Queue id: a set and a silo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueKey {
    /// Set.
    pub set_id: SetId,
    /// Silo.
    pub silo: SiloId,
}
