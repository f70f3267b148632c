//! Generated advertisements: normally distributed ratings, locations uniform on the globe.

use std::sync::Arc;

use fireteam::domain::advertisement::{Advertisement, AdvertisementKind, AllowedRange};
use fireteam::domain::attribute::{Attribute, AttributeValue, NumberAggregation, SourceField, Trust, ValueType};
use fireteam::domain::attribute_values::AttributeValues;
use fireteam::domain::expansion::{Expansion, ExpansionStep};
use fireteam::domain::id::{AdvertisementId, RulesetHash, SetId, SiloId, UserKey};
use fireteam::domain::index::IndexEntry;
use fireteam::domain::latency::DEFAULT_LATENCY_MODEL;
use fireteam::domain::locality::Locality;
use fireteam::domain::matchmaking_action::AdvertiseChances;
use fireteam::domain::measure::Measure;
use fireteam::domain::ruleset::probing::DEFAULT_PROBING;
use fireteam::domain::ruleset::teams::{
    AllocatorOfferSpec, GameServerOrder, HostingMode, HostingSpec, PlayerDataForHost,
};
use fireteam::domain::ruleset::{
    AdvertisementIdForm, DistanceCurve, HardFilter, HardMissingPolicy, HardRule, InFilterListSource,
    PartyConsentPolicy, Ruleset, RulesetSilos, SearchLimits, SoftFilter, SoftFilterObjective, SoftMissingPolicy,
};
use fireteam::domain::session::{Player, Session};
use fireteam::domain::time::UnixMs;

use crate::split_mix64::SplitMix64;

/// Time of each search.
pub(crate) const NOW: u64 = 1_700_000_000_000;

/// Kind of population.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum PopulationKind {
    /// Locations uniform on the globe.
    Uniform,
    /// Two hundred cities, one default rating: many identical points.
    Duplicates,
    /// Uniform, and each advertisement admits only ratings that no user has.
    UnreachableRanges,
    /// Uniform, and all advertisements are of one user.
    SameUser,
}

fn number(name: &str, range: Option<(f64, f64)>) -> Attribute {
    let reduction = NumberAggregation::Mean;
    let (kind, source, trust, unit) = (ValueType::Number, SourceField::AttributeMap, Trust::Client, "".into());
    Attribute {
        name: name.into(),
        value_type: kind,
        source,
        normalization_range: range,
        unit,
        number_aggregation: reduction,
        trust,
        allows_wishes: false,
    }
}

/// Weights of skill and distance, and hard filters: `limits` adds mutual limits on skill, `mode` an uncorrelated `In` on a
/// string, `impossible` an `In` with a string that no row has, `contradictory` two `In` filters of which each row passes at
/// most one, and `key` an `Equal`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RuleOptions {
    pub(crate) skill: f64,
    pub(crate) distance: f64,
    pub(crate) limits: bool,
    pub(crate) mode: bool,
    pub(crate) impossible: bool,
    pub(crate) contradictory: bool,
    pub(crate) key: bool,
}

pub(crate) fn ruleset(rules: RuleOptions) -> Ruleset {
    let text = |name: &str| Attribute { value_type: ValueType::String, ..number(name, None) };
    let soft = |name: &str, weight, measure, mode, min, max| SoftFilter {
        name: name.into(),
        weight,
        measure,
        mode,
        curve: DistanceCurve::Linear,
        missing: SoftMissingPolicy::Worst,
        min,
        max,
    };
    let skill =
        soft("skill", rules.skill, Measure::AttributeDifference(0), SoftFilterObjective::Difference, 0.0, 3000.0);
    let distance = soft("distance", rules.distance, Measure::Distance, SoftFilterObjective::LowerIsBetter, 0.0, 8000.0);
    let steps = [(0, 1e-6), (3_600_000, 5000.0)].map(|(start_ms, value)| ExpansionStep { start_ms, limit: value });
    let within = HardRule::Within { measure: Measure::AttributeDifference(0), expansion: 0, reciprocal_percent: 100.0 };
    let strings = |text: &str| InFilterListSource::Strings([text.into()].into());
    let listed = |text: &str| HardRule::In { attribute: 1, list: strings(text), mutual: false };
    let equal = HardRule::Equal { attribute: 2, value: None };
    let hard = [
        (rules.limits, within),
        (rules.mode | rules.contradictory, listed("m7")),
        (rules.contradictory, listed("m8")),
        (rules.impossible, listed("none")),
        (rules.key, equal),
    ];
    let filter = |rule| HardFilter { name: "hard".into(), missing: HardMissingPolicy::Pass, rule };
    Ruleset {
        name: "bench".into(),
        set_id: SetId(1),
        hash: RulesetHash(1),
        silos: RulesetSilos::Any,
        attributes: [number("skill", Some((0.0, 3000.0))), text("mode"), text("playlist")].into(),
        hard_filters: hard.into_iter().filter(|(used, _)| *used).map(|(_, rule)| filter(rule)).collect(),
        soft_filters: [skill, distance].into_iter().filter(|soft| 0.0 < soft.weight).collect(),
        expansions: [Expansion::new("e", Measure::AttributeDifference(0), steps.to_vec()).expect("grows")].into(),
        advertise_chances: AdvertiseChances::from_game_size(12),
        search_limits: SearchLimits { max_results: 50, max_evaluated: u32::MAX },
        clients_per_account: 1,
        advertisement_id_form: AdvertisementIdForm::Ids,
        latency_model: DEFAULT_LATENCY_MODEL,
        answered_percent_for_involved_phase: 50.0,
        probing: DEFAULT_PROBING,
        allows_latency_wishes: false,
        consent: PartyConsentPolicy::Assumed,
        avoid: Box::default(),
        frustrated_player_limits: None,
        teams: None,
        queue: None,
        ready_check: None,
        hosting: HostingSpec {
            mode: HostingMode::None,
            allocation_timeout_ms: 0,
            max_match_ms: 0,
            confirm_ms: 0,
            host_loss_ms: 0,
            game_server_order: GameServerOrder::BestScore,
            max_round_trip_ms: None,
            allocator_offers: AllocatorOfferSpec::NO_OFFERS,
            report_window_ms: 0,
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

pub(crate) fn session(rng: &mut SplitMix64, spread: PopulationKind) -> Session {
    let user = if spread == PopulationKind::SameUser { 1 } else { rng.next() };
    // Random from the first byte on, like a digest: hash tables use the first bytes.
    let user = UserKey::from_bytes((u128::from(user) << 64 | u128::from(user)).to_be_bytes());
    let city = rng.below(200);
    let mut at = match spread {
        PopulationKind::Uniform | PopulationKind::UnreachableRanges | PopulationKind::SameUser => {
            SplitMix64(rng.next())
        }
        PopulationKind::Duplicates => SplitMix64(city),
    };
    let (latitude, longitude) = (at.unit().mul_add(2.0, -1.0).asin().to_degrees(), at.unit() * 360.0 - 180.0);
    let skill = match spread {
        PopulationKind::Uniform | PopulationKind::UnreachableRanges | PopulationKind::SameUser => {
            (1500.0 + 350.0 * rng.normal()).clamp(0.0, 3000.0)
        }
        PopulationKind::Duplicates => 1500.0,
    };
    Session {
        silo: SiloId(1),
        party_sizes: [1].into(),
        players: vec![Player::from_user(user)],
        locality: Locality::from_degrees(latitude, longitude),
        attributes: vec![
            ("mode".into(), AttributeValue::String(format!("m{}", rng.below(100)).into())),
            ("playlist".into(), AttributeValue::String(format!("p{}", rng.below(100)).into())),
            ("skill".into(), AttributeValue::Number(skill)),
        ],
        ..Session::default()
    }
}

/// A session as a client sends it, with skill as its player's.
pub(crate) fn client_session(rng: &mut SplitMix64) -> Session {
    let mut session = session(rng, PopulationKind::Uniform);
    if let Some((_, AttributeValue::Number(skill))) = session.attributes.pop_if(|(name, _)| **name == *"skill") {
        session.players[0].stated_skill = Some(skill);
    }
    session.offered_seats = 5;
    session
}

/// A range without any rating.
fn impossible_range() -> AllowedRange {
    AllowedRange { attribute: "skill".into(), min: Some(1e7), max: None }
}

pub(crate) fn entry(rng: &mut SplitMix64, ruleset: &Ruleset, number: u64, spread: PopulationKind) -> IndexEntry {
    let session = session(rng, spread);
    let mut ids = SplitMix64(number);
    let id = (u128::from(ids.next()) << 64) | u128::from(ids.next());
    let facts = AttributeValues::from_session_without_standings(ruleset, &session);
    let advertisement = Advertisement {
        id: AdvertisementId::from_bytes(id.to_be_bytes()),
        set_id: SetId(1),
        kind: AdvertisementKind::Session,
        publisher: None,
        advertised_since: UnixMs(NOW - rng.below(60_000)),
        ruleset_hash: RulesetHash(1),
        session,
        ttl_ms: None,
        allowed_ranges: if spread == PopulationKind::UnreachableRanges {
            [impossible_range()].into()
        } else {
            [].into()
        },
        connect_data: [0; 16].into(),
        probe: None,
    };
    let expires = UnixMs(NOW + 1_000 + rng.below(60_000));
    let open_seats = rng.below(6) as u16;
    IndexEntry { advertisement: Arc::new(advertisement), attribute_values: facts, expires_at: expires, open_seats }
}
