//! Handle of a published advertisement: keeps its id, its token and the last published request.

use tonic::Code;

use crate::error::Error;
use crate::matchmaking_stream::MatchmakingStream;
use crate::pb;
use crate::random::ensure_idempotency_key;
use crate::retrying_channel::RetryingChannel;

/// Transport of an advertisement's updates.
#[derive(Clone, Debug)]
pub(crate) enum UpdateChannel {
    /// One unary call per update.
    Unary(Box<RetryingChannel>),
    /// A stream, which also receives the advertisement's reservation events.
    Stream(MatchmakingStream),
}

impl UpdateChannel {
    async fn update(
        &self,
        request: pb::MatchmakingUpdateAdvertisementRequest,
    ) -> Result<pb::MatchmakingUpdateAdvertisementResponse, Error> {
        match self {
            UpdateChannel::Unary(channel) => {
                channel
                    .call_matchmaking(
                        request,
                        |mut stub, request| async move { stub.update_advertisement(request).await },
                    )
                    .await
            }
            UpdateChannel::Stream(connection) => connection.update_advertisement(request).await,
        }
    }

    async fn delete(&self, request: pb::MatchmakingDeleteAdvertisementRequest) -> Result<(), Error> {
        match self {
            UpdateChannel::Unary(channel) => channel
                .call_matchmaking(request, |mut stub, request| async move { stub.delete_advertisement(request).await })
                .await
                .map(|_| ()),
            UpdateChannel::Stream(connection) => connection.delete_advertisement(request).await.map(|_| ()),
        }
    }
}

/// An advertisement of this host. After a drop the advertisement expires at the end of its TTL.
#[derive(Clone, Debug)]
pub struct Advertisement {
    channel: UpdateChannel,
    /// Last published request, with id and token: sufficient to publish it again to a server that lost it.
    published: pb::MatchmakingUpdateAdvertisementRequest,
    /// Remaining TTL as of the last response, milliseconds. Send a heartbeat after a third of it.
    pub expires_in_ms: u64,
    /// Reservations as of the last response.
    pub reservations: Vec<pb::Reservation>,
    /// Matches as of the last response, which a [`crate::MatchHost`] confirms.
    pub hosted_match_ids: Vec<String>,
    /// Milliseconds until the next heartbeat, if queues may give this advertisement matches.
    pub next_match_confirming_beat_in_ms: Option<u64>,
}

impl Advertisement {
    pub(crate) async fn publish(
        channel: UpdateChannel,
        mut request: pb::MatchmakingUpdateAdvertisementRequest,
    ) -> Result<Self, Error> {
        ensure_idempotency_key(&mut request);
        let mut advertisement = Self {
            channel,
            published: request,
            expires_in_ms: 0,
            reservations: Vec::new(),
            hosted_match_ids: Vec::new(),
            next_match_confirming_beat_in_ms: None,
        };
        advertisement.send_update(advertisement.published.clone()).await?;
        Ok(advertisement)
    }

    /// Advertisement id, as searchers see it.
    pub fn id(&self) -> &str {
        &self.published.advertisement_id
    }

    /// Proof of ownership; keep it secret. Another process that has the id and the token can take over the advertisement.
    pub fn token(&self) -> &[u8] {
        &self.published.advertisement_token
    }

    /// Sends further updates on `stream`, which then receives the reservation events. Use it after a stream ended.
    pub fn use_stream(&mut self, stream: MatchmakingStream) {
        self.channel = UpdateChannel::Stream(stream);
    }

    /// Extends the TTL. If the server no longer has the advertisement, publishes it again.
    pub async fn heartbeat(&mut self) -> Result<pb::MatchmakingUpdateAdvertisementResponse, Error> {
        match self.send_update(self.heartbeat_request()).await {
            Err(error) if error.code() == Some(Code::NotFound) => self.send_update(self.published.clone()).await,
            result => result,
        }
    }

    /// Replaces the published session, connect data, ranges and TTL. Id, token, set and kind stay; their values in
    /// `request` are ignored.
    pub async fn replace_published(
        &mut self,
        mut request: pb::MatchmakingUpdateAdvertisementRequest,
    ) -> Result<pb::MatchmakingUpdateAdvertisementResponse, Error> {
        request.advertisement_id = self.published.advertisement_id.clone();
        request.advertisement_token = self.published.advertisement_token.clone();
        request.matchmaking_set_id = self.published.matchmaking_set_id;
        request.kind = self.published.kind;
        request.idempotency_key = String::new();
        let response = self.send_update(request.clone()).await?;
        // Reservations are confirmed or joined once; publishing again must not repeat them.
        request.confirmed_reservation_ids.clear();
        request.joined_reservation_ids.clear();
        request.advertisement_token = self.published.advertisement_token.clone();
        self.published = request;
        Ok(response)
    }

    /// Confirms that these parties are on their way, so that their reservations no longer expire.
    pub async fn confirm_reservations(
        &mut self,
        reservation_ids: Vec<String>,
    ) -> Result<pb::MatchmakingUpdateAdvertisementResponse, Error> {
        self.send_update(pb::MatchmakingUpdateAdvertisementRequest {
            confirmed_reservation_ids: reservation_ids,
            ..self.heartbeat_request()
        })
        .await
    }

    /// Deletes the advertisement. It cannot be published again with the same token.
    pub async fn delete(self) -> Result<(), Error> {
        let request = pb::MatchmakingDeleteAdvertisementRequest {
            advertisement_id: self.published.advertisement_id,
            advertisement_token: self.published.advertisement_token,
        };
        self.channel.delete(request).await
    }

    /// Shortest update: id, token, set and TTL.
    fn heartbeat_request(&self) -> pb::MatchmakingUpdateAdvertisementRequest {
        pb::MatchmakingUpdateAdvertisementRequest {
            advertisement_id: self.published.advertisement_id.clone(),
            advertisement_token: self.published.advertisement_token.clone(),
            matchmaking_set_id: self.published.matchmaking_set_id,
            time_to_live_ms: self.published.time_to_live_ms,
            ..Default::default()
        }
    }

    async fn send_update(
        &mut self,
        request: pb::MatchmakingUpdateAdvertisementRequest,
    ) -> Result<pb::MatchmakingUpdateAdvertisementResponse, Error> {
        let response = self.channel.update(request).await?;
        self.published.advertisement_id = response.advertisement_id.clone();
        self.published.advertisement_token = response.advertisement_token.clone();
        self.expires_in_ms = response.expires_in_ms;
        self.reservations = response.reservations.clone();
        self.hosted_match_ids = response.hosted_match_ids.clone();
        self.next_match_confirming_beat_in_ms = response.next_beat_in_ms;
        Ok(response)
    }
}
