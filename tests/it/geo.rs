//! IP geolocation.

pub(crate) mod database_files;
pub(crate) mod match_round_trips;
pub(crate) mod prediction;
pub(crate) mod probe_stopping;
pub(crate) mod regret;
pub(crate) mod shipped_data;
pub(crate) mod vectors;
