//! Generated players and sessions: ratings from a normal distribution, locations all over the globe.

use fireteam::domain::attribute::AttributeValue;
use fireteam::domain::id::{SiloId, UserKey};
use fireteam::domain::locality::Locality;
use fireteam::domain::ruleset::Ruleset;
use fireteam::domain::session::{Player, Session};
use fireteam::rules::parse_ruleset;
use fireteam_client::pb;

/// Time of the manual clocks, Unix milliseconds.
pub(crate) const NOW: u64 = 1_700_000_000_000;

/// SplitMix64 (Steele, Lea and Flood, 2014).
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut it = self.0;
        it = (it ^ (it >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        it = (it ^ (it >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        it ^ (it >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Uniform in [0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// About N(0, 1): the sum of twelve uniform numbers, less 6 (Irwin-Hall).
    pub(crate) fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }

    /// 16 random bytes for an id.
    pub(crate) fn id_bytes(&mut self) -> [u8; 16] {
        (u128::from(self.next()) << 64 | u128::from(self.next())).to_be_bytes()
    }

    /// Latitude and longitude of a uniform point on the globe, degrees.
    fn place(&mut self) -> (f64, f64) {
        (self.unit().mul_add(2.0, -1.0).asin().to_degrees(), self.unit() * 360.0 - 180.0)
    }
}

/// Ruleset from XML text.
pub(crate) fn ruleset(xml: &str) -> Ruleset {
    match parse_ruleset("gate.xml", xml) {
        Ok(ruleset) => ruleset,
        Err(problems) => panic!("{}", problems.iter().map(ToString::to_string).collect::<String>()),
    }
}

/// Session of one player with a skill around `mean`, one of 100 modes, and a location.
pub(crate) fn session(rng: &mut Rng, mean: f64, deviation: f64) -> Session {
    let user = UserKey::from_bytes(rng.id_bytes());
    let (latitude, longitude) = rng.place();
    let skill = mean + deviation * rng.normal();
    Session {
        silo: SiloId(1),
        party_sizes: vec![1],
        players: vec![Player { user, client_key: user, stated_skill: Some(skill) }],
        locality: Locality::from_degrees(latitude, longitude),
        attributes: vec![("mode".into(), AttributeValue::String(format!("m{}", rng.below(100)).into()))],
        ..Session::default()
    }
}

/// The same as a client sends it.
pub(crate) fn composition(rng: &mut Rng) -> pb::SessionCompositionData {
    let (latitude, longitude) = rng.place();
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
