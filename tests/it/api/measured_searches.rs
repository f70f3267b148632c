//! Measurements of a search count in all its later calls, at every server: silent hosts are gone, and measured round trips replace
//! estimates in filters, scores, order and reservations.

use std::sync::Arc;

use fireteam::config::RulesetSource;
use fireteam_client::{Client, Error, SearchSession, pb};

use crate::security::session_privacy::servers_on_one_postgres;
use crate::support::database::create_test_database;
use crate::support::queue_server::wait_until;
use crate::support::ruleset_dir::RulesetDirectory;
use crate::support::test_server::{TestClock, TestServer, advertise_request, party_session};

/// Round trips up to 100 ms, the shorter the better. Hosts state round trips to a region, from which the estimate follows.
fn ruleset(set_id: u32, latency: &str, soft_filter: &str) -> String {
    format!(
        r#"<Ruleset Name="measured {set_id}" SetId="{set_id}">
  <Attributes><Attribute Name="skill" Type="number" Min="-1000" Max="1000" Trust="client"/></Attributes>
  <HardFilters><Within Expansion="net"/></HardFilters>
  <SoftFilters><SoftFilter Attribute="latency" Weight="1" Min="0" Max="1000"/>{soft_filter}</SoftFilters>
  <ExpansionConfigs><ExpansionConfig Name="net" Type="latency">
    <Expansion ExpansionDurationMs="-1" Value="100"/>
  </ExpansionConfig></ExpansionConfigs>
  <Latency {latency}/>
</Ruleset>"#
    )
}

pub(super) fn located(mut session: pb::SessionCompositionData, round_trip_ms: f32) -> pb::SessionCompositionData {
    session.region_latencies = vec![pb::RegionLatency { region: "frankfurt".into(), round_trip_ms }];
    session
}

/// Advertises a session of `user` in a set, this far from the region. Returns its id.
pub(super) async fn advertise(client: &Client, set_id: u32, user: &str, round_trip_ms: f32) -> String {
    let mut request = advertise_request(&[(user, 0.0)], 8);
    request.matchmaking_set_id = Some(set_id);
    request.session_composition = request.session_composition.map(|session| located(session, round_trip_ms));
    client.update_advertisement(request).await.expect("published").advertisement_id
}

pub(super) fn searching(client: &Client, set_id: u32) -> SearchSession {
    client.new_search(set_id, located(party_session(&[("searcher", 0.0)]), 25.0))
}

pub(super) fn ids(candidates: &[pb::Candidate]) -> Vec<&str> {
    candidates.iter().map(|candidate| &*candidate.advertisement_id).collect()
}

pub(super) fn reason(error: &Error) -> Option<&str> {
    error.as_server_error().and_then(|status| status.reason.as_deref())
}

fn measurement(id: &str, statistics: pb::RoundTripStatistics) -> pb::LatencyMeasurement {
    pb::LatencyMeasurement { advertisement_id: id.into(), statistics: Some(statistics), ..Default::default() }
}

fn packets(sent: u32, answered: u32, floor_ms: f32, p50_ms: f32, jitter_ms: f32) -> pb::RoundTripStatistics {
    pb::RoundTripStatistics {
        sent,
        answered,
        floor_ms: Some(floor_ms),
        p50_ms: Some(p50_ms),
        jitter_ms: Some(jitter_ms),
        age_ms: Some(5),
    }
}

async fn report(
    client: &Client,
    search: &mut SearchSession,
    measurements: Vec<pb::LatencyMeasurement>,
) -> Result<pb::MatchmakingReportLatencyResponse, Error> {
    let request = search.request_mut();
    let report = pb::MatchmakingReportLatencyRequest {
        search_token: request.search_token.clone(),
        phase: pb::LatencyPhase::Quick.into(),
        measurements,
        session_composition: request.session_composition.clone(),
        matchmaking_set_id: request.matchmaking_set_id,
        ..Default::default()
    };
    let answer = client.report_latency(report).await?;
    request.search_token.clone_from(&answer.search_token);
    Ok(answer)
}

pub(super) const QUICK: pb::LatencyPhase = pb::LatencyPhase::Quick;

/// S1-28, S1-29, S1-31: a host that did not answer is in no later answer of the search and cannot be reserved; one that is measured
/// beyond the limit is refused by name; measured round trips give the order. So it is at another server, and after both have restarted.
/// Another search knows nothing of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn measurements_count_in_later_calls_at_every_server() {
    let Some(database) = create_test_database("measured_searches").await else { return };
    let clock = Arc::new(TestClock::new());
    let folder = RulesetDirectory::with_files(&[("measured.xml", &ruleset(1, "", ""))]);
    let configure = |config: &mut fireteam::config::Config| {
        config.rulesets = RulesetSource::Directory(folder.path().to_owned());
        config.token_key_file = Some(folder.path().join("token-key"));
    };
    let (one, other) = servers_on_one_postgres(&database.url, &clock, configure).await;
    let client = one.client().await;
    let near = advertise(&client, 1, "near", 25.0).await;
    let fast = advertise(&client, 1, "fast", 75.0).await;
    let slow = advertise(&client, 1, "slow", 25.0).await;
    let silent = advertise(&client, 1, "silent", 25.0).await;
    let mut search = searching(&client, 1);
    let found = search.search().await.expect("a search");
    assert_eq!(found.candidates.len(), 4, "by the estimates, all are near enough");
    let source = |candidate: &pb::Candidate| candidate.round_trip_source();
    assert!(found.candidates.iter().all(|candidate| source(candidate) == pb::RoundTripSource::Region));

    let measured = [(&near, Some(40.0)), (&fast, Some(20.0)), (&slow, Some(250.0)), (&silent, None)];
    let measured = measured.map(|(id, ms)| (id.clone(), ms));
    let ranked = search.report_latency(QUICK, measured).await.expect("a report");
    assert_eq!(ids(&ranked.candidates), [&*fast, &*near]);
    assert_eq!((ranked.answered, ranked.probed, ranked.involved_phase_may_start), (3, 4, true));

    let check = async |server: &TestServer, another: &str| {
        let client = server.client().await;
        let mut elsewhere = searching(&client, 1);
        elsewhere.request_mut().search_token.clone_from(&search.clone().request_mut().search_token);
        let found = elsewhere.search().await.expect("a search");
        assert_eq!(ids(&found.candidates), [&*fast, &*near]);
        assert_eq!(found.candidates[0].round_trip_ms, Some(20.0));
        assert!(found.candidates.iter().all(|candidate| source(candidate) == pb::RoundTripSource::Measured));
        let refusals: Vec<_> =
            found.refusals.iter().map(|refusal| (refusal.kind(), &*refusal.rule, refusal.count)).collect();
        let expected = [(pb::RefusalKind::Filter, "latency", 1), (pb::RefusalKind::Silent, "", 1)];
        assert!(expected.iter().all(|refusal| refusals.contains(refusal)), "{refusals:?}");
        let error = elsewhere.reserve(&silent).await.expect_err("silent");
        assert_eq!(reason(&error), Some("SILENT"));
        let error = elsewhere.reserve(&slow).await.expect_err("too slow");
        assert_eq!(reason(&error), Some("REFUSED_BY_RULE"));
        // Another player for each server: a server may know a seat of another one longer than it lasts.
        let mut new = client.new_search(1, located(party_session(&[(another, 0.0)]), 25.0));
        assert_eq!(new.search().await.expect("a search").candidates.len(), 4);
        assert!(new.reserve(&silent).await.expect("another search").release().await.is_ok());
    };
    check(&one, "second").await;
    let follower = other.client().await;
    wait_until("the other server knows all sessions", async || {
        searching(&follower, 1).search().await.is_ok_and(|found| found.candidates.len() == 4)
    })
    .await;
    check(&other, "third").await;
    let one = one.restart().await;
    check(&one, "fourth").await;
}

/// S1-29: the involved phase starts only after enough quick probes of the same search.
#[tokio::test]
async fn involved_report_before_enough_quick_answers_is_refused() {
    let folder = RulesetDirectory::with_files(&[("measured.xml", &ruleset(1, r#"InvolvedPhasePercent="80""#, ""))]);
    let server = folder.start_server().await;
    let client = server.client().await;
    let (a, b) = (advertise(&client, 1, "a", 25.0).await, advertise(&client, 1, "b", 25.0).await);
    let mut search = searching(&client, 1);
    search.search().await.expect("a search");
    let involved = pb::LatencyPhase::Involved;
    let error = search.report_latency(involved, [(a.clone(), Some(20.0))]).await.expect_err("no quick probe yet");
    assert_eq!(reason(&error), Some("INVOLVED_TOO_EARLY"));
    let half = [(a.clone(), Some(20.0)), (b.clone(), None)];
    let early = search.report_latency(QUICK, half).await.expect("a report");
    assert_eq!((early.answered, early.probed, early.involved_phase_may_start), (1, 2, false));
    let error = search.report_latency(involved, [(a.clone(), Some(20.0))]).await.expect_err("half is too few");
    assert_eq!(reason(&error), Some("INVOLVED_TOO_EARLY"));
    // The share is of the whole search: this report alone has an answer from each.
    let later = search.report_latency(QUICK, [(b.clone(), Some(30.0))]).await.expect("a report");
    assert_eq!((later.answered, later.probed, later.involved_phase_may_start), (2, 2, true));
    let ranked = search.report_latency(involved, [(a.clone(), Some(35.0)), (b.clone(), Some(30.0))]).await;
    assert_eq!(ids(&ranked.expect("a report").candidates), [&*b, &*a]);
}

/// A measurement that is a minute old counts only where it is longer than the estimate.
#[tokio::test]
async fn old_measurement_counts_as_the_larger_of_measured_and_estimated() {
    let folder = RulesetDirectory::with_files(&[("measured.xml", &ruleset(1, "", ""))]);
    let server = folder.start_server().await;
    let client = server.client().await;
    // Estimated 50 and 75 ms, after rounding to 25 ms.
    let (a, b) = (advertise(&client, 1, "a", 50.0).await, advertise(&client, 1, "b", 75.0).await);
    let mut search = searching(&client, 1);
    search.search().await.expect("a search");
    let measured = [(a.clone(), Some(20.0)), (b.clone(), Some(90.0))];
    search.report_latency(QUICK, measured).await.expect("a report");
    let round_trips = |found: &pb::MatchmakingSearchResponse| -> Vec<Option<f32>> {
        found.candidates.iter().map(|candidate| candidate.round_trip_ms).collect()
    };
    server.clock.advance_ms(40_000);
    let found = search.search().await.expect("a search");
    assert_eq!((ids(&found.candidates), round_trips(&found)), (vec![&*a, &*b], vec![Some(20.0), Some(90.0)]));
    server.clock.advance_ms(19_000);
    let found = search.search().await.expect("a search");
    assert_eq!(round_trips(&found), [Some(20.0), Some(90.0)]);
    server.clock.advance_ms(5_000);
    let found = search.search().await.expect("a search");
    assert_eq!(round_trips(&found), [Some(50.0), Some(90.0)], "answers round an estimate, and no measurement");
    assert_eq!(found.candidates[0].round_trip_source(), pb::RoundTripSource::Region);
}

/// With `Join="measured"`, only measured sessions can be reserved.
#[tokio::test]
async fn join_measured_refuses_what_was_not_measured() {
    let folder = RulesetDirectory::with_files(&[("measured.xml", &ruleset(1, r#"Join="measured""#, ""))]);
    let server = folder.start_server().await;
    let client = server.client().await;
    let (a, b) = (advertise(&client, 1, "a", 25.0).await, advertise(&client, 1, "b", 25.0).await);
    let mut search = searching(&client, 1);
    search.search().await.expect("a search");
    let error = search.reserve(&a).await.expect_err("nothing was measured");
    assert_eq!(reason(&error), Some("NOT_MEASURED"));
    search.report_latency(QUICK, [(a.clone(), Some(20.0))]).await.expect("a report");
    let error = search.reserve(&b).await.expect_err("the other was measured");
    assert_eq!(reason(&error), Some("NOT_MEASURED"));
    search.reserve(&a).await.expect("measured");
}

/// Lost packets and jitter refuse, by the interval's low end, and weigh; unknown ones are never perfect.
#[tokio::test]
async fn packet_loss_and_jitter_refuse_and_weigh() {
    let limits = ruleset(1, r#"MaxLossPercent="20" MaxJitterMs="15""#, "");
    let weights = ruleset(
        2,
        "",
        r#"<SoftFilter Attribute="packet_loss" Weight="100"/><SoftFilter Attribute="jitter" Weight="100"/>"#,
    );
    let folder = RulesetDirectory::with_files(&[("limits.xml", &limits), ("weights.xml", &weights)]);
    let server = folder.start_server().await;
    let client = server.client().await;
    for set_id in [1, 2] {
        let mut hosts = Vec::new();
        for name in ["clean", "lossy", "few", "shaky", "unknown"] {
            hosts.push(advertise(&client, set_id, name, 25.0).await);
        }
        let [clean, lossy, few, shaky, unknown] = &hosts[..] else { unreachable!() };
        let mut search = searching(&client, set_id);
        search.search().await.expect("a search");
        let measured = vec![
            measurement(clean, packets(10, 10, 19.0, 20.0, 2.0)),
            // 12 of 20 lost: 39 to 78 %. 3 of 20 lost: 5 to 36 %, no evidence for more than 20 %.
            measurement(lossy, packets(20, 8, 19.0, 20.0, 2.0)),
            measurement(few, packets(20, 17, 19.0, 20.0, 2.0)),
            measurement(shaky, packets(10, 10, 19.0, 20.0, 40.0)),
            pb::LatencyMeasurement {
                advertisement_id: unknown.clone(),
                round_trip_ms: Some(20.0),
                ..Default::default()
            },
        ];
        let ranked = report(&client, &mut search, measured).await.expect("a report");
        let found = search.search().await.expect("a search");
        assert_eq!(ids(&found.candidates), ids(&ranked.candidates), "a later search gives the same order");
        if set_id == 1 {
            let mut kept = vec![&**clean, &**few, &**unknown];
            kept.sort_unstable();
            let mut ids = ids(&found.candidates);
            ids.sort_unstable();
            assert_eq!(ids, kept);
            let rules: Vec<(&str, u32)> =
                found.refusals.iter().map(|refusal| (&*refusal.rule, refusal.count)).collect();
            assert!(rules.contains(&("max_packet_loss", 1)) && rules.contains(&("max_jitter", 1)), "{rules:?}");
        } else {
            // Jitter counts from 0 to 100 ms, loss from 0 to 20 %: what is unknown counts as the most.
            assert_eq!(ids(&found.candidates), [&**clean, &**shaky, &**few, &**lossy, &**unknown]);
        }
    }
}

/// `Figure="floor"` counts the least round trip, the default the median.
#[tokio::test]
async fn figure_chooses_median_or_floor() {
    let folder = RulesetDirectory::with_files(&[
        ("median.xml", &ruleset(1, "", "")),
        ("floor.xml", &ruleset(2, r#"Figure="floor""#, "")),
    ]);
    let server = folder.start_server().await;
    let client = server.client().await;
    for (set_id, counted_ms) in [(1, 40.0), (2, 20.0)] {
        let host = advertise(&client, set_id, "host", 25.0).await;
        let mut search = searching(&client, set_id);
        search.search().await.expect("a search");
        let measured = vec![measurement(&host, packets(10, 10, 20.0, 40.0, 3.0))];
        let ranked = report(&client, &mut search, measured).await.expect("a report");
        assert_eq!(ranked.candidates[0].round_trip_ms, Some(counted_ms), "set {set_id}");
    }
}

/// A search keeps 64 results. When there are more, it forgets answers first: silent hosts stay away.
#[tokio::test]
async fn search_with_more_than_64_results_still_knows_the_silent_hosts() {
    let folder = RulesetDirectory::with_files(&[("measured.xml", &ruleset(1, r#"QuickProbe="50""#, ""))]);
    let server =
        folder.start_server_with_config(|config| config.rate_limits = fireteam::config::RateLimitSetting::Off).await;
    let client = server.client().await;
    let mut hosts = Vec::new();
    for index in 0..100 {
        hosts.push(advertise(&client, 1, &format!("host {index}"), 25.0).await);
    }
    let mut search = searching(&client, 1);
    search.search().await.expect("a search");
    let (silent, answering) = hosts.split_at(50);
    search.report_latency(QUICK, silent.iter().map(|id| (id.clone(), None))).await.expect("a report");
    let answers = answering.iter().map(|id| (id.clone(), Some(20.0)));
    let ranked = search.report_latency(QUICK, answers).await.expect("a report");
    assert_eq!((ranked.answered, ranked.probed), (50, 100));
    let token = search.request_mut().search_token.clone();
    assert!(token.len() <= 1_024, "{} bytes", token.len());
    let found = search.search().await.expect("a search");
    assert!(found.candidates.iter().all(|candidate| answering.contains(&candidate.advertisement_id)));
    for id in silent {
        assert_eq!(reason(&search.reserve(id).await.expect_err("silent")), Some("SILENT"));
    }
    assert!(search.reserve(&answering[0]).await.is_ok());
}

/// An invalid measurement is refused with the path of each wrong field, and nothing of the report counts.
#[tokio::test]
async fn invalid_measurements_are_refused_by_field() {
    let folder = RulesetDirectory::with_files(&[("measured.xml", &ruleset(1, "", ""))]);
    let server = folder.start_server().await;
    let client = server.client().await;
    let host = advertise(&client, 1, "host", 25.0).await;
    let mut search = searching(&client, 1);
    search.search().await.expect("a search");
    let with_outcome = |outcome: pb::ProbeOutcome, round_trip_ms| pb::LatencyMeasurement {
        advertisement_id: host.clone(),
        round_trip_ms,
        statistics: None,
        outcome: outcome.into(),
    };
    let without = |change: fn(&mut pb::RoundTripStatistics)| {
        let mut statistics = packets(10, 9, 20.0, 25.0, 3.0);
        change(&mut statistics);
        measurement(&host, statistics)
    };
    let cases = [
        (without(|it| it.sent = 0), "statistics.sent"),
        (without(|it| it.sent = 1_001), "statistics.sent"),
        (without(|it| it.answered = 11), "statistics.answered"),
        (without(|it| it.floor_ms = None), "statistics.floor_ms"),
        (without(|it| it.p50_ms = None), "statistics.p50_ms"),
        (without(|it| it.p50_ms = Some(19.0)), "statistics.p50_ms"),
        (without(|it| it.jitter_ms = Some(-1.0)), "statistics.jitter_ms"),
        (without(|it| it.floor_ms = Some(f32::NAN)), "statistics.floor_ms"),
        (with_outcome(pb::ProbeOutcome::Answered, None), "round_trip_ms"),
        (with_outcome(pb::ProbeOutcome::Silent, Some(20.0)), "outcome"),
        (with_outcome(pb::ProbeOutcome::NotProbed, Some(20.0)), "outcome"),
    ];
    for (wrong, field) in cases {
        let error = report(&client, &mut search, vec![wrong]).await.expect_err("an invalid measurement");
        let fields: Vec<String> = error
            .as_server_error()
            .expect("a server's error")
            .field_violations
            .iter()
            .map(|it| it.field.clone())
            .collect();
        assert!(fields.contains(&format!("measurements[0].{field}")), "{fields:?} has no {field}");
        assert_eq!(search.search().await.expect("a search").candidates.len(), 1, "nothing of the report counts");
    }
    // A full host leaves one answer, an unprobed one stays by its estimate.
    let answer =
        report(&client, &mut search, vec![with_outcome(pb::ProbeOutcome::Full, None)]).await.expect("a report");
    assert_eq!(answer.candidates.len(), 0);
    let unprobed = vec![with_outcome(pb::ProbeOutcome::NotProbed, None)];
    let answer = report(&client, &mut search, unprobed).await.expect("a report");
    assert_eq!((answer.candidates.len(), answer.probed), (1, 0));
    let incompatible = vec![with_outcome(pb::ProbeOutcome::Incompatible, Some(20.0))];
    let answer = report(&client, &mut search, incompatible).await.expect("a report");
    assert_eq!((answer.candidates.len(), answer.answered, answer.probed), (0, 1, 1));
    assert!(search.search().await.expect("a search").candidates.is_empty());
}

/// Delta ping is the round trip, estimated or measured, less the searcher's least to a region. Without regions it is missing. A host
/// nearer than the nearest region costs nothing.
#[tokio::test]
async fn delta_ping_weighs_a_round_trip_by_the_best_that_the_searcher_has() {
    let soft = r#"<SoftFilter Attribute="delta_ping" Weight="100" Min="0" Max="100"/>"#;
    let folder = RulesetDirectory::with_files(&[("delta.xml", &ruleset(1, "", soft))]);
    let server = folder.start_server().await;
    let client = server.client().await;
    let near = advertise(&client, 1, "near", 25.0).await;
    let far = advertise(&client, 1, "far", 75.0).await;
    let mut composition = located(party_session(&[("searcher", 0.0)]), 25.0);
    composition.region_latencies.push(pb::RegionLatency { region: "oslo".into(), round_trip_ms: 50.0 });
    let mut search = client.new_search(1, composition);
    let found = search.search().await.expect("a search");
    // The larger of both round trips to Frankfurt is the estimate; the searcher's best region is 25 ms away.
    assert_eq!(delta_ping_terms(&found.candidates), [(&*near, 0.0), (&*far, 50.0)]);

    let measured =
        vec![measurement(&near, packets(10, 10, 64.0, 65.0, 2.0)), measurement(&far, packets(10, 10, 9.0, 10.0, 2.0))];
    report(&client, &mut search, measured).await.expect("a report");
    let found = search.search().await.expect("a search");
    assert_eq!(delta_ping_terms(&found.candidates), [(&*far, 0.0), (&*near, 40.0)]);

    let mut homeless = client.new_search(1, party_session(&[("homeless", 0.0)]));
    let found = homeless.search().await.expect("a search");
    let mut terms = delta_ping_terms(&found.candidates);
    terms.sort_by_key(|(id, _)| *id != near);
    assert_eq!(terms, [(&*near, 100.0), (&*far, 100.0)]);
}

fn delta_ping_terms(candidates: &[pb::Candidate]) -> Vec<(&str, f64)> {
    let term = |candidate: &pb::Candidate| {
        candidate.terms.iter().find(|term| term.name == "delta_ping").map(|term| term.value)
    };
    candidates.iter().map(|it| (&*it.advertisement_id, term(it).expect("a term of delta ping"))).collect()
}
