//! Queue passes of four kinds: the fast path of 1v1 queues, teams with filters, the same with past matches, and best quality by
//! exact matching.

use std::hint::black_box;
use std::sync::Arc;

use fireteam::domain::id::{TicketId, UserKey};
use fireteam::domain::queue::avoidance::PastMatches;
use fireteam::domain::queue::gate::GateCounts;
use fireteam::domain::queue::pass::{PassInput, PassOutcome, run_pass};
use fireteam::domain::queue::prepared_ticket::PreparedTicket;
use fireteam::domain::queue::ticket::{PlayerRating, Ticket};
use fireteam::domain::ruleset::Ruleset;
use fireteam::domain::ruleset::queue::SelectionMode;
use fireteam::domain::session::RegionLatency;
use fireteam::domain::time::UnixMs;
use fireteam::rules::bundled;

use crate::count;
use crate::past_matches::past_match_log;
use crate::population::{NOW, id_bytes, ruleset, session};
use crate::split_mix64::SplitMix64;

/// Regions to which players measure round trips.
const REGIONS: [&str; 5] = ["asia", "brazil", "eu", "us_east", "us_west"];

/// 1v1 by rating alone: tickets are sorted, and neighbours are paired. In a file this selection requires a quality.
pub(crate) fn duel() {
    let xml = r#"<Ruleset Name="gate" SetId="1">
  <Teams Count="2" Size="1"/>
  <Queue><Selection Mode="nearest" StartWith="highest_rated"/></Queue>
</Ruleset>"#;
    let mut ruleset = ruleset(xml);
    ruleset.queue.as_mut().expect("a queue").selection.mode = SelectionMode::FirstWindow;
    run(ruleset, 5_000, 1_500.0, 350.0);
}

/// The bundled 6v6 ruleset: hard filters on NAT, skill and latency.
pub(crate) fn filtered_6v6() {
    run(control_6v6(), 1_000, 0.0, 350.0);
}

/// The same, and players avoid those of their recent matches: ten each are remembered. Collecting those is counted too, while
/// for each pass a hundred other users come and go.
pub(crate) fn avoiding_6v6() {
    let ruleset = control_6v6();
    let tickets = tickets(&ruleset, 1_000, 0.0, 350.0);
    let mut rng = SplitMix64(13);
    let waiting = tickets.iter().flat_map(|ticket| ticket.users.iter().copied());
    let absent: Vec<UserKey> = (0..1_000).map(|_| UserKey::from_bytes(id_bytes(&mut rng))).collect();
    let mut users: Vec<UserKey> = waiting.chain(absent.iter().copied()).collect();
    users.sort_unstable();
    let mut log = past_match_log(&users, 10_000, 1, UnixMs(NOW));
    let avoid = &ruleset.queue.as_ref().expect("a queue").avoid;
    let waiting = || tickets.iter().flat_map(|ticket| ticket.users.iter().copied());
    let mut passing_by = absent.chunks(100).cycle();
    count_passes(&ruleset, &tickets, || {
        let passing_by = passing_by.next().expect("a cycle").iter().copied();
        log.recent_meetings_among(waiting().chain(passing_by), avoid, UnixMs(NOW))
    });
}

fn control_6v6() -> Ruleset {
    let rulesets = bundled::load_bundled().expect("the bundled rulesets are valid");
    let found = rulesets.iter().find(|(path, _)| path.ends_with("destiny_control_6v6.xml"));
    (*found.expect("a bundled ruleset").1).clone()
}

/// 1v1 by skill and distance, with the matches whose total cost is lowest.
pub(crate) fn best_quality() {
    let xml = r#"<Ruleset Name="gate" SetId="1">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="3000" Trust="client"/></Attributes>
  <HardFilters><Within Attribute="skill" Limit="1500"/></HardFilters>
  <SoftFilters>
    <SoftFilter Attribute="skill" Weight="1.5"/>
    <SoftFilter Attribute="distance" Weight="1.6"/>
  </SoftFilters>
  <Teams Count="2" Size="1"/>
  <Queue>
    <Quality><SoftScore MaxScore="10"/></Quality>
    <Selection Mode="maximum_weight" ExactUpToTickets="300"/>
  </Queue>
</Ruleset>"#;
    run(ruleset(xml), 300, 1_500.0, 350.0);
}

/// Counts one pass over `ticket_count` tickets.
fn run(ruleset: Ruleset, ticket_count: u64, mean: f64, deviation: f64) {
    let tickets = tickets(&ruleset, ticket_count, mean, deviation);
    count_passes(&ruleset, &tickets, PastMatches::default);
}

/// Tickets of one player each.
fn tickets(ruleset: &Ruleset, ticket_count: u64, mean: f64, deviation: f64) -> Vec<PreparedTicket> {
    let queue = ruleset.queue.as_ref().expect("a queue");
    let mut rng = SplitMix64(7);
    let tickets = (0..ticket_count).map(|_| Arc::new(ticket(&mut rng, ruleset, mean, deviation)));
    tickets.map(|ticket| PreparedTicket::new(ruleset, queue, ticket, None)).collect()
}

/// Counts one pass over `tickets`; the figure is instructions per ticket.
fn count_passes(ruleset: &Ruleset, tickets: &[PreparedTicket], mut past_matches: impl FnMut() -> PastMatches) {
    let queue = ruleset.queue.as_ref().expect("a queue");
    let references: Vec<&PreparedTicket> = tickets.iter().collect();
    let mut pass = || {
        run_pass(&PassInput {
            ruleset,
            queue,
            teams: ruleset.teams.as_ref().expect("teams"),
            tickets: &references,
            open_sessions: &[],
            past_matches: &past_matches(),
            gate_counts: GateCounts::default(),
            now: UnixMs(NOW),
            rng_seed: 1,
            max_pair_checks: u64::MAX,
        })
    };
    assert!(!pass().proposals.is_empty(), "the pass proposes matches");
    // The outcome is dropped after the section.
    count(
        |_| None::<PassOutcome>,
        |outcome| {
            *outcome = black_box(Some(pass()));
            tickets.len()
        },
    );
}

/// Ticket of one player who has waited up to a minute.
pub(crate) fn ticket(rng: &mut SplitMix64, ruleset: &Ruleset, mean: f64, deviation: f64) -> Ticket {
    let mut session = session(rng, mean, deviation);
    session.attributes.clear();
    (session.nat_type, session.game_in_progress) = (Some(rng.below(3) as i32), Some(false));
    session.region_latencies = REGIONS
        .iter()
        .map(|region| RegionLatency { region: (*region).into(), round_trip_ms: 20.0 + rng.below(180) as f32 })
        .collect();
    let rating = session.players[0].stated_skill.unwrap_or(mean);
    Ticket {
        id: TicketId::from_bytes(id_bytes(rng)),
        set_id: ruleset.set_id,
        subject: None,
        entered_at: UnixMs(NOW - rng.below(60_000)),
        session,
        player_ratings: vec![PlayerRating { rating, deviation: 100.0 }],
        exact_round_trips_ms: None,
        blocked_users: Vec::new(),
        rating_digest_key: None,
        excludes_other_tickets: false,
        self_answering_users: Vec::new(),
    }
}
