//! Parties of several members: each has round trips of its own, the farthest counts, and each client renews those of its own player.

use super::*;

/// Ann's member, at home where ann is.
pub(super) const AMY: (&str, &str, f64) = ("amy", "203.0.114.7", 0.0);

/// Round trip that AMY has at first to each beacon of the network, and later.
const FAR_MS: u64 = 400;

/// Ways in which a member's client sends its token.
#[derive(Clone, Copy, Debug)]
enum Renewal {
    Heartbeat,
    Watch,
}

/// Two against two, within 100 ms.
fn pairs() -> RulesetDirectory {
    let limits = format!(r#"{WITHIN_100_MS}<Party Consent="assumed"/>"#);
    let text = ruleset_text(2, r#"Source="predicted""#, &limits);
    let text = text.replace(r#"Count="2" Size="1""#, r#"Count="2" Size="2""#);
    let queue = r#"PassIntervalMs="10" TicketTtlMs="3600000""#;
    RulesetDirectory::with_files(&[("predicted.xml", &text.replace(r#"PassIntervalMs="10""#, queue))])
}

/// Enters a leader with a member; `None`: the member's client has not measured.
async fn enter_pair(
    site: Site<'_>,
    (leader, token): ((&str, &'static str, f64), Vec<u8>),
    (member, members_token): (&str, Option<Vec<u8>>),
) -> QueuedParty {
    let mut session = party_session(&[(leader.0, 20.0), (member, 20.0)]);
    session.latency_token = token;
    session.players[1].latency_token = members_token.unwrap_or_default();
    let request = pb::QueueEnterRequest {
        matchmaking_set_id: Some(SET_ID),
        session_composition: Some(session),
        ..Default::default()
    };
    QueuedParty::enter_with_client(site.client(leader).await, request).await
}

/// Sends a token for the member's own seat, with the seat's token.
async fn renew_own_seat(site: Site<'_>, player: (&str, &'static str, f64), latency_token: Vec<u8>, renewal: Renewal) {
    let (own, _) = site.client(player).await.own_tickets_and_cooldowns().await.expect("mine");
    let tickets = vec![own.first().expect("a seat").reference()];
    let caller = LatencyCaller::new(site.server, site.issuer, Role::Client, player.0, player.1).await;
    let mut queue = QueueServiceClient::new(caller.channel.clone());
    match renewal {
        Renewal::Heartbeat => {
            let request = pb::QueueHeartbeatRequest { tickets, latency_token, ..Default::default() };
            queue.heartbeat(caller.request(request)).await.expect("a heartbeat");
        }
        Renewal::Watch => {
            queue.watch(caller.request(pb::QueueWatchRequest { tickets, latency_token })).await.expect("a watch");
        }
    }
}

/// LAT-1, SEC-6: a party is as far from its opponents as its farthest member, until that member's own client has measured again and
/// renews its seat: with a heartbeat, or by opening a watch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn party_is_as_far_as_its_farthest_member_until_that_renews_its_seat() {
    for renewal in [Renewal::Heartbeat, Renewal::Watch] {
        let (folder, clock) = (pairs(), Arc::new(TestClock::new()));
        let issuer = TokenIssuer::new(&*clock);
        let server = start_server(&folder, &clock, &issuer, None).await;
        let (site, mut fleet) = (Site { server: &server, issuer: &issuer }, Fleet::new());
        fleet.announce(&site.fleet_caller().await).await;
        let (anns, amys) = (fleet.token(&site, ANN, 0, 25).await, fleet.token(&site, AMY, 0, FAR_MS).await);
        let mut ann = enter_pair(site, (ANN, anns), (AMY.0, Some(amys))).await;
        let cais = fleet.token(&site, CAI, 0, 25).await;
        let mut cai = enter_pair(site, (CAI, cais), ("coe", None)).await;
        site.wait_for_refusing_pass(&mut ann).await;
        site.wait_for_sources(ann.ticket.id(), &[wire::RoundTripSource::Predicted]).await;

        // Younger than five minutes, the member's round trips are not replaced.
        let early = fleet.token(&site, AMY, 0, 25).await;
        renew_own_seat(site, AMY, early, renewal).await;
        site.wait_for_sources(ann.ticket.id(), &[wire::RoundTripSource::Predicted]).await;
        for _ in 0..8 {
            clock.advance_ms(40_000);
            fleet.announce(&site.fleet_caller().await).await;
        }
        // Of the leader's token, the member's round trips are none.
        let leaders = fleet.token(&site, ANN, 0, 25).await;
        site.beat(ANN, &ann.ticket.reference(), &leaders).await;
        site.wait_for_sources(ann.ticket.id(), &[wire::RoundTripSource::Predicted]).await;

        let near = fleet.token(&site, AMY, 0, 25).await;
        renew_own_seat(site, AMY, near, renewal).await;
        let found = join_all([&mut ann, &mut cai].map(|party| party.wait_for_state(TicketState::Matched))).await;
        let match_id = &found[0].found_match.as_ref().expect("a match").match_id;
        let worst = site.found_match(match_id).await.worst_pair.expect("a pair");
        assert_eq!(worst.round_trip.expect("a round trip").source(), wire::RoundTripSource::Predicted, "{renewal:?}");
    }
}
