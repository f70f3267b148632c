//! Verification of an advertisement token, as each heartbeat does it.

use std::hint::black_box;

use fireteam::auth::token::{AdvertisementClaim, HmacTokenSigner};
use fireteam::domain::advertisement::AdvertisementKind;
use fireteam::domain::id::{AdvertisementId, SetId};
use fireteam::domain::time::UnixMs;

use crate::count;
use crate::population::{NOW, id_bytes};
use crate::split_mix64::SplitMix64;

/// Tokens in a counted section.
const TOKENS: usize = 256;

pub(crate) fn open() {
    let signer = HmacTokenSigner::new([7; 32], None);
    let mut rng = SplitMix64(3);
    let claim = |_| AdvertisementClaim {
        advertisement_id: AdvertisementId::from_bytes(id_bytes(&mut rng)),
        set_id: SetId(1),
        kind: AdvertisementKind::Session,
        subject: None,
        advertised_since: UnixMs(NOW),
    };
    let tokens: Vec<Vec<u8>> = (0..TOKENS).map(claim).map(|claim| signer.sign(&claim)).collect();
    count(
        |_| (),
        |()| {
            for token in &tokens {
                black_box(signer.verify::<AdvertisementClaim>(token)).expect("a valid token");
            }
            TOKENS
        },
    );
}
