//! Invalid wishes: each is refused in each request that has wishes, with the field's path, and changes nothing.

use fireteam_client::{Code, Error, pb};

use crate::support::queue_server::{SET_ID, start_queue_server};
use crate::wishes::fixture::{
    advertised, entering, numbers, relaxed, skill_wish, strings, wish, wishes_ruleset, wishing_party,
};

/// Wishes that are refused, with the path after `session_composition.` and a part of the message.
fn invalid_wishes() -> Vec<(Vec<pb::Wish>, &'static str, &'static str)> {
    let many = |count: usize| -> Vec<pb::Wish> { (0..count).map(|_| skill_wish(0.0, 1.0)).collect() };
    let slow = (1..=9).fold(skill_wish(0.0, 1.0), |wish, step| relaxed(wish, step, numbers(None, None)));
    let mixed = pb::AcceptedValues { min: Some(1.0), ..strings(&["duel"]) };
    let long = "x".repeat(65);
    let texts: Vec<String> = (0..33).map(|number| format!("mode-{number}")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    vec![
        (many(17), "wishes", "17"),
        (vec![skill_wish(0.0, 1.0), skill_wish(0.0, 2.0)], "wishes[1].attribute", "is listed twice"),
        (vec![slow], "wishes[0].relaxations", "9"),
        (vec![wish("", numbers(None, None))], "wishes[0].attribute", "is missing"),
        (vec![wish(&long, numbers(None, None))], "wishes[0].attribute", "64"),
        (vec![wish("skil", numbers(None, Some(1.0)))], "wishes[0]", "does not declare"),
        (vec![wish("hidden", numbers(None, Some(1.0)))], "wishes[0]", "allows no wishes"),
        (vec![wish("latency", numbers(None, Some(80.0)))], "wishes[0]", "allows no wishes"),
        (vec![wish("skill", strings(&["duel"]))], "wishes[0]", "a number; give min, max or both"),
        (vec![wish("mode", numbers(None, Some(1.0)))], "wishes[0]", "a string; give strings"),
        (vec![wish("skill", mixed)], "wishes[0].accepted", "mixes"),
        (vec![skill_wish(2.0, 1.0)], "wishes[0].accepted", "has min 2 above max 1"),
        (vec![skill_wish(f64::NAN, 1.0)], "wishes[0].accepted.min", "must be a number"),
        (vec![skill_wish(0.0, 1e13)], "wishes[0].accepted.max", "must be a number"),
        (vec![wish("mode", strings(&texts))], "wishes[0].accepted.strings", "33"),
        (vec![wish("mode", strings(&[&long]))], "wishes[0].accepted.strings[0]", "64"),
        (vec![relaxed(skill_wish(0.0, 9.0), 0, numbers(None, None))], "wishes[0].relaxations[0]", "start later"),
        (
            vec![relaxed(skill_wish(0.0, 9.0), 5, numbers(Some(1.0), None))],
            "wishes[0].relaxations[0]",
            "accept all that was accepted before",
        ),
        (vec![relaxed(skill_wish(0.0, 9.0), u64::MAX, numbers(None, None))], "wishes[0].relaxations[0]", "30 days"),
    ]
}

fn assert_names(error: &Error, field: &str, message: &str) {
    assert_eq!(error.code(), Some(Code::InvalidArgument), "{error}");
    let named: Vec<(&str, &str)> =
        error.fields().iter().map(|problem| (problem.field.as_str(), problem.description.as_str())).collect();
    let path = format!("session_composition.{field}");
    assert!(named.iter().any(|(field, text)| *field == path && text.contains(message)), "{path}: {named:?}");
}

/// A wish for an attribute that the ruleset does not declare, or for which it allows none, is refused: no one can ask for the values
/// of others where the designer did not allow it. So are too many, and wishes that tighten.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_wishes_are_refused_with_their_field() {
    let server = start_queue_server(&[&wishes_ruleset("")]).await;
    let client = server.client().await;
    client.advertise(advertised("hal", 20.0, &[])).await.expect("advertise");
    let mut search = client.new_search(SET_ID, wishing_party("ana", 20.0, &[]));
    let id = search.search().await.expect("search").candidates[0].advertisement_id.clone();
    for (wishes, field, message) in invalid_wishes() {
        let party = wishing_party("ana", 20.0, &wishes);
        let searched = client.new_search(SET_ID, party.clone()).search().await;
        assert_names(&searched.expect_err("search"), field, message);
        let entered = client.enter_queue(entering("ana", 20.0, &wishes)).await;
        assert_names(&entered.expect_err("enter"), field, message);
        let created = client.advertise(advertised("bob", 20.0, &wishes)).await;
        assert_names(&created.expect_err("advertise"), field, message);
        search.request_mut().session_composition = Some(party);
        assert_names(&search.reserve(&id).await.expect_err("reserve"), field, message);
    }
    let all: Vec<pb::Wish> =
        vec![skill_wish(0.0, 50.0), wish("mode", strings(&["duel"])), wish("maps", strings(&["bay"]))];
    client.enter_queue(entering("ana", 20.0, &all)).await.expect("valid wishes");
}
