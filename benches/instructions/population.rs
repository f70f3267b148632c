//! Generated players and sessions: ratings from a normal distribution, locations all over the globe.

use fireteam::domain::attribute::AttributeValue;
use fireteam::domain::id::{SiloId, UserKey};
use fireteam::domain::locality::Locality;
use fireteam::domain::ruleset::Ruleset;
use fireteam::domain::session::{Player, Session};
use fireteam::rules::parse_ruleset;
use fireteam_client::pb;

use crate::split_mix64::SplitMix64;

/// Time of the manual clocks, Unix milliseconds.
pub(crate) const NOW: u64 = 1_700_000_000_000;

/// 16 random bytes for an id.
pub(crate) fn id_bytes(rng: &mut SplitMix64) -> [u8; 16] {
    (u128::from(rng.next()) << 64 | u128::from(rng.next())).to_be_bytes()
}

/// Latitude and longitude of a uniform point on the globe, degrees.
fn location(rng: &mut SplitMix64) -> (f64, f64) {
    (rng.unit().mul_add(2.0, -1.0).asin().to_degrees(), rng.unit() * 360.0 - 180.0)
}

/// Ruleset from XML text.
pub(crate) fn ruleset(xml: &str) -> Ruleset {
    match parse_ruleset("gate.xml", xml) {
        Ok(ruleset) => ruleset,
        Err(problems) => panic!("{}", problems.iter().map(ToString::to_string).collect::<String>()),
    }
}

/// Session of one player with a skill around `mean`, one of 100 modes, and a location.
pub(crate) fn session(rng: &mut SplitMix64, mean: f64, deviation: f64) -> Session {
    let user = UserKey::from_bytes(id_bytes(rng));
    let (latitude, longitude) = location(rng);
    let skill = mean + deviation * rng.normal();
    Session {
        silo: SiloId(1),
        party_sizes: [1].into(),
        players: vec![Player { stated_skill: Some(skill), ..Player::from_user(user) }],
        locality: Locality::from_degrees(latitude, longitude),
        attributes: vec![("mode".into(), AttributeValue::String(format!("m{}", rng.below(100)).into()))],
        ..Session::default()
    }
}

/// The same as a client sends it.
pub(crate) fn composition(rng: &mut SplitMix64) -> pb::SessionCompositionData {
    let (latitude, longitude) = location(rng);
    let [x, y, z] = Locality::from_degrees(latitude, longitude).map_or([4000.0, 0.0, 0.0], |it| [it.x, it.y, it.z]);
    let mode = pb::attribute_value::Value::StringValue(format!("m{}", rng.below(100)));
    let skill = Some((1_500.0 + 350.0 * rng.normal()).clamp(0.0, 3_000.0));
    pb::SessionCompositionData {
        silo_id: Some(1),
        players: vec![pb::PlayerData { user_id: format!("user{:016x}", rng.next()), skill, ..Default::default() }],
        party_size_composition: vec![1],
        max_allowed_join_reservation_count: Some(5),
        locality_info: Some(pb::LocalityData {
            locality_x: Some(x),
            locality_y: Some(y),
            locality_z: Some(z),
            ..Default::default()
        }),
        attributes: [("mode".to_owned(), pb::AttributeValue { value: Some(mode) })].into(),
        ..Default::default()
    }
}
