//! The Ratings service: what came of matches, and what that says of players.

use std::sync::Arc;

use tonic::{Request, Response};

use crate::api::authorized::{AuthorizedQueues, ServiceResult, rejection_from};
use crate::api::client_address::ClientAddressResolver;
use crate::api::convert::{EntryPoint, rating};
use crate::api::pb;
use crate::api::pb::rating_service_server::RatingService;
use crate::auth::policy::RateLimitKind;
use crate::auth::rate_limit::RateLimits;
use crate::engine::queues::QueueEngine;

/// Users whose ratings cost as much as one search.
const USERS_PER_SEARCH_CHARGE: usize = 16;

/// The service.
#[derive(Clone, Debug)]
pub struct RatingsApi {
    authorized: AuthorizedQueues,
}

impl RatingsApi {
    /// A service over `queues`.
    pub fn new(queues: QueueEngine, callers: ClientAddressResolver, quotas: Option<Arc<RateLimits>>) -> Self {
        Self { authorized: AuthorizedQueues::new(queues, callers, quotas) }
    }
}

#[tonic::async_trait]
impl RatingService for RatingsApi {
    async fn report_result(
        &self,
        request: Request<pb::ReportResultRequest>,
    ) -> ServiceResult<pb::ReportResultResponse> {
        let (caller, wire) = self.authorized.charged_request(request, RateLimitKind::Update, |_| 1)?;
        let said = EntryPoint::default().report_result_command(wire)?;
        let answer = self
            .authorized
            .queues(&caller)
            .report_result(caller.engine_caller(), &said)
            .await
            .map_err(rejection_from)?;
        Ok(Response::new(rating::report_result_response(answer)))
    }

    async fn get_ratings(&self, request: Request<pb::GetRatingsRequest>) -> ServiceResult<pb::GetRatingsResponse> {
        let (caller, wire) = self.authorized.charged_request(request, RateLimitKind::Search, |wire| {
            wire.user_ids.len().div_ceil(USERS_PER_SEARCH_CHARGE)
        })?;
        let (set_id, users) = EntryPoint::default().ratings_query(&wire)?;
        let views = self.authorized.queues(&caller).user_ratings(set_id, &users).map_err(rejection_from)?;
        Ok(Response::new(rating::ratings_response(wire.user_ids, &users, views)))
    }

    async fn get_leaderboard(
        &self,
        request: Request<pb::GetLeaderboardRequest>,
    ) -> ServiceResult<pb::GetLeaderboardResponse> {
        let (caller, wire) = self.authorized.charged_request(request, RateLimitKind::Search, |_| 1)?;
        let look = EntryPoint::default().leaderboard_query(&wire)?;
        let page = self.authorized.queues(&caller).leaderboard_page(look).map_err(rejection_from)?;
        Ok(Response::new(rating::leaderboard_response(page)))
    }

    async fn predict_outcome(
        &self,
        request: Request<pb::PredictOutcomeRequest>,
    ) -> ServiceResult<pb::PredictOutcomeResponse> {
        let (caller, wire) = self.authorized.charged_request(request, RateLimitKind::Search, |wire| {
            wire.sides.len().div_ceil(USERS_PER_SEARCH_CHARGE)
        })?;
        let (set_id, sides) = EntryPoint::default().predict_outcome_query(&wire)?;
        let chances =
            self.authorized.queues(&caller).predict_win_probabilities(set_id, &sides).map_err(rejection_from)?;
        Ok(Response::new(pb::PredictOutcomeResponse { win_probabilities: chances }))
    }

    async fn get_rating_history(
        &self,
        request: Request<pb::GetRatingHistoryRequest>,
    ) -> ServiceResult<pb::GetRatingHistoryResponse> {
        let (caller, wire) = self.authorized.charged_request(request, RateLimitKind::Search, |_| 1)?;
        let asked = EntryPoint::default().rating_history_query(&wire)?;
        let changes =
            self.authorized.queues(&caller).rating_history(asked.set_id, asked.user).await.map_err(rejection_from)?;
        Ok(Response::new(rating::rating_history_response(changes, &asked)))
    }

    async fn submit_feedback(
        &self,
        request: Request<pb::SubmitFeedbackRequest>,
    ) -> ServiceResult<pb::SubmitFeedbackResponse> {
        let (caller, wire) = self.authorized.charged_request(request, RateLimitKind::Update, |_| 1)?;
        let said = EntryPoint::default().submit_feedback_command(wire)?;
        self.authorized.queues(&caller).submit_feedback(caller.engine_caller(), &said).await.map_err(rejection_from)?;
        Ok(Response::new(pb::SubmitFeedbackResponse {}))
    }
}
