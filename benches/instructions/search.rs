//! Searches of one index, with the portable instruction set: valgrind does not know AVX-512.

use std::hint::black_box;
use std::sync::Arc;

use fireteam::domain::advertisement::{Advertisement, AdvertisementKind, AllowedRange};
use fireteam::domain::attribute_values::AttributeValues;
use fireteam::domain::filter::Searcher;
use fireteam::domain::id::{AdvertisementId, SiloId};
use fireteam::domain::index::{AdvertisementIndex, IndexEntry, InstructionSet, SearchQuery, SearchResult};
use fireteam::domain::ruleset::{Ruleset, SearchLimits};
use fireteam::domain::session::Session;
use fireteam::domain::time::UnixMs;

use crate::count;
use crate::population::{NOW, id_bytes, ruleset, session};
use crate::split_mix64::SplitMix64;

/// Advertisements in the index.
const ROWS: usize = 10_000;
/// Searches in a counted section.
const SEARCHES: usize = 20;

/// The attributes and soft filters of every class, with these hard filters.
fn rules(hard_filters: &str) -> String {
    format!(
        r#"<Ruleset Name="gate" SetId="1">
  <Attributes>
    <Attribute Name="skill" Type="number" Min="0" Max="3000" Trust="client"/>
    <Attribute Name="mode" Type="string" Trust="client"/>
  </Attributes>
  {hard_filters}
  <SoftFilters>
    <SoftFilter Attribute="skill" Weight="60%"/>
    <SoftFilter Attribute="distance" Weight="40%"/>
  </SoftFilters>
  <Limits MaxResults="50" MaxEvaluated="10000000"/>
</Ruleset>"#
    )
}

/// No hard filter: most rows are skipped by their bounds.
pub(crate) fn plain() {
    run("", &[]);
}

/// A text that 1 % of the rows have, and a mutual limit on skill.
pub(crate) fn filtered() {
    let filters = r#"<HardFilters>
    <In Attribute="mode" Values="m7"/>
    <Within Attribute="skill" Limit="1500"/>
  </HardFilters>"#;
    run(filters, &[]);
}

/// Every advertisement refuses the searcher by a range of its own: all rows are evaluated.
pub(crate) fn refused_by_all() {
    run("", &[AllowedRange { attribute: "skill".into(), min: Some(1e7), max: None }]);
}

fn run(hard_filters: &str, allowed_ranges: &[AllowedRange]) {
    let ruleset = Arc::new(ruleset(&rules(hard_filters)));
    let mut index = AdvertisementIndex::new(Arc::clone(&ruleset));
    let mut rng = SplitMix64(7);
    for _ in 0..ROWS {
        index.upsert(entry(&mut rng, &ruleset, allowed_ranges));
    }
    let searchers: Vec<(Session, AttributeValues)> = (0..SEARCHES)
        .map(|_| {
            let session = session(&mut rng, 1_500.0, 350.0);
            let values = AttributeValues::from_session_without_standings(&ruleset, &session);
            (session, values)
        })
        .collect();
    let search_all = |found: &mut SearchResult| {
        for (session, values) in &searchers {
            let query = query(&ruleset, session, values);
            index.search_with_instruction_set(InstructionSet::Portable, &query, found);
            black_box(&*found);
        }
    };
    let mut warm = SearchResult::default();
    search_all(&mut warm);
    assert_eq!(warm.hits.is_empty(), !allowed_ranges.is_empty(), "the class of the row");
    count(
        |_| SearchResult::default(),
        |found| {
            search_all(found);
            SEARCHES
        },
    );
}

pub(crate) fn query<'a>(ruleset: &'a Ruleset, session: &'a Session, values: &'a AttributeValues) -> SearchQuery<'a> {
    let searcher = Searcher {
        attribute_values: values,
        locality: session.locality,
        region_latencies: &[],
        wishes: &[],
        seats_needed: 1,
        users: &[],
        caller: None,
        excluded_ids: &[],
        avoided: Default::default(),
        probes: Default::default(),
        predictor: None,
        waited_ms: 0,
    };
    let limits = SearchLimits { max_results: 50, max_evaluated: u32::MAX };
    SearchQuery { ruleset, searcher, silo: SiloId(1), kind: AdvertisementKind::Session, limits, now: UnixMs(NOW) }
}

fn entry(rng: &mut SplitMix64, ruleset: &Ruleset, allowed_ranges: &[AllowedRange]) -> IndexEntry {
    let mut session = session(rng, 1_500.0, 350.0);
    session.offered_seats = 5;
    entry_of(rng, ruleset, session, allowed_ranges)
}

/// Entry of an advertised session.
pub(crate) fn entry_of(
    rng: &mut SplitMix64,
    ruleset: &Ruleset,
    session: Session,
    allowed_ranges: &[AllowedRange],
) -> IndexEntry {
    IndexEntry {
        attribute_values: AttributeValues::from_session_without_standings(ruleset, &session),
        expires_at: UnixMs(NOW + 1_000 + rng.below(60_000)),
        open_seats: rng.below(6) as u16,
        advertisement: Arc::new(Advertisement {
            id: AdvertisementId::from_bytes(id_bytes(rng)),
            set_id: ruleset.set_id,
            kind: AdvertisementKind::Session,
            publisher: None,
            advertised_since: UnixMs(NOW - rng.below(60_000)),
            ruleset_hash: ruleset.hash,
            session,
            ttl_ms: None,
            allowed_ranges: allowed_ranges.into(),
            connect_data: [0; 16].into(),
            probe: None,
        }),
    }
}
