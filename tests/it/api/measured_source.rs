//! Searches with `<Latency Source="measured">`: no estimate passes a hard filter, a measured round trip does for a minute.

use fireteam_client::{SearchSession, pb};

use crate::api::measured_searches::{QUICK, advertise, ids, reason, searching};
use crate::support::ruleset_dir::RulesetDirectory;

const ESTIMATED_SET: u32 = 1;
const MEASURED_SET: u32 = 2;
/// As the one before; a missing round trip passes.
const MISSING_PASSES_SET: u32 = 3;

/// Round trips to regions that clients state give the estimates.
const MEASURED: &str = r#"Source="measured" Trust="claimed""#;

/// Round trips up to 100 ms.
fn ruleset(set_id: u32, missing: &str, latency: &str) -> String {
    format!(
        r#"<Ruleset Name="source {set_id}" SetId="{set_id}">
  <Attributes><Attribute Name="skill" Type="number" Min="-1000" Max="1000" Trust="client"/></Attributes>
  <HardFilters><Within Expansion="net" Missing="{missing}"/></HardFilters>
  <SoftFilters><SoftFilter Attribute="latency" Weight="1" Min="0" Max="1000"/></SoftFilters>
  <ExpansionConfigs><ExpansionConfig Name="net" Type="latency">
    <Expansion ExpansionDurationMs="-1" Value="100"/>
  </ExpansionConfig></ExpansionConfigs>
  <Latency {latency}/>
</Ruleset>"#
    )
}

/// Candidates of the next search with their sources, and the sessions that the latency filter refused.
async fn found(search: &mut SearchSession) -> (Vec<(String, pb::RoundTripSource)>, u32) {
    let found = search.search().await.expect("a search");
    let refused = found.refusals.iter().filter(|refusal| refusal.rule == "latency").map(|refusal| refusal.count).sum();
    let source = |it: &pb::Candidate| (it.advertisement_id.clone(), it.round_trip_source());
    (found.candidates.iter().map(source).collect(), refused)
}

/// S1-28: with `Source="measured"` an estimate within the limit does not pass, and a measured round trip does, in searches and in Reserve.
/// A minute after the measurement it does not again, until the host is measured once more.
#[tokio::test]
async fn measured_source_admits_by_fresh_measurements_alone() {
    let folder = RulesetDirectory::with_files(&[
        ("estimated.xml", &ruleset(ESTIMATED_SET, "refuse", "")),
        ("measured.xml", &ruleset(MEASURED_SET, "refuse", MEASURED)),
    ]);
    let server = folder.start_server().await;
    let client = server.client().await;
    // By the region, both are 25 ms away.
    advertise(&client, ESTIMATED_SET, "near", 25.0).await;
    let (by_estimate, refused) = found(&mut searching(&client, ESTIMATED_SET)).await;
    assert_eq!((by_estimate.len(), refused), (1, 0));
    let near = advertise(&client, MEASURED_SET, "measured near", 25.0).await;
    let slow = advertise(&client, MEASURED_SET, "measured slow", 25.0).await;
    let mut search = searching(&client, MEASURED_SET);
    assert_eq!(found(&mut search).await, (Vec::new(), 2));
    assert_eq!(reason(&search.reserve(&near).await.expect_err("an estimate")), Some("REFUSED_BY_RULE"));

    let report = [(near.clone(), Some(40.0)), (slow.clone(), Some(140.0))];
    let ranked = search.report_latency(QUICK, report.clone()).await.expect("a report");
    assert_eq!(ids(&ranked.candidates), [&*near]);
    let admitted = (vec![(near.clone(), pb::RoundTripSource::Measured)], 1);
    assert_eq!(found(&mut search).await, admitted);
    search.reserve(&near).await.expect("measured").release().await.expect("released");
    for later_ms in [40_000, 19_000] {
        server.clock.advance_ms(later_ms);
        assert_eq!(found(&mut search).await, admitted);
    }
    server.clock.advance_ms(5_000);
    assert_eq!(found(&mut search).await, (Vec::new(), 2), "the measurement is a minute old");
    assert_eq!(reason(&search.reserve(&near).await.expect_err("expired")), Some("REFUSED_BY_RULE"));

    search.report_latency(QUICK, report).await.expect("a report");
    assert_eq!(found(&mut search).await, admitted);
}

/// With `Missing="pass"`, sessions are found before they are measured, also far ones; a measurement refuses them, and expires.
#[tokio::test]
async fn measured_source_with_missing_pass_refuses_by_fresh_measurements_alone() {
    let folder = RulesetDirectory::with_files(&[("missing.xml", &ruleset(MISSING_PASSES_SET, "pass", MEASURED))]);
    let server = folder.start_server().await;
    let client = server.client().await;
    let far = advertise(&client, MISSING_PASSES_SET, "far", 500.0).await;
    let mut search = searching(&client, MISSING_PASSES_SET);
    let unmeasured = (vec![(far.clone(), pb::RoundTripSource::Region)], 0);
    assert_eq!(found(&mut search).await, unmeasured, "its estimate of 500 ms is beyond the limit, and does not count");
    search.report_latency(QUICK, [(far.clone(), Some(140.0))]).await.expect("a report");
    assert_eq!(found(&mut search).await, (Vec::new(), 1));
    for _ in 0..2 {
        server.clock.advance_ms(35_000);
        search.search().await.expect("a search");
    }
    assert_eq!(found(&mut search).await, unmeasured);
}
