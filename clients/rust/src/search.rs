//! A search that goes on: the token that says since when it runs, and the seats that it ends in.

use crate::client::Client;
use crate::error::Error;
use crate::pb;

/// One search by one party. Its limits relax with the time since its first answer, which the server reads from a token
/// that this handle carries from answer to answer.
#[derive(Clone, Debug)]
pub struct SearchSession {
    client: Client,
    request: pb::MatchmakingSearchRequest,
    /// When the limits next relax, as of the last answer; milliseconds. `None` when they are as wide as they get.
    pub next_expansion_in_ms: Option<u64>,
}

impl SearchSession {
    pub(crate) fn new(client: Client, set_id: u32, party: pb::SessionCompositionData) -> Self {
        let request = pb::MatchmakingSearchRequest {
            session_composition: Some(party),
            matchmaking_set_id: Some(set_id),
            ..Default::default()
        };
        Self { client, request, next_expansion_in_ms: None }
    }

    /// What the next search will say, for whoever wants to say more: a ruleset hash, overrides.
    pub fn request_mut(&mut self) -> &mut pb::MatchmakingSearchRequest {
        &mut self.request
    }

    /// Leaves `advertisement_id` out from now on: the session has just refused this party, or is its own.
    pub fn exclude(&mut self, advertisement_id: &str) {
        self.request.exclude_advertisement_ids.push(advertisement_id.to_owned());
    }

    /// Searches with the limits of the time waited so far.
    pub async fn search(&mut self) -> Result<pb::MatchmakingSearchResponse, Error> {
        let answer = self.client.search(self.request.clone()).await?;
        self.request.search_token = answer.search_token.clone();
        self.next_expansion_in_ms = answer.next_expansion_in_ms;
        Ok(answer)
    }

    /// Tells round trips measured to the last answer's candidates, by id; `None` for those that did not answer.
    pub async fn report_latency(
        &self,
        phase: pb::LatencyPhase,
        round_trips_ms: impl IntoIterator<Item = (String, Option<f32>)>,
    ) -> Result<pb::MatchmakingReportLatencyResponse, Error> {
        let measured = |(advertisement_id, round_trip_ms)| pb::LatencyMeasurement { advertisement_id, round_trip_ms };
        let request = pb::MatchmakingReportLatencyRequest {
            search_token: self.request.search_token.clone(),
            phase: phase.into(),
            measurements: round_trips_ms.into_iter().map(measured).collect(),
            session_composition: self.request.session_composition.clone(),
            matchmaking_set_id: self.request.matchmaking_set_id,
            service_configuration_hash: self.request.service_configuration_hash,
        };
        self.client.report_latency(request).await
    }

    /// Takes seats for the whole party in one of the last answer's candidates.
    pub async fn reserve(&self, advertisement_id: &str) -> Result<Reservation, Error> {
        let request = pb::MatchmakingReserveRequest {
            advertisement_id: advertisement_id.to_owned(),
            search_token: self.request.search_token.clone(),
            session_composition: self.request.session_composition.clone(),
            matchmaking_set_id: self.request.matchmaking_set_id,
            ..Default::default()
        };
        let answer = self.client.reserve(request).await?;
        let reservation = answer.reservation.ok_or(Error::MissingField("reservation"))?;
        Ok(Reservation {
            client: self.client.clone(),
            id: reservation.reservation_id,
            token: reservation.reservation_token,
            seats: reservation.seats,
            expires_in_ms: reservation.expires_in_ms,
            connect_data: answer.connect_data,
        })
    }
}

/// Seats held for a party. Dropping it gives nothing back: the seats lapse, or the host settles them.
#[derive(Clone, Debug)]
pub struct Reservation {
    client: Client,
    token: Vec<u8>,
    /// The reservation's id, by which the host knows the party.
    pub id: String,
    /// How many seats.
    pub seats: u32,
    /// When the seats lapse unless the host confirms them; milliseconds from the answer.
    pub expires_in_ms: u32,
    /// How to reach the host, as the host wrote it.
    pub connect_data: Vec<u8>,
}

impl Reservation {
    /// Gives the seats back.
    pub async fn release(self) -> Result<(), Error> {
        let request = pb::MatchmakingReleaseRequest { reservation_id: self.id, reservation_token: self.token };
        self.client.release(request).await.map(|_| ())
    }
}
