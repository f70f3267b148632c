//! A house with one queue of a test's own, parties that enter it, and what they hear.

use std::time::Duration;

use fireteam::config::RulesetSource;
use fireteam_client::{Client, Ticket, TicketStream, pb};

use crate::harness::{House, party};
use crate::plain::operator_service_client::OperatorServiceClient;
use crate::process::PATIENCE;

/// The set of the queue.
pub(crate) const SET: u32 = 11;

/// One against one, within two buckets of skill, with `more` elements in the ruleset.
pub(crate) fn duel(more: &str) -> String {
    format!(
        r#"<Ruleset Name="Duel" SetId="{SET}">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="50" Trust="client"/></Attributes>
  <Teams Count="2" Size="1"/>
  <Queue PassEveryMs="10"><Window Start="2" Max="2"/></Queue>
  {more}
</Ruleset>"#
    )
}

/// A house whose rules are these files.
pub(crate) async fn house(files: &[&str]) -> House {
    let folder = tempfile::tempdir().unwrap();
    for (number, xml) in files.iter().enumerate() {
        std::fs::write(folder.path().join(format!("{number}.xml")), xml).unwrap();
    }
    let path = folder.path().to_owned();
    let mut house = House::open_with(move |config| config.rulesets = RulesetSource::Directory(path)).await;
    house.keep(folder);
    house
}

/// Asks that `players` wait in set `set`.
pub(crate) fn asks(set: u32, players: &[(&str, f64)]) -> pb::QueueEnterRequest {
    pb::QueueEnterRequest {
        session_composition: Some(party(players)),
        matchmaking_set_id: Some(set),
        ..Default::default()
    }
}

/// A party that waits, on a connection of its own, and what it hears.
pub(crate) struct Waiting {
    pub(crate) client: Client,
    pub(crate) queued: Ticket,
    news: TicketStream,
}

impl Waiting {
    /// Enters set `set` with `players`.
    pub(crate) async fn enter(house: &House, set: u32, players: &[(&str, f64)]) -> Self {
        Self::asking(house, asks(set, players)).await
    }

    /// Enters with whatever it asks for.
    pub(crate) async fn asking(house: &House, asked: pb::QueueEnterRequest) -> Self {
        let client = house.client().await;
        let queued = client.enter(asked).await.expect("enter");
        let news = queued.watch();
        Self { client, queued, news }
    }

    /// The next news of it.
    pub(crate) async fn hears(&mut self) -> pb::TicketStatus {
        let heard = tokio::time::timeout(PATIENCE, self.news.next()).await.expect("in time").expect("a stream");
        heard.expect("its ticket is not over")
    }

    /// Whatever comes until it stands so.
    pub(crate) async fn hears_of(&mut self, state: pb::TicketState) -> pb::TicketStatus {
        loop {
            let status = self.hears().await;
            if status.state() == state {
                return status;
            }
            assert_ne!(status.state(), pb::TicketState::Ended, "it is over: {status:?}");
        }
    }

    /// Hears of a match, and answers it.
    pub(crate) async fn answers(&mut self, accept: bool) -> String {
        let proposed = self.hears_of(pb::TicketState::Proposed).await;
        let id = proposed.found_match.expect("a match").match_id;
        self.queued.respond(&id, accept).await.expect("respond");
        id
    }

    /// How it stands, asked.
    pub(crate) async fn stands(&mut self) -> pb::TicketStatus {
        self.queued.heartbeat().await.expect("heartbeat").clone()
    }
}

/// A game server of this set with two seats, reached by `connect_data`.
pub(crate) fn game_server(connect_data: &[u8]) -> pb::MatchmakingUpdateAdvertisementRequest {
    pb::MatchmakingUpdateAdvertisementRequest {
        matchmaking_set_id: Some(SET),
        kind: pb::AdvertisementKind::GameServer.into(),
        session_composition: Some(pb::SessionCompositionData {
            party_size_composition: vec![1],
            max_allowed_join_reservation_count: Some(2),
            ..Default::default()
        }),
        connect_data: connect_data.to_vec(),
        ..Default::default()
    }
}

/// An operator of a house.
pub(crate) async fn operator(house: &House) -> OperatorServiceClient<tonic::transport::Channel> {
    let uri = format!("http://{}", house.parts.server.operator_address);
    let channel = tonic::transport::Endpoint::from_shared(uri).unwrap().connect().await.expect("connect");
    OperatorServiceClient::new(channel)
}

/// Asks again and again until the answer is right.
pub(crate) async fn until(what: &str, mut right: impl AsyncFnMut() -> bool) {
    let begun = tokio::time::Instant::now();
    while !right().await {
        assert!(begun.elapsed() < PATIENCE, "it never came about: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
