//! Identity of a server among those that share the store.

use crate::domain::id::SiloId;

/// Identity of this server, and the silos that it serves.
#[derive(Clone, Debug)]
pub struct FireteamReplica {
    /// Random id, new at every start: a restarted server is another replica.
    pub id: u64,
    /// Silos that this server loads and serves; `None` for all.
    pub silos: Option<Vec<SiloId>>,
}

impl FireteamReplica {
    /// Silos as column values.
    pub(in crate::store::postgres) fn silo_ids(&self) -> Option<Vec<i64>> {
        self.silos.as_ref().map(|silos| silos.iter().map(|silo| silo.0.cast_signed()).collect())
    }
}
