//! Stages of matchmaking on several servers: a player enters at one, another one matches, and the game server is known to a third
//! place. Regions are kept apart on all of them.

use fireteam::auth::identity::Role;
use fireteam_client::{Client, Code, pb};
use pb::TicketState;

use crate::store::replicas::Replicas;
use crate::support::database::create_test_database;
use crate::support::generated_client::{ImportRatingsRequest, RatingRow};
use crate::support::party_site::{PartySite, by_operator};
use crate::support::queue_server::{
    QueuedParty, SET_ID, duel_ruleset, enter_request, game_server_advertisement, operator_client, wait_until,
};

/// Duels of two leagues on game servers.
fn leagues() -> String {
    format!(
        r#"<Ruleset Name="Leagues" SetId="{SET_ID}">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="5000" Trust="game_server"/></Attributes>
  <Teams Count="2" Size="1"/>
  <Queue PassIntervalMs="10" PartyRating="mean">
    <RatingGroups>
      <RatingGroup Name="bronze" From="1000" To="3000"/><RatingGroup Name="diamond" From="3000" To="3500"/>
    </RatingGroups>
  </Queue>
  <Hosting Mode="game_server" AllocationTimeoutMs="600000"/>
  <Rating System="elo" Initial="1000"/>
</Ruleset>"#
    )
}

/// A player enters at the first or at the last server, and watches the ticket there.
async fn enter(site: &PartySite, name: &str, is_elsewhere: bool) -> QueuedParty {
    let client = if is_elsewhere { site.player_elsewhere(name).await } else { site.player(name).await };
    QueuedParty::enter_with_client(client, enter_request(SET_ID, &[(name, 20.0)])).await
}

/// Waits until the server that runs the passes has compared one of these, and finds that all wait.
async fn assert_unmatched(parties: &mut [&mut QueuedParty]) {
    wait_until("a pass has run", async || {
        let mut has_rule = false;
        for party in parties.iter_mut() {
            has_rule |= !party.ticket.heartbeat().await.expect("heartbeat").blocking_rule.is_empty();
        }
        has_rule
    })
    .await;
    for party in parties {
        assert_eq!(party.ticket.heartbeat().await.expect("heartbeat").state(), TicketState::Waiting);
    }
}

/// Match that the ticket's stream tells, and the game server's connect data.
async fn told_match(party: &mut QueuedParty) -> (String, String) {
    let found = party.wait_for_state(TicketState::Matched).await.found_match.expect("a match");
    let Some(pb::assignment::Host::GameServer(at)) = found.assignment.and_then(|it| it.host) else {
        panic!("no game server")
    };
    assert_ne!(found.own_players[0].credential, "", "a credential for the game server");
    (found.match_id, String::from_utf8(at.connect_data).expect("text"))
}

/// S3-4: each stage on any server. Players enter at two servers; those who do not fit go on waiting and fill a later match of their
/// league; game servers are advertised at both servers; each player hears of the match from the server where it entered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stages_of_a_match_run_on_different_servers() {
    let Some(site) = PartySite::on_postgres("stages_of_a_match_run_on_different_servers", &leagues()).await else {
        return;
    };
    let row = |name: &str, rating| RatingRow { user_id: name.to_owned(), rating: Some(rating), ..Default::default() };
    let ratings = vec![row("ann", 3_100.0), row("cid", 3_200.0)];
    let request = ImportRatingsRequest { matchmaking_set_id: Some(SET_ID), ratings };
    let mut operator = operator_client(&site.servers[0]).await;
    operator.import_ratings(by_operator(&site, request)).await.expect("import");
    // The other server learns the ratings from the store.
    let at_both = async |name: &str| site.player_elsewhere(name).await.get_ratings(SET_ID, &[name]).await;
    wait_until("the other server has the ratings", async || {
        at_both("cid").await.is_ok_and(|found| found[0].rating.as_ref().is_some_and(|it| it.rating == 3_200.0))
    })
    .await;

    let mut ann = enter(&site, "ann", false).await;
    let mut bob = enter(&site, "bob", true).await;
    assert_unmatched(&mut [&mut ann, &mut bob]).await;
    let mut cid = enter(&site, "cid", true).await;
    for diamond in [&mut ann, &mut cid] {
        diamond.wait_for_state(TicketState::Placing).await;
    }
    assert_eq!(bob.ticket.heartbeat().await.expect("heartbeat").state(), TicketState::Waiting, "of another league");
    let mut dan = enter(&site, "dan", false).await;
    for bronze in [&mut bob, &mut dan] {
        bronze.wait_for_state(TicketState::Placing).await;
    }
    for (server, name) in site.servers.iter().zip(["game-1:7000", "game-2:7000"]) {
        let client = site.issuer.client_with_token(server, Role::GameServer, name).await;
        let advertised = client.update_advertisement(game_server_advertisement(name.as_bytes())).await;
        server.keep_hosting(client, advertised.expect("advertise").advertisement_token);
    }
    let diamonds = [told_match(&mut ann).await, told_match(&mut cid).await];
    let bronzes = [told_match(&mut bob).await, told_match(&mut dan).await];
    assert_eq!((&diamonds[0], &bronzes[0]), (&diamonds[1], &bronzes[1]));
    assert_ne!(diamonds[0].0, bronzes[0].0);
    assert_ne!(diamonds[0].1, bronzes[0].1, "each has seats for one match");
    site.shut_down().await;
}

/// The three ways of a ruleset to keep regions apart.
fn rulesets_with_regions() -> [String; 3] {
    let rules = |queue: &str, more: &str| {
        format!(
            r#"<Ruleset Name="Regions" SetId="{SET_ID}">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="50" Trust="client"/>
    <Attribute Name="region" Type="string" Trust="client"/></Attributes>
  {more}
  <Teams Count="2" Size="1"/>
  <Queue PassIntervalMs="10">{queue}</Queue>
</Ruleset>"#
        )
    };
    let reach = r#"<ExpansionConfigs><ExpansionConfig Name="reach" Type="latency">
      <Expansion ExpansionDurationMs="-1" Value="60"/></ExpansionConfig></ExpansionConfigs>"#;
    let quality = r#"<Regions Mode="quality" Weight="0.5" SpanMs="200"/>
      <Quality><AverageSimilarity RatingSpan="50" RequiredPercent="80"/></Quality>"#;
    [
        rules(r#"<Regions Mode="partition" Attribute="region"/>"#, ""),
        rules(r#"<Regions Mode="filter" Expansion="reach"/>"#, reach),
        rules(quality, ""),
    ]
}

/// Request of a player who is near one of two regions.
fn request_near(name: &str, region: &str) -> pb::QueueEnterRequest {
    let mut request = enter_request(SET_ID, &[(name, 20.0)]);
    let round_trip =
        |to: &str| pb::RegionLatency { region: to.to_owned(), round_trip_ms: if to == region { 20.0 } else { 140.0 } };
    let session = request.session_composition.as_mut().expect("a party");
    session.region_latencies = vec![round_trip("eu"), round_trip("us")];
    let value = pb::attribute_value::Value::StringValue(region.to_owned());
    session.attributes.insert("region".to_owned(), pb::AttributeValue { value: Some(value) });
    request
}

/// S3-8: with each of the three ways, players of one region who enter at different servers match, and those of two regions do not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn regions_are_kept_apart_on_two_servers_in_each_way() {
    for (number, rules) in rulesets_with_regions().into_iter().enumerate() {
        let Some(site) = PartySite::on_postgres(&format!("regions_are_kept_apart_{number}"), &rules).await else {
            return;
        };
        let enter_near = async |name: &str, region: &str, is_elsewhere: bool| {
            let client = if is_elsewhere { site.player_elsewhere(name).await } else { site.player(name).await };
            QueuedParty::enter_with_client(client, request_near(name, region)).await
        };
        let mut ann = enter_near("ann", "eu", false).await;
        let mut bob = enter_near("bob", "us", true).await;
        assert_unmatched(&mut [&mut ann, &mut bob]).await;
        let mut cid = enter_near("cid", "eu", true).await;
        let mut regions = Vec::new();
        for party in [&mut ann, &mut cid] {
            regions.push(party.wait_for_state(TicketState::Matched).await.found_match.expect("a match").region);
        }
        assert_eq!(bob.ticket.heartbeat().await.expect("heartbeat").state(), TicketState::Waiting, "{rules}");
        let mut dan = enter_near("dan", "us", false).await;
        for party in [&mut bob, &mut dan] {
            regions.push(party.wait_for_state(TicketState::Matched).await.found_match.expect("a match").region);
        }
        assert_eq!(regions, ["eu", "eu", "us", "us"], "{rules}");
        site.shut_down().await;
    }
}

/// S3-8: separate regions with the same rules: each region has servers for silos of its own. They share a store, match their own
/// players only, and refuse those of the other region.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn regions_of_their_own_are_silos_of_their_own_servers() {
    let test = "regions_of_their_own_are_silos_of_their_own_servers";
    let Some(database) = create_test_database(test).await else { return };
    let rules = tempfile::tempdir().expect("a folder");
    std::fs::write(rules.path().join("duel.xml"), duel_ruleset("")).expect("rules");
    let folder = rules.path().display().to_string();
    let eu = Replicas::start(&database, 1, &["--rulesets", &folder, "--silos", "1"]);
    let us = [eu.start_another(&database, &["--rulesets", &folder, "--silos", "2"])];
    let (eu, us) = (eu.servers[0].client().await, us[0].client().await);
    let request = |name: &str, silo: u64| {
        let mut request = enter_request(SET_ID, &[(name, 20.0)]);
        request.session_composition.as_mut().expect("a party").silo_id = Some(silo);
        request
    };
    let enter = async |client: &Client, name: &str, silo: u64| {
        QueuedParty::enter_with_client(client.clone(), request(name, silo)).await
    };
    let mut ann = enter(&eu, "ann", 1).await;
    let mut bob = enter(&us, "bob", 2).await;
    for (client, silo) in [(&eu, 2), (&us, 1)] {
        let refused = client.enter_queue(request("lost", silo)).await.expect_err("a silo of the other region");
        assert_eq!(refused.code(), Some(Code::InvalidArgument), "{refused}");
        assert_eq!(refused.fields()[0].field, "session_composition.silo_id");
    }
    for party in [&mut ann, &mut bob] {
        assert_eq!(party.ticket.heartbeat().await.expect("heartbeat").state(), TicketState::Waiting);
    }
    let mut cid = enter(&eu, "cid", 1).await;
    let mut dan = enter(&us, "dan", 2).await;
    let mut matches = Vec::new();
    for party in [&mut ann, &mut cid, &mut bob, &mut dan] {
        matches.push(party.wait_for_state(TicketState::Matched).await.found_match.expect("a match").match_id);
    }
    assert_eq!((&matches[0], &matches[2]), (&matches[1], &matches[3]));
    assert_ne!(matches[0], matches[2]);
    // A ticket of the other region is unknown, though both regions share the store.
    let of_ann = pb::QueueHeartbeatRequest { tickets: vec![ann.ticket.reference()], ..Default::default() };
    assert_eq!(us.heartbeat_tickets(of_ann).await.expect("heartbeat").statuses[0].state(), TicketState::Ended);
    let answer = pb::QueueRespondRequest {
        ticket_id: ann.ticket.id().to_owned(),
        ticket_token: ann.ticket.reference().ticket_token,
        match_id: matches[0].clone(),
        accept: true,
        ..Default::default()
    };
    assert_eq!(us.respond_to_ready_check(answer).await.expect_err("unknown").code(), Some(Code::NotFound));
}
