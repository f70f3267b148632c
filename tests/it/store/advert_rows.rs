//! Builders of advertisements, reservations and writes for store tests.

use std::num::NonZeroU32;
use std::sync::Arc;

use fireteam::domain::advertisement::{Advertisement, AdvertisementKind};
use fireteam::domain::id::{AdvertisementId, ReservationId, RulesetHash, SetId, SiloId, UserKey};
use fireteam::domain::latency::published_vector::{LeastPathExcess, PublishedFloor, PublishedVector};
use fireteam::domain::ruleset::probing::LatencyTrust;
use fireteam::domain::session::{Player, Session, SessionDetails};
use fireteam::domain::time::UnixMs;
use fireteam::store::{AdvertOwner, AdvertWrite, Reservation, ReservationState};

/// Advertisement id `n`.
pub(crate) fn ad_id(n: u32) -> AdvertisementId {
    AdvertisementId::from_bytes(id_bytes(1, n))
}

/// Reservation id `n`.
pub(crate) fn seat_id(n: u32) -> ReservationId {
    ReservationId::from_bytes(id_bytes(2, n))
}

fn id_bytes(kind: u8, n: u32) -> [u8; 16] {
    let mut bytes = [kind; 16];
    bytes[12..].copy_from_slice(&n.to_be_bytes());
    bytes
}

/// Advertisement `n` with `join_seats` open seats and `text` as connect data.
pub(crate) fn ad(n: u32, join_seats: u16, since: u64, text: &str) -> Arc<Advertisement> {
    let user = UserKey::from_name(&format!("host {n}"));
    let session = Session {
        silo: SiloId(u64::MAX - 1),
        party_sizes: [1].into(),
        players: vec![Player { stated_skill: Some(0.1 + f64::from(n)), ..Player::from_user(user) }],
        offered_seats: join_seats,
        // Without one for every third.
        details: (n % 3 != 1)
            .then(|| Box::new(SessionDetails { published_vector: vector(n), ..SessionDetails::default() })),
        ..Session::default()
    };
    Arc::new(Advertisement {
        id: ad_id(n),
        set_id: SetId(7),
        kind: AdvertisementKind::Session,
        publisher: None,
        advertised_since: UnixMs(since),
        ruleset_hash: RulesetHash(u32::MAX),
        session,
        // Without one for every third.
        ttl_ms: NonZeroU32::new(n % 3 * 5_000),
        allowed_ranges: Box::default(),
        connect_data: text.as_bytes().into(),
        probe: None,
    })
}

/// Beacon vector that was measured at `n` milliseconds.
fn vector(n: u32) -> Option<PublishedVector> {
    let floors =
        vec![PublishedFloor { beacon_id: 7, steps: 2 }, PublishedFloor { beacon_id: u32::MAX, steps: u16::MAX }];
    PublishedVector::new(
        floors,
        UnixMs(n.into()),
        LatencyTrust::Observed,
        LeastPathExcess { near_ms: -1.5, light_ms: 0.25 },
    )
}

/// A publish without an owner that confirms and joins no reservation.
pub(crate) fn put(advertisement: Arc<Advertisement>, expires: u64, now: u64) -> AdvertWrite {
    put_owned(advertisement, None, expires, now)
}

/// A publish that confirms and joins no reservation.
pub(crate) fn put_owned(
    advertisement: Arc<Advertisement>,
    owner: Option<AdvertOwner>,
    expires: u64,
    now: u64,
) -> AdvertWrite {
    AdvertWrite::Publish {
        advertisement,
        expires_at: UnixMs(expires),
        confirmed_reservations: vec![],
        joined_reservations: vec![],
        owner,
        create_digest: None,
        now: UnixMs(now),
    }
}

/// A heartbeat that confirms and joins no reservation.
pub(crate) fn extend(n: u32, expires: u64, now: u64) -> AdvertWrite {
    AdvertWrite::ExtendTtl {
        advertisement_id: ad_id(n),
        expires_at: UnixMs(expires),
        confirmed_reservations: vec![],
        joined_reservations: vec![],
        create_digest: None,
        now: UnixMs(now),
    }
}

/// A request for reservation `n` of seats in advertisement `ad`.
pub(crate) fn seats(n: u32, ad: u32, seats: u16, until: u64) -> Reservation {
    Reservation {
        id: seat_id(n),
        advertisement_id: ad_id(ad),
        seats,
        users: vec![UserKey::from_bytes([3; 16]), UserKey::from_bytes(id_bytes(4, n))],
        request_digest: [seats as u8; 16],
        state: ReservationState::Held,
        has_joined: false,
        expires_or_purge_at: UnixMs(until),
        owner: None,
    }
}

/// A write that makes the reservation.
pub(crate) fn reserve(reservation: Reservation, now: u64) -> AdvertWrite {
    AdvertWrite::ReserveSeats { reservation, limit: None, now: UnixMs(now) }
}
