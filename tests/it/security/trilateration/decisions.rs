//! Attacks on what queues decide: who may meet, who is preferred, which session is filled, which game server hosts. Each is
//! asked of the function that decides it, as often as the attacker likes.

use std::num::NonZeroU32;
use std::sync::Arc;

use fireteam::domain::advertisement::{Advertisement, AdvertisementKind};
use fireteam::domain::attribute_values::AttributeValues;
use fireteam::domain::expansion::Expansion;
use fireteam::domain::filter::Refusal;
use fireteam::domain::id::{AdvertisementId, MatchId, TicketId, UserKey};
use fireteam::domain::latency::LatencyEndpoint;
use fireteam::domain::latency::round_trip_estimate::EstimateEnd;
use fireteam::domain::locality::{KM_PER_MILE, Locality};
use fireteam::domain::location_privacy::RegionPlaces;
use fireteam::domain::measure::Measure;
use fireteam::domain::queue::avoidance::PastMatches;
use fireteam::domain::queue::gate::GateCounts;
use fireteam::domain::queue::input::OpenSession;
use fireteam::domain::queue::pass::{PassInput, PassOutcome, run_pass};
use fireteam::domain::queue::placement::{MatchToPlace, ServerCandidate, rank_servers};
use fireteam::domain::queue::prepared_ticket::PreparedTicket;
use fireteam::domain::queue::ticket::{PlayerRating, Ticket};
use fireteam::domain::ruleset::Ruleset;
use fireteam::domain::session::{Player, Session};
use fireteam::domain::time::UnixMs;
use fireteam::geo::{LocatorSettings, ReloadableLocator};
use fireteam::rules;

use crate::security::trilateration::{
    ATTACKER_COUNT, DEFAULT_GRIDS, Degrees, NO_GRIDS, assert_missed, best_fit_location, distance_km, locality_of,
    location_with_least, random_locations, seeded_rng,
};

const NOW: UnixMs = UnixMs(1_700_000_000_000);
/// Steps of a bisection of a distance: the last is below 100 m.
const BISECTION_STEPS: usize = 18;

/// Grids of one server.
struct Judge(ReloadableLocator);

impl Judge {
    fn new([grid_degrees, session_grid_degrees]: [f64; 2]) -> Self {
        let settings = LocatorSettings { grid_degrees, session_grid_degrees, ..LocatorSettings::default() };
        Self(ReloadableLocator::new(Vec::new(), settings))
    }

    fn judged(&self, at: Degrees) -> Locality {
        self.0.session_cell_center(locality_of(at))
    }

    /// Ticket of a player, as it waits in the queue.
    fn ticket(&self, number: u8, at: Degrees) -> Arc<Ticket> {
        let user = UserKey::from_bytes([number; 16]);
        let session = Session {
            party_sizes: [1].into(),
            players: vec![Player::from_user(user)],
            locality: Some(locality_of(at)),
            ..Session::default()
        };
        let ticket = Ticket {
            id: TicketId::from_bytes([number; 16]),
            set_id: Default::default(),
            subject: None,
            entered_at: NOW,
            session,
            exact_round_trips_ms: None,
            player_ratings: vec![PlayerRating::default()],
            rating_digest_key: None,
            blocked_users: Vec::new(),
            self_answering_users: Vec::new(),
            excludes_other_tickets: false,
        };
        Arc::new(ticket)
            .coarsened_for_location_privacy(&RegionPlaces::default(), |place| self.0.session_cell_center(place))
    }
}

fn ruleset(limits: &str) -> Ruleset {
    let xml = format!(
        r#"<Ruleset Name="Near" SetId="1">
  <HardFilters>{limits}</HardFilters>
  <SoftFilters><SoftFilter Attribute="distance" Weight="1000"/></SoftFilters>
  <Teams Count="2" Size="1"/>
  <Queue Backfill="true"><Quality><SoftScore MaxScore="1000"/></Quality>
    <Selection Mode="maximum_weight" ExactUpToTickets="300"/></Queue>
  <Hosting Mode="game_server" Choose="closest"/>
</Ruleset>"#
    );
    rules::parse_ruleset("near.xml", &xml).unwrap_or_else(|problems| panic!("{problems:#?}"))
}

fn pass(ruleset: &Ruleset, tickets: &[Arc<Ticket>], open_sessions: &[OpenSession]) -> PassOutcome {
    let (queue, teams) = (ruleset.queue.as_ref().unwrap(), ruleset.teams.as_ref().unwrap());
    let prepare = |ticket: &Arc<Ticket>| PreparedTicket::new(ruleset, queue, Arc::clone(ticket), None);
    let prepared: Vec<PreparedTicket> = tickets.iter().map(prepare).collect();
    run_pass(&PassInput {
        ruleset,
        queue,
        teams,
        tickets: &prepared.iter().collect::<Vec<_>>(),
        open_sessions,
        past_matches: &PastMatches::default(),
        gate_counts: GateCounts::default(),
        now: NOW,
        rng_seed: 1,
        max_pair_checks: u64::MAX,
    })
}

/// Distance in miles at which `fits` begins to hold.
fn bisect_miles(mut fits: impl FnMut(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, 8_000.0);
    for _ in 0..BISECTION_STEPS {
        let middle = f64::midpoint(low, high);
        if fits(middle) { high = middle } else { low = middle }
    }
    high
}

/// Errors of an attacker who learns a distance from each place, kilometers, in ascending order.
fn errors_by_distance(
    count: usize,
    grids: [f64; 2],
    mut miles_between: impl FnMut(&Judge, Degrees, Degrees) -> f64,
) -> Vec<f64> {
    let (mut rng, judge) = (seeded_rng(21), Judge::new(grids));
    let (players, attackers) = (random_locations(count, &mut rng), random_locations(ATTACKER_COUNT, &mut rng));
    let mut error = |player: &Degrees| {
        let distance = |attacker: &Degrees| (judge.judged(*attacker), miles_between(&judge, *player, *attacker));
        distance_km(best_fit_location(&attackers.iter().map(distance).collect()), *player)
    };
    let mut errors: Vec<f64> = players.iter().map(&mut error).collect();
    errors.sort_by(f64::total_cmp);
    errors
}

/// Errors of an attacker who learns of each pair of places which one is preferred, kilometers, in ascending order.
fn errors_by_preference(
    count: usize,
    grids: [f64; 2],
    mut prefers_first: impl FnMut(&Judge, Degrees, [Degrees; 2]) -> bool,
) -> Vec<f64> {
    let (mut rng, judge) = (seeded_rng(22), Judge::new(grids));
    let (players, attackers) = (random_locations(count, &mut rng), random_locations(ATTACKER_COUNT, &mut rng));
    let mut error = |player: &Degrees| {
        let mut pairs: Vec<(Locality, Locality)> = Vec::new();
        for (at, one) in attackers.iter().enumerate() {
            for other in &attackers[at + 1..] {
                let (near, far) = (judge.judged(*one), judge.judged(*other));
                // Two places in one cell tell nothing.
                if near != far {
                    let first = prefers_first(&judge, *player, [*one, *other]);
                    pairs.push(if first { (near, far) } else { (far, near) });
                }
            }
        }
        let excess = |here: Locality, (near, far): &(Locality, Locality)| {
            (near.chord_miles(here) - far.chord_miles(here)).max(0.0)
        };
        let found = location_with_least(|here| pairs.iter().map(|pair| excess(here, pair).powi(2)).sum());
        distance_km(found, *player)
    };
    let mut errors: Vec<f64> = players.iter().map(&mut error).collect();
    errors.sort_by(f64::total_cmp);
    errors
}

/// Ruleset whose only hard filter has this limit.
fn with_limit(ruleset: &mut Ruleset, miles: f64) -> &Ruleset {
    ruleset.expansions = [Expansion::constant("near", Measure::Distance, miles).unwrap()].into();
    ruleset
}

/// SEC-9: who may meet at all, and by which rule it is refused, at any limit. That is also when a match is found, and how
/// long a party waits.
#[test]
fn membership_at_any_limit_misses_by_100_km() {
    let mut ruleset = ruleset(r#"<Within Attribute="distance" Limit="1"/>"#);
    let mut miles_between = |judge: &Judge, player: Degrees, attacker: Degrees| {
        let tickets = [judge.ticket(1, player), judge.ticket(2, attacker)];
        bisect_miles(|limit| {
            let outcome = pass(with_limit(&mut ruleset, limit), &tickets, &[]);
            let refused = outcome.report.unmatched.iter().any(|it| matches!(it.refusal, Refusal::HardFilter { .. }));
            assert_ne!(refused, !outcome.proposals.is_empty());
            !refused
        })
    };
    let coarse = errors_by_distance(24, DEFAULT_GRIDS, &mut miles_between);
    let exact = errors_by_distance(4, NO_GRIDS, &mut miles_between);
    assert_missed("membership in matches", &coarse, &exact, 5.0);
}

/// SEC-9: whom the queue prefers, of any two.
#[test]
fn preference_of_a_queue_misses_by_100_km() {
    let ruleset = ruleset("");
    let mut prefers_first = |judge: &Judge, player: Degrees, [one, other]: [Degrees; 2]| {
        // Both attackers play with one account, so they are not matched with each other.
        let mut second = (*judge.ticket(3, other)).clone();
        second.session.players = judge.ticket(2, one).session.players.clone();
        let outcome = pass(&ruleset, &[judge.ticket(1, player), judge.ticket(2, one), Arc::new(second)], &[]);
        let [unmatched] = &outcome.report.unmatched[..] else { panic!("one is left over: {outcome:?}") };
        assert_ne!(unmatched.ticket_id.as_bytes()[0], 1, "the player is matched");
        unmatched.ticket_id.as_bytes()[0] == 3
    };
    let coarse = errors_by_preference(40, DEFAULT_GRIDS, &mut prefers_first);
    let exact = errors_by_preference(12, NO_GRIDS, &mut prefers_first);
    assert_missed("the order of candidates in a queue", &coarse, &exact, 90.0);
}

/// SEC-9: which open session of any two a queue fills.
#[test]
fn choice_of_a_session_to_fill_misses_by_100_km() {
    let mut ruleset = ruleset(r#"<Within Attribute="distance" Limit="1"/>"#);
    let mut miles_between = |judge: &Judge, player: Degrees, attacker: Degrees| {
        let (tickets, session) = ([judge.ticket(1, player)], open_session(judge, attacker));
        bisect_miles(|limit| {
            let outcome = pass(with_limit(&mut ruleset, limit), &tickets, std::slice::from_ref(&session));
            outcome.proposals.iter().any(|proposal| proposal.backfilled_session.is_some())
        })
    };
    let coarse = errors_by_distance(24, DEFAULT_GRIDS, &mut miles_between);
    let exact = errors_by_distance(4, NO_GRIDS, &mut miles_between);
    assert_missed("sessions that a queue fills", &coarse, &exact, 5.0);
}

/// A session with one open seat, as it is published from a place.
fn open_session(judge: &Judge, at: Degrees) -> OpenSession {
    let session =
        Session { party_sizes: [1].into(), offered_seats: 1, locality: Some(judge.judged(at)), ..Session::default() };
    let advertisement = Advertisement {
        id: AdvertisementId::from_bytes([9; 16]),
        set_id: Default::default(),
        kind: AdvertisementKind::Session,
        publisher: None,
        advertised_since: NOW,
        ruleset_hash: Default::default(),
        session,
        ttl_ms: NonZeroU32::new(60_000),
        allowed_ranges: Box::default(),
        connect_data: Box::default(),
        probe: None,
    };
    OpenSession {
        advertisement: Arc::new(advertisement),
        attribute_values: AttributeValues::of_no_attributes(),
        expires_at: NOW.plus_ms(60_000),
        open_seats: 1,
        parties: Box::default(),
        promised_values: Box::default(),
        blocked_users: Vec::new(),
        vector: None,
    }
}

/// First choice of the game servers at these places for a match of the ticket; `None` if all are too far.
fn first_server(ruleset: &Ruleset, ticket: &Ticket, places: &[Degrees]) -> Option<u8> {
    let at = |place: &Degrees| Session { locality: Some(locality_of(*place)), ..Session::default() };
    let sessions: Vec<Session> = places.iter().map(at).collect();
    let candidate = |(number, session)| ServerCandidate {
        id: AdvertisementId::from_bytes([number; 16]),
        session,
        open_seats: 2,
        prediction_end: None,
        score: 0.0,
        is_heartbeat_overdue: false,
    };
    let candidates: Vec<ServerCandidate<'_>> = (0_u8..).zip(&sessions).map(candidate).collect();
    let endpoint =
        LatencyEndpoint { locality: ticket.session.locality, region_latencies: &ticket.session.region_latencies };
    let party = EstimateEnd { locality_and_region_latencies: endpoint, prediction_end: None };
    let to_place =
        MatchToPlace { id: MatchId::from_bytes([1; 16]), region: None, parties: &[party], unconfirmed_servers: &[] };
    Some(rank_servers(ruleset, &to_place, &candidates).ok()?[0].as_bytes()[0])
}

/// SEC-9: which game server of any two hosts a match, and which are too far at any limit.
#[test]
fn choice_of_a_game_server_misses_by_100_km() {
    let ruleset = ruleset("");
    let mut prefers_first = |judge: &Judge, player: Degrees, servers: [Degrees; 2]| {
        first_server(&ruleset, &judge.ticket(1, player), &servers) == Some(0)
    };
    let coarse = errors_by_preference(40, DEFAULT_GRIDS, &mut prefers_first);
    let exact = errors_by_preference(12, NO_GRIDS, &mut prefers_first);
    assert_missed("the choice of game servers", &coarse, &exact, 90.0);

    let mut limited = ruleset.clone();
    // A millisecond of the limit is 1000 / 16 km.
    let ms_per_mile = limited.latency_model.ms_per_1000_km * KM_PER_MILE / 1_000.0;
    let mut miles_between = |judge: &Judge, player: Degrees, server: Degrees| {
        let ticket = judge.ticket(1, player);
        let fits = |ms: u32, ruleset: &mut Ruleset| {
            ruleset.hosting.max_round_trip_ms = Some(ms);
            first_server(ruleset, &ticket, &[server]).is_some()
        };
        let ms = (1..1_000).find(|ms| fits(*ms, &mut limited)).expect("a limit that admits");
        (f64::from(ms) - 0.5 - limited.latency_model.intercept_ms) / ms_per_mile
    };
    let coarse = errors_by_distance(16, DEFAULT_GRIDS, &mut miles_between);
    let exact = errors_by_distance(4, NO_GRIDS, &mut miles_between);
    assert_missed("the limit of a game server's round trip", &coarse, &exact, 20.0);
}
