//! Long random lives of many matches at once: a ticket is always in exactly one place, and nobody is lost.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Where a ticket is. There is no other place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Where {
    Waits,
    In(u8),
    Ended(Ending),
}

struct World {
    rules: LifeRules,
    now: UnixMs,
    /// By the first byte of their ids.
    tickets: BTreeMap<u8, (Member, Where)>,
    matches: BTreeMap<u8, Match>,
    /// Seats that somebody holds on servers.
    held: Vec<ReservationId>,
}

impl World {
    fn new(rules: LifeRules, tickets: u8) -> Self {
        let alone = |n: u8| (n, (member(n, u64::from(n), &[2 * n, 2 * n + 1][..1 + usize::from(n % 2)]), Where::Waits));
        let tickets = (0..tickets).map(alone).collect();
        Self { rules, now: START, tickets, matches: BTreeMap::new(), held: Vec::new() }
    }

    fn waiting(&self) -> Vec<u8> {
        self.tickets.iter().filter(|(_, (_, at))| *at == Where::Waits).map(|(n, _)| *n).collect()
    }

    fn propose(&mut self, id: u8) {
        let chosen: Vec<u8> = self.waiting().into_iter().take(2).collect();
        if chosen.len() < 2 || self.matches.contains_key(&id) {
            return;
        }
        let members = chosen.iter().map(|n| self.tickets[n].0.clone()).collect();
        let step = begin(&self.rules, Fresh { id: MatchId::from_bytes([id; 16]), ..fresh(members) }, &never, self.now);
        for n in chosen {
            self.tickets.get_mut(&n).unwrap().1 = Where::In(id);
        }
        self.apply(id, 0, step);
    }

    fn happen(&mut self, id: u8, event: Event) {
        let Some(play) = self.matches.get(&id).cloned() else { return };
        if let Event::ServerFound(Place::Server { reservation, .. }) = &event
            && !self.held.contains(reservation)
        {
            self.held.push(*reservation);
        }
        let step = step(&self.rules, &play, event, &never, self.now);
        self.apply(id, play.edition, step);
    }

    fn apply(&mut self, id: u8, edition: u64, step: Step) {
        for effect in &step.effects {
            if let Effect::GiveBack { reservation, .. } = effect {
                self.held.retain(|held| held != reservation);
            }
        }
        assert_eq!(step.next.is_some(), step.heard == Heard::Changed);
        let Some(next) = step.next else {
            assert_eq!((step.fates, step.punished), (vec![], vec![]), "{:?}", step.heard);
            return;
        };
        assert_eq!(next.edition, edition + 1);
        let over = matches!(next.stage, Stage::Over { .. });
        assert_eq!(step.fates.len(), if over { next.members.len() } else { 0 });
        for (ticket, fate) in &step.fates {
            let (member, at) = self.tickets.get_mut(&ticket.as_bytes()[0]).unwrap();
            assert_eq!(*at, Where::In(id), "a fate for a ticket that is elsewhere");
            let played = next.members.iter().find(|it| it.ticket == *ticket).unwrap();
            assert_eq!(
                (played.entered, played.players.len()),
                (member.entered, member.players.len()),
                "its wait is kept"
            );
            *at = match fate {
                Fate::Returns => Where::Waits,
                Fate::Ends(how) => Where::Ended(*how),
            };
        }
        for user in &step.punished {
            let theirs = self.tickets.values().find(|(member, _)| member.players.iter().any(|seat| seat.user == *user));
            assert!(
                matches!(theirs, Some((_, Where::Ended(Ending::Declined | Ending::Absent | Ending::Left)))),
                "{theirs:?}"
            );
        }
        self.matches.insert(id, next);
        self.check();
    }

    /// Who is in a match is in that match, and in no other that is not over.
    fn check(&self) {
        let live = |play: &&Match| !matches!(play.stage, Stage::Over { .. });
        for (n, (_, at)) in &self.tickets {
            let in_them: Vec<u8> = self
                .matches
                .values()
                .filter(live)
                .filter(|play| play.members.iter().any(|it| it.ticket == ticket(*n)))
                .map(|play| play.id.as_bytes()[0])
                .collect();
            let expected = if let Where::In(id) = at { vec![*id] } else { vec![] };
            assert_eq!(in_them, expected, "ticket {n} is {at:?}");
        }
    }

    /// What the dice say happens.
    fn roll(&mut self, (kind, which, detail, later): (u8, u8, u8, u64)) {
        self.now = self.now.after(later);
        let member = |world: &Self| {
            let members = world.matches.get(&which).map(|play| play.members.clone()).unwrap_or_default();
            members.get(usize::from(detail) % members.len().max(1)).cloned()
        };
        match (kind, member(self)) {
            (0..=3, _) => self.propose(which),
            (4..=11, Some(it)) => {
                let users = it.players.iter().map(|seat| seat.user).take(1 + usize::from(detail / 64)).collect();
                self.happen(which, Event::Answered { ticket: it.ticket, users, accept: kind != 11 });
            }
            (12, _) => self.happen(which, Event::DeadlinePassed),
            (13 | 14, _) => self.happen(which, Event::ServerFound(server(detail))),
            (15, _) => self.happen(which, Event::ServerFailed),
            (16, _) => self.happen(which, Event::Reported { by: None }),
            (17, _) => self.happen(which, Event::Cancelled),
            (18, Some(it)) => self.happen(which, Event::Gone { ticket: it.ticket, how: Ending::Left }),
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// S0-21, S0-22: whatever happens in whatever order, a ticket waits, or is in exactly one match, or has ended;
    /// and when every moment has come, nobody is in a match any more and no seat is held for nothing.
    #[test]
    fn whatever_happens_nobody_is_lost(
        check in proptest::option::of(Just(DEADLINE as u32)),
        mode in prop_oneof![Just(ServerMode::Advertised), Just(ServerMode::Peer), Just(ServerMode::None)],
        dice in proptest::collection::vec((0_u8..19, 0_u8..12, any::<u8>(), 0_u64..8_000), 1..300),
    ) {
        let mut world = World::new(rules(check, mode), 30);
        for roll in dice {
            world.roll(roll);
        }
        for _ in 0..3 {
            world.now = world.now.after(2 * PLAY);
            for id in world.matches.keys().copied().collect::<Vec<_>>() {
                world.happen(id, Event::DeadlinePassed);
            }
        }
        prop_assert!(world.tickets.values().all(|(_, at)| !matches!(at, Where::In(_))));
        prop_assert_eq!(world.tickets.len(), 30);
        prop_assert_eq!(&world.held, &[] as &[ReservationId]);
    }
}
