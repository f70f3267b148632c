//! Durable block lists over the wire: who may change one, what it refuses in queues and in searches, and that it leaves no trace in
//! answers. On SQLite, and through two servers on one Postgres.

use fireteam_client::{Client, Code, Error, RetryPolicy, Ticket, pb};
use pb::{ConsentUse, TicketState};

use crate::support::generated_client as wire;
use crate::support::party_site::{PartySite, by_operator, on_each_store, pairs_ruleset, reason, wait_for_rule};
use crate::support::queue_server::{
    SET_ID, enter_request, explain_search_request, operator_client, start_queue_server, wait_until,
};
use crate::support::test_server::{advertise_request, party_session};

/// Duels and searches in which no player meets a blocked one.
fn avoiding() -> String {
    pairs_ruleset(r#"<Avoid Whom="blocked" How="never"/>"#).replace(r#"Size="2""#, r#"Size="1""#)
}

/// The same, for teams of two.
fn avoiding_pairs() -> String {
    pairs_ruleset(r#"<Avoid Whom="blocked" How="never"/>"#)
}

fn add(users: &[&str]) -> pb::MatchmakingUpdateBlockListRequest {
    let add_user_ids = users.iter().map(|&user| user.to_owned()).collect();
    pb::MatchmakingUpdateBlockListRequest { add_user_ids, ..Default::default() }
}

fn remove(users: &[&str]) -> pb::MatchmakingUpdateBlockListRequest {
    let remove_user_ids = users.iter().map(|&user| user.to_owned()).collect();
    pb::MatchmakingUpdateBlockListRequest { remove_user_ids, ..Default::default() }
}

/// Fields that a refused call names.
fn fields(error: &Error) -> Vec<&str> {
    error.fields().iter().map(|problem| problem.field.as_str()).collect()
}

fn advertised(host: &str) -> pb::MatchmakingUpdateAdvertisementRequest {
    pb::MatchmakingUpdateAdvertisementRequest {
        matchmaking_set_id: Some(SET_ID),
        time_to_live_ms: Some(600_000),
        ..advertise_request(&[(host, 20.0)], 4)
    }
}

/// Number of sessions that a searcher finds, at the last server. What is hidden is counted nowhere.
async fn found(site: &PartySite, searcher: &str) -> usize {
    let client = site.player_elsewhere(searcher).await;
    let mut search = client.new_search(SET_ID, party_session(&[(searcher, 20.0)]));
    let answer = search.search().await.expect("search");
    assert_eq!((answer.evaluated as usize, answer.refusals.len()), (answer.candidates.len(), 0), "{answer:?}");
    answer.candidates.len()
}

async fn wait_for_found(site: &PartySite, searcher: &str, count: usize) {
    wait_until("the searcher finds the sessions", async || found(site, searcher).await == count).await;
}

async fn exported(site: &PartySite, user: &str) -> wire::ExportUserResponse {
    let request = wire::ExportUserRequest { user_id: user.to_owned(), ..Default::default() };
    let mut operator = operator_client(site.servers.last().expect("a server")).await;
    operator.export_user(by_operator(site, request)).await.expect("an export").into_inner()
}

/// A player changes only its own list, with at most 1,000 users; a game's backend names the user. What is refused changes nothing.
async fn only_the_own_block_list_can_be_changed(mut site: PartySite) {
    let ana = site.player("ana").await;
    let of = |user: &str, request: pb::MatchmakingUpdateBlockListRequest| pb::MatchmakingUpdateBlockListRequest {
        user_id: user.to_owned(),
        ..request
    };
    assert_eq!(ana.update_block_list(add(&["ben", "cyd", "ben"])).await.expect("named twice"), 2);
    assert_eq!(ana.update_block_list(of("ana", add(&["ben"]))).await.expect("again"), 2);
    assert_eq!(ana.update_block_list(remove(&["dan"])).await.expect("not in the list"), 2);

    let refused = ana.update_block_list(of("ben", add(&["ana"]))).await.expect_err("another's list");
    assert_eq!((refused.code(), reason(&refused)), (Some(Code::PermissionDenied), "NOT_OWNER"));
    let refused = ana.update_block_list(add(&["eve", "ana"])).await.expect_err("the own user");
    assert_eq!(fields(&refused), ["add_user_ids[1]"], "{refused}");
    let both = pb::MatchmakingUpdateBlockListRequest { remove_user_ids: vec!["eve".into()], ..add(&["eve"]) };
    let refused = ana.update_block_list(both).await.expect_err("to add and to remove");
    assert_eq!(fields(&refused), ["remove_user_ids[0]"], "{refused}");
    let refused = ana.update_block_list(add(&["x", ""])).await.expect_err("an empty name");
    assert_eq!(fields(&refused), ["add_user_ids[1]"], "{refused}");
    let many: Vec<String> = (0..1_001).map(|number| format!("user-{number}")).collect();
    let names: Vec<&str> = many.iter().map(String::as_str).collect();
    let refused = ana.update_block_list(add(&names)).await.expect_err("1,001 users");
    assert_eq!(fields(&refused), ["add_user_ids"], "{refused}");
    let refused = ana.update_block_list(add(&names[..999])).await.expect_err("1,001 with those in the list");
    assert_eq!((refused.code(), reason(&refused)), (Some(Code::ResourceExhausted), "BLOCK_LIST_FULL"));
    let replaced = pb::MatchmakingUpdateBlockListRequest { replace: true, ..add(&names[..1_000]) };
    assert_eq!(site.player_elsewhere("ana").await.update_block_list(replaced.clone()).await.expect("replace"), 1_000);
    assert_eq!(ana.update_block_list(replaced).await.expect("the same again"), 1_000);

    let backend = site.backend().await;
    let refused = backend.update_block_list(add(&["ana"])).await.expect_err("no user is named");
    assert_eq!(fields(&refused), ["user_id"], "{refused}");
    assert_eq!(backend.update_block_list(of("ben", add(&["ana"]))).await.expect("a backend"), 1);
    site.restart_first().await;
    let ana = site.player("ana").await;
    assert_eq!(ana.update_block_list(remove(&names[..999])).await.expect("after a restart"), 1);
    let empty = pb::MatchmakingUpdateBlockListRequest { replace: true, ..Default::default() };
    assert_eq!(ana.update_block_list(empty).await.expect("empty"), 0);
    site.shut_down().await;
}

/// A list hides a host from a searcher, and a searcher from a host; a party is hidden by each of its members. A reservation with an
/// older search, and a latency report, say what they say of a session that has ended. Explain names the rule.
async fn block_list_hides_a_host_both_ways(mut site: PartySite) {
    let hana = site.player("hana").await;
    let hosted = hana.advertise(advertised("hana")).await.expect("advertise");
    for searcher in ["gus", "ida"] {
        wait_for_found(&site, searcher, 1).await;
    }
    let gus = site.player_elsewhere("gus").await;
    let mut searched = gus.new_search(SET_ID, party_session(&[("gus", 20.0)]));
    assert_eq!(searched.search().await.expect("search").candidates.len(), 1);

    hana.update_block_list(add(&["gus"])).await.expect("block");
    wait_for_found(&site, "gus", 0).await;
    assert_eq!(found(&site, "ida").await, 1, "others still find the session");
    assert_hidden(&gus, &mut searched, hosted.id()).await;
    let token = site.consent("gus", "ida", false, ConsentUse::Search).await;
    let mut party = party_session(&[("ida", 20.0), ("gus", 20.0)]);
    party.players[1].consent_token = token;
    let ida = site.player_elsewhere("ida").await;
    assert_eq!(ida.new_search(SET_ID, party).search().await.expect("search").candidates.len(), 0, "a member");
    assert_eq!(explained(&site, "gus").await, [("avoid".to_owned(), 1)]);

    hana.update_block_list(remove(&["gus"])).await.expect("unblock");
    wait_for_found(&site, "gus", 1).await;
    // More users than advertise, so that the server asks for each advertisement.
    gus.update_block_list(add(&["hana", "jon", "kim", "lea"])).await.expect("block the host");
    assert_eq!(found(&site, "gus").await, 0, "at once where it was written");
    wait_until("the other server knows it", async || {
        let mut search = site.player("gus").await.new_search(SET_ID, party_session(&[("gus", 20.0)]));
        search.search().await.expect("search").candidates.is_empty()
    })
    .await;
    site.restart_first().await;
    let mut search = site.player("gus").await.new_search(SET_ID, party_session(&[("gus", 20.0)]));
    assert_eq!(search.search().await.expect("search").candidates.len(), 0, "after a restart");

    // A player with a reserved seat hides the session as well.
    let (gus, ida) = (site.player_elsewhere("gus").await, site.player_elsewhere("ida").await);
    gus.update_block_list(pb::MatchmakingUpdateBlockListRequest { replace: true, ..add(&["ida"]) }).await.expect("ida");
    wait_for_found(&site, "gus", 1).await;
    let mut joining = ida.new_search(SET_ID, party_session(&[("ida", 20.0)]));
    assert_eq!(joining.search().await.expect("search").candidates.len(), 1);
    let seat = joining.reserve(hosted.id()).await.expect("a seat");
    wait_for_found(&site, "gus", 0).await;
    seat.release().await.expect("release");
    wait_for_found(&site, "gus", 1).await;
    site.shut_down().await;
}

/// The answers about a hidden session equal those about one that never was.
async fn assert_hidden(client: &Client, searched: &mut fireteam_client::SearchSession, id: &str) {
    let unknown = "0".repeat(32);
    let mut errors = Vec::new();
    for id in [id, &unknown] {
        let error = searched.reserve(id).await.expect_err("hidden, or unknown");
        errors.push((error.code(), reason(&error).to_owned(), error.to_string()));
    }
    assert_eq!(errors[0].1, "ADVERTISEMENT_NOT_FOUND");
    assert_eq!(errors[0], errors[1]);
    let search = client.new_search(SET_ID, party_session(&[("gus", 20.0)])).search().await.expect("search");
    let report = pb::MatchmakingReportLatencyRequest {
        search_token: search.search_token,
        phase: pb::LatencyPhase::Quick.into(),
        measurements: [id, &unknown]
            .map(|id| pb::LatencyMeasurement {
                advertisement_id: id.to_owned(),
                round_trip_ms: Some(1.0),
                ..Default::default()
            })
            .to_vec(),
        session_composition: Some(party_session(&[("gus", 20.0)])),
        matchmaking_set_id: Some(SET_ID),
        service_configuration_hash: None,
    };
    let ranked = client.report_latency(report).await.expect("a report");
    assert_eq!((ranked.candidates.len(), ranked.ignored_fields.len()), (0, 0), "{ranked:?}");
}

/// Refusals by rule in an explanation of a search.
async fn explained(site: &PartySite, user: &str) -> Vec<(String, u64)> {
    let mut operator = operator_client(&site.servers[0]).await;
    let explained =
        operator.explain(by_operator(site, explain_search_request(user))).await.expect("an explanation").into_inner();
    explained.refusals.iter().map(|refusal| (refusal.rule.clone(), refusal.count)).collect()
}

/// A block keeps tickets apart that wait already, also by the list of a party's member, and a removed one lets them meet. The players
/// do not learn that they are avoided.
async fn block_list_reaches_waiting_tickets(site: PartySite) {
    let (ana, ben) = (site.player("ana").await, site.player_elsewhere("ben").await);
    ben.update_block_list(add(&["ana"])).await.expect("block");
    let mut waiting = [
        ana.enter_queue(enter_request(SET_ID, &[("ana", 20.0)])).await.expect("enter"),
        ben.enter_queue(enter_request(SET_ID, &[("ben", 20.0)])).await.expect("enter"),
    ];
    wait_until("a pass has refused the pair", async || {
        let rules = told_rules(&mut waiting).await;
        assert!(rules.iter().all(|rule| rule != "avoid"), "{rules:?}");
        rules.contains(&"team".to_owned())
    })
    .await;
    // Of two who wait, one blocks a third before it enters; the other gets the match.
    ana.update_block_list(add(&["cyd"])).await.expect("block");
    let cyd = site.player("cyd").await.enter_queue(enter_request(SET_ID, &[("cyd", 20.0)])).await.expect("enter");
    let [mut of_ana, mut of_ben] = waiting;
    let mut of_cyd = [cyd];
    wait_until("ben and cyd play", async || {
        of_ana.heartbeat().await.expect("heartbeat");
        of_cyd[0].heartbeat().await.expect("heartbeat").state() == TicketState::Matched
    })
    .await;
    wait_until("ben plays", async || of_ben.heartbeat().await.expect("heartbeat").state() == TicketState::Matched)
        .await;
    assert_eq!(of_ana.heartbeat().await.expect("heartbeat").state(), TicketState::Waiting);

    // The list of one who waits changes in both directions.
    ana.update_block_list(add(&["dan"])).await.expect("block");
    let of_dan =
        site.player_elsewhere("dan").await.enter_queue(enter_request(SET_ID, &[("dan", 20.0)])).await.expect("enter");
    let mut waiting = [of_ana, of_dan];
    wait_until("a pass has refused the pair", async || told_rules(&mut waiting).await.contains(&"team".to_owned()))
        .await;
    site.player_elsewhere("ana").await.update_block_list(remove(&["dan"])).await.expect("unblock");
    wait_until("they play", async || waiting[1].heartbeat().await.expect("heartbeat").state() == TicketState::Matched)
        .await;
    site.shut_down().await;
}

/// Blocking rules in the statuses of tickets.
async fn told_rules(tickets: &mut [Ticket]) -> Vec<String> {
    let mut rules = Vec::new();
    for ticket in tickets {
        rules.push(ticket.heartbeat().await.expect("heartbeat").blocking_rule.clone());
    }
    rules
}

/// The list of a member who entered with another player counts for the whole party.
async fn block_list_of_a_member_keeps_parties_apart(site: PartySite) {
    site.player("ben").await.update_block_list(add(&["olga"])).await.expect("block");
    site.enter_pair("ana", "ben", false).await;
    let mut opponents = site.enter_opponents().await;
    wait_for_rule(&site, "ana", "team").await;
    site.player_elsewhere("ben").await.update_block_list(remove(&["olga"])).await.expect("unblock");
    wait_until("they play", async || opponents.heartbeat().await.expect("heartbeat").state() == TicketState::Matched)
        .await;
    site.shut_down().await;
}

/// Erasure removes the user's list, and the user from the lists of others, at each server.
async fn erased_user_leaves_all_block_lists(mut site: PartySite) {
    let (ana, ben) = (site.player("ana").await, site.player("ben").await);
    ana.update_block_list(add(&["ben", "cyd"])).await.expect("block");
    ben.update_block_list(add(&["ana", "dan"])).await.expect("block");
    let hosted = site.player("hana").await.advertise(advertised("hana")).await.expect("advertise");
    site.player("hana").await.update_block_list(add(&["ben"])).await.expect("block");
    wait_until("both lists are exported", async || {
        exported(&site, "ana").await.blocked_user_keys.len() == 2
            && exported(&site, "ben").await.blocked_user_keys.len() == 2
    })
    .await;
    wait_for_found(&site, "ben", 0).await;
    let request = wire::EraseUserRequest { user_id: "ben".into(), reason: "request 4714".into(), ..Default::default() };
    let mut operator = operator_client(&site.servers[0]).await;
    operator.erase_user(by_operator(&site, request)).await.expect("erased");
    for restarted in [false, true] {
        if restarted {
            site.restart_first().await;
        }
        wait_until("the lists forget the user", async || {
            exported(&site, "ana").await.blocked_user_keys.len() == 1
                && exported(&site, "ben").await.blocked_user_keys.is_empty()
        })
        .await;
        // The account is new if it comes back.
        wait_for_found(&site, "ben", 1).await;
    }
    assert!(!hosted.id().is_empty());
    assert_eq!(site.player("ana").await.update_block_list(remove(&["dan"])).await.expect("one is left"), 1);
    assert_eq!(site.player("ben").await.update_block_list(add(&["eve"])).await.expect("a new list"), 1);
    site.shut_down().await;
}

/// While the store refuses writes, a change is refused and changes nothing.
async fn block_list_is_not_changed_during_an_outage(site: PartySite) {
    let ana = site.player("ana").await;
    assert_eq!(ana.update_block_list(add(&["ben", "cyd"])).await.expect("block"), 2);
    let outage = site.begin_outage().await;
    let once = ana.clone().with_retry_policy(RetryPolicy::NEVER);
    let refused = once.update_block_list(remove(&["ben"])).await.expect_err("an outage");
    assert_eq!((refused.code(), reason(&refused)), (Some(Code::Unavailable), "STORE_UNAVAILABLE"));
    // Servers try again after some time of their clock.
    site.clock.advance_ms(30_000);
    site.end_outage(outage).await;
    let unchanged = pb::MatchmakingUpdateBlockListRequest::default();
    assert_eq!(site.player_elsewhere("ana").await.update_block_list(unchanged).await.expect("read"), 2);
    assert_eq!(ana.update_block_list(remove(&["ben"])).await.expect("unblock"), 1);
    site.shut_down().await;
}

/// Lists hold in each set that asks, with a queue or without one, and in no other set. A queue that fills open sessions does not fill that
/// of a host who has blocked the player.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn block_list_holds_in_each_set_that_asks() {
    let avoid = r#"<Avoid Whom="blocked" How="never"/>"#;
    let set = |id: u32, inside: &str| format!(r#"<Ruleset Name="Set {id}" SetId="{id}">{inside}</Ruleset>"#);
    let queue = r#"<Teams Count="2" Size="2"/><Queue PassIntervalMs="10" Backfill="true"/><Hosting Mode="peer"/>"#;
    let files = [set(21, avoid), set(22, ""), set(23, &format!("{avoid}{queue}"))];
    let server = start_queue_server(&files.each_ref().map(String::as_str)).await;
    let client = server.client().await;
    let block = pb::MatchmakingUpdateBlockListRequest { user_id: "hana".into(), ..add(&["gus"]) };
    client.update_block_list(block).await.expect("block");
    let found = async |id: u32, searcher: &str| {
        let mut search = client.new_search(id, party_session(&[(searcher, 0.0)]));
        search.search().await.expect("search").candidates.len()
    };
    for id in [21, 22, 23] {
        let request = pb::MatchmakingUpdateAdvertisementRequest {
            matchmaking_set_id: Some(id),
            ..advertise_request(&[("hana", 0.0)], 3)
        };
        client.advertise(request).await.expect("advertise");
        assert_eq!(found(id, "ida").await, 1, "set {id}");
        assert_eq!(found(id, "gus").await, usize::from(id == 22), "set {id}");
    }
    let mut gus = client.enter_queue(enter_request(23, &[("gus", 0.0)])).await.expect("enter");
    let mut ida = client.enter_queue(enter_request(23, &[("ida", 0.0)])).await.expect("enter");
    wait_until("ida gets a seat", async || {
        gus.heartbeat().await.expect("heartbeat");
        ida.heartbeat().await.expect("heartbeat").state() != TicketState::Waiting
    })
    .await;
    assert_eq!(gus.heartbeat().await.expect("heartbeat").state(), TicketState::Waiting);
    let unblock = pb::MatchmakingUpdateBlockListRequest { user_id: "hana".into(), ..remove(&["gus"]) };
    client.update_block_list(unblock).await.expect("unblock");
    assert_eq!(found(21, "gus").await, 1);
    server.shut_down().await;
}

on_each_store! {
    only_the_own_block_list_can_be_changed, avoiding(),
        only_the_own_block_list_can_be_changed_on_sqlite, only_the_own_block_list_can_be_changed_on_postgres;
    block_list_hides_a_host_both_ways, avoiding(),
        block_list_hides_a_host_both_ways_on_sqlite, block_list_hides_a_host_both_ways_on_postgres;
    block_list_reaches_waiting_tickets, avoiding(),
        block_list_reaches_waiting_tickets_on_sqlite, block_list_reaches_waiting_tickets_on_postgres;
    block_list_of_a_member_keeps_parties_apart, avoiding_pairs(),
        block_list_of_a_member_keeps_parties_apart_on_sqlite, block_list_of_a_member_keeps_parties_apart_on_postgres;
    erased_user_leaves_all_block_lists, avoiding(),
        erased_user_leaves_all_block_lists_on_sqlite, erased_user_leaves_all_block_lists_on_postgres;
    block_list_is_not_changed_during_an_outage, avoiding(),
        block_list_is_not_changed_during_an_outage_on_sqlite, block_list_is_not_changed_during_an_outage_on_postgres;
}
