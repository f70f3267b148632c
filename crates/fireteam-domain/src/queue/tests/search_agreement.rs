//! Queues and searches agree on pairs of parties: what no search would find, no queue matches, and parties that find each other
//! are admitted by the queue.

use std::sync::Arc;

use crate::advertisement::{Advertisement, AdvertisementKind};
use crate::filter::{AdvertsOfAvoidedPlayers, Searcher};
use crate::id::{AdvertisementId, UserKey};
use crate::index::{AdvertisementIndex, IndexEntry, SearchQuery, SearchResult, oracle as search_oracle};
use crate::probe_result::ProbeResults;
use crate::queue::input::PassInput;
use crate::queue::oracle;
use crate::queue::pass;
use crate::queue::prepared_ticket::PreparedTicket;
use crate::queue::tests::fixture::{QueueFixture, random_queue_fixture, ticket_number};
use crate::ruleset::SearchLimits;
use crate::ruleset::queue::QualitySpec;
use crate::time::UnixMs;

/// Random ruleset and parties, without the rules that only queues have.
fn fixture_without_queue_rules(seed: u64) -> QueueFixture {
    let mut fixture = random_queue_fixture(seed, 24);
    let queue = fixture.queue_mut();
    (queue.window, queue.groups, queue.regions, queue.frustrated_player_window) = (None, None, None, None);
    queue.quality = QualitySpec::Any;
    queue.avoid = Box::default();
    fixture
}

/// The party as a session that it advertises, with seats for each other party.
fn advertise(input: &PassInput<'_>, number: usize, party: &PreparedTicket) -> IndexEntry {
    let advertisement = Advertisement {
        id: AdvertisementId::from_bytes((number as u128).to_be_bytes()),
        set_id: input.ruleset.set_id,
        kind: AdvertisementKind::Session,
        publisher: None,
        advertised_since: party.ticket.entered_at,
        ruleset_hash: input.ruleset.hash,
        session: party.ticket.session.clone(),
        ttl_ms: None,
        allowed_ranges: Box::default(),
        connect_data: Box::default(),
        probe: None,
    };
    IndexEntry {
        advertisement: Arc::new(advertisement),
        attribute_values: party.attribute_values.clone(),
        expires_at: UnixMs(input.now.0 + 1),
        open_seats: 64,
    }
}

/// Numbers of the parties that party `number` finds by a search, judged by the index and by its reference implementation.
fn find(input: &PassInput<'_>, index: &AdvertisementIndex, party: &PreparedTicket) -> Vec<usize> {
    let session = &party.ticket.session;
    let mut users: Vec<UserKey> = party.users.to_vec();
    users.sort_unstable();
    let query = SearchQuery {
        ruleset: input.ruleset,
        searcher: Searcher {
            attribute_values: &party.attribute_values,
            locality: session.locality,
            region_latencies: &session.region_latencies,
            wishes: session.wishes(),
            seats_needed: users.len() as u16,
            users: &users,
            caller: None,
            excluded_ids: &[],
            avoided: AdvertsOfAvoidedPlayers::default(),
            probes: ProbeResults::default(),
            predictor: None,
            waited_ms: input.now.ms_since(party.ticket.entered_at),
        },
        silo: session.silo,
        kind: AdvertisementKind::Session,
        limits: SearchLimits { max_results: 1_000, max_evaluated: u32::MAX },
        now: input.now,
    };
    let expected = search_oracle::search(index, &query);
    let mut found = SearchResult::default();
    index.search(&query, &mut found);
    assert_eq!(found.hits.len(), expected.len());
    let number = |id: AdvertisementId| u128::from_be_bytes(*id.as_bytes()) as usize;
    expected.into_iter().map(|(id, _)| number(id)).collect()
}

/// A queue makes no match with a pair of parties that no search by either of them finds; and it admits each pair of parties
/// that find each other.
#[test]
fn queue_and_searches_agree_on_random_pairs() {
    let (mut matched_pairs, mut mutual_finds, mut one_sided_finds) = (0, 0, 0);
    for seed in 0..600 {
        let mut fixture = fixture_without_queue_rules(seed);
        // The searchers of this test have no vectors.
        fixture.vectors.clear();
        fixture.with_input(&fixture.prepared_tickets(), |input| {
            let mut index = AdvertisementIndex::new(Arc::new(input.ruleset.clone()));
            for (number, party) in input.tickets.iter().enumerate() {
                index.upsert(advertise(input, number, party));
            }
            let finds: Vec<Vec<usize>> = input.tickets.iter().map(|party| find(input, &index, party)).collect();
            let finds = |one: usize, other: usize| finds[one].contains(&other);
            for one in 0..input.tickets.len() {
                for other in one + 1..input.tickets.len() {
                    let is_admitted = oracle::pair_may_meet(input, input.tickets[one], input.tickets[other]);
                    match (finds(one, other), finds(other, one)) {
                        (true, true) => {
                            mutual_finds += 1;
                            assert!(is_admitted, "seed {seed}: {one} and {other} find each other");
                        }
                        (false, false) => {
                            assert!(!is_admitted, "seed {seed}: neither {one} nor {other} finds the other");
                        }
                        _ => one_sided_finds += 1,
                    }
                }
            }
            let position = |number: u64| {
                input.tickets.iter().position(|party| ticket_number(party.ticket.id) == number).expect("a ticket")
            };
            for proposal in pass::run_pass(input).proposals {
                let tickets = proposal.teams.iter().flatten();
                let members: Vec<usize> = tickets.map(|one| position(ticket_number(one.ticket_id))).collect();
                for (place, &one) in members.iter().enumerate() {
                    for &other in &members[place + 1..] {
                        matched_pairs += 1;
                        assert!(finds(one, other) || finds(other, one), "seed {seed}: {one} and {other} are matched");
                    }
                }
            }
        });
    }
    assert!(matched_pairs > 1_000 && mutual_finds > 1_000 && one_sided_finds > 100);
}
