//! Receipts of beacons: which one counts, and for whom.
//!
//! A receipt is signed by a beacon, names the network that the beacon measured, and carries a binding to a user and a day. The checks
//! come in one order, and the first that fails is the verdict.

use std::fmt;

use fireteam_probe::{AddressPrefix, BeaconKey, FIXED_PACKET_BYTES, FleetKey, RECEIPT_ROUND_TRIP_US_MAX, Receipt};

use crate::auth::fail_points::skips_check;
use crate::domain::id::UserKey;
use crate::domain::time::UnixMs;

/// Age from which a receipt no longer counts, milliseconds.
pub const RECEIPT_LIFETIME_MS: u64 = 600_000;

/// Time by which a receipt may be ahead of the server's clock, milliseconds.
const RECEIPT_AHEAD_MS_MAX: u64 = 5_000;

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// Keys of the fleet: the current one, and the one before a rotation.
#[derive(Clone)]
pub struct BeaconFleetKeys {
    current: FleetKey,
    previous: Option<FleetKey>,
}

impl fmt::Debug for BeaconFleetKeys {
    /// Prints the number of keys, never a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BeaconFleetKeys").field("keys", &self.all().count()).finish_non_exhaustive()
    }
}

impl BeaconFleetKeys {
    /// Keys from their bytes.
    pub fn new(current: [u8; 32], previous: Option<[u8; 32]>) -> Self {
        Self { current: FleetKey(current), previous: previous.map(FleetKey) }
    }

    fn all(&self) -> impl Iterator<Item = &FleetKey> {
        std::iter::once(&self.current).chain(self.previous.as_ref())
    }

    /// Key of a beacon that has this id; `None` if neither fleet key gives one.
    pub fn beacon_key(&self, beacon_id: u32, key_id: [u8; 4]) -> Option<BeaconKey> {
        self.all().map(|key| key.beacon_key(beacon_id)).find(|key| key.key_id() == key_id)
    }

    /// Key of a beacon by the current fleet key.
    pub fn current_beacon_key(&self, beacon_id: u32) -> BeaconKey {
        self.current.beacon_key(beacon_id)
    }

    /// Binding of a user's receipts on the day of `now`.
    pub fn receipt_binding_of_user_and_day(&self, subject: Option<UserKey>, now: UnixMs) -> [u8; 16] {
        self.current.receipt_binding(subject.as_ref().map(|user| user.as_bytes()), day_of(now))
    }

    /// Whether a binding is of this user, and of today or yesterday.
    fn is_binding_of(&self, binding: [u8; 16], subject: Option<UserKey>, now: UnixMs) -> bool {
        let user = subject.as_ref().map(|user| user.as_bytes());
        let days = [day_of(now), day_of(now).saturating_sub(1)];
        self.all().any(|key| days.iter().any(|day| key.receipt_binding(user, *day) == binding))
    }
}

/// Days since 1970.
fn day_of(now: UnixMs) -> u32 {
    u32::try_from(now.0 / DAY_MS).unwrap_or(u32::MAX)
}

/// Verdict on a receipt: the first check that fails, or that it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReceiptVerdict {
    /// It counts.
    Proven,
    /// Not a receipt packet.
    Malformed,
    /// No live beacon has its id.
    UnknownBeacon,
    /// Its key does not follow from a fleet key.
    UnknownKey,
    /// Its code is not that of the beacon.
    BadMac,
    /// Its binding is not the user's, or not of today or yesterday.
    ForeignBinding,
    /// Older than [`RECEIPT_LIFETIME_MS`].
    Stale,
    /// From the future.
    Future,
    /// Its round trip is impossible.
    OutOfRange,
    /// It measured an address that is not the caller's.
    ForeignPrefix,
}

/// Measurement that a receipt proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasuredBeacon {
    /// Id of the beacon.
    pub beacon_id: u32,
    /// Round trip, microseconds.
    pub round_trip_us: u32,
}

/// Circumstances of a receipt: the user who presents it, the time, and the live beacons.
pub struct ReceiptContext<'a> {
    /// Keys of the fleet.
    pub keys: &'a BeaconFleetKeys,
    /// User who presents it; `None` for a caller without identity.
    pub subject: Option<UserKey>,
    /// Time of the server.
    pub now: UnixMs,
    /// Whether a live beacon has this id.
    pub is_live: &'a dyn Fn(u32) -> bool,
    /// Whether a network counts as that of the caller.
    pub is_callers_prefix: &'a dyn Fn(AddressPrefix) -> bool,
}

/// Checks a receipt. The measurement is `None` unless the verdict is `Proven` or `ForeignPrefix`.
pub fn check_receipt(packet: &[u8], context: &ReceiptContext<'_>) -> (ReceiptVerdict, Option<MeasuredBeacon>) {
    use ReceiptVerdict as Verdict;
    let ReceiptContext { keys, subject, now, is_live, is_callers_prefix } = *context;
    let (FIXED_PACKET_BYTES, Ok(receipt)) = (packet.len(), Receipt::decode(packet)) else {
        return (Verdict::Malformed, None);
    };
    let claims = receipt.claims;
    if !is_live(claims.beacon_id) && !skips_check("skip_receipt_liveness") {
        return (Verdict::UnknownBeacon, None);
    }
    let key = keys.beacon_key(claims.beacon_id, claims.key_id);
    let key = key.or_else(|| skips_check("skip_receipt_key_id").then(|| keys.current_beacon_key(claims.beacon_id)));
    let Some(key) = key else { return (Verdict::UnknownKey, None) };
    if !receipt.is_signed_by(&key) && !skips_check("skip_receipt_mac") {
        return (Verdict::BadMac, None);
    }
    if !keys.is_binding_of(claims.binding, subject, now) && !skips_check("skip_receipt_binding") {
        return (Verdict::ForeignBinding, None);
    }
    let issued_at = UnixMs(u64::from(claims.issued_unix_s) * 1_000);
    if RECEIPT_LIFETIME_MS < now.ms_since(issued_at) && !skips_check("skip_receipt_age") {
        return (Verdict::Stale, None);
    }
    if now.plus_ms(RECEIPT_AHEAD_MS_MAX) < issued_at && !skips_check("skip_receipt_future") {
        return (Verdict::Future, None);
    }
    if !(1..=RECEIPT_ROUND_TRIP_US_MAX).contains(&claims.round_trip_us) && !skips_check("skip_receipt_range") {
        return (Verdict::OutOfRange, None);
    }
    let measured = Some(MeasuredBeacon { beacon_id: claims.beacon_id, round_trip_us: claims.round_trip_us });
    let is_callers = is_callers_prefix(claims.prefix) || skips_check("skip_receipt_prefix");
    if is_callers { (Verdict::Proven, measured) } else { (Verdict::ForeignPrefix, measured) }
}

#[cfg(test)]
mod tests;
