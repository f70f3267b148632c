//! IP geolocation.

pub(crate) mod database_files;
pub(crate) mod regret;
pub(crate) mod shipped_data;
pub(crate) mod vectors;
