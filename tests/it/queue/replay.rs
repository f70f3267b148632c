//! Replay of a recorded queue log: the same log makes the same matches under each of the five systems.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use fireteam::domain::id::{TicketId, UserKey};
use fireteam::domain::locality::Locality;
use fireteam::domain::queue::avoidance::{PastMatches, PlayedPair};
use fireteam::domain::queue::gate::GateCounts;
use fireteam::domain::queue::pass::{PassInput, run_pass};
use fireteam::domain::queue::prepared_ticket::PreparedTicket;
use fireteam::domain::queue::proposal::Proposal;
use fireteam::domain::queue::ticket::{PlayerRating, Ticket};
use fireteam::domain::ruleset::Ruleset;
use fireteam::domain::session::{Player, RegionLatency, Session};
use fireteam::domain::time::UnixMs;
use fireteam::rules;

/// The log, and the expected matches.
const LOG: &str = "data/queue-evening.csv";
const MATCHES: &str = "data/queue-evening.matches";

/// Start time of the log.
const START: UnixMs = UnixMs(1_700_000_000_000);

/// Interval of passes, longer than a server's: the test compares matches, not times.
const PASS_EVERY_MS: u64 = 5_000;

/// The last pass, after the last line of the log.
const UNTIL_MS: u64 = 600_000;

/// Mean rating and spread of the log's strengths, for each system.
const SYSTEMS: [(&str, f64, f64); 5] = [
    ("teiserver_duel", 25.0, 6.0),
    ("comprl_ladder", 25.0, 6.0),
    ("openmatchmaking_leagues", 2_500.0, 600.0),
    ("challenge_5v5", 1_400.0, 120.0),
    ("destiny_control_6v6", 1_500.0, 200.0),
];

/// A line of the log.
struct LogLine<'a> {
    at_ms: u64,
    enters: bool,
    name: &'a str,
    rest: Vec<&'a str>,
}

fn lines(log: &str) -> Vec<LogLine<'_>> {
    let line = |text| {
        let mut words = str::split(text, ',');
        let mut word = || words.next().expect("a column");
        let (at_ms, what, name) = (word().parse().expect("milliseconds"), word(), word());
        LogLine { at_ms, enters: what == "enter", name, rest: words.collect() }
    };
    log.lines().skip(1).map(line).collect()
}

/// The ticket of a line, with its strength on the ruleset's scale.
fn ticket(line: &LogLine<'_>, number: usize, ruleset: &Ruleset, mean: f64, spread: f64) -> Ticket {
    let [size, strength, latitude, longitude, round_trips] = line.rest[..] else { panic!("columns of {}", line.name) };
    let number_of = |text: &str| -> f64 { text.parse().expect("a number") };
    let rating = mean + spread * number_of(strength);
    let max_size = ruleset.teams.as_ref().expect("teams").max_party_size;
    let size = size.parse::<u16>().expect("a size").min(max_size);
    let player = |at: u16| {
        let user = UserKey::from_name(&format!("{} {at}", line.name));
        Player { stated_skill: Some(rating), ..Player::from_user(user) }
    };
    let region = |text: &str| {
        let (region, ms) = text.split_once(':').expect("region:ms");
        RegionLatency { region: region.into(), round_trip_ms: number_of(ms) as f32 }
    };
    Ticket {
        id: TicketId::from_bytes((number as u128 + 1).to_be_bytes()),
        set_id: ruleset.set_id,
        subject: None,
        entered_at: START.plus_ms(line.at_ms),
        session: Session {
            party_sizes: [size as u8].into(),
            players: (0..size).map(player).collect(),
            locality: Locality::from_degrees(number_of(latitude), number_of(longitude)),
            region_latencies: round_trips.split(' ').map(region).collect(),
            ..Session::default()
        },
        player_ratings: vec![PlayerRating { rating, deviation: 0.0 }; size.into()],
        exact_round_trips_ms: None,
        blocked_users: Vec::new(),
        rating_digest_key: None,
        excludes_other_tickets: false,
        self_answering_users: Vec::new(),
    }
}

/// Runs the log under one ruleset; `backwards` reverses the order of tickets in each pass.
#[expect(clippy::too_many_lines, reason = "one case after another")]
fn replay(log: &[LogLine<'_>], (name, mean, spread): (&str, f64, f64), backwards: bool) -> String {
    let (_, text) = rules::bundled::BUNDLED_FILES
        .iter()
        .find(|(path, _)| path.ends_with(&format!("/{name}.xml")))
        .expect("shipped");
    let ruleset = rules::parse_ruleset(name, text).expect("a valid file");
    let (queue, teams) = (ruleset.queue.as_ref().expect("a queue"), ruleset.teams.as_ref().expect("teams"));
    let mut strengths: Vec<f64> =
        log.iter().filter(|it| it.enters).map(|it| it.rest[1].parse().expect("a number")).collect();
    strengths.sort_by(|one, other| other.total_cmp(one));
    let place = |line: &LogLine<'_>| {
        let own: f64 = line.rest[1].parse().expect("a number");
        strengths.iter().position(|it| *it == own).map(|place| place as f64)
    };
    let mut waiting: BTreeMap<TicketId, (String, PreparedTicket)> = BTreeMap::new();
    let mut past_matches: Vec<PlayedPair> = Vec::new();
    let mut output = String::new();
    let mut remaining = log.iter().enumerate().peekable();
    for at_ms in (0..=UNTIL_MS).step_by(PASS_EVERY_MS as usize) {
        while let Some((number, line)) = remaining.next_if(|(_, line)| line.at_ms <= at_ms) {
            if line.enters {
                let ticket = Arc::new(ticket(line, number, &ruleset, mean, spread));
                waiting.insert(
                    ticket.id,
                    (line.name.to_owned(), PreparedTicket::new(&ruleset, queue, ticket, place(line))),
                );
            } else {
                waiting.retain(|_, (name, _)| name != line.name);
            }
        }
        let mut tickets: Vec<&PreparedTicket> = waiting.values().map(|(_, prepared)| prepared).collect();
        if backwards {
            tickets.reverse();
        }
        let outcome = run_pass(&PassInput {
            ruleset: &ruleset,
            queue,
            teams,
            tickets: &tickets,
            open_sessions: &[],
            past_matches: &PastMatches::from_pairs_keeping_latest(past_matches.clone()),
            gate_counts: GateCounts { connected_players: 40, active_matches: 0 },
            now: START.plus_ms(at_ms),
            rng_seed: at_ms,
            max_pair_checks: 1_000_000,
        });
        for proposal in outcome.proposals {
            writeln!(output, "{name} {at_ms} {:.9} {}", proposal.quality, teams_of(&proposal, &waiting))
                .expect("a string");
            let members: Vec<(usize, TicketId)> = proposal
                .teams
                .iter()
                .enumerate()
                .flat_map(|(team, all)| all.iter().map(move |it| (team, it.ticket_id)))
                .collect();
            let users = |id: TicketId| waiting[&id].1.ticket.session.sorted_users();
            for (at, (team, one)) in members.iter().enumerate() {
                for (other_team, other) in &members[at + 1..] {
                    let pairs = users(*one)
                        .into_iter()
                        .flat_map(|one| users(*other).into_iter().map(move |other| (one, other)));
                    past_matches.extend(pairs.map(|(one, other)| PlayedPair {
                        user: one,
                        other_user: other,
                        same_team: team == other_team,
                        started_at: START.plus_ms(at_ms),
                    }));
                }
            }
            members.iter().for_each(|(_, id)| drop(waiting.remove(id)));
        }
    }
    output
}

fn teams_of(proposal: &Proposal, waiting: &BTreeMap<TicketId, (String, PreparedTicket)>) -> String {
    let team = |all: &Vec<_>| {
        let name = |it: &fireteam::domain::queue::proposal::ProposedTicket| waiting[&it.ticket_id].0.clone();
        all.iter().map(name).collect::<Vec<_>>().join(", ")
    };
    proposal.teams.iter().map(team).collect::<Vec<_>>().join(" | ")
}

/// R23: a pass depends on its input alone. `UPDATE_GOLDEN=1` writes the expected matches.
#[test]
fn replay_of_a_log_makes_the_same_matches() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let log = std::fs::read_to_string(root.join(LOG)).expect("the log");
    let log = lines(&log);
    let mut output = String::new();
    for system in SYSTEMS {
        let matches = replay(&log, system, false);
        assert_eq!(matches, replay(&log, system, false), "{}: repeated", system.0);
        assert_eq!(matches, replay(&log, system, true), "{}: in the opposite order", system.0);
        assert!(10 <= matches.lines().count(), "{}: too few matches to compare:\n{matches}", system.0);
        output.push_str(&matches);
    }
    let golden = root.join(MATCHES);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&golden, &output).expect("write the matches");
    }
    assert_eq!(output, std::fs::read_to_string(&golden).expect("the matches"), "see {MATCHES}");
}
