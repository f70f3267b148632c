//! Comparison of the network that a beacon measured with the address of a call.

use std::net::IpAddr;

use fireteam_probe::AddressPrefix;

use crate::domain::location_privacy::arc_km;
use crate::engine::beacon_directory::ReceiptPrefixRule;
use crate::engine::common::Common;

/// Distance up to which two networks count as one place, kilometers: carriers send a player's packets by several networks, and calls by
/// another family of addresses.
const SAME_PLACE_KM_MAX: f64 = 300.0;

/// Whether a receipt of this network counts for a caller at `address`.
pub(super) fn is_receipt_valid_for_caller(common: &Common, prefix: AddressPrefix, address: Option<IpAddr>) -> bool {
    let Some(address) = address else { return false };
    if AddressPrefix::of(address) == prefix {
        return true;
    }
    if common.beacons.settings.prefix_rule == ReceiptPrefixRule::Strict {
        return false;
    }
    let places = (common.geo_locator.locate(prefix.first_address()), common.geo_locator.locate(address));
    let (Some(one), Some(other)) = places else { return false };
    arc_km(one, other) <= SAME_PLACE_KM_MAX
}
