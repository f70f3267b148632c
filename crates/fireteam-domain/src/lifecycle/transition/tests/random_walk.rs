//! Long random lives of many matches at once: a ticket is always in exactly one place, and nobody is lost.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Where a ticket is. There is no other place.
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
    /// Seats that somebody holds on servers.
    held_reservations: Vec<ReservationId>,
}

impl LifecycleFixture {
    fn new(rules: LifecycleRules, tickets: u8) -> Self {
        let alone = |n: u8| {
            (n, (match_ticket(n, u64::from(n), &[2 * n, 2 * n + 1][..1 + usize::from(n % 2)]), TicketPlace::Waiting))
        };
        let tickets = (0..tickets).map(alone).collect();
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
        let members = chosen.iter().map(|n| self.tickets[n].0.clone()).collect();
        let step = create_match(
            &self.rules,
            NewMatch { id: MatchId::from_bytes([id; 16]), ..new_match(members) },
            &no_open_nat,
            self.now,
        );
        for n in chosen {
            self.tickets.get_mut(&n).unwrap().1 = TicketPlace::InMatch(id);
        }
        self.apply_transition(id, 0, step);
    }

    fn apply_to_match(&mut self, id: u8, event: MatchEvent) {
        let Some(play) = self.matches.get(&id).cloned() else { return };
        if let MatchEvent::ServerFound(Assignment::GameServer { reservation, .. }) = &event
            && !self.held_reservations.contains(reservation)
        {
            self.held_reservations.push(*reservation);
        }
        let step = apply_event(&self.rules, &play, event, &no_open_nat, self.now);
        self.apply_transition(id, play.version, step);
    }

    fn apply_transition(&mut self, id: u8, edition: u64, step: Transition) {
        for effect in &step.effects {
            if let MatchEffect::ReleaseReservation { reservation, .. } = effect {
                self.held_reservations.retain(|held| held != reservation);
            }
        }
        assert_eq!(step.next_match.is_some(), step.result == EventResult::Changed);
        let Some(next) = step.next_match else {
            assert_eq!((step.ticket_fates, step.penalized_users), (vec![], vec![]), "{:?}", step.result);
            return;
        };
        assert_eq!(next.version, edition + 1);
        let over = matches!(next.stage, MatchStage::Ended { .. });
        assert_eq!(step.ticket_fates.len(), if over { next.tickets.len() } else { 0 });
        for (ticket, fate) in &step.ticket_fates {
            let (member, at) = self.tickets.get_mut(&ticket.as_bytes()[0]).unwrap();
            assert_eq!(*at, TicketPlace::InMatch(id), "a fate for a ticket that is elsewhere");
            let played = next.tickets.iter().find(|it| it.ticket_id == *ticket).unwrap();
            assert_eq!(
                (played.entered_at, played.players.len()),
                (member.entered_at, member.players.len()),
                "its wait is kept"
            );
            *at = match fate {
                TicketFate::Requeued => TicketPlace::Waiting,
                TicketFate::Ended(how) => TicketPlace::Ended(*how),
            };
        }
        for user in &step.penalized_users {
            let theirs = self.tickets.values().find(|(member, _)| member.players.iter().any(|seat| seat.user == *user));
            assert!(
                matches!(
                    theirs,
                    Some((
                        _,
                        TicketPlace::Ended(
                            TicketEndReason::Declined | TicketEndReason::NotAcceptedInTime | TicketEndReason::Left
                        )
                    ))
                ),
                "{theirs:?}"
            );
        }
        self.matches.insert(id, next);
        self.check_invariants();
    }

    /// Who is in a match is in that match, and in no other that is not over.
    fn check_invariants(&self) {
        let live = |play: &&Match| !matches!(play.stage, MatchStage::Ended { .. });
        for (n, (_, at)) in &self.tickets {
            let in_them: Vec<u8> = self
                .matches
                .values()
                .filter(live)
                .filter(|play| play.tickets.iter().any(|it| it.ticket_id == ticket_id(*n)))
                .map(|play| play.id.as_bytes()[0])
                .collect();
            let expected = if let TicketPlace::InMatch(id) = at { vec![*id] } else { vec![] };
            assert_eq!(in_them, expected, "ticket {n} is {at:?}");
        }
    }

    /// What the dice say happens.
    fn run_random_action(&mut self, (kind, which, detail, later): (u8, u8, u8, u64)) {
        self.now = self.now.plus_ms(later);
        let member = |world: &Self| {
            let members = world.matches.get(&which).map(|play| play.tickets.clone()).unwrap_or_default();
            members.get(usize::from(detail) % members.len().max(1)).cloned()
        };
        match (kind, member(self)) {
            (0..=3, _) => self.propose(which),
            (4..=11, Some(it)) => {
                let users = it.players.iter().map(|seat| seat.user).take(1 + usize::from(detail / 64)).collect();
                self.apply_to_match(
                    which,
                    MatchEvent::Responded { ticket_id: it.ticket_id, users, accepted: kind != 11 },
                );
            }
            (12, _) => self.apply_to_match(which, MatchEvent::DeadlinePassed),
            (13 | 14, _) => self.apply_to_match(which, MatchEvent::ServerFound(game_server(detail))),
            (15, _) => self.apply_to_match(which, MatchEvent::ServerFailed),
            (16, _) => self.apply_to_match(which, MatchEvent::EndReported { reported_by: None }),
            (17, _) => self.apply_to_match(which, MatchEvent::Cancelled),
            (18, Some(it)) => self.apply_to_match(
                which,
                MatchEvent::TicketWithdrawn { ticket: it.ticket_id, reason: TicketEndReason::Left },
            ),
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// S0-21, S0-22: whatever happens in whatever order, a ticket waits, or is in exactly one match, or has ended;
    /// and when every moment has come, nobody is in a match any more and no seat is held for nothing.
    #[test]
    fn random_events_never_lose_a_ticket(
        check in proptest::option::of(Just(READY_CHECK_MS as u32)),
        mode in prop_oneof![Just(HostingMode::Advertised), Just(HostingMode::Peer), Just(HostingMode::None)],
        dice in proptest::collection::vec((0_u8..19, 0_u8..12, any::<u8>(), 0_u64..8_000), 1..300),
    ) {
        let mut world = LifecycleFixture::new(lifecycle_rules(check, mode), 30);
        for roll in dice {
            world.run_random_action(roll);
        }
        for _ in 0..3 {
            world.now = world.now.plus_ms(2 * MAX_MATCH_MS);
            for id in world.matches.keys().copied().collect::<Vec<_>>() {
                world.apply_to_match(id, MatchEvent::DeadlinePassed);
            }
        }
        prop_assert!(world.tickets.values().all(|(_, at)| !matches!(at, TicketPlace::InMatch(_))));
        prop_assert_eq!(world.tickets.len(), 30);
        prop_assert_eq!(&world.held_reservations, &[] as &[ReservationId]);
    }
}
