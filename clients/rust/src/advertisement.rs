//! A published session: its id and token, and what was last said about it, so that a host need not carry them around.

use tonic::Code;

use crate::client::{Client, ensure_idempotency_key};
use crate::connection::Connection;
use crate::error::Error;
use crate::pb;

/// How an advertisement's updates travel.
#[derive(Clone, Debug)]
pub(crate) enum UpdateChannel {
    /// One call each.
    Unary(Box<Client>),
    /// On a stream, which then hears of reservations.
    Stream(Connection),
}

impl UpdateChannel {
    async fn update(
        &self,
        request: pb::MatchmakingUpdateAdvertisementRequest,
    ) -> Result<pb::MatchmakingUpdateAdvertisementResponse, Error> {
        match self {
            UpdateChannel::Unary(client) => client.update_advertisement(request).await,
            UpdateChannel::Stream(connection) => connection.update_advertisement(request).await,
        }
    }

    async fn delete(&self, request: pb::MatchmakingDeleteAdvertisementRequest) -> Result<(), Error> {
        match self {
            UpdateChannel::Unary(client) => client.delete_advertisement(request).await.map(|_| ()),
            UpdateChannel::Stream(connection) => connection.delete_advertisement(request).await.map(|_| ()),
        }
    }
}

/// An advertisement that this host keeps alive. Dropping it lets the advertisement lapse at the end of its time to live.
#[derive(Clone, Debug)]
pub struct Advertisement {
    channel: UpdateChannel,
    /// What was last published, with id and token filled in: enough to publish it again in an empty store.
    published: pb::MatchmakingUpdateAdvertisementRequest,
    /// How long it is believed, counted from the last answer; milliseconds. Send a heartbeat in a third of that.
    pub expires_in_ms: u32,
    /// Seats that others hold, as of the last answer.
    pub reservations: Vec<pb::Reservation>,
}

impl Advertisement {
    pub(crate) async fn publish(
        door: UpdateChannel,
        mut request: pb::MatchmakingUpdateAdvertisementRequest,
    ) -> Result<Self, Error> {
        ensure_idempotency_key(&mut request);
        let mut advertised = Self { channel: door, published: request, expires_in_ms: 0, reservations: Vec::new() };
        advertised.send_update(advertised.published.clone()).await?;
        Ok(advertised)
    }

    /// The advertisement's id, as searchers see it.
    pub fn id(&self) -> &str {
        &self.published.advertisement_id
    }

    /// The proof that it is this host's. Keep it secret; with the id it is all that another process needs to take over.
    pub fn token(&self) -> &[u8] {
        &self.published.advertisement_token
    }

    /// Sends further updates over `connection`, which then hears of reservations. The way back in after a stream ended.
    pub fn use_connection(&mut self, connection: Connection) {
        self.channel = UpdateChannel::Stream(connection);
    }

    /// Extends the time to live. A server that has forgotten the advertisement is told all of it again (S1-44).
    pub async fn heartbeat(&mut self) -> Result<pb::MatchmakingUpdateAdvertisementResponse, Error> {
        match self.send_update(self.heartbeat_request()).await {
            Err(error) if error.code() == Some(Code::NotFound) => self.send_update(self.published.clone()).await,
            answer => answer,
        }
    }

    /// Replaces what was published, whole: session, connect data, ranges and time to live. Id, token, set and kind
    /// stay, whatever `request` says of them.
    pub async fn update(
        &mut self,
        mut request: pb::MatchmakingUpdateAdvertisementRequest,
    ) -> Result<pb::MatchmakingUpdateAdvertisementResponse, Error> {
        request.advertisement_id = self.published.advertisement_id.clone();
        request.advertisement_token = self.published.advertisement_token.clone();
        request.matchmaking_set_id = self.published.matchmaking_set_id;
        request.kind = self.published.kind;
        request.idempotency_key = String::new();
        let answer = self.send_update(request.clone()).await?;
        // A reservation is settled once; a later re-publication must not say it again.
        request.confirmed_reservation_ids.clear();
        request.joined_reservation_ids.clear();
        request.advertisement_token = self.published.advertisement_token.clone();
        self.published = request;
        Ok(answer)
    }

    /// Says that the host has seen these parties coming, so that their seats no longer lapse.
    pub async fn confirm(
        &mut self,
        reservation_ids: Vec<String>,
    ) -> Result<pb::MatchmakingUpdateAdvertisementResponse, Error> {
        self.send_update(pb::MatchmakingUpdateAdvertisementRequest {
            confirmed_reservation_ids: reservation_ids,
            ..self.heartbeat_request()
        })
        .await
    }

    /// Withdraws it. It stays withdrawn, also for whoever still has the token.
    pub async fn delete(self) -> Result<(), Error> {
        let request = pb::MatchmakingDeleteAdvertisementRequest {
            advertisement_id: self.published.advertisement_id,
            advertisement_token: self.published.advertisement_token,
        };
        self.channel.delete(request).await
    }

    /// The least that an update says: which one, whose, and how long to believe it.
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
        let answer = self.channel.update(request).await?;
        self.published.advertisement_id = answer.advertisement_id.clone();
        self.published.advertisement_token = answer.advertisement_token.clone();
        self.expires_in_ms = answer.expires_in_ms;
        self.reservations = answer.reservations.clone();
        Ok(answer)
    }
}
