//! The example file `examples/rulesets/intent.xml`: intent as an attribute with a weight, and as a wish.

use fireteam_client::pb;
use pb::attribute_value::Value;

use crate::support::queue_server::{QueuedParty, start_queue_server};
use crate::wishes::fixture::{advertised, entering, numbers, wish, wishing_party};

const FILE: &str = include_str!("../../../examples/rulesets/intent.xml");
const SET: u32 = 24;

fn with_intent(mut party: pb::SessionCompositionData, intent: f64) -> pb::SessionCompositionData {
    party.attributes.insert("intent".into(), pb::AttributeValue { value: Some(Value::NumberValue(intent)) });
    party
}

/// A competitive player sees competitive hosts first, and all of them; with a wish, only those.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn intent_of_the_example_sorts_hosts_and_can_be_wished_for() {
    let server = start_queue_server(&[FILE]).await;
    let client = server.client().await;
    let mut ids = Vec::new();
    for (host, intent) in [("casual", 0.0), ("both", 0.5), ("serious", 1.0)] {
        let mut request = advertised(host, 0.0, &[]);
        request.matchmaking_set_id = Some(SET);
        request.session_composition = request.session_composition.map(|session| with_intent(session, intent));
        ids.push(client.advertise(request).await.expect("advertise").id().to_owned());
    }
    let found = async |wishes: &[pb::Wish]| {
        let party = with_intent(wishing_party("ana", 0.0, wishes), 1.0);
        let found = client.new_search(SET, party).search().await.expect("search");
        let candidates = found.candidates.into_iter().map(|candidate| (candidate.advertisement_id, candidate.score));
        candidates.collect::<Vec<_>>()
    };
    let [casual, both, serious] = <[String; 3]>::try_from(ids).expect("three hosts");
    assert_eq!(found(&[]).await, [(serious.clone(), 0.0), (both.clone(), 0.2), (casual, 0.4)]);
    assert_eq!(found(&[wish("intent", numbers(Some(0.5), None))]).await, [(serious, 0.0), (both, 0.2)]);
}

/// In the queue like players meet first, although another waits longer and all have the same rating.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn intent_of_the_example_decides_who_meets() {
    let server = start_queue_server(&[FILE]).await;
    let mut parties = Vec::new();
    for (player, intent) in [("casual", 0.0), ("serious", 1.0), ("other", 1.0)] {
        let mut request = entering(player, 0.0, &[]);
        request.matchmaking_set_id = Some(SET);
        request.session_composition = request.session_composition.map(|session| with_intent(session, intent));
        parties.push(QueuedParty::enter_with_request(&server, request).await);
    }
    let [casual, serious, other] = &mut *parties else { panic!("three parties") };
    serious.wait_for_state(pb::TicketState::Matched).await;
    other.wait_for_state(pb::TicketState::Matched).await;
    assert_eq!(casual.current_status().await.state(), pb::TicketState::Waiting);
}
