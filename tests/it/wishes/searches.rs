//! Wishes in searches and reservations: both sides' wishes hold, relax with the time of each, and are named. On SQLite, and through
//! two servers on one Postgres.

use fireteam_client::pb;
use pb::RefusalSide::{Advertiser, Searcher};

use crate::support::generated_client as wire;
use crate::support::party_site::{PartySite, by_operator, on_each_store};
use crate::support::queue_server::{SET_ID, operator_client, wait_until};
use crate::wishes::fixture::{
    advertised, numbers, relaxed, searched, skill_wish, strings, summary, text, wish, wishes_ruleset, wishing_party,
};

/// The own wish, "skill 15 to 25", refuses hosts, and the wish of a host refuses the searcher, until it relaxes as its host says, also
/// after a restart. A reservation is refused alike, and Explain names both.
async fn wishes_of_both_sides_hold_in_searches(mut site: PartySite) {
    let picky_wish = relaxed(skill_wish(15.0, 25.0), 5_000, numbers(None, Some(45.0)));
    let mut ids = Vec::new();
    for (host, skill, wishes) in
        [("low", 10.0, vec![]), ("mid", 20.0, vec![]), ("high", 30.0, vec![]), ("picky", 25.0, vec![picky_wish])]
    {
        let client = site.player(host).await;
        ids.push(client.advertise(advertised(host, skill, &wishes)).await.expect("advertise").id().to_owned());
    }
    let [low, mid, _, picky] = &*ids else { panic!("four hosts") };
    let client = site.player_elsewhere("ana").await;
    let party = || wishing_party("ana", 40.0, &[skill_wish(15.0, 25.0)]);
    let refused = |searcher, advertiser| {
        [("wish:skill".to_owned(), Searcher, searcher), ("wish:skill".to_owned(), Advertiser, advertiser)]
    };
    wait_until("the other server knows the hosts", async || {
        searched(&client, party()).await == (vec![mid.clone()], refused(2, 1).to_vec())
    })
    .await;
    let without_wishes = searched(&client, wishing_party("ana", 40.0, &[])).await;
    assert_eq!((without_wishes.0.len(), without_wishes.1), (3, refused(0, 1)[1..].to_vec()));

    let mut search = client.new_search(SET_ID, party());
    assert_eq!(summary(&search.search().await.expect("search")).0, std::slice::from_ref(mid));
    assert_eq!(search.next_expansion_in_ms, None, "the own wish does not relax");
    for (id, side) in [(low, "searcher"), (picky, "advertiser")] {
        let error = search.reserve(id).await.expect_err("refused");
        let metadata = &error.as_server_error().expect("a status").reason_metadata;
        assert_eq!((&*metadata["rule"], &*metadata["side"]), ("wish:skill", side), "{error}");
    }
    assert_eq!(explained(&site).await, [("wish:skill".to_owned(), 2), ("other_wish:skill".to_owned(), 1)]);

    site.restart_first().await;
    let client = site.player("ana").await;
    assert_eq!(searched(&client, party()).await, (vec![mid.clone()], refused(2, 1).to_vec()), "after a restart");
    site.clock.advance_ms(5_000);
    let mut both = [mid.clone(), picky.clone()];
    both.sort();
    assert_eq!(
        searched(&client, party()).await,
        (both.to_vec(), refused(2, 0)[..1].to_vec()),
        "the host's wish relaxed"
    );
    let mut search = client.new_search(SET_ID, party());
    search.search().await.expect("search");
    search.reserve(picky).await.expect("reserve");
    site.shut_down().await;
}

/// The wish of a searcher relaxes with the time of its search, and the answer says when.
async fn own_wish_relaxes_with_the_search(site: PartySite) {
    let host = site.player("hal").await;
    let id = host.advertise(advertised("hal", 30.0, &[])).await.expect("advertise").id().to_owned();
    let client = site.player_elsewhere("ana").await;
    wait_until("the host is known", async || searched(&client, wishing_party("ana", 20.0, &[])).await.0.len() == 1)
        .await;
    let relaxing =
        relaxed(relaxed(skill_wish(20.0, 25.0), 4_000, numbers(Some(20.0), Some(29.0))), 9_000, numbers(None, None));
    let mut search = client.new_search(SET_ID, wishing_party("ana", 20.0, &[relaxing]));
    let mut expected =
        [(0, 0, Some(4_000)), (4_000, 0, Some(5_000)), (8_999, 0, Some(1)), (9_000, 1, None)].into_iter();
    let mut now = 0;
    for (at, count, next) in &mut expected {
        site.clock.advance_ms(at - now);
        now = at;
        let found = search.search().await.expect("search");
        assert_eq!((found.candidates.len(), found.next_expansion_in_ms), (count, next), "after {at} ms");
        assert_eq!(search.reserve(&id).await.is_ok(), count == 1, "after {at} ms");
    }
    site.shut_down().await;
}

/// "Only these modes": strings of a string and of a string list, a flag, and values that are unknown.
async fn wishes_for_modes_maps_and_unknown_values(site: PartySite) {
    let mut ids = Vec::new();
    for (host, mode, maps) in
        [("one", Some("duel"), &["atlas", "bay"][..]), ("two", Some("race"), &["bay"]), ("three", None, &[])]
    {
        let mut request = advertised(host, 20.0, &[]);
        let session = request.session_composition.as_mut().expect("a session");
        session.attributes.extend(mode.map(|mode| ("mode".to_owned(), text(mode))));
        let ranked = pb::attribute_value::Value::BoolValue(host == "one");
        session.attributes.insert("ranked".into(), pb::AttributeValue { value: Some(ranked) });
        if !maps.is_empty() {
            let values = maps.iter().map(|&map| map.to_owned()).collect();
            let list = pb::attribute_value::Value::StringList(pb::StringList { values });
            session.attributes.insert("maps".into(), pb::AttributeValue { value: Some(list) });
        }
        ids.push(site.player(host).await.advertise(request).await.expect("advertise").id().to_owned());
    }
    let client = site.player_elsewhere("ana").await;
    wait_until("all are known", async || searched(&client, wishing_party("ana", 20.0, &[])).await.0.len() == 3).await;
    let flag = |flag| pb::AcceptedValues { flag: Some(flag), ..Default::default() };
    let or_unknown = |wish: pb::Wish| pb::Wish { accept_missing: true, ..wish };
    let cases: [(Vec<pb::Wish>, &[usize]); 7] = [
        (vec![wish("mode", strings(&["duel", "siege"]))], &[0]),
        (vec![or_unknown(wish("mode", strings(&["duel"])))], &[0, 2]),
        (vec![wish("maps", strings(&["bay", "dune"]))], &[0, 1]),
        (vec![wish("maps", strings(&["dune"]))], &[]),
        (vec![wish("ranked", flag(false))], &[1, 2]),
        (vec![wish("ranked", flag(false)), wish("mode", strings(&["race"]))], &[1]),
        (vec![wish("mode", pb::AcceptedValues::default())], &[0, 1, 2]),
    ];
    for (wishes, expected) in cases {
        let mut expected: Vec<String> = expected.iter().map(|&index| ids[index].clone()).collect();
        expected.sort();
        assert_eq!(searched(&client, wishing_party("ana", 20.0, &wishes)).await.0, expected, "{wishes:?}");
    }
    site.shut_down().await;
}

/// Refusals by rule that Explain counts for the searcher with skill 40 and the wish for 15 to 25.
async fn explained(site: &PartySite) -> Vec<(String, u64)> {
    let player = wire::PlayerData { user_id: "ana".into(), skill: Some(40.0), ..Default::default() };
    let accepted = wire::AcceptedValues { min: Some(15.0), max: Some(25.0), ..Default::default() };
    let wish = wire::Wish { attribute: "skill".into(), accepted: Some(accepted), ..Default::default() };
    let session = wire::SessionCompositionData { players: vec![player], wishes: vec![wish], ..Default::default() };
    let search = wire::ExplainSearch {
        matchmaking_set_id: Some(SET_ID),
        session_composition: Some(session),
        ..Default::default()
    };
    let request = wire::ExplainRequest { search: Some(search), ..Default::default() };
    let mut operator = operator_client(site.servers.last().expect("a server")).await;
    let explained = operator.explain(by_operator(site, request)).await.expect("explain").into_inner();
    explained.refusals.into_iter().map(|count| (count.rule, count.count)).collect()
}

/// S1-17, S1-36: inclusive ranges of a party and of an advertisement, on both sides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wishes_of_both_sides_hold_in_searches_on_sqlite() {
    wishes_of_both_sides_hold_in_searches(PartySite::on_sqlite(&wishes_ruleset("")).await).await;
}

/// S1-17, S1-36: inclusive ranges of a party and of an advertisement, on both sides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wishes_of_both_sides_hold_in_searches_on_postgres() {
    let test = "wishes_of_both_sides_hold_in_searches_on_postgres";
    if let Some(site) = PartySite::on_postgres(test, &wishes_ruleset("")).await {
        wishes_of_both_sides_hold_in_searches(site).await;
    }
}

on_each_store! {
    own_wish_relaxes_with_the_search, wishes_ruleset(""),
        own_wish_relaxes_with_the_search_on_sqlite, own_wish_relaxes_with_the_search_on_postgres;
    wishes_for_modes_maps_and_unknown_values, wishes_ruleset(""),
        wishes_for_modes_maps_and_unknown_values_on_sqlite, wishes_for_modes_maps_and_unknown_values_on_postgres;
}
