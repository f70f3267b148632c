//! Advertisement that names a user, or that holds seats of the user.

use std::sync::Arc;

use crate::domain::advertisement::Advertisement;
use crate::domain::time::UnixMs;

pub use crate::store::{Reservation, ReservationState};

/// Advertisement that names a user, or that has reservations of the user.
#[derive(Clone, Debug, PartialEq)]
pub struct ExportedAdvert {
    /// Advertisement as published.
    pub advertisement: Arc<Advertisement>,
    /// Expiry.
    pub expires_at: UnixMs,
    /// Reservations for the user, or made by the user, also ended ones that are kept for retries.
    pub user_reservations: Vec<Reservation>,
}
