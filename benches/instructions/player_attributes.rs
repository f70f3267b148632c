//! Searches and passes of parties of three by attributes that are stated for the party, and by the same that are made from those of its
//! players. Both count how a party's values are made.

use std::hint::black_box;
use std::sync::Arc;

use fireteam::domain::attribute::AttributeValue;
use fireteam::domain::attribute_values::AttributeValues;
use fireteam::domain::id::UserKey;
use fireteam::domain::index::{AdvertisementIndex, InstructionSet, SearchResult};
use fireteam::domain::queue::avoidance::PastMatches;
use fireteam::domain::queue::gate::GateCounts;
use fireteam::domain::queue::pass::{PassInput, PassOutcome, run_pass};
use fireteam::domain::queue::prepared_ticket::PreparedTicket;
use fireteam::domain::queue::ticket::{PlayerRating, Ticket};
use fireteam::domain::ruleset::Ruleset;
use fireteam::domain::session::{Player, PlayerDetails, Session};
use fireteam::domain::time::UnixMs;

use crate::count;
use crate::passes::ticket;
use crate::population::{NOW, id_bytes, ruleset, session};
use crate::search::{entry_of, query};
use crate::split_mix64::SplitMix64;

/// Players of a party.
const PARTY_SIZE: usize = 3;
/// Advertisements in the index.
const ROWS: usize = 10_000;
/// Searches in a counted section.
const SEARCHES: usize = 20;
/// Parties in the queue.
const TICKETS: usize = 600;

/// Origin of the attributes.
#[derive(Clone, Copy)]
pub(crate) enum StatedBy {
    Party,
    Players,
}

/// A mean of numbers and a union of strings, in hard and soft filters.
fn rules(stated_by: StatedBy) -> Ruleset {
    let [mean, union] = match stated_by {
        StatedBy::Party => ["", ""],
        StatedBy::Players => [r#" PartyAggregation="mean""#, r#" PartyAggregation="union""#],
    };
    ruleset(&format!(
        r#"<Ruleset Name="gate" SetId="1">
  <Attributes>
    <Attribute Name="level" Type="number" Min="0" Max="3000" Trust="client"{mean}/>
    <Attribute Name="modes" Type="string_list" Trust="client"{union}/>
  </Attributes>
  <HardFilters>
    <Within Attribute="level" Limit="1000"/>
    <Overlap Attribute="modes"/>
  </HardFilters>
  <SoftFilters>
    <SoftFilter Attribute="level" Weight="60%"/>
    <SoftFilter Attribute="distance" Weight="40%"/>
  </SoftFilters>
  <Teams Count="2" Size="6" MaxPartySize="6"/>
  <Queue><Quality><SoftScore MaxScore="10"/></Quality></Queue>
  <Limits MaxResults="50" MaxEvaluated="10000000"/>
</Ruleset>"#
    ))
}

/// Adds two players, and states levels and modes. With either statement the values of the party are alike.
fn add_party(rng: &mut SplitMix64, stated_by: StatedBy, session: &mut Session) {
    while session.players.len() < PARTY_SIZE {
        session.players.push(Player::from_user(UserKey::from_bytes(id_bytes(rng))));
    }
    session.party_sizes = [PARTY_SIZE as u8].into();
    session.attributes.clear();
    let level = (1_500.0 + 350.0 * rng.normal()).clamp(0.0, 3_000.0);
    let mut modes: Vec<Box<str>> = (0..PARTY_SIZE).map(|_| format!("m{}", rng.below(20)).into()).collect();
    modes.sort_unstable();
    modes.dedup();
    let stated = |modes: &[Box<str>]| {
        vec![
            ("level".into(), AttributeValue::Number(level)),
            ("modes".into(), AttributeValue::StringList(modes.iter().cloned().collect())),
        ]
    };
    match stated_by {
        StatedBy::Party => session.attributes = stated(&modes),
        StatedBy::Players => {
            for (player, mode) in session.players.iter_mut().zip(modes.iter().cycle()) {
                let attributes = stated(std::slice::from_ref(mode));
                player.details = Some(Box::new(PlayerDetails { attributes, ..PlayerDetails::default() }));
            }
        }
    }
}

pub(crate) fn search(stated_by: StatedBy) {
    let ruleset = Arc::new(rules(stated_by));
    let mut index = AdvertisementIndex::new(Arc::clone(&ruleset));
    let mut rng = SplitMix64(7);
    let party = |rng: &mut SplitMix64| {
        let mut session = session(rng, 1_500.0, 350.0);
        add_party(rng, stated_by, &mut session);
        session
    };
    for _ in 0..ROWS {
        let session = party(&mut rng);
        index.upsert(entry_of(&mut rng, &ruleset, session, &[]));
    }
    let searchers: Vec<Session> = (0..SEARCHES).map(|_| party(&mut rng)).collect();
    let search_all = |found: &mut SearchResult| {
        for session in &searchers {
            let values = AttributeValues::from_session_without_standings(&ruleset, session);
            index.search_with_instruction_set(InstructionSet::Portable, &query(&ruleset, session, &values), found);
            black_box(&*found);
        }
    };
    let mut warm = SearchResult::default();
    search_all(&mut warm);
    assert!(!warm.hits.is_empty(), "searches find sessions");
    count(
        |_| SearchResult::default(),
        |found| {
            search_all(found);
            SEARCHES
        },
    );
}

pub(crate) fn pass(stated_by: StatedBy) {
    let ruleset = rules(stated_by);
    let (queue, teams) = (ruleset.queue.as_ref().expect("a queue"), ruleset.teams.as_ref().expect("teams"));
    let mut rng = SplitMix64(7);
    let tickets: Vec<Arc<Ticket>> = (0..TICKETS)
        .map(|_| {
            let mut ticket = ticket(&mut rng, &ruleset, 1_500.0, 350.0);
            add_party(&mut rng, stated_by, &mut ticket.session);
            ticket.player_ratings = vec![PlayerRating::default(); PARTY_SIZE];
            Arc::new(ticket)
        })
        .collect();
    let pass = || {
        let prepared: Vec<PreparedTicket> =
            tickets.iter().map(|ticket| PreparedTicket::new(&ruleset, queue, Arc::clone(ticket), None)).collect();
        run_pass(&PassInput {
            ruleset: &ruleset,
            queue,
            teams,
            tickets: &prepared.iter().collect::<Vec<_>>(),
            open_sessions: &[],
            past_matches: &PastMatches::default(),
            gate_counts: GateCounts::default(),
            now: UnixMs(NOW),
            rng_seed: 1,
            max_pair_checks: u64::MAX,
        })
    };
    assert!(!pass().proposals.is_empty(), "the pass proposes matches");
    count(
        |_| None::<PassOutcome>,
        |outcome| {
            *outcome = black_box(Some(pass()));
            TICKETS
        },
    );
}
