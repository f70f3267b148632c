//! Backfill: who is let into a session with open seats, and in which team.

use std::sync::Arc;

use crate::advertisement::{Advertisement, AdvertisementKind};
use crate::attribute::ValueOrigin;
use crate::attribute_values::AttributeValues;
use crate::filter::{Refusal, RefusingSide};
use crate::id::{AdvertisementId, RulesetHash, SetId, SiloId, UserKey};
use crate::latency::published_vector::{LeastPathExcess, PublishedFloor, PublishedVector};
use crate::locality::Locality;
use crate::queue::avoidance::PastMatches;
use crate::queue::backfill::{OpenSession, SeatedParty};
use crate::queue::oracle;
use crate::queue::pass::{self, PassInput};
use crate::queue::prepared_ticket::PreparedTicket;
use crate::queue::proposal::Proposal;
use crate::queue::rng::SplitMix64;
use crate::queue::tests::fixture::{
    NOW, QueueFixture, UNIT_WINDOW, new_ticket, one_in, pick_random, random_below, random_queue_fixture, ticket_id,
    ticket_number, user_key,
};
use crate::queue::tests::predictions::{limited_fixture, two_networks, vector};
use crate::queue::tests::random_wishes::forbid_wishes;
use crate::queue::ticket::{PlayerRating, Ticket};
use crate::ruleset::probing::LatencyTrust;
use crate::ruleset::queue::{AvoidStrictness, AvoidTarget, AvoidanceRule, QualitySpec, RatingWindow};
use crate::ruleset::rating::{RatingSpec, RatingSystem};
use crate::session::Session;
use crate::time::UnixMs;

/// Number of the first user in a session; higher than those of tickets.
const SEATED: u64 = 1_000;

/// A session of parties with these ratings, each in its team if one is stated.
fn session_of(fixture: &QueueFixture, parties: &[(Option<u16>, &[f64])], open_seats: u16) -> OpenSession {
    let party = |(number, (team, ratings)): (u64, &(Option<u16>, &[f64]))| {
        let users: Vec<UserKey> = (0..ratings.len()).map(|player| user_key(SEATED + number, player)).collect();
        let ratings = ratings.iter().map(|&rating| PlayerRating { rating, deviation: 1.0 }).collect();
        SeatedParty::new(users.clone(), users.len() as u16, *team).with_ratings(&fixture.ruleset, Some(ratings))
    };
    let parties: Vec<SeatedParty> = (0..).zip(parties).map(party).collect();
    let session = Session {
        silo: SiloId(1),
        party_sizes: parties.iter().map(|party| party.player_count as u8).collect(),
        offered_seats: open_seats,
        value_origin: ValueOrigin::GameServer,
        ..Session::default()
    };
    let advertisement = Advertisement {
        id: AdvertisementId::from_bytes([7; 16]),
        set_id: SetId(1),
        kind: AdvertisementKind::Session,
        publisher: None,
        advertised_since: UnixMs(NOW.0 - 1_000),
        ruleset_hash: RulesetHash(1),
        session,
        ttl_ms: None,
        allowed_ranges: Box::default(),
        connect_data: Box::default(),
        probe: None,
    };
    OpenSession {
        promised_values: Box::default(),
        blocked_users: Vec::new(),
        attribute_values: AttributeValues::from_session_without_standings(&fixture.ruleset, &advertisement.session),
        advertisement: advertisement.into(),
        expires_at: NOW.plus_ms(1_000),
        open_seats,
        parties: parties.into(),
        vector: None,
    }
}

/// A queue that backfills, with teams of these sizes and this quality measure.
fn filling(sizes: &[u16], quality: QualitySpec) -> QueueFixture {
    let mut fixture = QueueFixture::one_vs_one();
    fixture.set_team_sizes(sizes);
    fixture.queue_mut().backfill = true;
    fixture.queue_mut().quality = quality;
    fixture
}

/// Ticket numbers that join, by team.
fn joined(proposal: &Proposal) -> Vec<Vec<u64>> {
    let numbers = |team: &Vec<_>| {
        team.iter().map(|it: &crate::queue::proposal::ProposedTicket| ticket_number(it.ticket_id)).collect()
    };
    proposal.teams.iter().map(numbers).collect()
}

/// Tickets that join the session, by team; empty if none does.
fn guests_of(fixture: &QueueFixture) -> Vec<Vec<u64>> {
    let outcome = fixture.run_pass();
    let filled = outcome.proposals.iter().find(|proposal| proposal.backfilled_session.is_some());
    filled.map(joined).unwrap_or_default()
}

fn first_refusal(fixture: &QueueFixture) -> Refusal {
    fixture.run_pass().report.unmatched[0].refusal
}

const EVEN: QualitySpec = QualitySpec::WinProbability { min_percent: 45.0, max_percent: 55.0 };

/// A limit between a ticket and a session compares the predicted round trip, where distance would let in another one. When the vector of
/// the session ends, distance decides, and the pass says when.
#[test]
fn backfill_follows_predictions() {
    let mut fixture = limited_fixture();
    fixture.queue_mut().backfill = true;
    // The last ticket is the session's host: 40 degrees from the second ticket, in the network of the first.
    fixture.tickets.pop();
    fixture.leaderboard_positions.pop();
    let mut session = session_of(&fixture, &[(Some(0), &[1.0])], 1);
    Arc::make_mut(&mut session.advertisement).session.locality = Locality::from_degrees(0.0, 80.0);
    let published = PublishedFloor { beacon_id: 0, steps: 1 };
    let excess = LeastPathExcess { near_ms: 0.0, light_ms: 0.0 };
    let published = PublishedVector::new(vec![published], NOW, LatencyTrust::Proven, excess);
    Arc::make_mut(&mut session.advertisement).session.set_published_beacon_vector(published);
    session.vector = Some(vector(&two_networks(), 0, 80.0));
    fixture.open_sessions = vec![session];
    assert_eq!(guests_of(&fixture), [vec![], vec![0]]);

    // Alone, the nearer one of the other network waits until the vectors end.
    fixture.tickets.remove(0);
    fixture.leaderboard_positions.pop();
    let report = fixture.run_pass().report;
    assert_eq!((report.proposed_ticket_count, report.next_change_at), (0, Some(NOW.plus_ms(5_000))));
    let refusal = Refusal::HardFilter { filter_index: 0, side: RefusingSide::Searcher };
    assert_eq!(report.unmatched[0].refusal, refusal);
    fixture.vectors.clear();
    assert_eq!(guests_of(&fixture), [vec![], vec![1]], "without a vector of its own it is let in by distance");
}

/// Open sessions are filled before new matches are made, with whole parties and by the same rules.
#[test]
fn backfill_runs_before_new_matches() {
    let mut fixture = filling(&[2, 2], QualitySpec::Any);
    fixture.add_ticket(&[10.0, 10.0], 9);
    fixture.add_ticket(&[10.0], 8);
    fixture.add_ticket(&[10.0], 7);
    fixture.open_sessions = vec![session_of(&fixture, &[(Some(0), &[10.0])], 3)];
    let outcome = fixture.run_pass();
    assert_eq!(outcome.proposals.len(), 1);
    assert_eq!(outcome.proposals[0].backfilled_session, Some(AdvertisementId::from_bytes([7; 16])));
    assert_eq!(joined(&outcome.proposals[0]), [vec![1], vec![0]]);
    assert_eq!(outcome.report.unmatched[0].ticket_id, ticket_id(2));
}

/// A guest who makes the teams uneven is refused, for any mean of the session; an even one joins the team with room.
#[test]
fn backfill_keeps_the_win_probability_of_a_new_match() {
    let nine = [(Some(0), &[30.0, 30.0, 30.0, 30.0, 30.0][..]), (Some(1), &[30.0, 30.0, 30.0, 30.0])];
    let mut fixture = filling(&[5, 5], EVEN);
    fixture.add_ticket(&[60.0], 9);
    fixture.open_sessions = vec![session_of(&fixture, &nine, 1)];
    assert_eq!((guests_of(&fixture), first_refusal(&fixture)), (vec![], Refusal::LowQuality));
    fixture.add_ticket(&[31.0], 8);
    assert_eq!(guests_of(&fixture), [vec![], vec![1]]);
    // Nothing is known of the players: only what is known counts.
    fixture.open_sessions[0].parties = [SeatedParty::new(Vec::new(), 9, None)].into();
    assert_eq!(guests_of(&fixture), [vec![], vec![0]], "a party of nine fits no team of five: its players count");
    fixture.open_sessions[0].parties = [SeatedParty::new(Vec::new(), 11, None)].into();
    assert_eq!(guests_of(&fixture), Vec::<Vec<u64>>::new(), "eleven are no two teams of five");
    fixture.open_sessions[0].parties = [5, 4].map(|count| SeatedParty::new(Vec::new(), count, None)).into();
    assert_eq!(guests_of(&fixture), [vec![], vec![0]]);
}

/// The team is part of the judgement: the same guest is good for one team and not for the other.
#[test]
fn backfill_chooses_the_team_for_which_the_match_is_even() {
    let mut fixture = filling(&[2, 2], QualitySpec::WinProbability { min_percent: 40.0, max_percent: 60.0 });
    fixture.add_ticket(&[40.0], 9);
    fixture.add_ticket(&[20.0], 8);
    fixture.open_sessions = vec![session_of(&fixture, &[(Some(0), &[40.0]), (Some(1), &[20.0])], 2)];
    assert_eq!(guests_of(&fixture), [vec![1], vec![0]]);
    // The weak team has no room for the strong guest: the host put its second player there.
    let full = [(Some(0), &[40.0][..]), (Some(1), &[20.0, 20.0])];
    fixture.open_sessions = vec![session_of(&fixture, &full, 1)];
    assert_eq!(guests_of(&fixture), Vec::<Vec<u64>>::new(), "neither guest makes it even");
    // Players whose team is unknown count as seated by the team split.
    let unseated = [(None, &[40.0][..]), (None, &[20.0]), (None, &[40.0])];
    fixture.open_sessions = vec![session_of(&fixture, &unseated, 1)];
    assert_eq!(guests_of(&fixture).concat(), [1]);
}

/// Open seats count as players of the mean rating, so that a session fills guest by guest also where strength is a sum.
#[test]
fn backfill_judges_a_session_as_if_it_were_full() {
    let trueskill = RatingSystem::TrueSkill { mu: 25.0, sigma: 8.0, beta: 4.0, tau: 0.0, draw_percent: 0.0 };
    for quality in [EVEN, QualitySpec::DrawProbability { threshold: 0.8 }] {
        let mut fixture = filling(&[3, 3], quality);
        fixture.ruleset.rating = Some(RatingSpec::with_defaults(trueskill));
        fixture.add_ticket(&[25.0], 9);
        let four = [(Some(0), &[25.0, 25.0][..]), (Some(1), &[25.0, 25.0])];
        fixture.open_sessions = vec![session_of(&fixture, &four, 2)];
        assert_eq!(guests_of(&fixture), [vec![0], vec![]]);
        // The second guest is judged with the first, whose match is only proposed.
        let five = [(Some(0), &[25.0, 25.0][..]), (Some(0), &[45.0]), (Some(1), &[25.0, 25.0])];
        fixture.open_sessions = vec![session_of(&fixture, &five, 1)];
        assert_eq!((guests_of(&fixture), first_refusal(&fixture)), (vec![], Refusal::LowQuality));
        fixture.add_ticket(&[45.0], 8);
        assert_eq!(guests_of(&fixture), [vec![], vec![1]]);
    }
}

/// The window is that of pairs: a session of mixed ratings is not reached by its mean.
#[test]
fn backfill_compares_windows_with_each_party() {
    let mut fixture = filling(&[2, 2], QualitySpec::Any);
    fixture.queue_mut().window = Some(RatingWindow { initial_half_width: 5, max_half_width: Some(5), ..UNIT_WINDOW });
    fixture.add_ticket(&[20.0], 9);
    fixture.open_sessions = vec![session_of(&fixture, &[(Some(0), &[10.0]), (Some(1), &[30.0])], 2)];
    assert_eq!((guests_of(&fixture), first_refusal(&fixture)), (vec![], Refusal::RatingWindow));
    fixture.open_sessions = vec![session_of(&fixture, &[(Some(0), &[17.0]), (Some(1), &[23.0])], 2)];
    assert_eq!(guests_of(&fixture).concat(), [0]);
}

/// Teammates who should be apart are: the guest joins the other team, or waits if it is full.
#[test]
fn backfill_keeps_players_apart_from_seated_teammates() {
    let mut fixture = filling(&[2, 2], QualitySpec::Any);
    fixture.queue_mut().avoid =
        [AvoidanceRule { whom: AvoidTarget::Blocked, how: AvoidStrictness::NotSameTeam }].into();
    fixture.add_ticket(&[10.0], 9);
    let mut blocking = (*fixture.tickets[0]).clone();
    blocking.blocked_users = vec![user_key(SEATED, 0)];
    fixture.tickets[0] = Arc::new(blocking);
    fixture.open_sessions = vec![session_of(&fixture, &[(Some(0), &[10.0]), (Some(1), &[10.0])], 2)];
    assert_eq!(guests_of(&fixture), [vec![], vec![0]]);
    fixture.open_sessions = vec![session_of(&fixture, &[(Some(0), &[10.0]), (Some(1), &[10.0, 10.0])], 1)];
    assert_eq!((guests_of(&fixture), first_refusal(&fixture)), (vec![], Refusal::NotEnoughSeats));
}

/// A seat offered beyond the teams of the ruleset is no seat.
#[test]
fn backfill_fills_no_more_than_the_teams() {
    let mut fixture = filling(&[1, 1], QualitySpec::Any);
    for number in 0..3 {
        fixture.add_ticket(&[10.0], 9 - number);
    }
    fixture.open_sessions = vec![session_of(&fixture, &[(None, &[10.0])], 10)];
    assert_eq!(guests_of(&fixture).concat(), [0]);
    fixture.open_sessions = vec![session_of(&fixture, &[(None, &[10.0]), (None, &[10.0]), (None, &[10.0])], 10)];
    assert_eq!(guests_of(&fixture), Vec::<Vec<u64>>::new());
}

/// A random queue, and a session with one open seat whose players are tickets that entered when it was advertised.
fn random_fill(seed: u64) -> (QueueFixture, Vec<Vec<PreparedTicket>>, u16) {
    let mut rng = SplitMix64(seed ^ 0xbac_f111);
    let mut fixture = random_queue_fixture(seed, 16);
    fixture.ruleset.hard_filters = Box::default();
    forbid_wishes(&mut fixture);
    let sizes: [&[u16]; 5] = [&[1, 1], &[2, 2], &[3, 2], &[5, 5], &[1, 1, 1]];
    fixture.set_team_sizes(pick_random(&mut rng, &sizes));
    let queue = fixture.queue_mut();
    (queue.backfill, queue.regions, queue.wait_bonus) = (true, None, None);
    if let QualitySpec::SoftScore { .. } = queue.quality {
        queue.quality = EVEN;
    }
    let sizes = fixture.ruleset.teams.as_ref().unwrap().team_sizes.clone();
    let open_team = random_below(&mut rng, sizes.len() as u64) as u16;
    let mut parties: Vec<(Option<u16>, Vec<f64>)> = Vec::new();
    for (team, &size) in (0_u16..).zip(&sizes) {
        let mut seats = size - u16::from(team == open_team);
        while seats > 0 {
            let party = if one_in(&mut rng, 3) { seats.min(2) } else { 1 };
            let ratings = (0..party).map(|_| 4.0 + random_below(&mut rng, 12) as f64 * 0.5).collect();
            parties.push((Some(team), ratings));
            seats -= party;
        }
    }
    let borrowed: Vec<(Option<u16>, &[f64])> = parties.iter().map(|(team, ratings)| (*team, &ratings[..])).collect();
    let mut session = session_of(&fixture, &borrowed, 1);
    for party in &mut session.parties {
        party.leaderboard_position = (!one_in(&mut rng, 12)).then(|| random_below(&mut rng, 30) as f64);
    }
    let since = session.advertisement.advertised_since;
    let mut seated: Vec<Vec<PreparedTicket>> = sizes.iter().map(|_| Vec::new()).collect();
    for (number, ((team, ratings), party)) in (SEATED..).zip(parties.iter().zip(&session.parties)) {
        let ticket: Ticket = new_ticket(number, ratings, since);
        let (ruleset, queue) = (&fixture.ruleset, fixture.ruleset.queue.as_ref().unwrap());
        let prepared = PreparedTicket::new(ruleset, queue, Arc::new(ticket), party.leaderboard_position);
        seated[usize::from(team.unwrap())].push(prepared);
    }
    fixture.open_sessions = vec![session];
    // Meetings of waiting players with those in the session: not among these, who are together anyway.
    let known: Vec<UserKey> = (0..16).map(|number| user_key(number, 0)).collect();
    let past_match = |rng: &mut SplitMix64| crate::queue::avoidance::PlayedPair {
        user: pick_random(rng, &known),
        other_user: user_key(SEATED + random_below(rng, 4), 0),
        same_team: one_in(rng, 2),
        started_at: UnixMs(NOW.0 - random_below(rng, 10) * 600_000),
    };
    fixture.past_matches =
        PastMatches::from_pairs_keeping_latest((0..8).map(|_| past_match(&mut rng)).collect::<Vec<_>>());
    (fixture, seated, open_team)
}

/// Whether a new match of the seated tickets and this one would pass, by the reference implementation.
fn new_match_passes(input: &PassInput<'_>, seated: &[Vec<PreparedTicket>], team: u16, guest: &PreparedTicket) -> bool {
    let mut teams: Vec<Vec<&PreparedTicket>> = seated.iter().map(|team| team.iter().collect()).collect();
    let pairs_pass = seated.iter().zip(0_u16..).all(|(tickets, its_team)| {
        tickets.iter().all(|other| {
            oracle::groups_may_meet(input, guest, other)
                && oracle::windows_may_meet(input, guest, other)
                && !oracle::is_avoided(input, guest, other, AvoidStrictness::Never)
                && !(its_team == team && oracle::is_avoided(input, guest, other, AvoidStrictness::NotSameTeam))
        })
    });
    teams[usize::from(team)].push(guest);
    let unknown_position = matches!(input.queue.quality, QualitySpec::LeaderboardGauss { .. })
        && seated.iter().flatten().any(|ticket| ticket.leaderboard_position.is_none());
    pairs_pass && (unknown_position || oracle::match_quality(input, &teams).passes)
}

/// The last seat goes to the longest waiting party with which a new match would pass, and to no other.
#[test]
fn backfill_lets_in_whom_a_new_match_would_have() {
    let (mut filled, mut refused) = (0, 0);
    for seed in 0..3_000 {
        let (fixture, seated, open_team) = random_fill(seed);
        fixture.with_input(&fixture.prepared_tickets(), |input| {
            let mut order: Vec<&PreparedTicket> = input.tickets.to_vec();
            order.sort_by_key(|it| (it.ticket.entered_at, it.ticket.id));
            let mut parties_of_one = order.iter().filter(|ticket| ticket.player_count == 1);
            let expected = parties_of_one.find(|guest| new_match_passes(input, &seated, open_team, guest));
            let outcome = pass::run_general_pass(input, 0, None);
            let found: Vec<_> = outcome
                .proposals
                .iter()
                .flat_map(|proposal| {
                    (0_u16..)
                        .zip(&proposal.teams)
                        .flat_map(|(team, tickets)| tickets.iter().map(move |it| (team, it.ticket_id)))
                })
                .collect();
            let wanted: Vec<_> = expected.iter().map(|guest| (open_team, guest.ticket.id)).collect();
            assert_eq!(found, wanted, "seed {seed}");
            filled += wanted.len();
            refused += usize::from(wanted.is_empty());
        });
    }
    assert!(filled > 300 && refused > 300, "{filled} {refused}");
}
