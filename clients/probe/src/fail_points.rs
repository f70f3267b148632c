//! Fail points of a beacon's cookie: each leaves out a part that the cookie is for.

use std::ops::Range;

/// Fail points, and the bytes under a cookie that they leave out.
const BEACON_COOKIE_FAIL_POINTS: [(&str, Range<usize>); 5] = [
    ("cookie_without_address", 1..17),
    ("cookie_without_port", 17..19),
    ("cookie_without_nonce", 19..27),
    ("cookie_without_sequence", 27..29),
    ("cookie_without_time", 29..37),
];

/// Replaces the parts whose fail point is on with zeros.
pub(crate) fn zero_beacon_cookie_inputs_at_fail_points(signed: &mut [u8; 41]) {
    for (name, part) in BEACON_COOKIE_FAIL_POINTS {
        if is_on(name) {
            signed[part].fill(0);
        }
    }
}

fn is_on(name: &str) -> bool {
    fail::fail_point!(name, |_| true);
    false
}
