//! One handler behind three doors: each request is charged, converted, put to the engine, and its answer written. The engine
//! is reached by no other way, and every way takes a caller who has passed the check.

use std::sync::Arc;

use crate::api::admission::{Caller, Player};
use crate::api::answer::{AnswerWriter, Encoded};
use crate::api::convert::{Door, out};
use crate::api::matchmaker::Matchmaker;
use crate::api::pb;
use crate::api::status::Rejection;
use crate::auth::policy::Charge;
use crate::auth::quota::{Payer, Place, Quotas};
use crate::domain::id::AdvertisementId;
use crate::engine::command::{ReservationAnswer, UpdateAnswer};
use crate::engine::{Listener, Submitted};

/// Rows that a search may look at for the price of one (SEC-10): as many as where the rules do not say, some milliseconds of
/// work. A set whose rules look further costs its searchers more.
const ROWS_PER_CHARGE: u32 = 20_000;

/// Asks the engine.
#[derive(Clone)]
pub struct Handler {
    engine: Arc<dyn Matchmaker>,
    quotas: Option<Arc<Quotas>>,
}

impl Handler {
    /// A handler that asks `engine`, of whomever and as often as they like.
    pub fn new(engine: Arc<dyn Matchmaker>) -> Self {
        Self { engine, quotas: None }
    }

    /// The same, for callers who have quotas.
    pub fn with_quotas(self, quotas: Arc<Quotas>) -> Self {
        Self { quotas: Some(quotas), ..self }
    }

    /// Charges a caller, before anything is looked at: what turns out wrong has cost its looking (SEC-11).
    fn charge(&self, caller: &Caller<Player>, charge: Charge, cost: u32) -> Result<(), Rejection> {
        self::charge(self.quotas.as_deref(), caller, charge, cost)
    }

    /// A place for one more stream of a caller.
    pub fn open_stream(&self, caller: &Caller<Player>) -> Result<Option<Place>, Rejection> {
        place(self.quotas.as_deref(), caller)
    }

    /// Search. The ruleset is looked up first, so that every candidate's terms have their names at once, and the search
    /// is pinned to it.
    pub fn search(&self, door: Door, caller: &Caller<Player>, wire: pb::SearchRequest) -> Result<Encoded, Rejection> {
        self.charge(caller, Charge::Search, 1)?;
        let mut search = door.search(caller.asking(), wire)?;
        let ruleset = self.engine.ruleset(search.set_id, search.hash)?;
        let rows = search.overrides.as_ref().and_then(|it| it.max_evaluated).unwrap_or(ruleset.limits.max_evaluated);
        let more = rows.div_ceil(ROWS_PER_CHARGE).saturating_sub(1);
        if 0 < more {
            self.charge(caller, Charge::Search, more)?;
        }
        search.hash = Some(ruleset.hash);
        let mut writer = AnswerWriter::new(&ruleset);
        let answer = self.engine.search(caller.asking(), search, &mut |candidate| writer.push(&candidate));
        let answer = answer.map_err(|fault| door.rejection(fault))?;
        Ok(writer.finish_search(answer))
    }

    /// Submits an update; its place among others about the same advertisement is taken when this returns.
    pub fn update(
        &self,
        door: Door,
        caller: &Caller<Player>,
        wire: pb::UpdateAdvertisementRequest,
    ) -> Result<Submitted<UpdateAnswer>, Rejection> {
        let is_heartbeat = wire.session_composition.is_none();
        self.charge(caller, if is_heartbeat { Charge::Heartbeat } else { Charge::Update }, 1)?;
        let caller = caller.asking();
        let update = door.update(caller, wire)?;
        self.engine.update(caller, update).map_err(|fault| door.rejection(fault))
    }

    /// Submits a deletion.
    pub fn delete(
        &self,
        door: Door,
        caller: &Caller<Player>,
        wire: pb::DeleteAdvertisementRequest,
    ) -> Result<(AdvertisementId, Submitted<()>), Rejection> {
        self.charge(caller, Charge::Update, 1)?;
        let delete = door.delete(wire)?;
        let id = delete.id;
        let submitted = self.engine.delete(caller.asking(), delete).map_err(|fault| door.rejection(fault))?;
        Ok((id, submitted))
    }

    /// The current ruleset of a set.
    pub fn configuration(
        &self,
        door: Door,
        caller: &Caller<Player>,
        wire: pb::GetConfigurationRequest,
    ) -> Result<pb::GetConfigurationResponse, Rejection> {
        self.charge(caller, Charge::Search, 1)?;
        let (set_id, known) = door.configuration(wire)?;
        let ruleset = self.engine.ruleset(set_id, None)?;
        Ok(out::configuration_response(&ruleset, known))
    }

    /// Takes seats.
    pub async fn reserve(
        &self,
        caller: &Caller<Player>,
        wire: pb::ReserveRequest,
    ) -> Result<pb::ReserveResponse, Rejection> {
        self.charge(caller, Charge::Seats, 1)?;
        let reserve = Door::default().reserve(caller.asking(), wire)?;
        let answer = self.engine.reserve(caller.asking(), reserve)?.settle().await?;
        Ok(out::reserve_response(answer))
    }

    /// Gives seats back.
    pub async fn release(
        &self,
        caller: &Caller<Player>,
        wire: pb::ReleaseRequest,
    ) -> Result<pb::ReleaseResponse, Rejection> {
        self.charge(caller, Charge::Seats, 1)?;
        let release = Door::default().release(wire)?;
        self.engine.release(caller.asking(), release)?.settle().await?;
        Ok(pb::ReleaseResponse {})
    }

    /// Orders candidates by measured round trips.
    pub fn report_latency(
        &self,
        caller: &Caller<Player>,
        wire: pb::ReportLatencyRequest,
    ) -> Result<Encoded, Rejection> {
        self.charge(caller, Charge::Search, 1)?;
        let caller = caller.asking();
        let mut report = Door::default().report_latency(caller, wire)?;
        let ruleset = self.engine.searched_by(report.set_id, report.hash, &report.token)?;
        report.hash = Some(ruleset.hash);
        let mut writer = AnswerWriter::new(&ruleset);
        let answer = self.engine.report_latency(caller, report, &mut |candidate| writer.push(&candidate))?;
        Ok(writer.finish_report(&answer))
    }

    /// Draws a role.
    pub fn choose_role(
        &self,
        caller: &Caller<Player>,
        wire: pb::ChooseActionRequest,
    ) -> Result<pb::ChooseActionResponse, Rejection> {
        self.charge(caller, Charge::Search, 1)?;
        let (set_id, party_size) = Door::default().choose_role(wire)?;
        let answer = self.engine.choose_role(set_id, party_size)?;
        Ok(out::role_response(answer))
    }

    /// Lets another player take the caller along.
    pub fn grant_consent(
        &self,
        caller: &Caller<Player>,
        wire: pb::GrantConsentRequest,
    ) -> Result<pb::GrantConsentResponse, Rejection> {
        self.charge(caller, Charge::Search, 1)?;
        let leader = Door::default().grant_consent(wire)?;
        let answer = self.engine.grant_consent(caller.asking(), leader)?;
        Ok(pb::GrantConsentResponse { consent_token: answer.token, expires_in_ms: answer.expires_in_ms })
    }

    /// Lets a connection hear of an advertisement that its caller has updated, and says what there is to hear of by now.
    pub fn subscribe(&self, _: &Caller<Player>, id: AdvertisementId, listener: &Listener) -> Vec<ReservationAnswer> {
        self.engine.subscribe(id, listener)
    }
}

/// Charges a caller, where there are quotas.
pub(super) fn charge(
    quotas: Option<&Quotas>,
    caller: &Caller<Player>,
    charge: Charge,
    cost: u32,
) -> Result<(), Rejection> {
    quotas.map_or(Ok(()), |quotas| Ok(quotas.charge(payer(caller), charge, cost)?))
}

/// A place for one more stream of a caller.
pub(super) fn place(quotas: Option<&Quotas>, caller: &Caller<Player>) -> Result<Option<Place>, Rejection> {
    quotas.map_or(Ok(None), |quotas| Ok(quotas.open_stream(payer(caller))?))
}

/// Who pays for what `caller` asks.
fn payer(caller: &Caller<Player>) -> Payer {
    Payer::of(caller.identity().map(|identity| (identity.role, identity.key)), caller.asking().address)
}

impl std::fmt::Debug for Handler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handler").finish_non_exhaustive()
    }
}
