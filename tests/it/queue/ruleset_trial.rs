//! One ruleset with its curves and weights, and the trial of an edited ruleset on the tickets that wait.

use fireteam_client::Code;

use crate::support::generated_client as wire;
use crate::support::queue_server::{
    QueuedParty, SET_ID, duel_ruleset, operator_client, servers_on_each_store, start_queue_server, wait_until,
};

/// A 1v1 queue with a limit of skill, a wider limit after ten seconds, and two soft filters.
fn ruleset(first_limit: u32) -> String {
    format!(
        r#"<Ruleset Name="Tried" SetId="{SET_ID}">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="50" Unit="points" Trust="client"/></Attributes>
  <HardFilters><Within Name="near" Expansion="near"/></HardFilters>
  <SoftFilters><SoftFilter Attribute="latency" Weight="50%"/><SoftFilter Attribute="skill" Weight="50%"/></SoftFilters>
  <ExpansionConfigs><ExpansionConfig Name="near" Type="skill">
    <Expansion ExpansionDurationMs="10000" Value="{first_limit}"/><Expansion ExpansionDurationMs="-1" Value="30"/>
  </ExpansionConfig></ExpansionConfigs>
  <Teams Count="2" Size="1"/>
  <Queue PassIntervalMs="10"/>
</Ruleset>"#
    )
}

/// GetRuleset has the text, each step of a limit, the weights and what they trade.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn get_ruleset_has_limits_over_time_and_weights() {
    let (xml, windowed) = (ruleset(5), duel_ruleset("").replace(&format!("\"{SET_ID}\""), "\"12\""));
    let windowed = windowed.replace(r#"Start="2" Max="2""#, r#"Start="2" Max="4" Step="1" StepEveryMs="20000""#);
    let server = start_queue_server(&[&xml, &windowed]).await;
    let mut operator = operator_client(&server).await;
    let get = |set, hash| wire::GetRulesetRequest { matchmaking_set_id: set, service_configuration_hash: hash };
    let found = operator.get_ruleset(get(Some(SET_ID), None)).await.expect("get").into_inner();
    assert_eq!((found.name.as_str(), found.ruleset_xml.as_str()), ("Tried", xml.as_str()));
    let limit = &found.limits[0];
    let steps: Vec<_> = limit.steps.iter().map(|step| (step.from_ms, step.limit)).collect();
    assert_eq!((limit.name.as_str(), limit.unit.as_str(), steps), ("near", "points", vec![(0, 5.0), (10_000, 30.0)]));
    let weights: Vec<_> = found.soft_filters.iter().map(|it| (it.name.as_str(), it.unit.as_str())).collect();
    assert_eq!(weights, [("latency", "ms"), ("skill", "points")]);
    assert_eq!(found.soft_filters[0].weight, found.soft_filters[1].weight);
    assert_eq!(found.tradeoffs[0].amount, "10 ms of latency");
    assert!(found.tradeoffs[0].equivalent.ends_with("points of skill"), "{:?}", found.tradeoffs);
    let by_hash = get(Some(SET_ID), Some(found.service_configuration_hash));
    assert_eq!(operator.get_ruleset(by_hash).await.expect("get").into_inner(), found);

    let window = operator.get_ruleset(get(Some(12), None)).await.expect("get").into_inner().limits.remove(0);
    let steps: Vec<_> = window.steps.iter().map(|step| (step.from_ms, step.limit)).collect();
    assert_eq!((window.name.as_str(), window.unit.as_str(), window.grows_further), ("window", "buckets", false));
    assert_eq!(steps, [(0, 2.0), (20_000, 3.0), (40_000, 4.0)]);

    for (request, code) in [
        (get(None, None), Code::InvalidArgument),
        (get(Some(99), None), Code::NotFound),
        (get(Some(SET_ID), Some(1)), Code::FailedPrecondition),
    ] {
        assert_eq!(operator.get_ruleset(request).await.expect_err("refused").code(), code, "{request:?}");
    }
}

/// A trial counts pairs and matches by both rulesets, names the waits that would end, and changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn try_ruleset_compares_pairs_and_matches_and_loads_nothing() {
    for (server, _database) in servers_on_each_store("try_ruleset", &ruleset(5)).await {
        let mut operator = operator_client(&server).await;
        let ann = QueuedParty::enter(&server, SET_ID, &[("ann", 10.0)]).await;
        server.clock.advance_ms(2_000);
        let bob = QueuedParty::enter(&server, SET_ID, &[("bob", 18.0)]).await;
        let _eve = QueuedParty::enter(&server, SET_ID, &[("eve", 45.0)]).await;
        let listed = operator.list_rulesets(wire::ListRulesetsRequest {}).await.expect("list").into_inner();
        let edited = wire::TryRulesetRequest { ruleset_xml: ruleset(9), ..Default::default() };
        let trial = operator.try_ruleset(edited.clone()).await.expect("try").into_inner();
        assert!(trial.problems.is_empty(), "{trial:?}");
        assert_eq!((trial.matchmaking_set_id, trial.tickets, trial.pairs, trial.truncated), (SET_ID, 3, 3, false));
        let (current, tried) = (trial.current.expect("current"), trial.tried.expect("tried"));
        let figures = |it: &wire::RulesetTrialOutcome| (it.allowed_pairs, it.tickets_with_partner, it.matched_tickets);
        assert_eq!((figures(&current), figures(&tried)), ((0, 0, 0), (1, 2, 2)));
        let refused = |it: &wire::RulesetTrialOutcome| {
            it.refusals.iter().map(|it| (it.rule.clone(), it.count)).collect::<Vec<_>>()
        };
        assert_eq!((refused(&current), refused(&tried)), (vec![("near".into(), 3)], vec![("near".into(), 2)]));
        let ended: Vec<_> = trial.newly_matched.iter().map(|it| (it.ticket_id.as_str(), it.waited_ms)).collect();
        assert_eq!(ended, [(ann.ticket.id(), 2_000), (bob.ticket.id(), 0)]);
        assert!(trial.no_longer_matched.is_empty());
        assert_ne!(current.service_configuration_hash, tried.service_configuration_hash);

        // The trial of the current text changes nothing, and an empty silo has no tickets.
        let same = wire::TryRulesetRequest { ruleset_xml: ruleset(5), ..Default::default() };
        let same = operator.try_ruleset(same).await.expect("try").into_inner();
        assert_eq!(same.current, same.tried);
        let elsewhere = wire::TryRulesetRequest { silo_id: Some(7), ..edited.clone() };
        assert_eq!(operator.try_ruleset(elsewhere).await.expect("try").into_inner().tickets, 0);
        let after = operator.list_rulesets(wire::ListRulesetsRequest {}).await.expect("list").into_inner();
        assert_eq!(after.rulesets, listed.rulesets);
        wait_until("the tickets still wait", async || {
            let all = wire::ListTicketsRequest { matchmaking_set_id: Some(SET_ID), ..Default::default() };
            operator_client(&server).await.list_tickets(all).await.expect("list").into_inner().tickets.len() == 3
        })
        .await;
    }
}

/// An invalid file is a response with its problems; a file that cannot be tried is an error that says why.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn try_ruleset_reports_problems_and_refuses_what_cannot_be_tried() {
    let server = start_queue_server(&[&ruleset(5)]).await;
    let mut operator = operator_client(&server).await;
    let request = |xml: &str| wire::TryRulesetRequest { ruleset_xml: xml.to_owned(), ..Default::default() };
    let broken = operator.try_ruleset(request(&ruleset(5).replace("Teams", "Tames"))).await.expect("try").into_inner();
    assert_eq!((broken.problems.is_empty(), broken.tried.is_none()), (false, true));
    assert_eq!(broken.problems[0].file_name, "ruleset.xml");
    let without_queue = ruleset(5).replace(r#"<Queue PassIntervalMs="10"/>"#, "");
    let other_set = ruleset(5).replace(&format!("SetId=\"{SET_ID}\""), "SetId=\"99\"");
    let retired = format!(r#"<Ruleset SetId="{SET_ID}" Retired="true"/>"#);
    let too_long = format!("{}{}", ruleset(5), " ".repeat(256 * 1024));
    for (xml, code) in [
        (without_queue, Code::FailedPrecondition),
        (other_set, Code::NotFound),
        (retired, Code::InvalidArgument),
        (too_long, Code::InvalidArgument),
    ] {
        let refused = operator.try_ruleset(request(&xml)).await.expect_err("refused");
        assert_eq!(refused.code(), code, "{refused:?}");
    }
}
