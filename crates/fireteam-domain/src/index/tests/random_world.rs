//! Random rulesets, populations and searches, unkind on purpose: ties, duplicates, gaps, extremes, every rule.

use std::sync::Arc;

use crate::advertisement::{Advertisement, AdvertisementKind, AllowedRange};
use crate::attribute::{Attribute, AttributeSource, AttributeValue, PartyAggregation, Trust, ValueOrigin, ValueType};
use crate::attribute_values::AttributeValues;
use crate::expansion::{Expansion, ExpansionStep};
use crate::id::{AdvertisementId, RulesetHash, SetId, SiloId, UserKey};
use crate::index::IndexEntry;
use crate::latency::{DEFAULT_LATENCY_MODEL, LatencyModel};
use crate::limit::NUMBER_MAGNITUDE_MAX;
use crate::locality::Locality;
use crate::matchmaking_action::AdvertiseChances;
use crate::measure::Measure;
use crate::ruleset::teams::{HostingMode, HostingSpec};
use crate::ruleset::{
    DistanceCurve, HardFilter, HardMissingPolicy, HardRule, InFilterList, PartyConsentPolicy, Ruleset, SearchLimits,
    ServedSilos, SoftFilter, SoftFilterMode, SoftMissingPolicy,
};
use crate::session::{Player, RegionLatency, Session};
use crate::time::UnixMs;

/// The moment around which everything happens.
pub(super) const NOW_MS: u64 = 1_700_000_000_000;
/// Attributes: numbers, texts, a flag, lists of texts.
const NUMBER_ATTRIBUTES: usize = 3;
const STRING_ATTRIBUTES: [usize; 2] = [3, 4];
const BOOL_ATTRIBUTE: usize = 5;
const LIST_ATTRIBUTES: [usize; 2] = [6, 7];

/// SplitMix64 (Steele, Lea and Flood, 2014).
pub(super) struct IndexTestRng(pub(super) u64);

impl IndexTestRng {
    pub(super) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut it = self.0;
        it = (it ^ (it >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        it = (it ^ (it >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        it ^ (it >> 31)
    }

    /// In `0..below`.
    pub(super) fn below(&mut self, below: usize) -> usize {
        (self.next_u64() % below as u64) as usize
    }

    /// One time in `times`.
    pub(super) fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// In [0, 1).
    pub(super) fn unit_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(super) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }
}

/// How crowded the values of one population are.
#[derive(Clone, Copy, Debug)]
pub(super) struct ValueDistribution {
    /// One value in this many is drawn from a handful.
    pub(super) common_one_in: usize,
    /// One value in this many is missing.
    pub(super) missing_one_in: usize,
    /// Users that there are; so many that searchers rarely own a row, or so few that they own most.
    pub(super) user_count: usize,
}

pub(super) fn random_ruleset(dice: &mut IndexTestRng) -> Ruleset {
    let attributes: Vec<Attribute> = (0..8).map(|index| random_attribute(dice, index)).collect();
    let expansions: Vec<Expansion> = (0..4).map(|index| random_expansion(dice, index)).collect();
    let hard: Vec<HardFilter> = (0..dice.below(5)).map(|_| random_hard_filter(dice, &expansions)).collect();
    let soft: Vec<SoftFilter> = (0..dice.below(5)).map(|index| random_soft_filter(dice, index)).collect();
    let line =
        LatencyModel { intercept_ms: dice.pick(&[0.0, 20.0, 500.0]), ms_per_1000_km: dice.pick(&[0.0, 1.0, 16.0]) };
    Ruleset {
        name: "control".into(),
        set_id: SetId(1),
        hash: RulesetHash(dice.below(2) as u32),
        silos: ServedSilos::Any,
        attributes: attributes.into(),
        hard_filters: hard.into(),
        soft_filters: soft.into(),
        expansions: expansions.into(),
        advertise_chances: AdvertiseChances::from_game_size(12),
        search_limits: SearchLimits { max_results: 50, max_evaluated: u32::MAX },
        latency_model: if dice.one_in(2) { DEFAULT_LATENCY_MODEL } else { line },
        involved_phase_percent: 50.0,
        consent: PartyConsentPolicy::Assumed,
        teams: None,
        queue: None,
        ready_check: None,
        server: HostingSpec { mode: HostingMode::None, wait_ms: 0, play_max_ms: 0 },
        rating: None,
        source_xml: "".into(),
    }
}

fn random_attribute(dice: &mut IndexTestRng, index: usize) -> Attribute {
    let kind = match index {
        0..NUMBER_ATTRIBUTES => ValueType::Number,
        3 | 4 => ValueType::String,
        BOOL_ATTRIBUTE => ValueType::Bool,
        _ => ValueType::StringList,
    };
    let range = dice.pick(&[None, Some((-1000.0, 1000.0)), Some((0.0, 1.0)), Some((1e11, 1e12)), Some((5.0, 5.5))]);
    Attribute {
        name: format!("a{index}").into(),
        value_type: kind,
        source: AttributeSource::AttributeMap,
        normalization_range: range.filter(|_| kind == ValueType::Number),
        unit: "".into(),
        party_aggregation: PartyAggregation::Mean,
        trust: Trust::Client,
    }
}

fn random_expansion(dice: &mut IndexTestRng, index: usize) -> Expansion {
    let (measure, top) = match index {
        0 => (Measure::Latency, 300.0),
        1 => (Measure::Distance, 8000.0),
        number => (Measure::AttributeDifference(number - 2), 800.0),
    };
    let mut values: Vec<f64> = (0..1 + dice.below(12)).map(|_| (dice.unit_f64() * top).round()).collect();
    values.sort_by(f64::total_cmp);
    if dice.one_in(10) {
        values[0] = dice.pick(&[0.0, -1.0, 1e-9]);
        values.sort_by(f64::total_cmp);
    }
    let mut start_ms = 0;
    let step = |value: &f64| {
        let step = ExpansionStep { start_ms, limit: *value };
        start_ms += 1 + dice.next_u64() % 20_000;
        step
    };
    let steps = values.iter().map(step).collect();
    Expansion::new("e", measure, steps).expect("starts at 0 and grows")
}

fn random_hard_filter(dice: &mut IndexTestRng, expansions: &[Expansion]) -> HardFilter {
    let texts = |dice: &mut IndexTestRng| {
        let mut texts: Vec<Box<str>> = (0..dice.below(4)).map(|_| random_word(dice)).collect();
        texts.sort();
        texts.dedup();
        texts.into_boxed_slice()
    };
    let attribute = dice.below(8);
    let value = dice
        .one_in(2)
        .then(|| {
            random_value(dice, attribute, ValueDistribution { common_one_in: 1, missing_one_in: 1000, user_count: 1 })
        })
        .flatten();
    let rule = match dice.below(10) {
        0 => HardRule::Equal { attribute, value },
        1 => HardRule::NotEqual { attribute, value },
        2 => {
            let own = dice.one_in(2);
            let list = if own {
                InFilterList::OwnAttribute(dice.pick(&LIST_ATTRIBUTES))
            } else {
                InFilterList::Strings(texts(dice))
            };
            HardRule::In { attribute: dice.pick(&STRING_ATTRIBUTES), list, mutual: dice.one_in(2) }
        }
        3 => {
            let (min, max) = (dice.unit_f64() * 600.0 - 500.0, dice.unit_f64() * 600.0 + 200.0);
            let (min, max) = dice.pick(&[(min, max), (f64::NEG_INFINITY, max), (min, f64::INFINITY), (0.25, 0.75)]);
            HardRule::Range { attribute: dice.below(NUMBER_ATTRIBUTES), min, max }
        }
        4 => HardRule::Overlap { attribute: dice.pick(&LIST_ATTRIBUTES) },
        5 => {
            let pair = |dice: &mut IndexTestRng| {
                let (one, other) = (dice.below(4) as i32, dice.below(4) as i32);
                (one.min(other), one.max(other))
            };
            let mut pairs: Vec<(i32, i32)> = (0..1 + dice.below(6)).map(|_| pair(dice)).collect();
            pairs.sort_unstable();
            pairs.dedup();
            HardRule::Compatible { attribute: dice.below(NUMBER_ATTRIBUTES), pairs: pairs.into() }
        }
        6 if dice.one_in(3) => HardRule::SameHash,
        _ => {
            let expansion = dice.below(expansions.len());
            let reciprocal_percent = dice.pick(&[0.0, 50.0, 100.0, 100.0, 33.3]);
            HardRule::Within { measure: expansions[expansion].measure, expansion, reciprocal_percent }
        }
    };
    let missing = if dice.one_in(4) { HardMissingPolicy::Refuse } else { HardMissingPolicy::Pass };
    HardFilter { name: "h".into(), missing, rule }
}

fn random_soft_filter(dice: &mut IndexTestRng, index: usize) -> SoftFilter {
    let measure = dice.pick(&[
        Measure::AttributeDifference(0),
        Measure::AttributeDifference(1),
        Measure::AttributeDifference(2),
        Measure::Latency,
        Measure::Distance,
    ]);
    let (min, max) = match measure {
        Measure::AttributeDifference(_) => {
            dice.pick(&[(-1000.0, 1000.0), (0.0, 1.0), (1e11, 1e12), (5.0, 5.5), (100.0, 300.0), (-1e12, 1e12)])
        }
        Measure::Latency => dice.pick(&[(0.0, 300.0), (50.0, 100.0), (0.0, 60_000.0)]),
        Measure::Distance => dice.pick(&[(0.0, 8000.0), (10.0, 500.0)]),
    };
    let by_difference = matches!(measure, Measure::AttributeDifference(_)) && !dice.one_in(3);
    SoftFilter {
        name: format!("s{index}").into(),
        weight: dice.pick(&[0.4, 0.6, 20.0, 1.0, 1e-3, 1e9, 0.1 + 0.2]),
        measure,
        mode: if by_difference { SoftFilterMode::Difference } else { SoftFilterMode::LowerIsBetter },
        curve: dice.pick(&[DistanceCurve::Linear, DistanceCurve::Quadratic, DistanceCurve::SquareRoot]),
        missing: dice.pick(&[SoftMissingPolicy::Worst, SoftMissingPolicy::Neutral]),
        min,
        max,
    }
}

fn random_word(dice: &mut IndexTestRng) -> Box<str> {
    dice.pick(&["eu", "us", "as", "sa", "af", "oc"]).into()
}

fn random_value(dice: &mut IndexTestRng, attribute: usize, taste: ValueDistribution) -> Option<AttributeValue> {
    if dice.one_in(taste.missing_one_in) {
        return None;
    }
    Some(match attribute {
        0..NUMBER_ATTRIBUTES if dice.one_in(taste.common_one_in) => {
            AttributeValue::Number(dice.pick(&[0.0, -0.0, 1.0, 2.0, 3.0, 0.5, 250.0, 5.25]))
        }
        0..NUMBER_ATTRIBUTES => AttributeValue::Number(match dice.below(12) {
            0 => dice.pick(&[NUMBER_MAGNITUDE_MAX, -NUMBER_MAGNITUDE_MAX, 1e11, 5e11 + 0.125, 1e-300]),
            1 => dice.unit_f64(),
            2 => 5.0 + dice.unit_f64(),
            _ => dice.unit_f64() * 2400.0 - 1200.0,
        }),
        3 | 4 => AttributeValue::String(random_word(dice)),
        BOOL_ATTRIBUTE => AttributeValue::Bool(dice.one_in(2)),
        _ => AttributeValue::string_list((0..dice.below(4)).map(|_| random_word(dice)).collect()),
    })
}

fn random_locality(dice: &mut IndexTestRng, taste: ValueDistribution) -> Option<Locality> {
    if dice.one_in(taste.missing_one_in) {
        return None;
    }
    let (latitude, longitude) = if dice.one_in(taste.common_one_in) {
        dice.pick(&[(47.6, -122.3), (34.0, -118.2), (48.8, 2.3), (48.8, 2.3001), (-33.9, 151.2)])
    } else {
        (dice.unit_f64() * 180.0 - 90.0, dice.unit_f64() * 360.0 - 180.0)
    };
    Locality::from_degrees(latitude, longitude)
}

pub(super) fn random_session(dice: &mut IndexTestRng, taste: ValueDistribution) -> Session {
    let players: Vec<Player> = (0..1 + dice.below(3))
        .map(|_| UserKey::from_bytes([dice.below(taste.user_count) as u8; 16]))
        .map(|user| Player { user, client_key: user, stated_skill: None })
        .collect();
    let known =
        |dice: &mut IndexTestRng, index: usize| Some((format!("a{index}").into(), random_value(dice, index, taste)?));
    let attributes = (0..8).filter_map(|index| known(dice, index)).collect();
    let few = if dice.one_in(2) { 0 } else { 3 };
    let mut regions: Vec<RegionLatency> = (0..dice.below(few + 1))
        .map(|_| RegionLatency {
            region: random_word(dice),
            round_trip_ms: dice.pick(&[0.0, 20.0, 33.25, 80.0, 59_999.0]),
        })
        .collect();
    regions.sort_by(|one, other| one.region.cmp(&other.region));
    regions.dedup_by(|one, other| one.region == other.region);
    Session {
        silo: SiloId(dice.below(8) as u64 / 7),
        party_sizes: vec![players.len() as u8],
        players,
        locality: random_locality(dice, taste),
        attributes,
        region_latencies: regions.into(),
        origin: ValueOrigin::Client,
        ..Session::default()
    }
}

/// An id that may share its first bytes with others.
pub(super) fn random_id(dice: &mut IndexTestRng) -> AdvertisementId {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&dice.next_u64().to_be_bytes());
    bytes[8..].copy_from_slice(&dice.next_u64().to_be_bytes());
    match dice.below(4) {
        0 => bytes[..4].fill(7),
        1 => bytes[..8].fill(7),
        _ => {}
    }
    AdvertisementId::from_bytes(bytes)
}

pub(super) fn random_entry(
    dice: &mut IndexTestRng,
    ruleset: &Ruleset,
    id: AdvertisementId,
    taste: ValueDistribution,
) -> IndexEntry {
    let session = random_session(dice, taste);
    let range = |dice: &mut IndexTestRng| AllowedRange {
        attribute: format!("a{}", dice.below(9)).into(),
        min: (!dice.one_in(3)).then(|| dice.unit_f64() * 2000.0 - 1500.0),
        max: (!dice.one_in(3)).then(|| dice.unit_f64() * 2000.0),
    };
    let ranges = if dice.one_in(3) { dice.below(3) } else { 0 };
    let allowed = (0..ranges).map(|_| range(dice)).collect();
    let waited = dice.next_u64() % 200_000;
    let advertisement = Advertisement {
        id,
        set_id: SetId(1),
        kind: if dice.one_in(8) { AdvertisementKind::GameServer } else { AdvertisementKind::Session },
        publisher: dice.one_in(4).then(|| UserKey::from_bytes([dice.below(taste.user_count.min(30)) as u8; 16])),
        advertised_since: UnixMs(dice.pick(&[
            NOW_MS - waited,
            NOW_MS - waited,
            NOW_MS - waited,
            NOW_MS,
            NOW_MS + waited,
            0,
        ])),
        ruleset_hash: RulesetHash(dice.below(2) as u32),
        session,
        allowed_ranges: allowed,
        connect_data: Vec::new(),
    };
    let facts = AttributeValues::from_session(ruleset, &advertisement.session);
    let expires = random_expiry(dice);
    let open_seats = dice.below(5) as u16;
    IndexEntry {
        advertisement: Arc::new(advertisement),
        attribute_values: facts,
        expires_at: expires,
        open_seats,
        encoded_response: Arc::from([]),
    }
}

pub(super) fn random_expiry(dice: &mut IndexTestRng) -> UnixMs {
    let ahead = dice.next_u64() % 90_000;
    UnixMs(dice.pick(&[NOW_MS + ahead, NOW_MS + ahead, NOW_MS + ahead, NOW_MS + 1, NOW_MS, NOW_MS - 1, 0, u64::MAX]))
}

/// The same rules with a developer's other weights and limits.
pub(super) fn with_random_overrides(dice: &mut IndexTestRng, ruleset: &Ruleset) -> Ruleset {
    let mut ruleset = ruleset.clone();
    for soft in &mut ruleset.soft_filters {
        if dice.one_in(2) {
            soft.weight = dice.pick(&[1e-12, 0.05, 1.0, 20.0, 1e12]);
        }
    }
    for expansion in &mut ruleset.expansions {
        if dice.one_in(3) {
            let limit = dice.unit_f64() * 1000.0;
            *expansion = Expansion::constant("e", expansion.measure, limit).expect("a finite limit");
        }
    }
    ruleset
}
