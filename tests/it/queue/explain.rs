//! Explanations of waiting tickets: refusals, near misses, the smallest relaxation, and the rule that their status names too.

use fireteam_client::{Code, pb};
use pb::TicketState;

use crate::support::generated_client as wire;
use crate::support::party_site::{PartySite, by_operator, on_each_store, pairs_ruleset};
use crate::support::queue_server::{
    QueuedParty, SET_ID, duel_ruleset, enter_request, operator_client, start_queue_server, wait_until,
};

/// Explain returns why two tickets do not match, and the smallest relaxation that would match them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_names_the_rule_and_the_smallest_relaxation() {
    let server = start_queue_server(&[&duel_ruleset("")]).await;
    let ann = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    let bob = QueuedParty::enter(&server, SET_ID, &[("bob", 25.0)]).await;
    let mut operator = operator_client(&server).await;
    let ticket = explain_request(ann.ticket.id());
    let explained = operator.explain(ticket).await.expect("explain").into_inner();
    assert_eq!((explained.candidates, explained.matches_now), (1, false));
    let refused: Vec<_> = explained.refusals.iter().map(|it| (it.rule.as_str(), it.count)).collect();
    assert_eq!(refused, [("window", 1)]);
    assert_eq!(explained.near_misses[0].ticket_id, bob.ticket.id());
    let relaxation = explained.smallest_relaxation.expect("a wider window would match them");
    assert_eq!((relaxation.kind(), relaxation.required), (wire::RelaxationKind::Window, 3.0), "{}", relaxation.message);
    let request = wire::GetStatisticsRequest::default();
    let queues = operator.get_statistics(request).await.expect("statistics").into_inner().queues;
    assert_eq!((queues.len(), queues[0].waiting_tickets, queues[0].waiting_players), (1, 2, 2));
    let unknown = explain_request(&"0".repeat(32));
    assert_eq!(operator.explain(unknown).await.expect_err("an unknown ticket").code(), Code::NotFound);
}

fn explain_request(ticket_id: &str) -> wire::ExplainRequest {
    wire::ExplainRequest { ticket_id: ticket_id.to_owned(), ..Default::default() }
}

/// A ruleset of this set with these teams and elements.
fn rules(teams: &str, queue: &str, more: &str) -> String {
    format!(
        r#"<Ruleset Name="Rules" SetId="{SET_ID}">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="50" Trust="client"/>
    <Attribute Name="roles" Type="string_list" Trust="client"/></Attributes>
  {more}
  {teams}
  <Queue PassIntervalMs="10">{queue}</Queue>
</Ruleset>"#
    )
}

/// Names and skills of a party's players.
type Players = &'static [(&'static str, f64)];

/// A queue with waiting parties, and the rule that keeps the first of them waiting.
struct Case {
    ruleset: String,
    parties: Vec<pb::QueueEnterRequest>,
    rule_in_status: &'static str,
    rule_in_explanation: &'static str,
}

impl Case {
    fn new(rule: &'static str, ruleset: String, parties: &[Players]) -> Self {
        let parties = parties.iter().map(|party| enter_request(SET_ID, party)).collect();
        Self { ruleset, parties, rule_in_status: rule, rule_in_explanation: rule }
    }

    /// Waits for a pass, and compares the status of the first ticket with its explanation.
    async fn check(self) {
        let server = start_queue_server(&[&self.ruleset]).await;
        let mut waiting = Vec::new();
        for request in self.parties {
            waiting.push(QueuedParty::enter_with_request(&server, request).await);
        }
        wait_until(self.rule_in_status, async || {
            waiting[0].current_status().await.blocking_rule == self.rule_in_status
        })
        .await;
        let request = explain_request(waiting[0].ticket.id());
        let explained = operator_client(&server).await.explain(request).await.expect("explain").into_inner();
        assert_eq!(
            (&*explained.blocking_rule, explained.matches_now),
            (self.rule_in_explanation, false),
            "{explained:?}"
        );
        let status = waiting[0].current_status().await;
        assert_eq!((status.state(), &*status.blocking_rule), (TicketState::Waiting, self.rule_in_status));
        server.app.shutdown().await;
    }
}

/// For each kind of rule, Status and Explain name the same one. Only that a user is avoided is kept from the players.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_and_explanation_name_the_same_rule() {
    let duel = r#"<Teams Count="2" Size="1"/>"#;
    let threes = r#"<Teams Count="2" Size="3"/>"#;
    let roles = r#"<Teams Count="2" Size="2" RoleAttribute="roles"><Role Name="tank" PerTeam="1"/><Role Name="healer" PerTeam="1"/></Teams>"#;
    let near = r#"<HardFilters><Within Name="near" Attribute="skill" Limit="3"/></HardFilters>"#;
    let window = r#"<RatingWindow Start="2" Max="2"/>"#;
    let quality = r#"<Quality><AverageSimilarity RatingSpan="50" RequiredPercent="80"/></Quality>"#;
    let [ann, bob, eve]: [Players; 3] = [&[("ann", 20.0)], &[("bob", 40.0)], &[("eve", 30.0)]];
    let pairs: [Players; 3] =
        [&[("ann", 20.0), ("amy", 20.0)], &[("bob", 20.0), ("ben", 20.0)], &[("eve", 20.0), ("eli", 20.0)]];
    let mut no_tank = Case::new("role", rules(roles, "", ""), &[ann, bob, eve, &[("dan", 20.0)]]);
    for request in &mut no_tank.parties {
        let texts = pb::StringList { values: vec!["healer".to_owned()] };
        let value = pb::AttributeValue { value: Some(pb::attribute_value::Value::StringList(texts)) };
        request.session_composition.as_mut().expect("a party").attributes.insert("roles".to_owned(), value);
    }
    let mut blocked = Case::new("team", rules(duel, r#"<Avoid Whom="blocked" How="never"/>"#, ""), &[ann, eve]);
    blocked.rule_in_explanation = "avoid";
    blocked.parties[0].blocked_user_ids = vec!["eve".into()];
    let cases = [
        Case::new("no_candidates", rules(duel, "", ""), &[ann]),
        Case::new("window", rules(duel, window, ""), &[ann, bob, eve]),
        Case::new("near", rules(duel, "", near), &[ann, bob, eve]),
        Case::new("quality", rules(duel, quality, ""), &[ann, bob]),
        Case::new("team", rules(threes, "", ""), &pairs),
        no_tank,
        blocked,
    ];
    for case in cases {
        case.check().await;
    }
}

/// Only one of two servers runs a queue's passes and has the rule in the status; each of them explains the ticket by that rule.
async fn each_server_explains_by_the_rule_of_the_pass(site: PartySite) {
    let pair = |skill: f64| enter_request(SET_ID, &[("one", skill), ("two", skill)]);
    let mut ticket = site.backend().await.enter_queue(pair(20.0)).await.expect("enter");
    let mut far = pair(40.0);
    for player in &mut far.session_composition.as_mut().expect("a party").players {
        player.user_id.push_str(" more");
    }
    let _other = site.backend().await.enter_queue(far).await.expect("enter");
    wait_until("a pass has run", async || ticket.heartbeat().await.expect("heartbeat").blocking_rule == "window").await;
    for server in &site.servers {
        let request = by_operator(&site, explain_request(ticket.id()));
        wait_until("the server has both tickets", async || {
            let request = by_operator(&site, explain_request(ticket.id()));
            let explained = operator_client(server).await.explain(request).await;
            explained.is_ok_and(|explained| explained.into_inner().candidates == 1)
        })
        .await;
        let explained = operator_client(server).await.explain(request).await.expect("explain").into_inner();
        assert_eq!(explained.blocking_rule, "window");
    }
    site.shut_down().await;
}

on_each_store! {
    each_server_explains_by_the_rule_of_the_pass, pairs_ruleset(""),
        explain_at_each_server_names_the_rule_of_the_pass_on_sqlite, explain_at_each_server_names_the_rule_of_the_pass_on_postgres;
}
