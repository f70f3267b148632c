//! Cooldowns after an outage of the store: no player has one for what the outage did. Of parties with identities, on SQLite, and
//! through two servers on one Postgres.

use fireteam_client::{Ticket, pb};
use pb::{ConsentUse, TicketEndReason, TicketState};

use crate::support::party_site::{PartySite, on_each_store, pairs_ruleset, wait_for_state};
use crate::support::queue_server::{SET_ID, enter_request, wait_until};

/// A ready check of 20 s with a cooldown, and matches that start without a host.
const CHECKED: &str = r#"<ReadyCheck TimeoutMs="20000" DeclineCooldownMs="60000"/>"#;

/// The same, and a wait of a minute for a game server.
const PLACED: &str = r#"<ReadyCheck TimeoutMs="20000" DeclineCooldownMs="60000"/>
  <Hosting Mode="game_server" AllocationTimeoutMs="60000"/>"#;

/// Longer than the ready check and the TTL of tickets, milliseconds.
const OUTAGE_MS: u64 = 90_000;

/// A leader and a member in a ready check, and what the two did before the outage.
#[derive(Clone, Copy)]
struct Party {
    leader: &'static str,
    member: &'static str,
    may_answer: bool,
    leader_accepts: bool,
    /// The member's own client receives the match.
    member_is_told: bool,
}

/// Parties whose players stay silent from the outage on.
const SILENT: [Party; 4] = [
    Party { leader: "ana", member: "ben", may_answer: false, leader_accepts: true, member_is_told: true },
    Party { leader: "cid", member: "dan", may_answer: false, leader_accepts: true, member_is_told: false },
    Party { leader: "eve", member: "fay", may_answer: true, leader_accepts: false, member_is_told: false },
    Party { leader: "gil", member: "hal", may_answer: false, leader_accepts: false, member_is_told: true },
];

/// Parties whose players answer after the outage.
const ANSWERING: [Party; 2] = [
    Party { leader: "ida", member: "jon", may_answer: false, leader_accepts: false, member_is_told: true },
    Party { leader: "kim", member: "lou", may_answer: true, leader_accepts: false, member_is_told: false },
];

/// A party in a ready check, with its opponents.
struct Proposed {
    party: Party,
    ticket: Ticket,
    opponents: Ticket,
    match_id: String,
}

impl Proposed {
    /// Enters the party of a number, which sets its skill, and its opponents. They are in a ready check when this returns.
    async fn start(site: &PartySite, number: usize, party: Party) -> Self {
        let skill = 8.0 * number as f64;
        let opponents = [format!("opponent {}", party.leader), format!("opponent {}", party.member)];
        let request = enter_request(SET_ID, &[(&opponents[0], skill), (&opponents[1], skill)]);
        let opponents = site.backend().await.enter_queue(request).await.expect("enter");
        let token = site.consent(party.member, party.leader, party.may_answer, ConsentUse::Queue).await;
        let mut request = enter_request(SET_ID, &[(party.leader, skill), (party.member, skill)]);
        request.session_composition.as_mut().expect("a party").players[1].consent_token = token;
        let mut ticket = site.player(party.leader).await.enter_queue(request).await.expect("enter");
        let match_id = wait_for_state(&mut ticket, TicketState::Proposed).await.found_match.expect("a match").match_id;
        if party.leader_accepts {
            ticket.respond_to_ready_check(&match_id, true).await.expect("accept");
        }
        // Each server knows who received the match: one of them runs the queue.
        if !party.leader_accepts {
            receive_match(site, party.leader).await;
        }
        if party.member_is_told {
            receive_match(site, party.member).await;
        }
        let mut proposed = Self { party, ticket, opponents, match_id };
        proposed.opponents.respond_to_ready_check(&proposed.match_id, true).await.expect("accept");
        proposed
    }

    /// The member's seat, at the last server.
    async fn seat(&self, site: &PartySite) -> Ticket {
        let (mut tickets, _) =
            site.player_elsewhere(self.party.member).await.own_tickets_and_cooldowns().await.expect("mine");
        assert_eq!(tickets.len(), 1, "{}", self.party.member);
        tickets.remove(0)
    }

    /// Waits until the ready check has failed, without a sign of life of the party.
    async fn wait_for_failure(&self, site: &PartySite) {
        let client = site.player_elsewhere(self.party.member).await;
        wait_until("the ready check has failed", async || {
            client.own_tickets_and_cooldowns().await.expect("mine").0.is_empty()
        })
        .await;
    }

    /// Number of cooldowns of the leader and of the member.
    async fn cooldowns(&self, site: &PartySite) -> [usize; 2] {
        let mut counts = [0; 2];
        for (name, count) in [self.party.leader, self.party.member].into_iter().zip(&mut counts) {
            *count = site.player_elsewhere(name).await.own_tickets_and_cooldowns().await.expect("mine").1.len();
        }
        counts
    }
}

/// The own client of a player receives a proposed match, at each server.
async fn receive_match(site: &PartySite, name: &str) {
    for client in [site.player(name).await, site.player_elsewhere(name).await] {
        let (mut tickets, _) = client.own_tickets_and_cooldowns().await.expect("mine");
        assert_eq!(tickets.len(), 1, "{name}");
        wait_for_state(&mut tickets[0], TicketState::Proposed).await;
    }
}

/// The store refuses writes for longer than every deadline.
async fn outage(site: &PartySite) {
    let outage = site.begin_outage().await;
    site.clock.advance_ms(OUTAGE_MS);
    site.end_outage(outage).await;
}

/// Silence in a ready check that an outage interrupted is no one's fault: neither of a player who had received the match, nor of a
/// leader who may answer for others. Who answers after the outage plays. A ready check after the outage has its cooldown again.
async fn silence_after_an_outage_has_no_cooldown(site: PartySite) {
    let mut silent = Vec::new();
    for (number, party) in SILENT.into_iter().enumerate() {
        silent.push(Proposed::start(&site, number, party).await);
    }
    let mut answering = Vec::new();
    for (number, party) in ANSWERING.into_iter().enumerate() {
        answering.push(Proposed::start(&site, SILENT.len() + number, party).await);
    }
    outage(&site).await;
    for proposed in &mut answering {
        let id = proposed.match_id.clone();
        proposed.ticket.respond_to_ready_check(&id, true).await.expect("accept");
        if !proposed.party.may_answer {
            proposed.seat(&site).await.respond_to_ready_check(&id, true).await.expect("accept");
        }
        wait_for_state(&mut proposed.ticket, TicketState::Matched).await;
    }
    site.clock.advance_ms(20_000);
    for proposed in &silent {
        proposed.wait_for_failure(&site).await;
        assert_eq!(proposed.cooldowns(&site).await, [0, 0], "{}", proposed.party.leader);
    }
    for proposed in &mut silent {
        let ended = proposed.ticket.heartbeat().await.expect("heartbeat");
        assert_eq!(ended.end_reason(), TicketEndReason::NotAcceptedInTime, "the others wait again without it");
        let waiting = wait_for_state(&mut proposed.opponents, TicketState::Waiting).await;
        assert!(waiting.waited_ms >= OUTAGE_MS, "{}", waiting.waited_ms);
        assert!(proposed.opponents.leave().await.expect("leave"));
    }
    for (number, party) in SILENT.into_iter().enumerate() {
        let proposed = Proposed::start(&site, number, party).await;
        site.clock.advance_ms(20_000);
        proposed.wait_for_failure(&site).await;
        let expected = [!party.leader_accepts, party.member_is_told || party.may_answer].map(usize::from);
        // The other server may receive the cooldowns after the end of the tickets.
        let description = format!("cooldowns {expected:?} of {} after the outage", party.leader);
        wait_until(&description, async || proposed.cooldowns(&site).await == expected).await;
    }
    site.shut_down().await;
}

/// A player who declines has the cooldown, also after an outage, and alone.
async fn decline_after_an_outage_has_its_cooldown(site: PartySite) {
    let [own, of_leader] = ANSWERING;
    let mut first = Proposed::start(&site, 0, own).await;
    let mut second = Proposed::start(&site, 1, of_leader).await;
    outage(&site).await;
    let mut seat = first.seat(&site).await;
    seat.respond_to_ready_check(&first.match_id, false).await.expect("decline");
    let id = second.match_id.clone();
    second.ticket.respond_to_ready_check(&id, false).await.expect("decline");
    assert_eq!(first.cooldowns(&site).await, [0, 1], "the member's own client declined");
    assert_eq!(second.cooldowns(&site).await, [1, 0], "the leader declined for the member");
    for proposed in [&mut first, &mut second] {
        wait_for_state(&mut proposed.opponents, TicketState::Waiting).await;
    }
    site.shut_down().await;
}

/// Players who have waited for half of the time for a game server leave freely, also if an outage took part of that time.
async fn leaving_after_an_outage_while_placing_is_free(site: PartySite) {
    let party = Party { leader_accepts: true, ..ANSWERING[1] };
    let mut proposed = Proposed::start(&site, 0, party).await;
    wait_for_state(&mut proposed.ticket, TicketState::Placing).await;
    let outage = site.begin_outage().await;
    site.clock.advance_ms(30_000);
    site.end_outage(outage).await;
    assert!(proposed.ticket.leave().await.expect("leave"));
    assert_eq!(proposed.ticket.status.end_reason(), TicketEndReason::Left);
    assert_eq!(proposed.cooldowns(&site).await, [0, 0]);
    wait_for_state(&mut proposed.opponents, TicketState::Waiting).await;
    site.shut_down().await;
}

/// Commits that fail and succeed again within the same millisecond are an outage without duration: servers continue to say that they
/// live, deadlines pass after it, and those of an outage with duration are still extended.
async fn deadlines_pass_after_an_outage_without_duration(site: PartySite) {
    let first = Proposed::start(&site, 0, SILENT[0]).await;
    let outage = site.begin_outage().await;
    site.end_outage(outage).await;
    site.clock.advance_ms(1);
    site.wait_for_signs_of_life().await;
    site.clock.advance_ms(20_000);
    first.wait_for_failure(&site).await;
    let mut second = Proposed::start(&site, 1, SILENT[1]).await;
    self::outage(&site).await;
    let status = second.ticket.heartbeat().await.expect("heartbeat");
    assert_eq!(status.state(), TicketState::Proposed, "its ready check is extended by the outage");
    site.clock.advance_ms(20_000);
    second.wait_for_failure(&site).await;
    site.shut_down().await;
}

on_each_store! {
    deadlines_pass_after_an_outage_without_duration, pairs_ruleset(CHECKED),
        deadlines_pass_after_an_outage_without_duration_on_sqlite,
        deadlines_pass_after_an_outage_without_duration_on_postgres;
    silence_after_an_outage_has_no_cooldown, pairs_ruleset(CHECKED),
        silence_after_an_outage_has_no_cooldown_on_sqlite, silence_after_an_outage_has_no_cooldown_on_postgres;
    decline_after_an_outage_has_its_cooldown, pairs_ruleset(CHECKED),
        decline_after_an_outage_has_its_cooldown_on_sqlite, decline_after_an_outage_has_its_cooldown_on_postgres;
    leaving_after_an_outage_while_placing_is_free, pairs_ruleset(PLACED),
        leaving_after_an_outage_while_placing_is_free_on_sqlite,
        leaving_after_an_outage_while_placing_is_free_on_postgres;
}
