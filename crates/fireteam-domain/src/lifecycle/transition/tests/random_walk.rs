//! Random event sequences on several matches: a ticket is always in exactly one state, and none is lost.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// State of a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TicketPlace {
    Waiting,
    InMatch(u8),
    Ended(TicketEndReason),
}

struct LifecycleFixture {
    rules: LifecycleRules,
    now: UnixMs,
    /// By the first byte of their ids.
    tickets: BTreeMap<u8, (MatchTicket, TicketPlace)>,
    matches: BTreeMap<u8, Match>,
    /// Reservations held on game servers.
    held_reservations: Vec<ReservationId>,
}

impl LifecycleFixture {
    fn new(rules: LifecycleRules, tickets: u8) -> Self {
        let entry = |n: u8| {
            (n, (match_ticket(n, u64::from(n), &[2 * n, 2 * n + 1][..1 + usize::from(n % 2)]), TicketPlace::Waiting))
        };
        let tickets = (0..tickets).map(entry).collect();
        Self { rules, now: START, tickets, matches: BTreeMap::new(), held_reservations: Vec::new() }
    }

    fn waiting_tickets(&self) -> Vec<u8> {
        self.tickets.iter().filter(|(_, (_, at))| *at == TicketPlace::Waiting).map(|(n, _)| *n).collect()
    }

    fn propose(&mut self, id: u8) {
        let chosen: Vec<u8> = self.waiting_tickets().into_iter().take(2).collect();
        if chosen.len() < 2 || self.matches.contains_key(&id) {
            return;
        }
        let tickets = chosen.iter().map(|n| self.tickets[n].0.clone()).collect();
        let transition = create_match(
            &self.rules,
            NewMatch { id: MatchId::from_bytes([id; 16]), ..new_match(tickets) },
            &NO_FACTS,
            self.now,
        );
        for n in chosen {
            self.tickets.get_mut(&n).unwrap().1 = TicketPlace::InMatch(id);
        }
        self.apply_transition(id, 0, transition);
    }

    fn apply_to_match(&mut self, id: u8, event: MatchEvent) {
        let Some(current) = self.matches.get(&id).cloned() else { return };
        if let MatchEvent::ServerFound(Assignment::GameServer { reservation: Some(reservation), .. }) = &event
            && !self.held_reservations.contains(reservation)
        {
            self.held_reservations.push(*reservation);
        }
        let transition = apply_event(&self.rules, &current, event, &NO_FACTS, self.now);
        self.apply_transition(id, current.version, transition);
    }

    fn apply_transition(&mut self, id: u8, version: u64, transition: Transition) {
        for effect in &transition.effects {
            if let MatchEffect::ReleaseReservation { reservation, .. } = effect {
                self.held_reservations.retain(|held| held != reservation);
            }
        }
        assert_eq!(transition.next_match.is_some(), transition.result == EventResult::Changed);
        let Some(next) = transition.next_match else {
            assert_eq!(
                (transition.ticket_fates, transition.penalized_users),
                (vec![], vec![]),
                "{:?}",
                transition.result
            );
            return;
        };
        assert_eq!(next.version, version + 1);
        let ended = matches!(next.stage, MatchStage::Ended { .. });
        let in_match = self.tickets.values().filter(|(_, state)| *state == TicketPlace::InMatch(id)).count();
        assert!(!ended || transition.ticket_fates.len() == in_match, "{:?}", transition.ticket_fates);
        for (ticket_id, fate) in &transition.ticket_fates {
            let (ticket, state) = self.tickets.get_mut(&ticket_id.as_bytes()[0]).unwrap();
            assert_eq!(*state, TicketPlace::InMatch(id), "a transition for a ticket of another match");
            let in_match = next.tickets.iter().find(|it| it.ticket_id == *ticket_id).unwrap();
            assert_eq!(
                (in_match.entered_at, in_match.players.len()),
                (ticket.entered_at, ticket.players.len()),
                "wait and players are unchanged"
            );
            *state = match fate {
                TicketFate::Requeued => {
                    assert!(in_match.players.iter().all(|player| player.left_at.is_none()), "an incomplete party");
                    TicketPlace::Waiting
                }
                TicketFate::Ended(reason) => TicketPlace::Ended(*reason),
            };
        }
        let was_playing = self.matches.get(&id).is_some_and(|it| matches!(it.stage, MatchStage::Playing { .. }));
        for user in transition.penalized_users.iter().filter(|_| !was_playing) {
            let owner =
                self.tickets.values().find(|(ticket, _)| ticket.players.iter().any(|player| player.user == *user));
            assert!(
                matches!(
                    owner,
                    Some((
                        _,
                        TicketPlace::Ended(
                            TicketEndReason::Declined | TicketEndReason::NotAcceptedInTime | TicketEndReason::Left
                        )
                    ))
                ),
                "{owner:?}"
            );
        }
        self.matches.insert(id, next);
        self.check_invariants();
    }

    /// A ticket in a match is in exactly one active match, which at least one of its players has not left; any other
    /// ticket is in none.
    fn check_invariants(&self) {
        let is_active = |current: &&Match| !matches!(current.stage, MatchStage::Ended { .. });
        for (n, (_, state)) in &self.tickets {
            let active_matches: Vec<u8> = self
                .matches
                .values()
                .filter(is_active)
                .filter(|current| current.present_players().any(|(it, _)| it.ticket_id == ticket_id(*n)))
                .map(|current| current.id.as_bytes()[0])
                .collect();
            let expected = if let TicketPlace::InMatch(id) = state { vec![*id] } else { vec![] };
            assert_eq!(active_matches, expected, "ticket {n} is {state:?}");
        }
    }

    /// Runs one randomly generated action.
    fn run_random_action(&mut self, (kind, match_id, detail, delay_ms): (u8, u8, u8, u64)) {
        self.now = self.now.plus_ms(delay_ms);
        let random_ticket = |fixture: &Self| {
            let tickets = fixture.matches.get(&match_id).map(|current| current.tickets.clone()).unwrap_or_default();
            tickets.get(usize::from(detail) % tickets.len().max(1)).cloned()
        };
        match (kind, random_ticket(self)) {
            (0..=3, _) => self.propose(match_id),
            (4..=11, Some(ticket)) => {
                let users =
                    ticket.players.iter().map(|player| player.user).take(1 + usize::from(detail / 64)).collect();
                self.apply_to_match(
                    match_id,
                    MatchEvent::Responded {
                        ticket_id: ticket.ticket_id,
                        users,
                        accepted: kind != 11,
                        answered_by: None,
                    },
                );
            }
            (12, _) => self.apply_to_match(match_id, MatchEvent::DeadlinePassed),
            (13 | 14, _) => self.apply_to_match(match_id, MatchEvent::ServerFound(game_server(detail))),
            (15, _) => {
                let current = self.matches.get(&match_id);
                let host = current.and_then(|current| current.stage.assignment_since_confirming()).cloned();
                let host = host.unwrap_or_else(|| game_server(detail));
                self.apply_to_match(match_id, MatchEvent::ServerFailed { host });
            }
            (16, _) => self.apply_to_match(match_id, MatchEvent::EndReported { reported_by: None }),
            (17, _) => self.apply_to_match(match_id, MatchEvent::Cancelled),
            (18, Some(ticket)) => self.apply_to_match(
                match_id,
                MatchEvent::TicketWithdrawn { ticket_id: ticket.ticket_id, reason: TicketEndReason::Expired },
            ),
            (19 | 20, Some(ticket)) => {
                let users = ticket.players.iter().map(|player| player.user).take(usize::from(detail % 3)).collect();
                self.apply_to_match(
                    match_id,
                    MatchEvent::PlayersLeft { ticket_id: ticket.ticket_id, users, left_by: None },
                );
            }
            (21 | 22, _) => self.apply_to_match(match_id, heard(self.now)),
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// S0-21, S0-22: for any order of events, a ticket waits, is in exactly one match, or has ended. After all
    /// deadlines, no ticket is in a match and no reservation is held.
    #[test]
    fn random_events_never_lose_a_ticket(
        ready_check_ms in proptest::option::of(Just(READY_CHECK_MS as u32)),
        mode in prop_oneof![Just(HostingMode::GameServer), Just(HostingMode::Peer), Just(HostingMode::None)],
        actions in proptest::collection::vec((0_u8..23, 0_u8..12, any::<u8>(), 0_u64..8_000), 1..300),
    ) {
        let mut fixture = LifecycleFixture::new(lifecycle_rules(ready_check_ms, mode), 30);
        for action in actions {
            fixture.run_random_action(action);
        }
        for _ in 0..4 {
            fixture.now = fixture.now.plus_ms(2 * MAX_MATCH_MS);
            for id in fixture.matches.keys().copied().collect::<Vec<_>>() {
                fixture.apply_to_match(id, MatchEvent::DeadlinePassed);
            }
        }
        prop_assert!(fixture.tickets.values().all(|(_, at)| !matches!(at, TicketPlace::InMatch(_))));
        prop_assert_eq!(fixture.tickets.len(), 30);
        prop_assert_eq!(&fixture.held_reservations, &[] as &[ReservationId]);
    }
}
