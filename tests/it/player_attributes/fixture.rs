//! Players with attributes and roles of their own, and rulesets that use them.

use fireteam::auth::identity::Role;
use fireteam_client::{Client, Error, pb};
use pb::attribute_value::Value;

use crate::support::party_site::PartySite;
use crate::support::queue_server::SET_ID;

/// Value of an attribute.
pub(crate) fn number(number: f64) -> Value {
    Value::NumberValue(number)
}

/// Value of a bool attribute.
pub(crate) fn flag(flag: bool) -> Value {
    Value::BoolValue(flag)
}

/// Value of a string_list attribute.
pub(crate) fn list(texts: &[&str]) -> Value {
    Value::StringList(pb::StringList { values: texts.iter().map(|&text| text.to_owned()).collect() })
}

/// Player with these attributes.
pub(crate) fn player(name: &str, attributes: &[(&str, Value)]) -> pb::PlayerData {
    let value = |(name, value): &(&str, Value)| ((*name).to_owned(), pb::AttributeValue { value: Some(value.clone()) });
    pb::PlayerData {
        user_id: name.to_owned(),
        skill: Some(20.0),
        attributes: attributes.iter().map(value).collect(),
        ..Default::default()
    }
}

/// Player who wants these roles, the most wanted first.
pub(crate) fn player_who_wants(name: &str, roles: &[&str]) -> pb::PlayerData {
    pb::PlayerData { roles: roles.iter().map(|&role| role.to_owned()).collect(), ..player(name, &[]) }
}

/// Party of these players.
pub(crate) fn party(players: &[pb::PlayerData]) -> pb::SessionCompositionData {
    pb::SessionCompositionData { players: players.to_vec(), ..Default::default() }
}

/// Request to enter these players into the queue of [`SET_ID`].
pub(crate) fn enter(players: &[pb::PlayerData]) -> pb::QueueEnterRequest {
    pb::QueueEnterRequest {
        session_composition: Some(party(players)),
        matchmaking_set_id: Some(SET_ID),
        ..Default::default()
    }
}

/// Request to advertise these players with open seats.
pub(crate) fn advertise(players: &[pb::PlayerData], seats: i32) -> pb::MatchmakingUpdateAdvertisementRequest {
    let session = pb::SessionCompositionData { max_allowed_join_reservation_count: Some(seats), ..party(players) };
    pb::MatchmakingUpdateAdvertisementRequest {
        matchmaking_set_id: Some(SET_ID),
        session_composition: Some(session),
        time_to_live_ms: Some(600_000),
        ..Default::default()
    }
}

/// Number of candidates that a party finds, and the rules that refused others; the kind of refusal where it is no rule.
pub(crate) async fn found(client: &Client, players: &[pb::PlayerData]) -> (usize, Vec<String>) {
    let answer = client.new_search(SET_ID, party(players)).search().await.expect("search");
    let rule = |refusal: pb::RefusalCount| match refusal.kind() {
        pb::RefusalKind::Filter => refusal.rule,
        kind => kind.as_str_name().to_owned(),
    };
    (answer.candidates.len(), answer.refusals.into_iter().map(rule).collect())
}

/// Client of another game's backend than `PartySite::backend`, at the last server. No caller finds its own sessions.
pub(crate) async fn other_backend(site: &PartySite) -> Client {
    let server = site.servers.last().expect("a server");
    site.issuer.client_with_token(server, Role::GameServer, "eu-2").await
}

/// Asserts that a call is refused for this field, with this text in its message.
pub(crate) fn assert_field<T: std::fmt::Debug>(refused: Result<T, Error>, field: &str, message: &str) {
    let error = refused.expect_err("refused");
    let problems: Vec<(&str, &str)> =
        error.fields().iter().map(|problem| (&*problem.field, &*problem.description)).collect();
    let is_named = matches!(problems[..], [(named, text)] if named == field && text.contains(message));
    assert!(is_named, "{problems:?} instead of {field}: {message}; {error}");
}
