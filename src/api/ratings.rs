//! The Ratings service: what came of matches, and what that says of players.

use std::sync::Arc;

use tonic::{Request, Response};

use crate::api::caller::Callers;
use crate::api::convert::{Door, rating};
use crate::api::pb;
use crate::api::pb::rating_service_server::RatingService;
use crate::api::reach::{Answered, Reach, rejected};
use crate::auth::policy::Charge;
use crate::auth::quota::Quotas;
use crate::engine::queues::Queues;

/// Users whose ratings cost as much as one search.
const USERS_A_SEARCH: usize = 16;

/// The service.
#[derive(Clone, Debug)]
pub struct RatingsApi {
    reach: Reach,
}

impl RatingsApi {
    /// A service over `queues`.
    pub fn new(queues: Queues, callers: Callers, quotas: Option<Arc<Quotas>>) -> Self {
        Self { reach: Reach::new(queues, callers, quotas) }
    }
}

#[tonic::async_trait]
impl RatingService for RatingsApi {
    async fn report_result(&self, request: Request<pb::ReportResultRequest>) -> Answered<pb::ReportResultResponse> {
        let (caller, wire) = self.reach.open(request, Charge::Update, |_| 1)?;
        let said = Door::default().report_result(wire)?;
        let answer = self.reach.queues(&caller).report_result(caller.asking(), &said).await.map_err(rejected)?;
        Ok(Response::new(rating::reported(answer)))
    }

    async fn get_ratings(&self, request: Request<pb::GetRatingsRequest>) -> Answered<pb::GetRatingsResponse> {
        let (caller, wire) =
            self.reach.open(request, Charge::Search, |wire| wire.user_ids.len().div_ceil(USERS_A_SEARCH))?;
        let (set_id, users) = Door::default().get_ratings(&wire)?;
        let views = self.reach.queues(&caller).ratings(set_id, &users).map_err(rejected)?;
        Ok(Response::new(rating::ratings(wire.user_ids, &users, views)))
    }

    async fn get_leaderboard(
        &self,
        request: Request<pb::GetLeaderboardRequest>,
    ) -> Answered<pb::GetLeaderboardResponse> {
        let (caller, wire) = self.reach.open(request, Charge::Search, |_| 1)?;
        let look = Door::default().get_leaderboard(&wire)?;
        let page = self.reach.queues(&caller).leaderboard(look).map_err(rejected)?;
        Ok(Response::new(rating::leaderboard(page)))
    }

    async fn predict_outcome(
        &self,
        request: Request<pb::PredictOutcomeRequest>,
    ) -> Answered<pb::PredictOutcomeResponse> {
        let (caller, wire) =
            self.reach.open(request, Charge::Search, |wire| wire.sides.len().div_ceil(USERS_A_SEARCH))?;
        let (set_id, sides) = Door::default().predict_outcome(&wire)?;
        let chances = self.reach.queues(&caller).predict(set_id, &sides).map_err(rejected)?;
        Ok(Response::new(pb::PredictOutcomeResponse { win_probabilities: chances }))
    }

    async fn get_rating_history(
        &self,
        request: Request<pb::GetRatingHistoryRequest>,
    ) -> Answered<pb::GetRatingHistoryResponse> {
        let (caller, wire) = self.reach.open(request, Charge::Search, |_| 1)?;
        let asked = Door::default().get_rating_history(&wire)?;
        let changes = self.reach.queues(&caller).rating_changes(asked.set_id, asked.user).await.map_err(rejected)?;
        Ok(Response::new(rating::history(changes, &asked)))
    }

    async fn submit_feedback(&self, request: Request<pb::SubmitFeedbackRequest>) -> Answered<pb::SubmitFeedbackResponse> {
        let (caller, wire) = self.reach.open(request, Charge::Update, |_| 1)?;
        let said = Door::default().score_match(wire)?;
        self.reach.queues(&caller).score_match(caller.asking(), &said).await.map_err(rejected)?;
        Ok(Response::new(pb::SubmitFeedbackResponse {}))
    }
}
