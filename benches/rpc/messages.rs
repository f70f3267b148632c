//! Messages of the goals, encoded once: publications, replacements, heartbeats and searches.

use std::sync::Arc;

use bytes::Bytes;
use fireteam_client::pb;
use prost::Message;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::Channel;

use crate::population::client_session;
use crate::rpc::echo::Blob;
use crate::rpc::load::call_as;
use crate::split_mix64::SplitMix64;

pub(crate) const UPDATE: &str = "/fireteam.v1.MatchmakingService/UpdateAdvertisement";
pub(crate) const SEARCH: &str = "/fireteam.v1.MatchmakingService/Search";
pub(crate) const CONNECT: &str = "/fireteam.v1.MatchmakingService/Connect";

type Update = pb::MatchmakingUpdateAdvertisementRequest;

/// Advertisements of the clients.
#[derive(Debug)]
pub(crate) struct Hosts {
    updates: Vec<Update>,
}

/// A session at a random location, as clients send it.
pub(crate) fn composition(rng: &mut SplitMix64) -> pb::SessionCompositionData {
    use fireteam::domain::attribute::AttributeValue;
    let session = client_session(rng);
    let value = |value: &AttributeValue| match value {
        AttributeValue::Number(number) => pb::attribute_value::Value::NumberValue(*number),
        AttributeValue::String(text) => pb::attribute_value::Value::StringValue(text.to_string()),
        _ => pb::attribute_value::Value::BoolValue(true),
    };
    let named = session.attributes.iter();
    let attributes =
        named.map(|(name, it)| (name.to_string(), pb::AttributeValue { value: Some(value(it)) })).collect();
    let [x, y, z] = session.locality.map_or([4000.0, 0.0, 0.0], |it| [it.x, it.y, it.z]);
    let locality =
        pb::LocalityData { locality_x: Some(x), locality_y: Some(y), locality_z: Some(z), ..Default::default() };
    let user_id = format!("user{:016x}", rng.next());
    pb::SessionCompositionData {
        silo_id: Some(1),
        players: vec![pb::PlayerData { user_id, skill: session.players[0].stated_skill, ..Default::default() }],
        party_size_composition: vec![1],
        max_allowed_join_reservation_count: Some(5),
        locality_info: Some(locality),
        attributes,
        ..Default::default()
    }
}

impl Hosts {
    /// Publishes `count` advertisements.
    pub(crate) async fn publish(channel: &Channel, count: u64) -> Self {
        Self::publish_as(channel, count, None).await
    }

    /// Publishes `count` advertisements with an `authorization` header.
    pub(crate) async fn publish_as(channel: &Channel, count: u64, header: Option<&AsciiMetadataValue>) -> Self {
        Self::publish_named("a host of the bench", channel, count, header).await
    }

    /// Publishes `count` advertisements, whose idempotency keys begin with `name`.
    pub(crate) async fn publish_named(
        name: &str,
        channel: &Channel,
        count: u64,
        header: Option<&AsciiMetadataValue>,
    ) -> Self {
        let mut rng = SplitMix64(17);
        let mut updates = Vec::new();
        for number in 0..count {
            let new = Update {
                matchmaking_set_id: Some(1),
                session_composition: Some(composition(&mut rng)),
                connect_data: vec![7; 16],
                idempotency_key: format!("{name} {number:020}"),
                ..Default::default()
            };
            let answer =
                call_as(channel, UPDATE, new.encode_to_vec().into(), header.cloned()).await.expect("it is published");
            let answer = pb::MatchmakingUpdateAdvertisementResponse::decode(answer).expect("an answer");
            updates.push(Update {
                advertisement_id: answer.advertisement_id,
                advertisement_token: answer.advertisement_token,
                idempotency_key: String::new(),
                ..new
            });
        }
        Self { updates }
    }

    /// Messages that replace each advertisement, with or without an envelope.
    pub(crate) fn replacing<M: Message>(&self, in_what: fn(Update) -> M) -> Arc<[Bytes]> {
        self.updates.iter().map(|update| encoded(&in_what(update.clone()))).collect()
    }

    /// Heartbeats of each advertisement.
    pub(crate) fn heartbeats<M: Message>(&self, in_what: fn(Update) -> M) -> Arc<[Bytes]> {
        let heartbeat = |update: &Update| Update {
            advertisement_id: update.advertisement_id.clone(),
            advertisement_token: update.advertisement_token.clone(),
            ..Default::default()
        };
        self.updates.iter().map(|update| encoded(&in_what(heartbeat(update)))).collect()
    }
}

/// A message for a unary call.
pub(crate) fn alone(update: Update) -> Update {
    update
}

/// A message for a Connect stream.
pub(crate) fn enveloped(update: Update) -> pb::MatchmakingConnectRequest {
    let core = pb::MatchmakingCoreRequest {
        request_type: Some(pb::MatchmakingCoreRequestType::UpdateAdvertisement.into()),
        request_nonce: Some(1),
        update_advertisement_request: Some(update),
        ..Default::default()
    };
    pb::MatchmakingConnectRequest { core: Some(core) }
}

/// Searches from random locations.
pub(crate) fn searches(count: usize) -> Arc<[Bytes]> {
    let mut rng = SplitMix64(23);
    let search = |_| {
        encoded(&pb::MatchmakingSearchRequest {
            matchmaking_set_id: Some(1),
            session_composition: Some(composition(&mut rng)),
            ..Default::default()
        })
    };
    (0..count).map(search).collect()
}

/// Messages to the echo, as long as those in `like`, for answers of about `answer_bytes`.
pub(crate) fn blobs(like: &Arc<[Bytes]>, answer_bytes: usize) -> Arc<[Bytes]> {
    // Two keys, the number, and a length of one or two bytes are added to the bytes themselves.
    let head = |bytes: usize| 7 + usize::from(127 < bytes);
    let blob = |message: &Bytes| {
        let bytes = vec![1; message.len() - head(message.len())].into();
        encoded(&Blob { answer_bytes: (answer_bytes - head(answer_bytes)) as u32, bytes })
    };
    like.iter().map(blob).collect()
}

fn encoded(message: &impl Message) -> Bytes {
    message.encode_to_vec().into()
}

/// Panics unless the message of a Connect stream is the response to an update.
pub(crate) fn is_updated(answer: &Bytes) {
    let answer = pb::MatchmakingConnectResponse::decode(answer.clone()).expect("an answer");
    match answer.message {
        Some(pb::matchmaking_connect_response::Message::Core(core)) => {
            assert!(core.update_advertisement_response.is_some(), "refused: {:?}", core.error);
        }
        other => panic!("no answer: {other:?}"),
    }
}
