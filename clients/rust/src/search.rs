//! Search session: keeps the search token between searches and reserves seats.

use std::fmt;

use crate::error::Error;
use crate::pb;
use crate::random;
use crate::retrying_channel::RetryingChannel;
use crate::secret_length::debug_secret_length;

/// Repeated search of one party. Its limits relax with the time since the first search. The server reads that time from
/// the search token, which this handle keeps.
#[derive(Clone, Debug)]
pub struct SearchSession {
    channel: RetryingChannel,
    request: pb::MatchmakingSearchRequest,
    /// Milliseconds until the limits relax again, as of the last response; `None` if they are at their widest.
    pub next_expansion_in_ms: Option<u64>,
}

impl SearchSession {
    pub(crate) fn new(channel: RetryingChannel, set_id: u32, party: pb::SessionCompositionData) -> Self {
        let request = pb::MatchmakingSearchRequest {
            session_composition: Some(party),
            matchmaking_set_id: Some(set_id),
            ..Default::default()
        };
        Self { channel, request, next_expansion_in_ms: None }
    }

    /// Request of the next search, for setting a ruleset hash or overrides.
    pub fn request_mut(&mut self) -> &mut pb::MatchmakingSearchRequest {
        &mut self.request
    }

    /// Excludes an advertisement from further searches, for example after its host rejected this party.
    pub fn exclude(&mut self, advertisement_id: &str) {
        self.request.exclude_advertisement_ids.push(advertisement_id.to_owned());
    }

    /// Searches with the limits for the time waited so far.
    pub async fn search(&mut self) -> Result<pb::MatchmakingSearchResponse, Error> {
        let response = self
            .channel
            .call_matchmaking(self.request.clone(), |mut stub, request| async move { stub.search(request).await })
            .await?;
        self.request.search_token = response.search_token.clone();
        self.next_expansion_in_ms = response.next_expansion_in_ms;
        Ok(response)
    }

    /// Reports measured round trips to the last candidates, by advertisement id, milliseconds; `None` if there was no reply. The search
    /// goes on with the token of the answer, which carries the measurements.
    pub async fn report_latency(
        &mut self,
        phase: pb::LatencyPhase,
        round_trips_ms: impl IntoIterator<Item = (String, Option<f32>)>,
    ) -> Result<pb::MatchmakingReportLatencyResponse, Error> {
        let to_measurement = |(advertisement_id, round_trip_ms)| pb::LatencyMeasurement {
            advertisement_id,
            round_trip_ms,
            ..Default::default()
        };
        let request = pb::MatchmakingReportLatencyRequest {
            search_token: self.request.search_token.clone(),
            phase: phase.into(),
            measurements: round_trips_ms.into_iter().map(to_measurement).collect(),
            session_composition: self.request.session_composition.clone(),
            matchmaking_set_id: self.request.matchmaking_set_id,
            service_configuration_hash: self.request.service_configuration_hash,
        };
        let response = self
            .channel
            .call_matchmaking(request, |mut stub, request| async move { stub.report_latency(request).await })
            .await?;
        // A server of version 0.2.0 has no measurements in tokens, and returns none.
        if !response.search_token.is_empty() {
            self.request.search_token = response.search_token.clone();
        }
        Ok(response)
    }

    /// Reserves seats for the whole party in one of the last candidates.
    pub async fn reserve(&self, advertisement_id: &str) -> Result<Reservation, Error> {
        let request = pb::MatchmakingReserveRequest {
            advertisement_id: advertisement_id.to_owned(),
            search_token: self.request.search_token.clone(),
            session_composition: self.request.session_composition.clone(),
            matchmaking_set_id: self.request.matchmaking_set_id,
            idempotency_key: random::idempotency_key(),
            ..Default::default()
        };
        let response = self
            .channel
            .call_matchmaking(request, |mut stub, request| async move { stub.reserve(request).await })
            .await?;
        let reservation = response.reservation.ok_or(Error::MissingField("reservation"))?;
        Ok(Reservation {
            channel: self.channel.clone(),
            id: reservation.reservation_id,
            token: reservation.reservation_token,
            seats: reservation.seats,
            expires_in_ms: reservation.expires_in_ms,
            connect_data: response.connect_data,
        })
    }
}

/// Seats reserved for a party. Dropping it releases nothing: the reservation expires, or ends when the party joins.
#[derive(Clone)]
pub struct Reservation {
    channel: RetryingChannel,
    token: Vec<u8>,
    /// Reservation id, as the host sees it.
    pub id: String,
    /// Number of seats.
    pub seats: u32,
    /// Milliseconds from the response until the reservation expires, unless the host confirms it.
    pub expires_in_ms: u64,
    /// Connect data published by the host, such as its address.
    pub connect_data: Vec<u8>,
}

impl Reservation {
    /// Releases the seats.
    pub async fn release(self) -> Result<(), Error> {
        let request = pb::MatchmakingReleaseRequest {
            reservation_id: self.id,
            reservation_token: self.token,
            ..Default::default()
        };
        self.channel
            .call_matchmaking(request, |mut stub, request| async move { stub.release(request).await })
            .await
            .map(|_| ())
    }
}

impl fmt::Debug for Reservation {
    /// Prints no token and no connect data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation")
            .field("id", &self.id)
            .field("token", &debug_secret_length(&self.token))
            .field("seats", &self.seats)
            .field("expires_in_ms", &self.expires_in_ms)
            .field("connect_data", &debug_secret_length(&self.connect_data))
            .finish_non_exhaustive()
    }
}
