//! Five documented systems, each played through its shipped file: the documents' worked examples, by the pass that serves
//! every queue.

use std::collections::BTreeMap;
use std::sync::Arc;

use fireteam::domain::attribute::AttributeValue;
use fireteam::domain::id::{TicketId, UserKey};
use fireteam::domain::locality::Locality;
use fireteam::domain::queue::avoidance::PastMatches;
use fireteam::domain::queue::gate::{GateReason, QueueCounts};
use fireteam::domain::queue::pass::{PassInput, PassOutcome, run_pass};
use fireteam::domain::queue::prepared_ticket::PreparedTicket;
use fireteam::domain::queue::rating_group::group_of_rating;
use fireteam::domain::queue::ticket::{PlayerRating, Ticket};
use fireteam::domain::ruleset::Ruleset;
use fireteam::domain::session::{Player, RegionLatency, Session};
use fireteam::domain::time::UnixMs;
use fireteam::rules;

/// When everything begins: any moment at which the tick of a queue's windows falls.
const START: UnixMs = UnixMs(1_700_000_000_000);

pub(crate) const SECOND: u64 = 1_000;
pub(crate) const MINUTE: u64 = 60 * SECOND;

const SEATTLE: [f64; 2] = [47.6, -122.3];

/// Somebody who waits alone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Solo {
    pub(crate) rating: f64,
    pub(crate) place: Option<f64>,
    /// Since when, milliseconds after the start.
    pub(crate) since_ms: u64,
    pub(crate) skill: Option<f64>,
    pub(crate) regions: Vec<(&'static str, f32)>,
    /// Degrees north and east; Seattle for whoever does not say.
    pub(crate) lives_at: Option<[f64; 2]>,
    /// Numbers of the game's own.
    pub(crate) numbers: Vec<(&'static str, f64)>,
}

pub(crate) fn rated(rating: f64) -> Solo {
    Solo { rating, ..Solo::default() }
}

/// One queue, and who waits in it by name.
pub(crate) struct Room {
    pub(crate) ruleset: Ruleset,
    pub(crate) waiting: BTreeMap<String, Solo>,
    crowd: QueueCounts,
}

/// A match: the names of each team, sorted, and how good it is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Game {
    pub(crate) teams: Vec<Vec<String>>,
    quality: f64,
    region: Option<Box<str>>,
}

impl Game {
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.teams.iter().flatten().cloned().collect();
        names.sort();
        names
    }
}

impl Room {
    /// The shipped file of that name, with some of its words replaced.
    pub(crate) fn of(name: &str, replaced: &[(&str, &str)]) -> Self {
        let (_, text) =
            *rules::bundled::BUNDLED_FILES.iter().find(|(path, _)| path.ends_with(&format!("/{name}.xml"))).unwrap();
        let mut text = text.to_owned();
        for (from, to) in replaced {
            assert!(text.contains(from), "{name} does not say {from}");
            text = text.replace(from, to);
        }
        let ruleset = rules::parse_ruleset(name, &text).unwrap_or_else(|problems| panic!("{problems:#?}"));
        Self { ruleset, waiting: BTreeMap::new(), crowd: QueueCounts::default() }
    }

    pub(crate) fn enter(&mut self, name: &str, solo: Solo) {
        assert!(self.waiting.insert(name.to_owned(), solo).is_none(), "{name} waits already");
    }

    /// A pass so many milliseconds after the start. Nobody leaves.
    fn look(&self, at_ms: u64, seed: u64) -> (Vec<Game>, PassOutcome) {
        let (queue, teams) = (self.ruleset.queue.as_ref().unwrap(), self.ruleset.teams.as_ref().unwrap());
        let mut names: BTreeMap<TicketId, &str> = BTreeMap::new();
        let mut entrants = Vec::new();
        for ((name, solo), number) in self.waiting.iter().zip(1_u8..) {
            let id = TicketId::from_bytes([number; 16]);
            names.insert(id, name);
            let ticket = ticket(&self.ruleset, id, name, solo);
            entrants.push(PreparedTicket::new(&self.ruleset, queue, Arc::new(ticket), solo.place));
        }
        let entrants: Vec<&PreparedTicket> = entrants.iter().collect();
        let outcome = run_pass(&PassInput {
            ruleset: &self.ruleset,
            queue,
            teams,
            tickets: &entrants,
            open_sessions: &[],
            past_matches: &PastMatches::default(),
            queue_counts: self.crowd,
            now: START.plus_ms(at_ms),
            rng_seed: seed,
            max_pair_checks: 1_000_000,
        });
        let games = outcome.proposals.iter().map(|proposal| {
            let team = |placed: &Vec<_>| {
                let of = |it: &fireteam::domain::queue::proposal::ProposedTicket| names[&it.ticket_id].to_owned();
                let mut team: Vec<String> = placed.iter().map(of).collect();
                team.sort();
                team
            };
            Game {
                teams: proposal.teams.iter().map(team).collect(),
                quality: proposal.quality,
                region: proposal.region.clone(),
            }
        });
        (games.collect(), outcome)
    }

    /// The matches of a pass.
    pub(crate) fn games(&self, at_ms: u64) -> Vec<Game> {
        self.look(at_ms, 7).0
    }
}

fn ticket(ruleset: &Ruleset, id: TicketId, name: &str, solo: &Solo) -> Ticket {
    let player =
        Player { user: UserKey::from_name(name), client_key: UserKey::from_name(name), stated_skill: solo.skill };
    let region = |&(name, round_trip_ms): &(&str, f32)| RegionLatency { region: name.into(), round_trip_ms };
    let number = |&(name, number): &(&str, f64)| (name.into(), AttributeValue::Number(number));
    let [latitude, longitude] = solo.lives_at.unwrap_or(SEATTLE);
    Ticket {
        id,
        set_id: ruleset.set_id,
        subject: None,
        entered_at: START.plus_ms(solo.since_ms),
        session: Session {
            party_sizes: vec![1],
            players: vec![player],
            locality: Locality::from_degrees(latitude, longitude),
            attributes: solo.numbers.iter().map(number).collect(),
            region_latencies: solo.regions.iter().map(region).collect(),
            ..Session::default()
        },
        player_ratings: vec![PlayerRating { rating: solo.rating, deviation: 0.0 }],
        blocked_users: Vec::new(),
        exclusive: false,
    }
}

/// The cycle of the walk in which Pawn20 and Grunt17 meet. Grunt17 comes at the end of cycle 1; a cycle is 20 s.
fn cycle_of_the_walk(reciprocal: &str) -> Option<u64> {
    let mut room = Room::of("teiserver_duel", &[("ReciprocalPercent=\"100\"", reciprocal)]);
    room.enter("Pawn20", rated(20.2));
    for cycle in 0..=10 {
        let games = room.games(cycle * 20 * SECOND);
        if let [game] = &games[..] {
            assert_eq!(game.names(), ["Grunt17", "Pawn20"]);
            return Some(cycle);
        }
        assert_eq!(games, []);
        if cycle == 1 {
            room.enter("Grunt17", Solo { since_ms: 20 * SECOND + 250, ..rated(17.49) });
            assert_eq!(room.games(20 * SECOND + 250), [], "nobody else is in bucket 17");
        }
    }
    None
}

/// S0-4, S0-5, S0-8, S0-9, S0-11, S0-13, S0-14, S0-16, B-1, B-3, B-6: the walk of Teiserver's document, check by check:
/// a match in cycle 4 when both must reach, in cycle 3 when half way or nothing is asked of the other.
#[test]
fn pawn_and_grunt_meet_in_the_fourth_cycle() {
    assert_eq!(cycle_of_the_walk("ReciprocalPercent=\"100\""), Some(4));
    assert_eq!(cycle_of_the_walk("ReciprocalPercent=\"50\""), Some(3));
    assert_eq!(cycle_of_the_walk("ReciprocalPercent=\"0\""), Some(3));
}

/// S0-8, S0-12, S0-15: ten buckets are as far as anybody ever looks, and the nearest is taken, of equals who waited longest.
#[test]
fn nobody_looks_further_than_ten_buckets() {
    let mut room = Room::of("teiserver_duel", &[]);
    room.enter("far", rated(30.0));
    room.enter("Pawn20", rated(20.0));
    assert_eq!(room.games(199 * SECOND), []);
    assert_eq!(room.games(200 * SECOND).len(), 1);
    let mut room = Room::of("teiserver_duel", &[]);
    room.enter("farther", rated(31.0));
    room.enter("Pawn20", rated(20.0));
    assert_eq!(room.games(60 * MINUTE), []);
    room.enter("low", Solo { since_ms: 10 * SECOND, ..rated(18.0) });
    room.enter("high", rated(22.0));
    room.enter("same", Solo { since_ms: 50 * SECOND, ..rated(20.4) });
    assert_eq!(room.games(60 * SECOND)[0].names(), ["Pawn20", "same"]);
    room.waiting.remove("same");
    assert_eq!(room.games(60 * SECOND)[0].names(), ["Pawn20", "high"], "as far as low, and has waited longer");
}

/// The users of the leaderboard example: name, mu, sigma.
const LADDER: [(&str, f64, f64); 10] = [
    ("u1", 31.2, 1.1),
    ("u2", 30.1, 3.0),
    ("u3", 27.5, 0.9),
    ("u4", 25.0, 8.333),
    ("u5", 25.0, 8.333),
    ("u6", 28.9, 6.0),
    ("u7", 22.0, 2.0),
    ("u8", 14.3, 1.4),
    ("u9", 35.0, 7.5),
    ("u10", 26.0, 1.0),
];

/// S2-3, S2-6, S2-8, S2-9, B-26, B-27: the order of the leaderboard is mu - sigma, and the quality of every pair is the
/// Gaussian of their places, whatever their ratings are.
#[test]
fn a_pair_is_worth_what_its_places_say() {
    let z = Room::of("comprl_ladder", &[]).ruleset.rating.unwrap().z;
    let mut order = LADDER;
    order.sort_by(|one, other| (other.1 - z * other.2).total_cmp(&(one.1 - z * one.2)));
    let names: Vec<&str> = order.iter().map(|it| it.0).collect();
    assert_eq!(names, ["u1", "u9", "u2", "u3", "u10", "u6", "u7", "u4", "u5", "u8"]);
    for (one, first) in names.iter().enumerate() {
        for (other, second) in names.iter().enumerate().skip(one + 1) {
            let mut room =
                Room::of("comprl_ladder", &[("Sigma=\"20\"", "Sigma=\"2\""), ("Threshold=\"0.3\"", "Threshold=\"0\"")]);
            for (name, place) in [(first, one), (second, other)] {
                let (_, mu, _) = *LADDER.iter().find(|it| it.0 == *name).unwrap();
                room.enter(name, Solo { place: Some(place as f64), ..rated(mu) });
            }
            let game = &room.games(0)[0];
            let distance = (other - one) as f64;
            assert!((game.quality - 0.5 * (-distance * distance / 8.0).exp()).abs() < 1e-12, "{first} and {second}");
        }
    }
    // u1 and u9 are neighbours, three points apart; u7 and u4 are neighbours too.
    let quality = |distance: f64| 0.5 * (-distance * distance / 8.0_f64).exp();
    assert!((quality(1.0) - 0.441_248_451_292_297_7).abs() < 1e-15);
}

/// Two at some distance on the ladder who have both waited that long.
fn ladder_pair(distance: f64, waited_ms: u64) -> Option<f64> {
    let mut room = Room::of("comprl_ladder", &[]);
    room.enter("one", Solo { place: Some(100.0), ..rated(25.0) });
    room.enter("other", Solo { place: Some(100.0 + distance), ..rated(25.0) });
    room.games(waited_ms).first().map(|game| game.quality)
}

/// S2-6, S2-8, S2-11, S2-12, B-24: 20 places are near enough and 21 are not, until waiting makes up for it; after 240 s together
/// anybody does.
#[test]
fn waiting_makes_up_for_places() {
    assert!((ladder_pair(20.0, 0).unwrap() - 0.303_265_329_856_316_7).abs() < 1e-12);
    // Combined seconds until any pair is accepted, by distance.
    for (distance, combined_s) in [(21.0, 67.131_277_9), (30.0, 142.604_259_8), (50.0, 226.818_919_9), (200.0, 240.0)] {
        let each_ms = combined_s * 500.0;
        assert_eq!(ladder_pair(distance, each_ms as u64 - 5), None, "{distance}");
        assert!(ladder_pair(distance, each_ms as u64 + 5).is_some(), "{distance}");
    }
    assert!((ladder_pair(0.0, 45 * SECOND).unwrap() - 0.55).abs() < 1e-12, "half a minute of 90 s counts");
}

/// S2-7, S2-12, B-25: nobody is matched before a tenth of the connected wait, nor while 100 games run.
#[test]
fn a_crowd_must_be_waiting() {
    let mut room = Room::of("comprl_ladder", &[]);
    for place in 0..3_u8 {
        room.enter(&format!("u{place}"), Solo { place: Some(place.into()), ..rated(25.0) });
    }
    room.crowd = QueueCounts { connected_players: 39, active_matches: 0 };
    let (games, outcome) = room.look(0, 1);
    assert_eq!(
        (games.len(), outcome.report.gate_reason),
        (0, Some(GateReason::TooFewWaiting { waiting_players: 3, required_players: 4 }))
    );
    room.enter("u3", Solo { place: Some(3.0), ..rated(25.0) });
    assert_eq!(room.look(0, 1).0.len(), 2);
    room.crowd.active_matches = 99;
    assert_eq!(room.look(0, 1).0.len(), 1, "one more may run");
    room.crowd.active_matches = 100;
    assert_eq!(
        room.look(0, 1).1.report.gate_reason,
        Some(GateReason::TooManyMatches { active_matches: 100, max_matches: 100 })
    );
}

/// S2-5, S2-6: the first in the queue draws a partner with quality as weight, not the best: of three who do, at 0, 10 and 20 places,
/// each as often as its share; one at 21 never.
#[test]
fn partners_are_drawn_by_quality() {
    let mut room = Room::of("comprl_ladder", &[]);
    room.enter("first", Solo { place: Some(100.0), ..rated(25.0) });
    let partners = [("near", 100.0), ("middle", 110.0), ("edge", 120.0), ("beyond", 121.0)];
    for (name, place) in partners {
        room.enter(name, Solo { place: Some(place), since_ms: 1, ..rated(25.0) });
    }
    let (mut counts, draws) = (BTreeMap::new(), 6_000);
    for seed in 0..draws {
        let (games, _) = room.look(2, seed);
        let game = games.iter().find(|game| game.names().contains(&"first".to_owned())).unwrap();
        let partner = game.names().into_iter().find(|name| name != "first").unwrap();
        *counts.entry(partner).or_insert(0_u32) += 1;
    }
    let weights: Vec<f64> = [0.0, 10.0, 20.0_f64].iter().map(|d| 0.5 * (-d * d / 800.0).exp()).collect();
    let sum: f64 = weights.iter().sum();
    for (name, weight) in ["near", "middle", "edge"].iter().zip(weights) {
        let share = f64::from(counts[*name]) / draws as f64;
        // Four standard deviations of a draw of 6,000.
        assert!((share - weight / sum).abs() < 0.026, "{name}: {share}");
    }
    assert_eq!(counts.len(), 3, "{counts:?}");
}

/// S3-2, S3-3, B-29: which league a rating is in, at the edges and beyond.
#[test]
fn leagues_are_half_open_and_hold_everybody() {
    let room = Room::of("openmatchmaking_leagues", &[]);
    let groups = room.ruleset.queue.as_ref().unwrap().groups.as_ref().unwrap();
    let cases = [
        (0.0, "bronze"),
        (999.0, "bronze"),
        (1_000.0, "bronze"),
        (1_499.99, "bronze"),
        (1_500.0, "silver"),
        (2_000.0, "gold"),
        (2_999.0, "platinum"),
        (3_000.0, "diamond"),
        (3_500.0, "semi_pro"),
        (4_499.0, "professional"),
        (9_000.0, "professional"),
    ];
    for (rating, league) in cases {
        assert_eq!(&*groups.groups[usize::from(group_of_rating(groups, rating))].name, league, "{rating}");
    }
}

fn league(room: &mut Room, ratings: impl IntoIterator<Item = f64>) {
    for (rating, number) in ratings.into_iter().zip(0..) {
        room.enter(&format!("p{number}"), rated(rating));
    }
}

/// S3-4, S3-10, S3-12, D-13: ten diamonds are a lobby: two teams whose means are within 25 points.
#[test]
fn ten_diamonds_fill_a_lobby() {
    let mut room = Room::of("openmatchmaking_leagues", &[]);
    let ratings = [3_010.0, 3_480.0, 3_120.0, 3_300.0, 3_250.0, 3_060.0, 3_410.0, 3_190.0, 3_350.0, 3_230.0];
    league(&mut room, ratings[..9].iter().copied());
    assert_eq!(room.games(5 * SECOND), [], "nine are too few");
    room.enter("p9", rated(ratings[9]));
    let games = room.games(5 * SECOND);
    assert_eq!(games.len(), 1);
    let mean = |team: &Vec<String>| team.iter().map(|name| room.waiting[name].rating).sum::<f64>() / 5.0;
    let [one, other] = &games[0].teams[..] else { panic!("{games:?}") };
    assert_eq!((one.len(), other.len()), (5, 5));
    assert!((mean(one) - mean(other)).abs() <= 25.0);
}

/// S3-1, S3-2, B-30: a platinum does not complete nine diamonds, until all have waited a minute; a gold never does.
#[test]
fn neighbouring_leagues_meet_after_a_minute() {
    let mut room = Room::of("openmatchmaking_leagues", &[]);
    league(&mut room, (0..9).map(|step| 3_000.0 + f64::from(step)));
    room.enter("neighbour", rated(2_999.0));
    assert_eq!(room.games(MINUTE - 1), []);
    assert_eq!(room.games(MINUTE).len(), 1);
    room.waiting.remove("neighbour");
    room.enter("gold", rated(2_499.0));
    assert_eq!(room.games(60 * MINUTE), []);
}

/// S3-8: ten with a region in common meet there as soon as it is near enough for each; without one they do not meet.
#[test]
fn a_lobby_has_a_region_in_common() {
    let mut room = Room::of("openmatchmaking_leagues", &[]);
    let somebody = |regions: &[(&'static str, f32)]| Solo { regions: regions.to_vec(), ..rated(1_200.0) };
    for number in 0..9 {
        room.enter(&format!("p{number}"), somebody(&[("eu", 30.0), ("us", 120.0)]));
    }
    room.enter("abroad", somebody(&[("eu", 150.0), ("us", 40.0)]));
    assert_eq!(room.games(5 * SECOND), [], "neither is within 100 ms of all");
    let games = room.games(15 * SECOND);
    assert_eq!(games.len(), 1);
    assert_eq!(games[0].region.as_deref(), Some("us"), "120 ms at worst, against 150");
    room.waiting.remove("abroad");
    room.enter("down_under", somebody(&[("au", 20.0)]));
    assert_eq!(room.games(60 * MINUTE), []);
}

/// The lobby of the similarity example.
const LOBBY: [f64; 12] =
    [2_650.0, 2_380.0, 2_140.0, 2_118.0, 1_907.0, 1_886.0, 1_871.0, 1_852.0, 1_500.0, 1_490.0, 1_480.0, 400.0];

/// The ratings of the first match of the challenge's lobby, highest first.
fn first_of_the_lobby(team_size: &str, required: &str) -> Option<Vec<f64>> {
    let size = format!("Size=\"{team_size}\" MaxPartySize");
    let required = format!("RequiredPercent=\"{required}\"/>\n    </Quality>");
    let replaced = [("Size=\"5\" MaxPartySize", &*size), ("RequiredPercent=\"95\"/>\n    </Quality>", &*required)];
    let mut room = Room::of("challenge_5v5", &replaced);
    league(&mut room, LOBBY);
    let games = room.games(5 * SECOND);
    let ratings = |game: &Game| {
        let mut ratings: Vec<f64> = game.names().iter().map(|name| room.waiting[name].rating).collect();
        ratings.sort_by(|one, other| other.total_cmp(one));
        ratings
    };
    games.iter().map(ratings).max_by(|one, other| one[0].total_cmp(&other[0]))
}

/// S4-3, S4-5, S4-6, S4-9: the first window of neighbours, from the highest rated down, whose least similar player is similar enough.
#[test]
fn the_first_window_that_is_alike_plays() {
    assert_eq!(first_of_the_lobby("1", "95"), Some(vec![2_650.0, 2_380.0]));
    assert_eq!(first_of_the_lobby("2", "95"), Some(vec![2_140.0, 2_118.0, 1_907.0, 1_886.0]));
    assert_eq!(first_of_the_lobby("3", "95"), None);
    assert_eq!(first_of_the_lobby("3", "90"), Some(LOBBY[2..8].to_vec()));
    assert_eq!(first_of_the_lobby("5", "85"), None);
}

/// S4-9, B-33: 145 points from the mean are not more than 95 %, and waiting changes nothing.
#[test]
fn nothing_relaxes_in_the_challenge() {
    let lobby = |odd: f64| {
        let mut room = Room::of("challenge_5v5", &[]);
        league(&mut room, [1_000.0; 9]);
        room.enter("odd", rated(odd));
        room
    };
    // The mean moves a tenth of the way towards the odd one.
    assert_eq!(lobby(1_000.0 + 145.0 / 0.9 + 0.1).games(60 * MINUTE), []);
    assert_eq!(lobby(1_000.0 + 145.0 / 0.9 - 0.1).games(0).len(), 1);
}

/// S4-10, B-19: the ten of the example are split in the best of 126 ways, 9898 against 9896.
#[test]
fn ten_are_split_in_the_best_way() {
    let mut room = Room::of(
        "challenge_5v5",
        &[("RequiredPercent=\"95\"/>\n    </Quality>", "RequiredPercent=\"50\"/>\n    </Quality>")],
    );
    league(&mut room, LOBBY[..10].iter().copied());
    let games = room.games(0);
    let sum = |team: &Vec<String>| team.iter().map(|name| room.waiting[name].rating).sum::<f64>();
    let mut sums: Vec<f64> = games[0].teams.iter().map(sum).collect();
    sums.sort_by(f64::total_cmp);
    assert_eq!(sums, [9_896.0, 9_898.0]);
}

/// Twelve for Control, all of one place: six of skill 0, six of that skill.
fn control(skill: f64) -> Room {
    let mut room = Room::of("destiny_control_6v6", &[]);
    for number in 0..12 {
        let skill = if number < 6 { 0.0 } else { skill };
        room.enter(&format!("p{number:02}"), Solo { skill: Some(skill), ..rated(skill) });
    }
    room
}

/// S1-18 to S1-21, S1-35, S1-69: limits relax by the thesis's steps, the score of a match is that of its worst pair, and both teams
/// are as strong.
#[test]
fn control_relaxes_by_the_thesis_steps() {
    for (skill, from_ms) in
        [(150.0, 0), (151.0, 10 * SECOND), (300.0, 10 * SECOND), (301.0, 30 * SECOND), (601.0, 50 * SECOND)]
    {
        let room = control(skill);
        if let Some(before) = from_ms.checked_sub(1) {
            assert_eq!(room.games(before), [], "{skill} before its time");
        }
        let games = room.games(from_ms);
        assert_eq!(games.len(), 1, "{skill}");
        let strong = |team: &Vec<String>| team.iter().filter(|name| 0.0 < room.waiting[*name].rating).count();
        assert_eq!(games[0].teams.iter().map(strong).collect::<Vec<_>>(), [3, 3]);
        // 40 % of the skill difference in 2000 points, 60 % of the 20 ms that neighbours are expected to have in 300.
        let score = 0.4 * skill / 2_000.0 + 0.6 * 20.0 / 300.0;
        assert!((games[0].quality + score).abs() < 1e-6, "{skill}: {}", games[0].quality);
    }
}
