//! The log against its definition: the past matches rebuilt from all stored matches.

use super::*;
use crate::id::{RulesetHash, SetId, SiloId, TicketId};
use crate::lifecycle::side_reports::SideReports;
use crate::lifecycle::{Assignment, MatchEndReason, MatchPlayer, MatchTicket};
use crate::queue::avoidance::{AvoidanceReasons, AvoidanceSide, next_recency_end};
use crate::queue::rng::SplitMix64;
use crate::ruleset::queue::{AvoidStrictness, AvoidTarget};

const USERS: u64 = 12;

fn user(number: u64) -> UserKey {
    UserKey::from_bytes(u128::from(number + 1).to_le_bytes())
}

fn below(rng: &mut SplitMix64, limit: u64) -> u64 {
    rng.next_u64() % limit
}

/// Match of these users, one ticket each, in the teams given with them.
fn playing_match(number: u64, users: &[(u64, u16)], started_at: UnixMs) -> Match {
    let ticket = |&(number, team): &(u64, u16)| MatchTicket {
        ticket_id: TicketId::from_bytes(u128::from(number).to_le_bytes()),
        entered_at: UnixMs(1),
        team,
        players: vec![MatchPlayer {
            user: user(number),
            client: user(number),
            role: None,
            accepted: None,
            left_at: None,
        }],
    };
    Match {
        id: MatchId::from_bytes(u128::from(number).to_le_bytes()),
        set_id: SetId(1),
        silo: SiloId(1),
        ruleset_hash: RulesetHash(1),
        proposed_at: started_at,
        version: 1,
        stage: MatchStage::Playing {
            assignment: Assignment::Unhosted,
            started_at,
            times_out_at: UnixMs(u64::MAX),
            host_lost_at: None,
        },
        tickets: users.iter().map(ticket).collect(),
        quality: 0.0,
        region: None,
        backfilled_session: None,
        chosen_values: chosen_for(number),
        bots_by_team: Box::default(),
        worst_pair: None,
        session_match_start_by_host: None,
        servers_that_did_not_confirm: Vec::new(),
        side_reports: SideReports::default(),
        kept_skills_of_erased_users: Vec::new(),
    }
}

/// One of three maps, or none.
fn chosen_for(number: u64) -> Box<[ChosenValue]> {
    let map = ["atlas", "bay", "cove"].get((number % 4) as usize);
    map.map(|&map| ChosenValue { attribute: "maps".into(), value: map.into() }).into_iter().collect()
}

fn end_match(current: &mut Match, is_played: bool, purge_at: UnixMs) {
    current.stage = MatchStage::Ended {
        end_reason: if is_played { MatchEndReason::Played } else { MatchEndReason::ServerFailed },
        started_at: current.stage.started_at().filter(|_| is_played),
        assignment: None,
        purge_at,
    };
}

/// One random change of the stored matches, applied to the log as well.
fn change_at_random(rng: &mut SplitMix64, stored: &mut Vec<Match>, log: &mut PastMatchLog, now: UnixMs) {
    let index = below(rng, stored.len().max(1) as u64) as usize;
    match below(rng, 8) {
        0..4 => {
            let size = 2 + below(rng, 4);
            let first = below(rng, USERS);
            let users: Vec<(u64, u16)> =
                (0..size).map(|offset| ((first + offset * 5) % USERS, below(rng, 2) as u16)).collect();
            let started = playing_match(rng.next_u64(), &users, UnixMs(now.0 - below(rng, 3)));
            log.record_match_state(&started);
            stored.push(started);
        }
        4 | 5 => {
            if let Some(current) = stored.get_mut(index) {
                end_match(current, below(rng, 4) > 0, now.plus_ms(below(rng, 50)));
                log.record_match_state(current);
                // A change is delivered twice.
                log.record_match_state(current);
            }
        }
        6 => {
            let is_purged =
                |current: &Match| matches!(current.stage, MatchStage::Ended { purge_at, .. } if purge_at <= now);
            stored.retain(|current| !is_purged(current));
            log.remove_matches_due_for_purge(now);
        }
        _ => {
            let newer_than = UnixMs(now.0 - below(rng, 20));
            let listed: BTreeSet<MatchId> =
                stored.iter().filter(|_| below(rng, 3) > 0).map(|current| current.id).collect();
            stored.retain(|current| newer_than <= current.proposed_at || listed.contains(&current.id));
            log.remove_unlisted_older_than(&listed, newer_than);
        }
    }
}

/// After each change, the log gives the same recent matches of all pairs of waiting users as a rebuild from the stored matches,
/// while users come and go, passes keep what they got, and rules change.
#[test]
fn past_match_log_equals_a_rebuild_from_all_matches() {
    for seed in 0..60 {
        let mut rng = SplitMix64(seed);
        let (mut stored, mut log) = (Vec::new(), PastMatchLog::default());
        let mut waiting: Vec<u64> = (0..USERS).collect();
        let mut rules = rules(30);
        let mut running_pass = None;
        for step in 0..120 {
            let now = UnixMs(1_000 + step * 3);
            change_at_random(&mut rng, &mut stored, &mut log, now);
            let expected = PastMatches::from_pairs_keeping_latest(stored.iter().flat_map(Match::played_pairs));
            if below(&mut rng, 2) == 0 {
                waiting = (0..USERS).filter(|_| below(&mut rng, 4) > 0).collect();
            }
            if below(&mut rng, 20) == 0 {
                rules = self::rules([10, 30, 100][below(&mut rng, 3) as usize]);
            }
            let users = || waiting.iter().map(|&number| user(number));
            assert_eq!(log.values_played_by(users()), plays_of(&stored, users()), "seed {seed}, step {step}");
            let actual = log.recent_meetings_among(waiting.iter().map(|&number| user(number)), &rules, now);
            if below(&mut rng, 3) == 0 {
                running_pass = Some((actual.clone(), actual.pairs().collect::<Vec<_>>()));
            }
            for (one, other) in waiting.iter().flat_map(|&one| waiting.iter().map(move |&other| (one, other))) {
                let (one, other) = ([user(one)], [user(other)]);
                let side = |users| AvoidanceSide { users, blocked_users: &[] };
                let recent_starts = |past_matches| {
                    let reasons = AvoidanceReasons::between(past_matches, side(&one), side(&other));
                    rules.map(|rule| reasons.applicable_reason_of_kind(rule.whom, now))
                };
                assert_eq!(
                    recent_starts(&actual),
                    recent_starts(&expected),
                    "seed {seed}, step {step}, {one:?} and {other:?}"
                );
            }
            let is_waiting = |key: UserKey| waiting.iter().any(|&number| user(number) == key);
            assert!(
                actual.pairs().all(|it| is_waiting(it.user) && is_waiting(it.other_user)),
                "seed {seed}, step {step}: {actual:?}"
            );
            if let Some((past_matches, pairs)) = &running_pass {
                assert_eq!(&past_matches.pairs().collect::<Vec<_>>(), pairs, "seed {seed}, step {step}");
            }
            let (actual, expected) = (next_recency_end(&rules, &actual, now), next_recency_end(&rules, &expected, now));
            // An earlier match of a pair may end the wait for nothing; the latest is never missed.
            assert_eq!(actual.is_some(), expected.is_some(), "seed {seed}, step {step}");
            assert!(actual <= expected, "seed {seed}, step {step}: {actual:?}, {expected:?}");
            let is_empty = stored.iter().all(|current| current.stage.started_at().is_none());
            assert_eq!(log.is_empty(), is_empty, "seed {seed}, step {step}");
        }
    }
}

/// Values that `users` played in these matches.
fn plays_of(stored: &[Match], users: impl Iterator<Item = UserKey>) -> PlayedValues {
    let users: Vec<UserKey> = users.collect();
    let started = stored.iter().filter_map(|current| Some((current, current.stage.started_at()?)));
    let plays = started.flat_map(|(current, started_at)| {
        let players = current.tickets.iter().flat_map(|ticket| &ticket.players).map(|player| player.user);
        players.flat_map(move |user| current.chosen_values.iter().map(move |value| (user, value.clone(), started_at)))
    });
    PlayedValues::from_plays_keeping_latest(plays.filter(|(user, ..)| users.contains(user)))
}

fn rules(opponents_recent_ms: u64) -> [AvoidanceRule; 3] {
    [
        AvoidanceRule {
            whom: AvoidTarget::RecentOpponents { recent_ms: opponents_recent_ms },
            how: AvoidStrictness::Never,
        },
        AvoidanceRule { whom: AvoidTarget::RecentTeammates { recent_ms: 70 }, how: AvoidStrictness::NotSameTeam },
        AvoidanceRule { whom: AvoidTarget::Blocked, how: AvoidStrictness::Never },
    ]
}

/// Nothing remains of removed matches, so that the memory does not grow.
#[test]
fn past_match_log_keeps_nothing_of_removed_matches() {
    let mut log = PastMatchLog::default();
    for number in 0..20 {
        let mut played = playing_match(number, &[(number, 0), (number + 1, 0), (number + 2, 1)], UnixMs(100 + number));
        log.record_match_state(&played);
        end_match(&mut played, true, UnixMs(200 + number));
        log.record_match_state(&played);
    }
    let met = log.recent_meetings_among([user(1), user(2)], &rules(1_000), UnixMs(250));
    assert!(met.last_started_at(user(1), user(2), true).is_some());
    log.remove_matches_due_for_purge(UnixMs(300));
    assert!(log.recent_meetings_among([user(1), user(2)], &rules(1_000), UnixMs(300)).is_empty());
    assert!(log.recent_meetings_among([], &rules(1_000), UnixMs(300)).is_empty() && log.waiting.is_empty());
    assert!(log.matches.is_empty() && log.meetings_by_user.is_empty() && log.purge_order.is_empty());
    assert!(log.match_counts_by_start.iter().all(BTreeMap::is_empty) && log.plays_by_user.is_empty());
}

/// A running pass reads the state at its start, although a match starts meanwhile.
#[test]
fn past_match_log_changes_do_not_reach_a_running_pass() {
    let rules = [AvoidanceRule { whom: AvoidTarget::RecentOpponents { recent_ms: 30 }, how: AvoidStrictness::Never }];
    let mut log = PastMatchLog::default();
    log.record_match_state(&playing_match(1, &[(1, 0), (2, 1)], UnixMs(100)));
    let before = log.recent_meetings_among([user(1), user(2)], &rules, UnixMs(110));
    log.record_match_state(&playing_match(2, &[(1, 0), (2, 1)], UnixMs(105)));
    assert_eq!(before.last_started_at(user(1), user(2), false), Some(UnixMs(100)));
    let after = log.recent_meetings_among([user(1), user(2)], &rules, UnixMs(110));
    assert_eq!(after.last_started_at(user(2), user(1), false), Some(UnixMs(105)));
}
