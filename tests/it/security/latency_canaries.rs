//! Privacy canaries of latency: round trips to beacons, receipts, bindings and latency tokens of a player must not appear in what others
//! receive, nor in logs, metrics, exports or the database.

use std::path::Path;
use std::time::Duration;

use fireteam::auth::identity::Role;
use fireteam::clock::{Clock as _, SystemClock};
use fireteam_client::{Client, SearchSession, Ticket, TokenSource, pb};
use prost::Message as _;
use tokio::task::JoinHandle;

use crate::security::beacon_receipts::{FLEET_KEY, LatencyCaller, TestBeacon};
use crate::security::canaries::{
    CANARY_LOCATIONS, CanaryPatterns, RecordedBytes, VERBOSE_FLAGS, assert_no_canary, base64_patterns, contains,
    database_bytes, patterns_found_in, start_recording_proxy, text_patterns,
};
use crate::security::predicted_searches::{BEACONS, announce, path_ms, test_beacons};
use crate::support::certs::write_private_file;
use crate::support::generated_client as wire;
use crate::support::queue_server::{enter_request, wait_until};
use crate::support::server_process::ServerProcess;
use crate::support::test_server::{advertise_request, party_session};
use crate::support::tokens::{AUDIENCE, ISSUER, TokenIssuer};

const SEARCH_SET: u32 = 1;
/// Queue in which any two players meet.
const QUEUE_SET: u32 = 2;
/// Queue in which none do: the limit is 1 ms.
const NARROW_QUEUE_SET: u32 = 3;
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(5);
/// Round trip that a searcher measures to a host, milliseconds.
const MEASURED_MS: f32 = 33.375;

/// Writes the rulesets, the fleet key and the key of callers' tokens, and starts a server with a debug log.
fn start_server(folder: &Path, issuer: &TokenIssuer) -> ServerProcess {
    let ruleset = |set_id: u32, more: &str| {
        format!(
            r#"<Ruleset Name="canaries {set_id}" SetId="{set_id}">
  <Attributes><Attribute Name="skill" Type="number" Min="-1000" Max="1000" Trust="client"/></Attributes>
  {more}
  <SoftFilters><SoftFilter Attribute="latency" Weight="1" Min="0" Max="1000"/></SoftFilters>
  <Latency Source="predicted"/>
  <Party Consent="assumed"/>
</Ruleset>"#
        )
    };
    let queue = r#"<Teams Count="2" Size="1"/><Hosting Mode="none"/><Queue PassIntervalMs="10"/>"#;
    let pairs = queue.replace(r#"Size="1""#, r#"Size="2""#);
    let narrow = format!(
        r#"<HardFilters><Within Expansion="reach"/></HardFilters>
  <ExpansionConfigs><ExpansionConfig Name="reach" Type="latency"><Expansion ExpansionDurationMs="-1" Value="1"/></ExpansionConfig></ExpansionConfigs>
  {queue}"#
    );
    let rulesets = folder.join("rules");
    std::fs::create_dir(&rulesets).unwrap();
    for (set_id, more) in
        [(SEARCH_SET, ""), (QUEUE_SET, queue), (NARROW_QUEUE_SET, &*narrow), (PAIRS_QUEUE_SET, &*pairs)]
    {
        std::fs::write(rulesets.join(format!("{set_id}.xml")), ruleset(set_id, more)).unwrap();
    }
    let digits: String = FLEET_KEY.iter().map(|byte| format!("{byte:02x}")).collect();
    write_private_file(&folder.join("fleet-key"), &digits);
    drop(issuer.write_jwt_settings(folder));
    let identified: [&[&str]; 3] = [
        &["--auth-keys", "jwks.json", "--auth-issuer", ISSUER, "--auth-audience", AUDIENCE],
        &["--rate-limits", "off", "--token-key-file", "token-key"],
        &["--rulesets", "rules", "--beacon-fleet-key-file", "fleet-key"],
    ];
    ServerProcess::start(folder, &[&VERBOSE_FLAGS[..], &identified.concat()].concat())
}

/// Queue in which any two pairs meet.
const PAIRS_QUEUE_SET: u32 = 4;
/// Median and jitter of a probe run that a searcher reports, milliseconds.
const REPORTED_P50_MS: f32 = 41.734_5;
const REPORTED_JITTER_MS: f32 = 17.263_4;

/// A number of milliseconds as text, also in seconds, and as binary figures.
fn number_patterns(description: &str, value: f64) -> CanaryPatterns {
    let figures = [
        ("a double", value.to_le_bytes().to_vec()),
        ("a double, high byte first", value.to_be_bytes().to_vec()),
        ("a float", (value as f32).to_le_bytes().to_vec()),
        ("a float, high byte first", (value as f32).to_be_bytes().to_vec()),
    ];
    let mut patterns: CanaryPatterns = figures.map(|(kind, bytes)| (format!("{description} as {kind}"), bytes)).into();
    patterns.extend(text_patterns_of_ms(description, value));
    patterns
}

/// Milliseconds as text, in milliseconds and in seconds, as metrics have them.
fn text_patterns_of_ms(description: &str, ms: f64) -> CanaryPatterns {
    let mut patterns = text_of_number(description, &ms.to_string());
    // Digits that do not depend on how the quotient is rounded; those of a millisecond at least, or they would be found by chance.
    let seconds = format!("{:.12}", ms / 1_000.0);
    let digits = seconds[..seconds.len() - 3].trim_end_matches('0');
    patterns.extend(text_of_number(&format!("{description}, seconds"), digits));
    patterns
}

/// A number as text in logs and metrics. With the character before it, because the time of a log line has the same digits now and then.
fn text_of_number(description: &str, text: &str) -> CanaryPatterns {
    let after =
        |before: char| (format!("{description} as text after {before:?}"), format!("{before}{text}").into_bytes());
    [' ', '=', '(', '[', '"'].map(after).into()
}

/// Secret bytes, as they are and in base64.
fn secret_patterns(description: &str, bytes: &[u8]) -> CanaryPatterns {
    let mut patterns = base64_patterns(description, bytes);
    patterns.push((description.to_owned(), bytes.to_vec()));
    patterns
}

/// A player with a latency token, whose answers are recorded.
struct Player {
    name: &'static str,
    address: &'static str,
    client: Client,
    token: Vec<u8>,
    answers: RecordedBytes,
    /// Values that no one else may see.
    patterns: CanaryPatterns,
}

impl Player {
    /// Measures the beacons from the `number`th canary location, and reports their receipts.
    async fn start(
        server: &ServerProcess,
        issuer: &TokenIssuer,
        beacons: &mut [TestBeacon],
        (name, number): (&'static str, usize),
    ) -> Self {
        let (address, latitude, longitude) = CANARY_LOCATIONS[number];
        let answers = RecordedBytes::default();
        let proxy = start_recording_proxy(server.address, None, &answers).await;
        let client = Client::connect(format!("http://{proxy}")).await.expect("connect");
        let client = client.with_metadata("x-forwarded-for", address).expect("a header");
        let client =
            client.with_token_source(TokenSource::fixed(&issuer.sign_token(Role::Client, name)).expect("a token"));
        let caller = LatencyCaller::at(proxy, issuer, Role::Client, name, address).await;
        let (binding, now_s) = (caller.binding().await, SystemClock::start().now().0 / 1_000);
        let mut patterns = secret_patterns(&format!("binding of {name}"), &binding);
        let (mut receipts, mut claims) = (Vec::new(), Vec::new());
        for beacon in beacons {
            let path_ms = path_ms((latitude, longitude), BEACONS[beacon.id as usize - 1]) + 11.0 * number as f64;
            // An odd number of eighths of a millisecond: three decimals.
            let eighths = (path_ms * 8.0) as u64 | 1;
            let receipt = beacon.receipt_of_micros(address, eighths * 125, &binding, now_s);
            let description = format!("round trip of {name} to beacon {}", beacon.id);
            patterns.extend(number_patterns(&description, eighths as f64 / 8.0));
            let entry = [&beacon.id.to_be_bytes()[..], &(eighths as u16).to_be_bytes(), &[1]].concat();
            patterns.extend(secret_patterns(&format!("{description} in a token"), &entry));
            patterns.extend(text_of_number(&format!("{description}, microseconds"), &(eighths * 125).to_string()));
            patterns.extend(secret_patterns(&format!("signature of the receipt of {description}"), &receipt[48..]));
            receipts.push(receipt);
            // The client's own words, beside the receipt.
            let (floor_ms, p50_ms) = (eighths as f32 / 8.0, eighths as f32 / 8.0 + 1.234_5);
            let jitter_ms = 5.678_9 + number as f32 + beacon.id as f32 / 1_000.0;
            let statistics = pb::RoundTripStatistics {
                sent: 7,
                answered: 5,
                floor_ms: Some(floor_ms),
                p50_ms: Some(p50_ms),
                jitter_ms: Some(jitter_ms),
                age_ms: Some(5),
            };
            claims.push(pb::BeaconClaim { beacon_id: beacon.id, statistics: Some(statistics) });
            for (figure, ms) in [("median", p50_ms), ("jitter", jitter_ms)] {
                let stated = format!("{figure} of {name} to beacon {}", beacon.id);
                patterns.extend(text_of_number(&stated, &ms.to_string()));
                patterns.extend(text_patterns_of_ms(&stated, ms.into()));
            }
        }
        let report = caller.report_with_claims(receipts, claims).await;
        assert!(report.verdicts().all(|verdict| verdict == pb::ReceiptVerdict::Proven), "{report:?}");
        let token = report.latency_token;
        patterns.extend(secret_patterns(&format!("end of the latency token of {name}"), &token[token.len() - 24..]));
        patterns.extend(text_patterns(&format!("address of {name}"), address));
        Self { name, address, client, token, answers, patterns }
    }

    /// The player as a member of another one's party, with an own latency token.
    fn as_member(&self) -> pb::PlayerData {
        pb::PlayerData {
            user_id: self.name.to_owned(),
            skill: Some(0.0),
            latency_token: self.token.clone(),
            ..Default::default()
        }
    }

    fn session_with(&self, member: &Player) -> pb::SessionCompositionData {
        let mut session = self.session();
        session.players.push(member.as_member());
        session.party_size_composition = vec![2];
        session
    }

    fn session(&self) -> pb::SessionCompositionData {
        pb::SessionCompositionData { latency_token: self.token.clone(), ..party_session(&[(self.name, 0.0)]) }
    }

    async fn enter(&self, set_id: u32) -> Ticket {
        let request = pb::QueueEnterRequest {
            session_composition: Some(self.session()),
            ..enter_request(set_id, &[(self.name, 0.0)])
        };
        self.client.enter_queue(request).await.expect("entered")
    }
}

/// One advertises, another searches with a member, measures and reserves. The first party leaves again; the second time the host confirms
/// the seats, and lists the two with their latency tokens as joined.
async fn search_reserve_and_join(host: &Player, searcher: &Player, member: &Player) {
    let mut request = advertise_request(&[], 4);
    request.matchmaking_set_id = Some(SEARCH_SET);
    request.session_composition =
        Some(pb::SessionCompositionData { max_allowed_join_reservation_count: Some(4), ..host.session() });
    let mut advertised = host.client.advertise(request.clone()).await.expect("published");
    let mut search = searcher.client.new_search(SEARCH_SET, searcher.session_with(member));
    let found = search.search().await.expect("a search").candidates;
    let sources: Vec<pb::RoundTripSource> = found.iter().map(pb::Candidate::round_trip_source).collect();
    assert_eq!(sources, [pb::RoundTripSource::Predicted]);
    report_statistics(searcher, &mut search, advertised.id()).await;
    let held = search.reserve(advertised.id()).await.expect("reserved");
    assert_eq!(advertised.heartbeat().await.expect("a heartbeat").reservations.len(), 1);
    held.release().await.expect("released");
    search.reserve(advertised.id()).await.expect("reserved again");
    let reserved = advertised.heartbeat().await.expect("a heartbeat").reservations;
    let ids: Vec<String> = reserved.into_iter().map(|reservation| reservation.reservation_id).collect();
    advertised.confirm_reservations(ids.clone()).await.expect("confirmed");
    let mut joined = advertise_request(&[], 2);
    let mut session = host.session();
    session.players.extend([searcher.as_member(), member.as_member()]);
    session.party_size_composition = vec![1, 2];
    session.max_allowed_join_reservation_count = Some(2);
    joined.session_composition = Some(session);
    joined.joined_reservation_ids = ids;
    advertised.replace_published(joined).await.expect("updated");
    assert_eq!(advertised.heartbeat().await.expect("a heartbeat").reservations.len(), 0, "the party has joined");
    // The two leave, and may find the session again.
    advertised.replace_published(request).await.expect("updated");
}

/// Reports all figures of a quick probe.
async fn report_statistics(searcher: &Player, search: &mut SearchSession, advertisement_id: &str) {
    let statistics = pb::RoundTripStatistics {
        sent: 7,
        answered: 5,
        floor_ms: Some(MEASURED_MS),
        p50_ms: Some(REPORTED_P50_MS),
        jitter_ms: Some(REPORTED_JITTER_MS),
        age_ms: Some(5),
    };
    let measured = pb::LatencyMeasurement {
        advertisement_id: advertisement_id.to_owned(),
        statistics: Some(statistics),
        ..Default::default()
    };
    let request = search.request_mut();
    let report = pb::MatchmakingReportLatencyRequest {
        search_token: request.search_token.clone(),
        phase: pb::LatencyPhase::Quick.into(),
        measurements: vec![measured],
        session_composition: request.session_composition.clone(),
        matchmaking_set_id: request.matchmaking_set_id,
        ..Default::default()
    };
    let answer = searcher.client.report_latency(report).await.expect("a report");
    assert_eq!(answer.answered, 1);
    request.search_token = answer.search_token;
}

/// Two parties of two meet in a queue. Each member renews the round trips of its own seat, by its own client, before the match ends.
async fn meet_as_pairs(pairs: [[&Player; 2]; 2]) {
    let mut tickets = Vec::new();
    for [leader, member] in pairs {
        let request = pb::QueueEnterRequest {
            session_composition: Some(leader.session_with(member)),
            ..enter_request(PAIRS_QUEUE_SET, &[])
        };
        tickets.push(leader.client.enter_queue(request).await.expect("entered"));
        let (own, _) = member.client.own_tickets_and_cooldowns().await.expect("the seat");
        let heartbeat = pb::QueueHeartbeatRequest {
            tickets: own.iter().map(Ticket::reference).collect(),
            latency_token: member.token.clone(),
            ..Default::default()
        };
        assert_eq!(member.client.heartbeat_tickets(heartbeat).await.expect("a heartbeat").statuses.len(), 1);
    }
    for mut ticket in tickets {
        let mut updates = ticket.watch();
        while updates.next().await.expect("a watch").expect("the ticket lives").found_match.is_none() {}
        ticket.leave().await.expect("left");
    }
}

/// Two players meet in a queue.
async fn meet_in_queue(one: &Player, other: &Player) {
    for ticket in [one.enter(QUEUE_SET).await, other.enter(QUEUE_SET).await] {
        let mut updates = ticket.watch();
        while updates.next().await.expect("a watch").expect("the ticket lives").found_match.is_none() {}
    }
}

/// Exact figures of the searcher's predicted round trip to the only session, which operators see and players do not.
async fn explained_patterns(server: &ServerProcess, issuer: &TokenIssuer, searcher: &Player) -> CanaryPatterns {
    let session = wire::SessionCompositionData::decode(&*searcher.session().encode_to_vec()).expect("a session");
    let search = wire::ExplainSearch {
        session_composition: Some(session),
        matchmaking_set_id: Some(SEARCH_SET),
        caller_address: searcher.address.to_owned(),
        ..Default::default()
    };
    let explain = wire::ExplainRequest { search: Some(search), ..Default::default() };
    let mut operator = server.operator_client().await;
    let explained =
        operator.explain(issuer.operator_request("ops", explain)).await.expect("an explanation").into_inner();
    let round_trip = explained.compatible_advertisements[0].round_trip.expect("a round trip");
    let terms = round_trip.prediction.expect("a predicted round trip");
    let figures = [
        ("predicted round trip", round_trip.round_trip_ms),
        ("low end", round_trip.low_ms.expect("an interval")),
        ("high end", round_trip.high_ms.expect("an interval")),
        ("part of the beacons", terms.beacon_part_ms),
        ("access delay", terms.near_access_ms),
        ("route", terms.far_route_ms),
        ("detour", terms.far_detour_ms),
    ];
    figures.into_iter().flat_map(|(description, value)| number_patterns(description, value)).collect()
}

/// Waits until two tickets that may not meet are judged by a predicted round trip.
async fn wait_for_prediction_in_queue(server: &ServerProcess, issuer: &TokenIssuer, ticket: &Ticket) {
    let mut operator = server.operator_client().await;
    wait_until("the other ticket is refused by prediction", async || {
        let explain = wire::ExplainRequest { ticket_id: ticket.id().to_owned(), ..Default::default() };
        let explained =
            operator.explain(issuer.operator_request("ops", explain)).await.expect("an explanation").into_inner();
        let source = |miss: &wire::NearMiss| miss.round_trip.map(|it| it.source());
        explained.near_misses.iter().any(|miss| source(miss) == Some(wire::RoundTripSource::Predicted))
    })
    .await;
}

/// Announces all beacons again and again, as beacons do: on a busy machine the test takes longer than one announcement counts.
fn keep_announcing(fleet: LatencyCaller) -> JoinHandle<()> {
    tokio::spawn(async move {
        let beacons = test_beacons();
        loop {
            tokio::time::sleep(ANNOUNCE_INTERVAL).await;
            announce(&fleet, &beacons).await;
        }
    })
}

/// SEC-9: after searches, probes with all figures, reservations that are released and joined, queues that predict round trips, and members
/// with own tokens, no one has received figures of another player, and the log, the metrics, an export and the database have none, in
/// milliseconds or in seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn canary_round_trips_are_absent_from_answers_to_others_logs_metrics_exports_and_database() {
    let folder = tempfile::tempdir().unwrap();
    let issuer = TokenIssuer::new(&SystemClock::start());
    let server = start_server(folder.path(), &issuer);
    let mut beacons = test_beacons();
    let fleet = LatencyCaller::at(server.address, &issuer, Role::GameServer, "fleet", "198.51.100.1").await;
    announce(&fleet, &beacons).await;
    let announcing = keep_announcing(fleet);
    let mut players = Vec::new();
    for named in [("canary-ana", 0), ("canary-ben", 1), ("canary-cyd", 2), ("canary-dan", 3)] {
        players.push(Player::start(&server, &issuer, &mut beacons, named).await);
    }
    let [ana, ben, cyd, dan] = &players[..] else { unreachable!() };
    meet_as_pairs([[ana, ben], [cyd, dan]]).await;
    search_reserve_and_join(ana, ben, cyd).await;
    meet_in_queue(cyd, dan).await;
    let waiting = ana.enter(NARROW_QUEUE_SET).await;
    ben.enter(NARROW_QUEUE_SET).await;
    wait_for_prediction_in_queue(&server, &issuer, &waiting).await;

    let of_pairs = explained_patterns(&server, &issuer, ben).await;
    let export = wire::ExportUserRequest { user_id: ana.name.to_owned(), ..Default::default() };
    let export =
        server.operator_client().await.export_user(issuer.operator_request("ops", export)).await.expect("an export");
    let export = export.into_inner().encode_to_vec();
    let metrics = server.operator_page("/metrics").await;
    assert!(metrics.contains("fireteam_round_trip_sources_total{source=\"predicted\"} 1\n"), "{metrics}");

    announcing.abort();
    server.terminate();
    let database = database_bytes(folder.path());
    let log = server.wait_for_exit().log;
    let at_rest = std::fs::read(folder.path().join("fireteam.db")).unwrap();
    let mut all: CanaryPatterns = players.iter().flat_map(|player| player.patterns.clone()).collect();
    all.extend(of_pairs.iter().cloned());
    all.extend(number_patterns("measured round trip", MEASURED_MS.into()));
    for (description, ms) in [("reported median", REPORTED_P50_MS), ("reported jitter", REPORTED_JITTER_MS)] {
        all.extend(number_patterns(description, ms.into()));
        all.extend(text_of_number(description, &ms.to_string()));
    }
    let outputs = [
        ("log", log.as_bytes()),
        ("metrics", metrics.as_bytes()),
        ("open database", &database[..]),
        ("closed database", &at_rest[..]),
    ];
    assert_no_canary(&outputs, &all);
    assert_eq!(patterns_found_in(&export, &all), [] as [String; 0], "export");
    for player in &players {
        let of_others = players.iter().filter(|other| other.name != player.name);
        let mut patterns: CanaryPatterns = of_others.flat_map(|other| other.patterns.clone()).collect();
        patterns.extend(of_pairs.iter().cloned());
        let answers = player.answers.lock().unwrap().clone();
        assert_no_canary(&[(player.name, &answers)], &patterns);
        assert!(contains(&answers, &player.token), "the proxy records answers");
    }
}
