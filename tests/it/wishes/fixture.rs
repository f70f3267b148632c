//! Rulesets and requests with wishes.

use fireteam_client::{Client, pb};

use crate::support::queue_server::{SET_ID, enter_request};
use crate::support::test_server::{advertise_request, party_session};

/// Duels and searches in which parties may wish for skill, mode, maps and ranked, but not for `hidden`.
pub(crate) fn wishes_ruleset(more_of_queue: &str) -> String {
    format!(
        r#"<Ruleset Name="Wishes" SetId="{SET_ID}">
  <Attributes>
    <Attribute Name="skill" Type="number" Min="0" Max="50" Trust="client" Wishes="true"/>
    <Attribute Name="mode" Type="string" Trust="client" Wishes="true"/>
    <Attribute Name="maps" Type="string_list" Trust="client" Wishes="true"/>
    <Attribute Name="ranked" Type="bool" Trust="client" Wishes="true"/>
    <Attribute Name="hidden" Type="number" Trust="client"/>
  </Attributes>
  <Teams Count="2" Size="1"/>
  <Queue PassIntervalMs="10" {more_of_queue}/>
</Ruleset>"#
    )
}

pub(crate) fn numbers(min: Option<f64>, max: Option<f64>) -> pb::AcceptedValues {
    pb::AcceptedValues { min, max, ..Default::default() }
}

pub(crate) fn strings(strings: &[&str]) -> pb::AcceptedValues {
    pb::AcceptedValues { strings: strings.iter().map(|&text| text.to_owned()).collect(), ..Default::default() }
}

pub(crate) fn wish(attribute: &str, accepted: pb::AcceptedValues) -> pb::Wish {
    pb::Wish { attribute: attribute.to_owned(), accepted: Some(accepted), ..Default::default() }
}

/// Wish for a skill from `min` to `max`.
pub(crate) fn skill_wish(min: f64, max: f64) -> pb::Wish {
    wish("skill", numbers(Some(min), Some(max)))
}

/// The wish, which accepts other values after some time.
pub(crate) fn relaxed(wish: pb::Wish, after_ms: u64, accepted: pb::AcceptedValues) -> pb::Wish {
    let mut wish = wish;
    wish.relaxations.push(pb::WishRelaxation { after_ms, accepted: Some(accepted) });
    wish
}

/// A party of one with wishes.
pub(crate) fn wishing_party(user: &str, skill: f64, wishes: &[pb::Wish]) -> pb::SessionCompositionData {
    pb::SessionCompositionData { wishes: wishes.to_vec(), ..party_session(&[(user, skill)]) }
}

pub(crate) fn advertised(host: &str, skill: f64, wishes: &[pb::Wish]) -> pb::MatchmakingUpdateAdvertisementRequest {
    let mut request = pb::MatchmakingUpdateAdvertisementRequest {
        matchmaking_set_id: Some(SET_ID),
        time_to_live_ms: Some(600_000),
        ..advertise_request(&[(host, skill)], 4)
    };
    request.session_composition.as_mut().expect("a session").wishes = wishes.to_vec();
    request
}

pub(crate) fn entering(user: &str, skill: f64, wishes: &[pb::Wish]) -> pb::QueueEnterRequest {
    let mut request = enter_request(SET_ID, &[(user, skill)]);
    request.session_composition.as_mut().expect("a party").wishes = wishes.to_vec();
    request
}

/// Attribute value of a string.
pub(crate) fn text(text: &str) -> pb::AttributeValue {
    pb::AttributeValue { value: Some(pb::attribute_value::Value::StringValue(text.to_owned())) }
}

/// Result of a search: ids in order, and refusals by rule and side.
pub(crate) async fn searched(
    client: &Client,
    party: pb::SessionCompositionData,
) -> (Vec<String>, Vec<(String, pb::RefusalSide, u32)>) {
    let found = client.new_search(SET_ID, party).search().await.expect("search");
    summary(&found)
}

pub(crate) fn summary(found: &pb::MatchmakingSearchResponse) -> (Vec<String>, Vec<(String, pb::RefusalSide, u32)>) {
    let mut ids: Vec<String> = found.candidates.iter().map(|candidate| candidate.advertisement_id.clone()).collect();
    ids.sort();
    let refused = found.refusals.iter().map(|refusal| {
        let is_wish = refusal.rule.starts_with("wish:");
        assert_eq!(refusal.kind() == pb::RefusalKind::Wish, is_wish, "{refusal:?}");
        (refusal.rule.clone(), refusal.side(), refusal.count)
    });
    (ids, refused.collect())
}
