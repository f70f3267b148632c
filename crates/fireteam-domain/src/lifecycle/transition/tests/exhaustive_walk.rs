//! Exhaustive walk of the match state machine: from each reachable state of a small match, each event, at each time that
//! matters, with each outcome of the store.
//!
//! A state is the match as stored and the match as a server remembers it, which may be one change older. An event is decided
//! on the remembered match, as the queue writer does; then the store commits it, refuses it, or commits it without an answer.
//! A change that was decided on an old match is stale: the server reads the match and applies the event again. Times are
//! abstract: after each change the deadlines are moved to fixed times, and events happen before, at and after each of them.
//! So a state stands for all matches with the same order of deadlines.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::*;

/// Bound on the states of one kind of match.
const STATES_MAX: usize = 5_000;

/// Game servers that can be found.
const SERVERS: [u8; 2] = [1, 2];

/// Rules, and whether the match fills an existing session.
#[derive(Clone, Copy, Debug)]
struct Setting {
    rules: LifecycleRules,
    is_backfill: bool,
}

/// A state of the walk.
#[derive(Clone, Debug)]
struct State {
    stored: Match,
    /// Match in the server's memory; one change older than `stored` if the versions differ.
    remembered: Match,
    /// Fate of each ticket. `None`: in the match.
    fates: BTreeMap<TicketId, Option<TicketFate>>,
}

/// Counts of a walk.
#[derive(Debug, Default)]
struct Totals {
    states: usize,
    changes: usize,
    end_reasons: BTreeSet<String>,
    stages: BTreeSet<&'static str>,
    penalties: usize,
    stale: usize,
}

fn stage_name(found: &Match) -> &'static str {
    match found.stage {
        MatchStage::ReadyCheck { .. } => "ready check",
        MatchStage::Placing { .. } => "placing",
        MatchStage::Confirming { .. } => "confirming",
        MatchStage::Playing { .. } => "playing",
        MatchStage::Ended { .. } => "ended",
    }
}

/// The match with its deadlines at fixed times, so that matches with the same order of deadlines are equal.
fn with_fixed_times(found: &Match, version: u64) -> Match {
    let mut fixed = Match { version, proposed_at: START, ..found.clone() };
    for player in fixed.tickets.iter_mut().flat_map(|ticket| &mut ticket.players) {
        player.left_at = player.left_at.map(|_| START);
    }
    match &mut fixed.stage {
        MatchStage::ReadyCheck { deadline } => *deadline = START.plus_ms(READY_CHECK_MS),
        MatchStage::Placing { deadline } => *deadline = START.plus_ms(ALLOCATION_TIMEOUT_MS),
        MatchStage::Confirming { confirm_by, deadline, .. } => {
            let is_last = confirm_by >= deadline;
            *confirm_by = START.plus_ms(CONFIRM_MS);
            *deadline = if is_last { *confirm_by } else { START.plus_ms(ALLOCATION_TIMEOUT_MS) };
        }
        MatchStage::Playing { started_at, times_out_at, host_lost_at, .. } => {
            (*started_at, *times_out_at) = (START, START.plus_ms(MAX_MATCH_MS));
            *host_lost_at = host_lost_at.map(|_| START.plus_ms(HOST_LOSS_MS));
        }
        MatchStage::Ended { started_at, purge_at, .. } => {
            (*started_at, *purge_at) = (started_at.map(|_| START), START);
        }
    }
    fixed
}

impl State {
    /// State after a change, with fixed times. Versions only say whether the remembered match is older.
    fn fixed(stored: &Match, remembered: &Match, fates: BTreeMap<TicketId, Option<TicketFate>>) -> Self {
        let version = if stored.version == remembered.version { 1 } else { 2 };
        Self { stored: with_fixed_times(stored, version), remembered: with_fixed_times(remembered, 1), fates }
    }

    fn key(&self) -> String {
        format!("{self:?}")
    }

    fn is_final(&self) -> bool {
        self.stored.stage.end_reason().is_some()
    }
}

/// Times at which events can differ: early, and before and at each deadline of the stage; also at half of the wait.
fn times(found: &Match) -> BTreeSet<UnixMs> {
    let deadlines = match found.stage {
        MatchStage::ReadyCheck { deadline } => vec![deadline],
        MatchStage::Placing { deadline } => vec![UnixMs(deadline.0 - ALLOCATION_TIMEOUT_MS / 2), deadline],
        MatchStage::Confirming { confirm_by, deadline, .. } => {
            vec![
                confirm_by,
                UnixMs(deadline.0.max(START.0 + ALLOCATION_TIMEOUT_MS) - ALLOCATION_TIMEOUT_MS / 2),
                deadline,
            ]
        }
        MatchStage::Playing { times_out_at, host_lost_at, .. } => {
            host_lost_at.into_iter().chain([times_out_at]).collect()
        }
        MatchStage::Ended { .. } => Vec::new(),
    };
    deadlines.iter().flat_map(|at| [UnixMs(at.0 - 1), *at]).chain([START.plus_ms(1)]).collect()
}

/// Each event, as callers, timers and hosts send it at `now`.
fn events(found: &Match, now: UnixMs) -> Vec<MatchEvent> {
    let mut events = vec![
        MatchEvent::DeadlinePassed,
        MatchEvent::Cancelled,
        heard(now),
        MatchEvent::EndReported { reported_by: None },
        MatchEvent::EndReported { reported_by: Some(user_key(11)) },
        MatchEvent::EndReported { reported_by: Some(user_key(99)) },
        MatchEvent::PlayersLeft { ticket_id: ticket_id(7), users: Vec::new(), left_by: None },
    ];
    events
        .extend(found.stage.assignment_since_confirming().map(|host| MatchEvent::ServerFailed { host: host.clone() }));
    events.extend(SERVERS.iter().map(|server| failed_host(*server)));
    for (ticket, users) in [(1, &[11][..]), (1, &[12]), (1, &[11, 12]), (2, &[21]), (2, &[11])] {
        events.extend([true, false].map(|accepted| response(ticket, users, accepted)));
        let users: Vec<UserKey> = users.iter().map(|user| user_key(*user)).collect();
        // A caller that answers for all whom it entered, and the leader of the party, user 11.
        for left_by in [None, Some(user_key(11)).filter(|_| ticket == 1)] {
            events.push(MatchEvent::PlayersLeft { ticket_id: ticket_id(ticket), users: users.clone(), left_by });
        }
        if ticket == 1 {
            let (ticket_id, answered_by) = (ticket_id(1), Some(user_key(11)));
            events.push(MatchEvent::Responded { ticket_id, users, accepted: false, answered_by });
        }
    }
    for ticket in [1, 2] {
        let id = ticket_id(ticket);
        events.push(MatchEvent::PlayersLeft { ticket_id: id, users: Vec::new(), left_by: None });
        for reason in [TicketEndReason::EndedByServer, TicketEndReason::Expired] {
            events.push(MatchEvent::TicketWithdrawn { ticket_id: id, reason });
        }
    }
    let is_unasked =
        |server: &&u8| !found.servers_that_did_not_confirm.contains(&AdvertisementId::from_bytes([**server; 16]));
    events.extend(SERVERS.iter().filter(is_unasked).map(|server| MatchEvent::ServerFound(game_server(*server))));
    events
}

/// Tickets that were silent for too long: none, each, and both. And a match that two of its players were not told of.
fn silences() -> [Facts; 5] {
    let [none, one, two, both] = [vec![], vec![1], vec![2], vec![1, 2]]
        .map(|expired| Facts { expired: expired.into_iter().map(ticket_id).collect(), ..Facts::default() });
    [none, one, two, both, Facts { untold: vec![user_key(12), user_key(21)], ..Facts::default() }]
}

/// Whether a user caused what they are penalized for by `event`: by an answer of their own client, or by silence with the
/// chance to answer.
fn is_cause(user: UserKey, before: &Match, event: &MatchEvent, facts: &Facts) -> bool {
    let players = || before.tickets.iter().flat_map(|ticket| &ticket.players);
    match event {
        MatchEvent::Responded { accepted, answered_by: Some(answered_by), .. } => !accepted && user == *answered_by,
        MatchEvent::Responded { users, accepted, answered_by: None, .. } => !accepted && users.contains(&user),
        MatchEvent::PlayersLeft { left_by: Some(left_by), .. } => user == *left_by,
        MatchEvent::PlayersLeft { ticket_id, users, left_by: None } => {
            let ticket = before.tickets.iter().find(|ticket| ticket.ticket_id == *ticket_id).expect("a ticket");
            let is_member = ticket.players.iter().any(|player| player.user == user && player.left_at.is_none());
            is_member && (users.is_empty() || users.contains(&user))
        }
        MatchEvent::DeadlinePassed => match &before.stage {
            MatchStage::ReadyCheck { .. } => {
                let was_told = !facts.untold.contains(&user);
                was_told && players().any(|player| player.user == user && player.accepted != Some(true))
            }
            // A player who hosts was not heard.
            MatchStage::Playing { assignment: Assignment::PeerHost { host }, .. } => {
                players().any(|player| player.user == user && player.client == *host)
            }
            _ => false,
        },
        _ => false,
    }
}

/// Checks one change, and returns the fates of the tickets after it.
fn check_change(
    setting: &Setting,
    (before, event, facts): (&Match, &MatchEvent, &Facts),
    (state, transition): (&State, &Transition),
    now: UnixMs,
) -> BTreeMap<TicketId, Option<TicketFate>> {
    let next = transition.next_match.as_ref().expect("changed");
    let context = || format!("{event:?} at {now:?} on {before:?}: {transition:?}");
    assert_eq!(next.version, before.version + 1, "versions grow by one: {}", context());
    assert!(before.stage.end_reason().is_none(), "an ended match changes: {}", context());
    let mut fates = state.fates.clone();
    for (id, fate) in &transition.ticket_fates {
        let previous = fates.insert(*id, Some(*fate)).expect("a ticket of the match");
        assert_eq!(previous, None, "a ticket leaves the match once: {}", context());
    }
    for ticket in &next.tickets {
        let has_players = ticket.players.iter().any(|player| player.left_at.is_none());
        let is_in_match = next.stage.end_reason().is_none() && has_players;
        assert_eq!(fates[&ticket.ticket_id].is_none(), is_in_match, "each ticket is in one state: {}", context());
        if fates[&ticket.ticket_id] == Some(TicketFate::Requeued) {
            assert!(
                ticket.players.iter().all(|player| player.left_at.is_none()),
                "who left waits again: {}",
                context()
            );
        }
    }
    let mut penalized = BTreeSet::new();
    for user in &transition.penalized_users {
        assert!(penalized.insert(*user), "penalized twice: {}", context());
        assert!(setting.rules.ready_check_ms.is_some(), "penalized without a ready check: {}", context());
        assert!(is_cause(*user, before, event, facts), "penalized for what others did: {}", context());
    }
    fates
}

/// Each player who is still in the match can leave it now, alone and with the party, and is free then.
fn check_ways_out(setting: &Setting, state: &State) {
    for now in times(&state.stored) {
        for (ticket, player) in state.stored.present_players() {
            for users in [vec![player.user], Vec::new()] {
                let event = MatchEvent::PlayersLeft { ticket_id: ticket.ticket_id, users, left_by: None };
                let left = apply_event(&setting.rules, &state.stored, event, &NO_FACTS, now);
                let next = left.next_match.unwrap_or_else(|| panic!("{:?} cannot leave: {state:?}", player.user));
                let is_free = next.stage.end_reason().is_some()
                    || next.present_players().all(|(_, present)| present.user != player.user);
                assert!(is_free, "{:?} has left and is not free: {state:?}", player.user);
            }
        }
    }
}

/// Deadlines alone end each match, so no player has to act.
fn check_deadlines_end_it(setting: &Setting, state: &State) {
    let mut current = state.stored.clone();
    for _ in 0..8 {
        let Some(deadline) = current.stage.deadline() else { return };
        let passed = apply_event(&setting.rules, &current, MatchEvent::DeadlinePassed, &NO_FACTS, deadline);
        current = passed.next_match.unwrap_or_else(|| panic!("the deadline has no effect: {current:?}"));
    }
    panic!("deadlines do not end it: {state:?}");
}

/// Applies an event as the queue writer does, and returns each next state.
fn next_states(
    setting: &Setting,
    state: &State,
    (event, facts, now): (&MatchEvent, &Facts, UnixMs),
    totals: &mut Totals,
) -> Vec<State> {
    let apply = |to: &Match| apply_event(&setting.rules, to, event.clone(), facts, now);
    let mut decided_on = &state.remembered;
    let mut transition = apply(decided_on);
    if transition.next_match.as_ref().is_some_and(|next| next.version != state.stored.version + 1) {
        // Stale: the server reads the stored match and applies the event again.
        totals.stale += 1;
        decided_on = &state.stored;
        transition = apply(decided_on);
    }
    let Some(next) = transition.next_match.clone() else {
        assert!(
            transition.ticket_fates.is_empty() && transition.penalized_users.is_empty(),
            "{event:?}: {transition:?}"
        );
        return Vec::new();
    };
    let fates = check_change(setting, (decided_on, event, facts), (state, &transition), now);
    totals.changes += 1;
    totals.penalties += transition.penalized_users.len();
    // The commit's outcome is unknown: the caller repeats the event, on the old match and then on the stored one.
    let repeated = apply(&next);
    if repeated.result == EventResult::Changed {
        let may_change_again = matches!(event, MatchEvent::DeadlinePassed | MatchEvent::TicketWithdrawn { .. });
        assert!(may_change_again, "{event:?} has two effects: {next:?}");
    }
    assert_eq!(repeated.penalized_users, [], "{event:?} penalizes twice: {next:?}");
    // Committed; refused, after the server has read the match; committed without an answer, or by another server.
    vec![
        State::fixed(&next, &next, fates.clone()),
        State::fixed(&state.stored, &state.stored, state.fates.clone()),
        State::fixed(&next, decided_on, fates),
    ]
}

fn walk(setting: &Setting, totals: &mut Totals) {
    let backfilled_session = setting.is_backfill.then(|| AdvertisementId::from_bytes([5; 16]));
    let proposal = NewMatch { backfilled_session, ..two_tickets() };
    let first = create_match(&setting.rules, proposal, &NO_FACTS, START).next_match.expect("a match");
    let fates = first.tickets.iter().map(|ticket| (ticket.ticket_id, None)).collect();
    let first = State::fixed(&first, &first, fates);
    let mut seen = BTreeSet::from([first.key()]);
    let mut queue = VecDeque::from([first]);
    while let Some(state) = queue.pop_front() {
        totals.stages.insert(stage_name(&state.stored));
        totals.end_reasons.extend(state.stored.stage.end_reason().map(|reason| format!("{reason:?}")));
        if !state.is_final() {
            check_ways_out(setting, &state);
            check_deadlines_end_it(setting, &state);
        }
        let all_times: BTreeSet<UnixMs> = times(&state.remembered).into_iter().chain(times(&state.stored)).collect();
        for now in all_times {
            for facts in silences() {
                for event in events(&state.remembered, now) {
                    for next in next_states(setting, &state, (&event, &facts, now), totals) {
                        if seen.insert(next.key()) {
                            queue.push_back(next);
                        }
                    }
                }
            }
        }
        assert!(seen.len() <= STATES_MAX, "more than {STATES_MAX} states: {setting:?}");
    }
    totals.states += seen.len();
}

/// Each event in each reachable state, with each outcome of the store: versions grow by one, a ticket is in one state, only who
/// caused a failure is penalized, and each player has a way out.
#[test]
fn match_state_machine_keeps_its_promises_in_every_state() {
    let mut totals = Totals::default();
    for mode in [HostingMode::GameServer, HostingMode::Peer, HostingMode::None] {
        for ready_check_ms in [Some(READY_CHECK_MS as u32), None] {
            for hosts_confirm in [true, false] {
                for is_backfill in [false, true] {
                    let rules = LifecycleRules { hosts_confirm, ..lifecycle_rules(ready_check_ms, mode) };
                    walk(&Setting { rules, is_backfill }, &mut totals);
                }
            }
        }
    }
    println!("{totals:?}");
    assert_eq!(totals.stages.len(), 5, "each stage is reached: {totals:?}");
    assert_eq!(totals.end_reasons.len(), 9, "each end is reached: {totals:?}");
    assert!(totals.penalties > 0 && totals.stale > 0, "{totals:?}");
}
