//! Worked examples of five documented systems, each run with its shipped ruleset and the production pass.

use std::collections::BTreeMap;
use std::sync::Arc;

use fireteam::domain::attribute::AttributeValue;
use fireteam::domain::id::{TicketId, UserKey};
use fireteam::domain::locality::Locality;
use fireteam::domain::queue::avoidance::PastMatches;
use fireteam::domain::queue::gate::{GateCounts, GateReason};
use fireteam::domain::queue::pass::{PassInput, PassOutcome, run_pass};
use fireteam::domain::queue::prepared_ticket::PreparedTicket;
use fireteam::domain::queue::rating_group::group_of_rating;
use fireteam::domain::queue::ticket::{PlayerRating, Ticket};
use fireteam::domain::ruleset::Ruleset;
use fireteam::domain::session::{Player, RegionLatency, Session};
use fireteam::domain::time::UnixMs;
use fireteam::rules;

/// Start of each example; any time at which a rating window widens.
const START: UnixMs = UnixMs(1_700_000_000_000);

pub(crate) const SECOND: u64 = 1_000;
pub(crate) const MINUTE: u64 = 60 * SECOND;

const SEATTLE: [f64; 2] = [47.6, -122.3];

/// A ticket with one player.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExampleTicket {
    pub(crate) rating: f64,
    pub(crate) place: Option<f64>,
    /// Entry time, milliseconds after the start.
    pub(crate) since_ms: u64,
    pub(crate) skill: Option<f64>,
    pub(crate) regions: Vec<(&'static str, f32)>,
    /// Degrees north and east; default Seattle.
    pub(crate) location_degrees: Option<[f64; 2]>,
    /// Number attributes of the game.
    pub(crate) numbers: Vec<(&'static str, f64)>,
}

pub(crate) fn rated(rating: f64) -> ExampleTicket {
    ExampleTicket { rating, ..ExampleTicket::default() }
}

/// One queue with its waiting tickets by name.
pub(crate) struct ExampleQueue {
    pub(crate) ruleset: Ruleset,
    pub(crate) waiting: BTreeMap<String, ExampleTicket>,
    counts: GateCounts,
}

/// A match: sorted names per team, and its quality.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExampleMatch {
    pub(crate) teams: Vec<Vec<String>>,
    quality: f64,
    region: Option<Box<str>>,
}

impl ExampleMatch {
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.teams.iter().flatten().cloned().collect();
        names.sort();
        names
    }
}

impl ExampleQueue {
    /// The shipped file of that name, with some text replaced.
    pub(crate) fn from_file(name: &str, replaced: &[(&str, &str)]) -> Self {
        let (_, text) =
            *rules::bundled::BUNDLED_FILES.iter().find(|(path, _)| path.ends_with(&format!("/{name}.xml"))).unwrap();
        let replace = |text: String, (from, to): &(&str, &str)| {
            assert!(text.contains(from), "{name} does not contain {from}");
            text.replace(from, to)
        };
        Self::from_text(name, &replaced.iter().fold(text.to_owned(), replace))
    }

    /// A queue of this ruleset.
    pub(crate) fn from_text(name: &str, text: &str) -> Self {
        let ruleset = rules::parse_ruleset(name, text).unwrap_or_else(|problems| panic!("{problems:#?}"));
        Self { ruleset, waiting: BTreeMap::new(), counts: GateCounts::default() }
    }

    pub(crate) fn enter(&mut self, name: &str, example: ExampleTicket) {
        assert!(self.waiting.insert(name.to_owned(), example).is_none(), "{name} is already queued");
    }

    /// Runs a pass at this time after the start. No ticket is removed.
    fn run_pass_at(&self, at_ms: u64, seed: u64) -> (Vec<ExampleMatch>, PassOutcome) {
        let (queue, teams) = (self.ruleset.queue.as_ref().unwrap(), self.ruleset.teams.as_ref().unwrap());
        let mut names: BTreeMap<TicketId, &str> = BTreeMap::new();
        let mut tickets = Vec::new();
        for ((name, example), number) in self.waiting.iter().zip(1_u8..) {
            let id = TicketId::from_bytes([number; 16]);
            names.insert(id, name);
            let ticket = ticket(&self.ruleset, id, name, example);
            tickets.push(PreparedTicket::new(&self.ruleset, queue, Arc::new(ticket), example.place));
        }
        let tickets: Vec<&PreparedTicket> = tickets.iter().collect();
        let outcome = run_pass(&PassInput {
            ruleset: &self.ruleset,
            queue,
            teams,
            tickets: &tickets,
            open_sessions: &[],
            past_matches: &PastMatches::default(),
            gate_counts: self.counts,
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
            ExampleMatch {
                teams: proposal.teams.iter().map(team).collect(),
                quality: proposal.quality,
                region: proposal.region.clone(),
            }
        });
        (games.collect(), outcome)
    }

    /// Matches of a pass.
    pub(crate) fn matches(&self, at_ms: u64) -> Vec<ExampleMatch> {
        self.run_pass_at(at_ms, 7).0
    }
}

fn ticket(ruleset: &Ruleset, id: TicketId, name: &str, example: &ExampleTicket) -> Ticket {
    let user = UserKey::from_name(name);
    let player = Player { stated_skill: example.skill, ..Player::from_user(user) };
    let region = |&(name, round_trip_ms): &(&str, f32)| RegionLatency { region: name.into(), round_trip_ms };
    let number = |&(name, number): &(&str, f64)| (name.into(), AttributeValue::Number(number));
    let [latitude, longitude] = example.location_degrees.unwrap_or(SEATTLE);
    Ticket {
        id,
        set_id: ruleset.set_id,
        subject: None,
        entered_at: START.plus_ms(example.since_ms),
        session: Session {
            party_sizes: [1].into(),
            players: vec![player],
            locality: Locality::from_degrees(latitude, longitude),
            attributes: example.numbers.iter().map(number).collect(),
            region_latencies: example.regions.iter().map(region).collect(),
            ..Session::default()
        },
        player_ratings: vec![PlayerRating { rating: example.rating, deviation: 0.0 }],
        exact_round_trips_ms: None,
        blocked_users: Vec::new(),
        rating_digest_key: None,
        excludes_other_tickets: false,
        self_answering_users: Vec::new(),
    }
}

/// The cycle of the document's example in which Pawn20 and Grunt17 match. Grunt17 enters at the end of cycle 1; a cycle
/// is 20 s.
fn cycle_of_the_match(reciprocal: &str) -> Option<u64> {
    let mut queue = ExampleQueue::from_file("teiserver_duel", &[("ReciprocalPercent=\"100\"", reciprocal)]);
    queue.enter("Pawn20", rated(20.2));
    for cycle in 0..=10 {
        let games = queue.matches(cycle * 20 * SECOND);
        if let [found] = &games[..] {
            assert_eq!(found.names(), ["Grunt17", "Pawn20"]);
            return Some(cycle);
        }
        assert_eq!(games, []);
        if cycle == 1 {
            queue.enter("Grunt17", ExampleTicket { since_ms: 20 * SECOND + 250, ..rated(17.49) });
            assert_eq!(queue.matches(20 * SECOND + 250), [], "bucket 17 has no other ticket");
        }
    }
    None
}

/// S0-4, S0-5, S0-8, S0-9, S0-11, S0-13, S0-14, S0-16, B-1, B-3, B-6: the example of Teiserver's document, cycle by
/// cycle: a match in cycle 4 with 100 % reciprocity, in cycle 3 with 50 % or 0 %.
#[test]
fn rating_window_example_matches_in_cycle_four() {
    assert_eq!(cycle_of_the_match("ReciprocalPercent=\"100\""), Some(4));
    assert_eq!(cycle_of_the_match("ReciprocalPercent=\"50\""), Some(3));
    assert_eq!(cycle_of_the_match("ReciprocalPercent=\"0\""), Some(3));
}

/// S0-8, S0-12, S0-15: the range ends at ten buckets; the nearest ticket is matched, of equals the one that waited
/// longest.
#[test]
fn rating_window_ends_at_ten_buckets() {
    let mut queue = ExampleQueue::from_file("teiserver_duel", &[]);
    queue.enter("far", rated(30.0));
    queue.enter("Pawn20", rated(20.0));
    assert_eq!(queue.matches(199 * SECOND), []);
    assert_eq!(queue.matches(200 * SECOND).len(), 1);
    let mut queue = ExampleQueue::from_file("teiserver_duel", &[]);
    queue.enter("farther", rated(31.0));
    queue.enter("Pawn20", rated(20.0));
    assert_eq!(queue.matches(60 * MINUTE), []);
    queue.enter("low", ExampleTicket { since_ms: 10 * SECOND, ..rated(18.0) });
    queue.enter("high", rated(22.0));
    queue.enter("same", ExampleTicket { since_ms: 50 * SECOND, ..rated(20.4) });
    assert_eq!(queue.matches(60 * SECOND)[0].names(), ["Pawn20", "same"]);
    queue.waiting.remove("same");
    assert_eq!(queue.matches(60 * SECOND)[0].names(), ["Pawn20", "high"], "as near as low, and has waited longer");
}

/// Users of the leaderboard example: name, mu, sigma.
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

/// S2-3, S2-6, S2-8, S2-9, B-26, B-27: the leaderboard is ordered by mu - sigma, and the quality of each pair is the
/// Gaussian of their distance in places, with any ratings.
#[test]
fn leaderboard_quality_is_the_gaussian_of_places() {
    let z = ExampleQueue::from_file("comprl_ladder", &[]).ruleset.rating.unwrap().leaderboard_z;
    let mut order = LADDER;
    order.sort_by(|one, other| (other.1 - z * other.2).total_cmp(&(one.1 - z * one.2)));
    let names: Vec<&str> = order.iter().map(|it| it.0).collect();
    assert_eq!(names, ["u1", "u9", "u2", "u3", "u10", "u6", "u7", "u4", "u5", "u8"]);
    for (one, first) in names.iter().enumerate() {
        for (other, second) in names.iter().enumerate().skip(one + 1) {
            let mut queue = ExampleQueue::from_file(
                "comprl_ladder",
                &[("Sigma=\"20\"", "Sigma=\"2\""), ("Threshold=\"0.3\"", "Threshold=\"0\"")],
            );
            for (name, place) in [(first, one), (second, other)] {
                let (_, mu, _) = *LADDER.iter().find(|it| it.0 == *name).unwrap();
                queue.enter(name, ExampleTicket { place: Some(place as f64), ..rated(mu) });
            }
            let found = &queue.matches(0)[0];
            let distance = (other - one) as f64;
            assert!((found.quality - 0.5 * (-distance * distance / 8.0).exp()).abs() < 1e-12, "{first} and {second}");
        }
    }
    // u1 and u9 are neighbours, three points apart; u7 and u4 are neighbours too.
    let quality = |distance: f64| 0.5 * (-distance * distance / 8.0_f64).exp();
    assert!((quality(1.0) - 0.441_248_451_292_297_7).abs() < 1e-15);
}

/// Quality of a pair at this distance on the ladder that has waited this long; `None` if not matched.
fn ladder_pair(distance: f64, waited_ms: u64) -> Option<f64> {
    let mut queue = ExampleQueue::from_file("comprl_ladder", &[]);
    queue.enter("one", ExampleTicket { place: Some(100.0), ..rated(25.0) });
    queue.enter("other", ExampleTicket { place: Some(100.0 + distance), ..rated(25.0) });
    queue.matches(waited_ms).first().map(|found| found.quality)
}

/// S2-6, S2-8, S2-11, S2-12, B-24: 20 places are accepted and 21 are not; waiting adds to quality, and after 240 s
/// together any pair is accepted.
#[test]
fn wait_bonus_accepts_distant_places() {
    assert!((ladder_pair(20.0, 0).unwrap() - 0.303_265_329_856_316_7).abs() < 1e-12);
    // Combined seconds until any pair is accepted, by distance.
    for (distance, combined_s) in [(21.0, 67.131_277_9), (30.0, 142.604_259_8), (50.0, 226.818_919_9), (200.0, 240.0)] {
        let each_ms = combined_s * 500.0;
        assert_eq!(ladder_pair(distance, each_ms as u64 - 5), None, "{distance}");
        assert!(ladder_pair(distance, each_ms as u64 + 5).is_some(), "{distance}");
    }
    assert!((ladder_pair(0.0, 45 * SECOND).unwrap() - 0.55).abs() < 1e-12, "30 of 90 s count");
}

/// S2-7, S2-12, B-25: no match until a tenth of the connected players wait, nor while 100 matches run.
#[test]
fn gate_needs_a_tenth_waiting_and_fewer_than_100_matches() {
    let mut queue = ExampleQueue::from_file("comprl_ladder", &[]);
    for place in 0..3_u8 {
        queue.enter(&format!("u{place}"), ExampleTicket { place: Some(place.into()), ..rated(25.0) });
    }
    queue.counts = GateCounts { connected_players: 39, active_matches: 0 };
    let (games, outcome) = queue.run_pass_at(0, 1);
    assert_eq!(
        (games.len(), outcome.report.gate_reason),
        (0, Some(GateReason::TooFewWaiting { waiting_players: 3, required_players: 4 }))
    );
    queue.enter("u3", ExampleTicket { place: Some(3.0), ..rated(25.0) });
    assert_eq!(queue.run_pass_at(0, 1).0.len(), 2);
    queue.counts.active_matches = 99;
    assert_eq!(queue.run_pass_at(0, 1).0.len(), 1, "one more match may run");
    queue.counts.active_matches = 100;
    assert_eq!(
        queue.run_pass_at(0, 1).1.report.gate_reason,
        Some(GateReason::TooManyMatches { active_matches: 100, max_matches: 100 })
    );
}

/// S2-5, S2-6: the first ticket draws its partner at random, weighted by quality: three at 0, 10 and 20 places by their
/// shares, one at 21 never.
#[test]
fn weighted_sample_draws_partners_by_quality() {
    let mut queue = ExampleQueue::from_file("comprl_ladder", &[]);
    queue.enter("first", ExampleTicket { place: Some(100.0), ..rated(25.0) });
    let partners = [("near", 100.0), ("middle", 110.0), ("edge", 120.0), ("beyond", 121.0)];
    for (name, place) in partners {
        queue.enter(name, ExampleTicket { place: Some(place), since_ms: 1, ..rated(25.0) });
    }
    let (mut counts, runs) = (BTreeMap::new(), 6_000);
    for seed in 0..runs {
        let (games, _) = queue.run_pass_at(2, seed);
        let found = games.iter().find(|found| found.names().contains(&"first".to_owned())).unwrap();
        let partner = found.names().into_iter().find(|name| name != "first").unwrap();
        *counts.entry(partner).or_insert(0_u32) += 1;
    }
    let weights: Vec<f64> = [0.0, 10.0, 20.0_f64].iter().map(|d| 0.5 * (-d * d / 800.0).exp()).collect();
    let sum: f64 = weights.iter().sum();
    for (name, weight) in ["near", "middle", "edge"].iter().zip(weights) {
        let share = f64::from(counts[*name]) / runs as f64;
        // Four standard deviations of a draw of 6,000.
        assert!((share - weight / sum).abs() < 0.026, "{name}: {share}");
    }
    assert_eq!(counts.len(), 3, "{counts:?}");
}

/// S3-2, S3-3, B-29: the league of a rating, at the edges and beyond.
#[test]
fn rating_groups_are_half_open_and_cover_all_ratings() {
    let queue = ExampleQueue::from_file("openmatchmaking_leagues", &[]);
    let groups = queue.ruleset.queue.as_ref().unwrap().groups.as_ref().unwrap();
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
    for (rating, enter_all) in cases {
        assert_eq!(&*groups.groups[usize::from(group_of_rating(groups, rating))].name, enter_all, "{rating}");
    }
}

fn enter_all(queue: &mut ExampleQueue, ratings: impl IntoIterator<Item = f64>) {
    for (rating, number) in ratings.into_iter().zip(0..) {
        queue.enter(&format!("p{number}"), rated(rating));
    }
}

/// S3-4, S3-10, S3-12, D-13: ten diamonds make a match with two teams whose means are within 25 points.
#[test]
fn rating_group_of_ten_makes_a_match() {
    let mut queue = ExampleQueue::from_file("openmatchmaking_leagues", &[]);
    let ratings = [3_010.0, 3_480.0, 3_120.0, 3_300.0, 3_250.0, 3_060.0, 3_410.0, 3_190.0, 3_350.0, 3_230.0];
    enter_all(&mut queue, ratings[..9].iter().copied());
    assert_eq!(queue.matches(5 * SECOND), [], "nine are too few");
    queue.enter("p9", rated(ratings[9]));
    let games = queue.matches(5 * SECOND);
    assert_eq!(games.len(), 1);
    let mean = |team: &Vec<String>| team.iter().map(|name| queue.waiting[name].rating).sum::<f64>() / 5.0;
    let [one, other] = &games[0].teams[..] else { panic!("{games:?}") };
    assert_eq!((one.len(), other.len()), (5, 5));
    assert!((mean(one) - mean(other)).abs() <= 25.0);
}

/// S3-1, S3-2, B-30: a platinum completes nine diamonds only after all have waited a minute; a gold never does.
#[test]
fn rating_group_widens_after_a_minute() {
    let mut queue = ExampleQueue::from_file("openmatchmaking_leagues", &[]);
    enter_all(&mut queue, (0..9).map(|step| 3_000.0 + f64::from(step)));
    queue.enter("neighbour", rated(2_999.0));
    assert_eq!(queue.matches(MINUTE - 1), []);
    assert_eq!(queue.matches(MINUTE).len(), 1);
    queue.waiting.remove("neighbour");
    queue.enter("gold", rated(2_499.0));
    assert_eq!(queue.matches(60 * MINUTE), []);
}

/// S3-8: ten with a common region match there when it is near enough for each; without one they do not match.
#[test]
fn regions_filter_needs_a_common_region() {
    let mut queue = ExampleQueue::from_file("openmatchmaking_leagues", &[]);
    let with_regions = |regions: &[(&'static str, f32)]| ExampleTicket { regions: regions.to_vec(), ..rated(1_200.0) };
    for number in 0..9 {
        queue.enter(&format!("p{number}"), with_regions(&[("eu", 30.0), ("us", 120.0)]));
    }
    queue.enter("abroad", with_regions(&[("eu", 150.0), ("us", 40.0)]));
    assert_eq!(queue.matches(5 * SECOND), [], "no region is within 100 ms of all");
    let games = queue.matches(15 * SECOND);
    assert_eq!(games.len(), 1);
    assert_eq!(games[0].region.as_deref(), Some("us"), "the worst is 120 ms, against 150 ms");
    queue.waiting.remove("abroad");
    queue.enter("down_under", with_regions(&[("au", 20.0)]));
    assert_eq!(queue.matches(60 * MINUTE), []);
}

/// The lobby of the similarity example.
const LOBBY: [f64; 12] =
    [2_650.0, 2_380.0, 2_140.0, 2_118.0, 1_907.0, 1_886.0, 1_871.0, 1_852.0, 1_500.0, 1_490.0, 1_480.0, 400.0];

/// Ratings of the first match of the challenge's lobby, highest first.
fn first_of_the_lobby(team_size: &str, required: &str) -> Option<Vec<f64>> {
    let size = format!("Size=\"{team_size}\" MaxPartySize");
    let required = format!("RequiredPercent=\"{required}\"/>\n    </Quality>");
    let replaced = [("Size=\"5\" MaxPartySize", &*size), ("RequiredPercent=\"95\"/>\n    </Quality>", &*required)];
    let mut queue = ExampleQueue::from_file("challenge_5v5", &replaced);
    enter_all(&mut queue, LOBBY);
    let games = queue.matches(5 * SECOND);
    let ratings = |found: &ExampleMatch| {
        let mut ratings: Vec<f64> = found.names().iter().map(|name| queue.waiting[name].rating).collect();
        ratings.sort_by(|one, other| other.total_cmp(one));
        ratings
    };
    games.iter().map(ratings).max_by(|one, other| one[0].total_cmp(&other[0]))
}

/// S4-3, S4-5, S4-6, S4-9: the first window of neighbours, from the highest rating down, whose least similar player is
/// similar enough.
#[test]
fn first_window_takes_the_first_similar_players() {
    assert_eq!(first_of_the_lobby("1", "95"), Some(vec![2_650.0, 2_380.0]));
    assert_eq!(first_of_the_lobby("2", "95"), Some(vec![2_140.0, 2_118.0, 1_907.0, 1_886.0]));
    assert_eq!(first_of_the_lobby("3", "95"), None);
    assert_eq!(first_of_the_lobby("3", "90"), Some(LOBBY[2..8].to_vec()));
    assert_eq!(first_of_the_lobby("5", "85"), None);
}

/// S4-9, B-33: 145 points from the mean are refused at 95 %, and waiting changes nothing.
#[test]
fn challenge_limits_do_not_relax() {
    let lobby = |outlier: f64| {
        let mut queue = ExampleQueue::from_file("challenge_5v5", &[]);
        enter_all(&mut queue, [1_000.0; 9]);
        queue.enter("outlier", rated(outlier));
        queue
    };
    // The mean moves by a tenth of the difference.
    assert_eq!(lobby(1_000.0 + 145.0 / 0.9 + 0.1).matches(60 * MINUTE), []);
    assert_eq!(lobby(1_000.0 + 145.0 / 0.9 - 0.1).matches(0).len(), 1);
}

/// S4-10, B-19: the ten players of the example are split in the best of 126 ways, 9898 against 9896.
#[test]
fn team_split_of_ten_is_optimal() {
    let mut queue = ExampleQueue::from_file(
        "challenge_5v5",
        &[("RequiredPercent=\"95\"/>\n    </Quality>", "RequiredPercent=\"50\"/>\n    </Quality>")],
    );
    enter_all(&mut queue, LOBBY[..10].iter().copied());
    let games = queue.matches(0);
    let sum = |team: &Vec<String>| team.iter().map(|name| queue.waiting[name].rating).sum::<f64>();
    let mut sums: Vec<f64> = games[0].teams.iter().map(sum).collect();
    sums.sort_by(f64::total_cmp);
    assert_eq!(sums, [9_896.0, 9_898.0]);
}

/// Twelve players for Control in one city: six of skill 0, six of `skill`.
fn control(skill: f64) -> ExampleQueue {
    let mut queue = ExampleQueue::from_file("destiny_control_6v6", &[]);
    for number in 0..12 {
        let skill = if number < 6 { 0.0 } else { skill };
        queue.enter(&format!("p{number:02}"), ExampleTicket { skill: Some(skill), ..rated(skill) });
    }
    queue
}

/// S1-18 to S1-21, S1-35, S1-69: limits relax by the thesis's steps, a match has the score of its worst pair, and both
/// teams are equally strong.
#[test]
fn control_limits_relax_by_the_thesis_steps() {
    for (skill, from_ms) in
        [(150.0, 0), (151.0, 10 * SECOND), (300.0, 10 * SECOND), (301.0, 30 * SECOND), (601.0, 50 * SECOND)]
    {
        let queue = control(skill);
        if let Some(before) = from_ms.checked_sub(1) {
            assert_eq!(queue.matches(before), [], "{skill} too early");
        }
        let games = queue.matches(from_ms);
        assert_eq!(games.len(), 1, "{skill}");
        let strong_players = |team: &Vec<String>| team.iter().filter(|name| 0.0 < queue.waiting[*name].rating).count();
        assert_eq!(games[0].teams.iter().map(strong_players).collect::<Vec<_>>(), [3, 3]);
        // 40 % of the skill difference in 2000 points, 60 % of the 20 ms that neighbours are expected to have in 300.
        let score = 0.4 * skill / 2_000.0 + 0.6 * 20.0 / 300.0;
        assert!((games[0].quality + score).abs() < 1e-6, "{skill}: {}", games[0].quality);
    }
}
