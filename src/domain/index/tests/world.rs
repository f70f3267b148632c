//! Random rulesets, populations and searches, unkind on purpose: ties, duplicates, gaps, extremes, every rule.

use std::sync::Arc;

use crate::domain::advertisement::{Advertisement, AllowedRange, Kind};
use crate::domain::attribute::{Attribute, Origin, Reduction, Source, Trust, Value, ValueKind};
use crate::domain::expansion::{Expansion, Step};
use crate::domain::facts::Facts;
use crate::domain::id::{AdvertisementId, RulesetHash, SetId, SiloId, UserKey};
use crate::domain::index::Entry;
use crate::domain::latency::{DEFAULT_LINE, LatencyLine};
use crate::domain::limit::NUMBER_MAGNITUDE_MAX;
use crate::domain::locality::Locality;
use crate::domain::measure::Measure;
use crate::domain::role::AdvertiseChances;
use crate::domain::ruleset::teams::{ServerMode, ServerSpec};
use crate::domain::ruleset::{
    Consent, Curve, HardFilter, HardRule, InList, MissingHard, MissingSoft, Ruleset, SearchLimits, SiloRule,
    SoftFilter, SoftMode,
};
use crate::domain::session::{Player, RegionLatency, Session};
use crate::domain::time::UnixMs;

/// The moment around which everything happens.
pub(super) const NOW: u64 = 1_700_000_000_000;
/// Attributes: numbers, texts, a flag, lists of texts.
const NUMBERS: usize = 3;
const TEXTS: [usize; 2] = [3, 4];
const FLAG: usize = 5;
const LISTS: [usize; 2] = [6, 7];

/// SplitMix64 (Steele, Lea and Flood, 2014).
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut it = self.0;
        it = (it ^ (it >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        it = (it ^ (it >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        it ^ (it >> 31)
    }

    /// In `0..below`.
    pub(super) fn below(&mut self, below: usize) -> usize {
        (self.next() % below as u64) as usize
    }

    /// One time in `times`.
    pub(super) fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// In [0, 1).
    pub(super) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(super) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }
}

/// How crowded the values of one population are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taste {
    /// One value in this many is drawn from a handful.
    pub(super) common: usize,
    /// One value in this many is missing.
    pub(super) missing: usize,
    /// Users that there are; so many that searchers rarely own a row, or so few that they own most.
    pub(super) users: usize,
}

pub(super) fn ruleset(dice: &mut Dice) -> Ruleset {
    let attributes: Vec<Attribute> = (0..8).map(|index| attribute(dice, index)).collect();
    let expansions: Vec<Expansion> = (0..4).map(|index| expansion(dice, index)).collect();
    let hard: Vec<HardFilter> = (0..dice.below(5)).map(|_| hard(dice, &expansions)).collect();
    let soft: Vec<SoftFilter> = (0..dice.below(5)).map(|index| soft(dice, index)).collect();
    let line =
        LatencyLine { intercept_ms: dice.pick(&[0.0, 20.0, 500.0]), ms_per_1000_km: dice.pick(&[0.0, 1.0, 16.0]) };
    Ruleset {
        name: "control".into(),
        set_id: SetId(1),
        hash: RulesetHash(dice.below(2) as u32),
        silos: SiloRule::Any,
        attributes: attributes.into(),
        hard: hard.into(),
        soft: soft.into(),
        expansions: expansions.into(),
        chances: AdvertiseChances::rule_of_thumb(12),
        limits: SearchLimits { max_results: 50, max_evaluated: u32::MAX },
        line: if dice.one_in(2) { DEFAULT_LINE } else { line },
        involved_phase_percent: 50.0,
        consent: Consent::Assumed,
        teams: None,
        queue: None,
        ready_check: None,
        server: ServerSpec { mode: ServerMode::None, wait_ms: 0, play_max_ms: 0 },
        rating: None,
        xml: "".into(),
    }
}

fn attribute(dice: &mut Dice, index: usize) -> Attribute {
    let kind = match index {
        0..NUMBERS => ValueKind::Number,
        3 | 4 => ValueKind::Text,
        FLAG => ValueKind::Flag,
        _ => ValueKind::Texts,
    };
    let range = dice.pick(&[None, Some((-1000.0, 1000.0)), Some((0.0, 1.0)), Some((1e11, 1e12)), Some((5.0, 5.5))]);
    Attribute {
        name: format!("a{index}").into(),
        kind,
        source: Source::Map,
        range: range.filter(|_| kind == ValueKind::Number),
        unit: "".into(),
        reduction: Reduction::Mean,
        trust: Trust::Client,
    }
}

fn expansion(dice: &mut Dice, index: usize) -> Expansion {
    let (measure, top) = match index {
        0 => (Measure::Latency, 300.0),
        1 => (Measure::Distance, 8000.0),
        number => (Measure::Attribute(number - 2), 800.0),
    };
    let mut values: Vec<f64> = (0..1 + dice.below(12)).map(|_| (dice.unit() * top).round()).collect();
    values.sort_by(f64::total_cmp);
    if dice.one_in(10) {
        values[0] = dice.pick(&[0.0, -1.0, 1e-9]);
        values.sort_by(f64::total_cmp);
    }
    let mut start_ms = 0;
    let step = |value: &f64| {
        let step = Step { start_ms, value: *value };
        start_ms += 1 + dice.next() % 20_000;
        step
    };
    let steps = values.iter().map(step).collect();
    Expansion::new("e", measure, steps).expect("starts at 0 and grows")
}

fn hard(dice: &mut Dice, expansions: &[Expansion]) -> HardFilter {
    let texts = |dice: &mut Dice| {
        let mut texts: Vec<Box<str>> = (0..dice.below(4)).map(|_| word(dice)).collect();
        texts.sort();
        texts.dedup();
        texts.into_boxed_slice()
    };
    let attribute = dice.below(8);
    let value = dice.one_in(2).then(|| value(dice, attribute, Taste { common: 1, missing: 1000, users: 1 })).flatten();
    let rule = match dice.below(10) {
        0 => HardRule::Equal { attribute, value },
        1 => HardRule::NotEqual { attribute, value },
        2 => {
            let own = dice.one_in(2);
            let list = if own { InList::Attribute(dice.pick(&LISTS)) } else { InList::Texts(texts(dice)) };
            HardRule::In { attribute: dice.pick(&TEXTS), list, mutual: dice.one_in(2) }
        }
        3 => {
            let (min, max) = (dice.unit() * 600.0 - 500.0, dice.unit() * 600.0 + 200.0);
            let (min, max) = dice.pick(&[(min, max), (f64::NEG_INFINITY, max), (min, f64::INFINITY), (0.25, 0.75)]);
            HardRule::Range { attribute: dice.below(NUMBERS), min, max }
        }
        4 => HardRule::Overlap { attribute: dice.pick(&LISTS) },
        5 => {
            let pair = |dice: &mut Dice| {
                let (one, other) = (dice.below(4) as i32, dice.below(4) as i32);
                (one.min(other), one.max(other))
            };
            let mut pairs: Vec<(i32, i32)> = (0..1 + dice.below(6)).map(|_| pair(dice)).collect();
            pairs.sort_unstable();
            pairs.dedup();
            HardRule::Compatible { attribute: dice.below(NUMBERS), pairs: pairs.into() }
        }
        6 if dice.one_in(3) => HardRule::SameHash,
        _ => {
            let expansion = dice.below(expansions.len());
            let reciprocal_percent = dice.pick(&[0.0, 50.0, 100.0, 100.0, 33.3]);
            HardRule::Within { measure: expansions[expansion].measure, expansion, reciprocal_percent }
        }
    };
    let missing = if dice.one_in(4) { MissingHard::Refuse } else { MissingHard::Pass };
    HardFilter { name: "h".into(), missing, rule }
}

fn soft(dice: &mut Dice, index: usize) -> SoftFilter {
    let measure = dice.pick(&[
        Measure::Attribute(0),
        Measure::Attribute(1),
        Measure::Attribute(2),
        Measure::Latency,
        Measure::Distance,
    ]);
    let (min, max) = match measure {
        Measure::Attribute(_) => {
            dice.pick(&[(-1000.0, 1000.0), (0.0, 1.0), (1e11, 1e12), (5.0, 5.5), (100.0, 300.0), (-1e12, 1e12)])
        }
        Measure::Latency => dice.pick(&[(0.0, 300.0), (50.0, 100.0), (0.0, 60_000.0)]),
        Measure::Distance => dice.pick(&[(0.0, 8000.0), (10.0, 500.0)]),
    };
    let by_difference = matches!(measure, Measure::Attribute(_)) && !dice.one_in(3);
    SoftFilter {
        name: format!("s{index}").into(),
        weight: dice.pick(&[0.4, 0.6, 20.0, 1.0, 1e-3, 1e9, 0.1 + 0.2]),
        measure,
        mode: if by_difference { SoftMode::Difference } else { SoftMode::LowerIsBetter },
        curve: dice.pick(&[Curve::Linear, Curve::Quadratic, Curve::SquareRoot]),
        missing: dice.pick(&[MissingSoft::Worst, MissingSoft::Neutral]),
        min,
        max,
    }
}

fn word(dice: &mut Dice) -> Box<str> {
    dice.pick(&["eu", "us", "as", "sa", "af", "oc"]).into()
}

fn value(dice: &mut Dice, attribute: usize, taste: Taste) -> Option<Value> {
    if dice.one_in(taste.missing) {
        return None;
    }
    Some(match attribute {
        0..NUMBERS if dice.one_in(taste.common) => {
            Value::Number(dice.pick(&[0.0, -0.0, 1.0, 2.0, 3.0, 0.5, 250.0, 5.25]))
        }
        0..NUMBERS => Value::Number(match dice.below(12) {
            0 => dice.pick(&[NUMBER_MAGNITUDE_MAX, -NUMBER_MAGNITUDE_MAX, 1e11, 5e11 + 0.125, 1e-300]),
            1 => dice.unit(),
            2 => 5.0 + dice.unit(),
            _ => dice.unit() * 2400.0 - 1200.0,
        }),
        3 | 4 => Value::Text(word(dice)),
        FLAG => Value::Flag(dice.one_in(2)),
        _ => Value::texts((0..dice.below(4)).map(|_| word(dice)).collect()),
    })
}

fn locality(dice: &mut Dice, taste: Taste) -> Option<Locality> {
    if dice.one_in(taste.missing) {
        return None;
    }
    let (latitude, longitude) = if dice.one_in(taste.common) {
        dice.pick(&[(47.6, -122.3), (34.0, -118.2), (48.8, 2.3), (48.8, 2.3001), (-33.9, 151.2)])
    } else {
        (dice.unit() * 180.0 - 90.0, dice.unit() * 360.0 - 180.0)
    };
    Locality::from_degrees(latitude, longitude)
}

pub(super) fn session(dice: &mut Dice, taste: Taste) -> Session {
    let players: Vec<Player> = (0..1 + dice.below(3))
        .map(|_| UserKey::from_bytes([dice.below(taste.users) as u8; 16]))
        .map(|user| Player { user, player: user, skill: None })
        .collect();
    let known = |dice: &mut Dice, index: usize| Some((format!("a{index}").into(), value(dice, index, taste)?));
    let attributes = (0..8).filter_map(|index| known(dice, index)).collect();
    let few = if dice.one_in(2) { 0 } else { 3 };
    let mut regions: Vec<RegionLatency> = (0..dice.below(few + 1))
        .map(|_| RegionLatency { region: word(dice), round_trip_ms: dice.pick(&[0.0, 20.0, 33.25, 80.0, 59_999.0]) })
        .collect();
    regions.sort_by(|one, other| one.region.cmp(&other.region));
    regions.dedup_by(|one, other| one.region == other.region);
    Session {
        silo: SiloId(dice.below(8) as u64 / 7),
        party_sizes: vec![players.len() as u8],
        players,
        locality: locality(dice, taste),
        attributes,
        regions: regions.into(),
        origin: Origin::Client,
        ..Session::default()
    }
}

/// An id that may share its first bytes with others.
pub(super) fn id(dice: &mut Dice) -> AdvertisementId {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&dice.next().to_be_bytes());
    bytes[8..].copy_from_slice(&dice.next().to_be_bytes());
    match dice.below(4) {
        0 => bytes[..4].fill(7),
        1 => bytes[..8].fill(7),
        _ => {}
    }
    AdvertisementId::from_bytes(bytes)
}

pub(super) fn entry(dice: &mut Dice, ruleset: &Ruleset, id: AdvertisementId, taste: Taste) -> Entry {
    let session = session(dice, taste);
    let range = |dice: &mut Dice| AllowedRange {
        attribute: format!("a{}", dice.below(9)).into(),
        min: (!dice.one_in(3)).then(|| dice.unit() * 2000.0 - 1500.0),
        max: (!dice.one_in(3)).then(|| dice.unit() * 2000.0),
    };
    let ranges = if dice.one_in(3) { dice.below(3) } else { 0 };
    let allowed = (0..ranges).map(|_| range(dice)).collect();
    let waited = dice.next() % 200_000;
    let advertisement = Advertisement {
        id,
        set_id: SetId(1),
        kind: if dice.one_in(8) { Kind::Server } else { Kind::Session },
        subject: dice.one_in(4).then(|| UserKey::from_bytes([dice.below(taste.users.min(30)) as u8; 16])),
        since: UnixMs(dice.pick(&[NOW - waited, NOW - waited, NOW - waited, NOW, NOW + waited, 0])),
        hash: RulesetHash(dice.below(2) as u32),
        session,
        allowed,
        connect_data: Vec::new(),
    };
    let facts = Facts::of(ruleset, &advertisement.session);
    let expires = expires(dice);
    let open_seats = dice.below(5) as u16;
    Entry { advertisement: Arc::new(advertisement), facts, expires, open_seats, encoded: Arc::from([]) }
}

pub(super) fn expires(dice: &mut Dice) -> UnixMs {
    let ahead = dice.next() % 90_000;
    UnixMs(dice.pick(&[NOW + ahead, NOW + ahead, NOW + ahead, NOW + 1, NOW, NOW - 1, 0, u64::MAX]))
}

/// The same rules with a developer's other weights and limits.
pub(super) fn overridden(dice: &mut Dice, ruleset: &Ruleset) -> Ruleset {
    let mut ruleset = ruleset.clone();
    for soft in &mut ruleset.soft {
        if dice.one_in(2) {
            soft.weight = dice.pick(&[1e-12, 0.05, 1.0, 20.0, 1e12]);
        }
    }
    for expansion in &mut ruleset.expansions {
        if dice.one_in(3) {
            let limit = dice.unit() * 1000.0;
            *expansion = Expansion::constant("e", expansion.measure, limit).expect("a finite limit");
        }
    }
    ruleset
}
