//! Random rulesets, populations and searches with ties, duplicates, missing values, extreme values and all rules.

use std::sync::Arc;

use crate::advertisement::{Advertisement, AdvertisementKind, AllowedRange};
use crate::attribute::{Attribute, AttributeValue, NumberAggregation, SourceField, Trust, ValueOrigin, ValueType};
use crate::attribute_values::AttributeValues;
use crate::expansion::{Expansion, ExpansionStep};
use crate::id::{AdvertisementId, RulesetHash, SetId, SiloId, UserKey};
use crate::index::IndexEntry;
use crate::index::tests::random_vectors::random_published_vector;
use crate::index::tests::random_wishes::random_wishes;
use crate::latency::{DEFAULT_LATENCY_MODEL, LatencyModel};
use crate::limit::NUMBER_MAGNITUDE_MAX;
use crate::locality::Locality;
use crate::matchmaking_action::AdvertiseChances;
use crate::measure::Measure;
use crate::ruleset::probing::{DEFAULT_PROBING, LatencyEstimatePolicy, LatencyTrust, ProbingSpec};
use crate::ruleset::queue::FrustratedPlayerSpec;
use crate::ruleset::teams::{AllocatorOfferSpec, GameServerOrder, HostingMode, HostingSpec, PlayerDataForHost};
use crate::ruleset::{
    AdvertisementIdForm, DistanceCurve, HardFilter, HardMissingPolicy, HardRule, InFilterListSource,
    PartyConsentPolicy, Ruleset, RulesetSilos, SearchLimits, SoftFilter, SoftFilterObjective, SoftMissingPolicy,
};
use crate::session::{Player, RegionLatency, Session};
use crate::time::UnixMs;

/// Time of the searches, Unix milliseconds.
pub(super) const NOW_MS: u64 = 1_700_000_000_000;
/// Attribute indexes by type: numbers first, then strings, a bool and string lists.
const NUMBER_ATTRIBUTES: usize = 3;
const STRING_ATTRIBUTES: [usize; 2] = [3, 4];
const BOOL_ATTRIBUTE: usize = 5;
const LIST_ATTRIBUTES: [usize; 2] = [6, 7];

/// Seeded random number generator: SplitMix64 (Steele, Lea and Flood, 2014).
pub(super) struct IndexTestRng(pub(super) u64);

impl IndexTestRng {
    pub(super) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Random number in `0..below`.
    pub(super) fn below(&mut self, below: usize) -> usize {
        (self.next_u64() % below as u64) as usize
    }

    /// True once in `times` calls on average.
    pub(super) fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// Random number in [0, 1).
    pub(super) fn unit_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(super) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }
}

/// Distribution of the values in one population.
#[derive(Clone, Copy, Debug)]
pub(super) struct ValueDistribution {
    /// One value in this many is drawn from a few common values.
    pub(super) common_one_in: usize,
    /// One value in this many is missing.
    pub(super) missing_one_in: usize,
    /// Number of users. With many, searchers rarely own a row; with few, they own most.
    pub(super) user_count: usize,
}

/// Settings of the estimate: most often the default.
fn random_probing(rng: &mut IndexTestRng) -> ProbingSpec {
    let distance = LatencyEstimatePolicy::Distance;
    ProbingSpec {
        latency_estimate_policy: rng.pick(&[
            distance,
            distance,
            distance,
            LatencyEstimatePolicy::PredictedV1,
            LatencyEstimatePolicy::Measured,
        ]),
        filters_by_interval_high_end: rng.one_in(3),
        region_latency_trust: rng.pick(&[LatencyTrust::Proven, LatencyTrust::Claimed]),
        ..DEFAULT_PROBING
    }
}

pub(super) fn random_ruleset(rng: &mut IndexTestRng) -> Ruleset {
    let attributes: Vec<Attribute> = (0..8).map(|index| random_attribute(rng, index)).collect();
    let expansions: Vec<Expansion> = (0..4).map(|index| random_expansion(rng, index)).collect();
    let hard: Vec<HardFilter> = (0..rng.below(5)).map(|_| random_hard_filter(rng, &expansions)).collect();
    let soft: Vec<SoftFilter> = (0..rng.below(5)).map(|index| random_soft_filter(rng, index)).collect();
    let latency_model =
        LatencyModel { intercept_ms: rng.pick(&[0.0, 20.0, 500.0]), ms_per_1000_km: rng.pick(&[0.0, 1.0, 16.0]) };
    Ruleset {
        name: "control".into(),
        set_id: SetId(1),
        hash: RulesetHash(rng.below(2) as u32),
        silos: RulesetSilos::Any,
        attributes: attributes.into(),
        hard_filters: hard.into(),
        soft_filters: soft.into(),
        expansions: expansions.into(),
        advertise_chances: AdvertiseChances::from_game_size(12),
        search_limits: SearchLimits { max_results: 50, max_evaluated: u32::MAX },
        clients_per_account: 1,
        advertisement_id_form: AdvertisementIdForm::Ids,
        latency_model: if rng.one_in(2) { DEFAULT_LATENCY_MODEL } else { latency_model },
        answered_percent_for_involved_phase: 50.0,
        probing: random_probing(rng),
        allows_latency_wishes: true,
        consent: PartyConsentPolicy::Assumed,
        avoid: Box::default(),
        frustrated_player_limits: rng.one_in(3).then(|| random_satisfaction(rng)),
        teams: None,
        queue: None,
        ready_check: None,
        hosting: HostingSpec {
            mode: HostingMode::None,
            allocation_timeout_ms: 0,
            max_match_ms: 0,
            confirm_ms: 0,
            host_loss_ms: 0,
            report_window_ms: 0,
            game_server_order: GameServerOrder::BestScore,
            max_round_trip_ms: None,
            allocator_offers: AllocatorOfferSpec::NO_OFFERS,
            host_data: PlayerDataForHost::default(),
        },
        rating: None,
        former_rating: None,
        rating_pool: None,
        statistics_regions: Box::default(),
        source_xml: "".into(),
        file_xml: "".into(),
    }
}

/// Rule of which only the factor matters: each entry draws whether it is frustrated.
fn random_satisfaction(rng: &mut IndexTestRng) -> FrustratedPlayerSpec {
    FrustratedPlayerSpec { limit_widen_factor: rng.pick(&[1.001, 2.0, 100.0]), ..FrustratedPlayerSpec::default() }
}

fn random_attribute(rng: &mut IndexTestRng, index: usize) -> Attribute {
    let value_type = match index {
        0..NUMBER_ATTRIBUTES => ValueType::Number,
        3 | 4 => ValueType::String,
        BOOL_ATTRIBUTE => ValueType::Bool,
        _ => ValueType::StringList,
    };
    let range = rng.pick(&[None, Some((-1000.0, 1000.0)), Some((0.0, 1.0)), Some((1e11, 1e12)), Some((5.0, 5.5))]);
    Attribute {
        name: format!("a{index}").into(),
        value_type,
        source: SourceField::AttributeMap,
        normalization_range: range.filter(|_| value_type == ValueType::Number),
        unit: "".into(),
        number_aggregation: NumberAggregation::Mean,
        trust: Trust::Client,
        allows_wishes: true,
    }
}

fn random_expansion(rng: &mut IndexTestRng, index: usize) -> Expansion {
    let (measure, max_limit) = match index {
        0 => (Measure::Latency, 300.0),
        1 => (Measure::Distance, 8000.0),
        number => (Measure::AttributeDifference(number - 2), 800.0),
    };
    let mut values: Vec<f64> = (0..1 + rng.below(12)).map(|_| (rng.unit_f64() * max_limit).round()).collect();
    values.sort_by(f64::total_cmp);
    if rng.one_in(10) {
        values[0] = rng.pick(&[0.0, -1.0, 1e-9]);
        values.sort_by(f64::total_cmp);
    }
    let mut start_ms = 0;
    let step = |value: &f64| {
        let step = ExpansionStep { start_ms, limit: *value };
        start_ms += 1 + rng.next_u64() % 20_000;
        step
    };
    let steps = values.iter().map(step).collect();
    Expansion::new("e", measure, steps).expect("steps start at 0 and grow")
}

fn random_hard_filter(rng: &mut IndexTestRng, expansions: &[Expansion]) -> HardFilter {
    let strings = |rng: &mut IndexTestRng| {
        let mut strings: Vec<Box<str>> = (0..rng.below(4)).map(|_| random_word(rng)).collect();
        strings.sort();
        strings.dedup();
        strings.into_boxed_slice()
    };
    let attribute = rng.below(8);
    let value = rng
        .one_in(2)
        .then(|| {
            random_value(rng, attribute, ValueDistribution { common_one_in: 1, missing_one_in: 1000, user_count: 1 })
        })
        .flatten();
    let rule = match rng.below(10) {
        0 => HardRule::Equal { attribute, value },
        1 => HardRule::NotEqual { attribute, value },
        2 => {
            let use_attribute = rng.one_in(2);
            let list = if use_attribute {
                InFilterListSource::OwnAttribute(rng.pick(&LIST_ATTRIBUTES))
            } else {
                InFilterListSource::Strings(strings(rng))
            };
            HardRule::In { attribute: rng.pick(&STRING_ATTRIBUTES), list, mutual: rng.one_in(2) }
        }
        3 => {
            let (min, max) = (rng.unit_f64() * 600.0 - 500.0, rng.unit_f64() * 600.0 + 200.0);
            let (min, max) = rng.pick(&[(min, max), (f64::NEG_INFINITY, max), (min, f64::INFINITY), (0.25, 0.75)]);
            HardRule::Range { attribute: rng.below(NUMBER_ATTRIBUTES), min, max }
        }
        4 => HardRule::Overlap { attribute: rng.pick(&LIST_ATTRIBUTES), choose: None },
        5 => {
            let pair = |rng: &mut IndexTestRng| {
                let (one, other) = (rng.below(4) as i32, rng.below(4) as i32);
                (one.min(other), one.max(other))
            };
            let mut pairs: Vec<(i32, i32)> = (0..1 + rng.below(6)).map(|_| pair(rng)).collect();
            pairs.sort_unstable();
            pairs.dedup();
            HardRule::Compatible { attribute: rng.below(NUMBER_ATTRIBUTES), pairs: pairs.into() }
        }
        6 if rng.one_in(3) => HardRule::SameRuleset,
        7 if rng.one_in(4) => HardRule::MaxPacketLoss { percent: 30.0 * rng.unit_f64() },
        7 if rng.one_in(3) => HardRule::MaxJitter { ms: 120.0 * rng.unit_f64() },
        _ => {
            let expansion = rng.below(expansions.len());
            let reciprocal_percent = rng.pick(&[0.0, 50.0, 100.0, 100.0, 33.3]);
            HardRule::Within { measure: expansions[expansion].measure, expansion, reciprocal_percent }
        }
    };
    let missing = if rng.one_in(4) { HardMissingPolicy::Refuse } else { HardMissingPolicy::Pass };
    HardFilter { name: "h".into(), missing, rule }
}

fn random_soft_filter(rng: &mut IndexTestRng, index: usize) -> SoftFilter {
    let by_probes = rng.pick(&[Measure::PacketLoss, Measure::Jitter]);
    let measure = rng.pick(&[
        Measure::AttributeDifference(0),
        Measure::AttributeDifference(1),
        Measure::AttributeDifference(2),
        Measure::Latency,
        Measure::Latency,
        Measure::DeltaPing,
        Measure::Distance,
        by_probes,
    ]);
    let (min, max) = match measure {
        Measure::AttributeDifference(_) => {
            rng.pick(&[(-1000.0, 1000.0), (0.0, 1.0), (1e11, 1e12), (5.0, 5.5), (100.0, 300.0), (-1e12, 1e12)])
        }
        Measure::DeltaPing => rng.pick(&[(0.0, 300.0), (0.0, 20.0), (-30.0, 60.0)]),
        Measure::Latency => rng.pick(&[(0.0, 300.0), (50.0, 100.0), (0.0, 60_000.0)]),
        Measure::Distance => rng.pick(&[(0.0, 8000.0), (10.0, 500.0)]),
        Measure::PacketLoss => (0.0, 20.0),
        Measure::Jitter => (5.0, 100.0),
    };
    let by_difference = matches!(measure, Measure::AttributeDifference(_)) && !rng.one_in(3);
    SoftFilter {
        name: format!("s{index}").into(),
        weight: rng.pick(&[0.4, 0.6, 20.0, 1.0, 1e-3, 1e9, 0.1 + 0.2]),
        measure,
        mode: if by_difference { SoftFilterObjective::Difference } else { SoftFilterObjective::LowerIsBetter },
        curve: rng.pick(&[DistanceCurve::Linear, DistanceCurve::Quadratic, DistanceCurve::SquareRoot]),
        missing: rng.pick(&[SoftMissingPolicy::Worst, SoftMissingPolicy::Neutral]),
        min,
        max,
    }
}

fn random_word(rng: &mut IndexTestRng) -> Box<str> {
    rng.pick(&["eu", "us", "as", "sa", "af", "oc"]).into()
}

fn random_value(rng: &mut IndexTestRng, attribute: usize, distribution: ValueDistribution) -> Option<AttributeValue> {
    if rng.one_in(distribution.missing_one_in) {
        return None;
    }
    Some(match attribute {
        0..NUMBER_ATTRIBUTES if rng.one_in(distribution.common_one_in) => {
            AttributeValue::Number(rng.pick(&[0.0, -0.0, 1.0, 2.0, 3.0, 0.5, 250.0, 5.25]))
        }
        0..NUMBER_ATTRIBUTES => AttributeValue::Number(match rng.below(12) {
            0 => rng.pick(&[NUMBER_MAGNITUDE_MAX, -NUMBER_MAGNITUDE_MAX, 1e11, 5e11 + 0.125, 1e-300]),
            1 => rng.unit_f64(),
            2 => 5.0 + rng.unit_f64(),
            _ => rng.unit_f64() * 2400.0 - 1200.0,
        }),
        3 | 4 => AttributeValue::String((*random_word(rng)).into()),
        BOOL_ATTRIBUTE => AttributeValue::Bool(rng.one_in(2)),
        _ => AttributeValue::from_string_list((0..rng.below(4)).map(|_| random_word(rng)).collect()),
    })
}

fn random_locality(rng: &mut IndexTestRng, distribution: ValueDistribution) -> Option<Locality> {
    if rng.one_in(distribution.missing_one_in) {
        return None;
    }
    let (latitude, longitude) = if rng.one_in(distribution.common_one_in) {
        rng.pick(&[(47.6, -122.3), (34.0, -118.2), (48.8, 2.3), (48.8, 2.3001), (-33.9, 151.2)])
    } else {
        (rng.unit_f64() * 180.0 - 90.0, rng.unit_f64() * 360.0 - 180.0)
    };
    Locality::from_degrees(latitude, longitude)
}

pub(super) fn random_session(rng: &mut IndexTestRng, distribution: ValueDistribution) -> Session {
    let players: Vec<Player> = (0..1 + rng.below(3))
        .map(|_| UserKey::from_bytes([rng.below(distribution.user_count) as u8; 16]))
        .map(Player::from_user)
        .collect();
    let attribute = |rng: &mut IndexTestRng, index: usize| {
        Some((format!("a{index}").into(), random_value(rng, index, distribution)?))
    };
    let attributes = (0..8).filter_map(|index| attribute(rng, index)).collect();
    let max_regions = if rng.one_in(2) { 0 } else { 3 };
    let mut region_latencies: Vec<RegionLatency> = (0..rng.below(max_regions + 1))
        .map(|_| RegionLatency {
            region: random_word(rng),
            round_trip_ms: rng.pick(&[0.0, 20.0, 33.25, 80.0, 59_999.0]),
        })
        .collect();
    region_latencies.sort_by(|one, other| one.region.cmp(&other.region));
    region_latencies.dedup_by(|one, other| one.region == other.region);
    Session {
        silo: SiloId(rng.below(8) as u64 / 7),
        party_sizes: [players.len() as u8].into(),
        players,
        locality: random_locality(rng, distribution),
        attributes,
        region_latencies: region_latencies.into(),
        value_origin: ValueOrigin::Client,
        details: random_wishes(rng),
        ..Session::default()
    }
}

/// Values of a session without any.
pub(super) fn no_values(ruleset: &Ruleset) -> AttributeValues {
    AttributeValues::from_session_without_standings(ruleset, &Session::default())
}

/// Random id; some share their first bytes.
pub(super) fn random_id(rng: &mut IndexTestRng) -> AdvertisementId {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&rng.next_u64().to_be_bytes());
    bytes[8..].copy_from_slice(&rng.next_u64().to_be_bytes());
    match rng.below(4) {
        0 => bytes[..4].fill(7),
        1 => bytes[..8].fill(7),
        _ => {}
    }
    AdvertisementId::from_bytes(bytes)
}

pub(super) fn random_entry(
    rng: &mut IndexTestRng,
    ruleset: &Ruleset,
    id: AdvertisementId,
    distribution: ValueDistribution,
) -> IndexEntry {
    let mut session = random_session(rng, distribution);
    if ruleset.probing.latency_estimate_policy == LatencyEstimatePolicy::PredictedV1 {
        session.set_published_beacon_vector(session.locality.and_then(|center| random_published_vector(rng, center)));
    }
    let range = |rng: &mut IndexTestRng| AllowedRange {
        attribute: format!("a{}", rng.below(9)).into(),
        min: (!rng.one_in(3)).then(|| rng.unit_f64() * 2000.0 - 1500.0),
        max: (!rng.one_in(3)).then(|| rng.unit_f64() * 2000.0),
    };
    let ranges = if rng.one_in(3) { rng.below(3) } else { 0 };
    let allowed_ranges: Vec<_> = (0..ranges).map(|_| range(rng)).collect();
    let waited_ms = rng.next_u64() % 200_000;
    let advertisement = Advertisement {
        id,
        set_id: SetId(1),
        kind: if rng.one_in(8) { AdvertisementKind::GameServer } else { AdvertisementKind::Session },
        publisher: rng.one_in(4).then(|| UserKey::from_bytes([rng.below(distribution.user_count.min(30)) as u8; 16])),
        advertised_since: UnixMs(rng.pick(&[
            NOW_MS - waited_ms,
            NOW_MS - waited_ms,
            NOW_MS - waited_ms,
            NOW_MS,
            NOW_MS + waited_ms,
            0,
        ])),
        ruleset_hash: RulesetHash(rng.below(2) as u32),
        session,
        ttl_ms: None,
        allowed_ranges: allowed_ranges.into(),
        connect_data: Box::default(),
        probe: None,
    };
    let attribute_values = AttributeValues::from_session_without_standings(ruleset, &advertisement.session);
    let attribute_values = attribute_values.with_frustration(ruleset, rng.one_in(3));
    let expires_at = random_expiry(rng);
    let open_seats = rng.below(5) as u16;
    IndexEntry { advertisement: Arc::new(advertisement), attribute_values, expires_at, open_seats }
}

pub(super) fn random_expiry(rng: &mut IndexTestRng) -> UnixMs {
    let ahead_ms = rng.next_u64() % 90_000;
    UnixMs(rng.pick(&[
        NOW_MS + ahead_ms,
        NOW_MS + ahead_ms,
        NOW_MS + ahead_ms,
        NOW_MS + 1,
        NOW_MS,
        NOW_MS - 1,
        0,
        u64::MAX,
    ]))
}

/// Copy of the ruleset with random overrides of weights and limits.
pub(super) fn with_random_overrides(rng: &mut IndexTestRng, ruleset: &Ruleset) -> Ruleset {
    let mut ruleset = ruleset.clone();
    for soft in &mut ruleset.soft_filters {
        if rng.one_in(2) {
            soft.weight = rng.pick(&[1e-12, 0.05, 1.0, 20.0, 1e12]);
        }
    }
    for expansion in &mut ruleset.expansions {
        if rng.one_in(3) {
            let limit = rng.unit_f64() * 1000.0;
            *expansion = Expansion::constant("e", expansion.measure, limit).expect("the limit is finite");
        }
    }
    ruleset
}
