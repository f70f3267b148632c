//! Rating service: match results, ratings, leaderboards, outcome prediction, feedback.

use std::sync::Arc;

use tonic::{Request, Response};

use crate::api::authorized::{AuthorizedQueues, ServiceResult, rejection_of_engine_error};
use crate::api::client_address::ClientAddressResolver;
use crate::api::convert::{RequestReader, rating};
use crate::api::pb;
use crate::api::pb::rating_service_server::RatingService;
use crate::auth::policy::RateLimitKind;
use crate::auth::rate_limit::RateLimits;
use crate::engine::queues::QueueEngine;

/// Users whose ratings cost as much as one search against the rate limit.
const USERS_PER_SEARCH_CHARGE: usize = 16;

/// Implementation of the Rating service.
#[derive(Clone, Debug)]
pub struct RatingsApi {
    authorized: AuthorizedQueues,
}

impl RatingsApi {
    /// Creates the service over `queues`. Without rate limits, calls are not charged.
    pub fn new(
        queues: QueueEngine,
        address_resolver: ClientAddressResolver,
        rate_limits: Option<Arc<RateLimits>>,
    ) -> Self {
        Self { authorized: AuthorizedQueues::new(queues, address_resolver, rate_limits) }
    }
}

#[tonic::async_trait]
impl RatingService for RatingsApi {
    async fn report_result(
        &self,
        request: Request<pb::ReportResultRequest>,
    ) -> ServiceResult<pb::ReportResultResponse> {
        let (caller, message) = self.authorized.split_and_charge_request(request, RateLimitKind::Update, |_| 1)?;
        let report = RequestReader::default().host_report_result_command(message)?;
        let answer = self
            .authorized
            .queue_engine_for_authorized(&caller)
            .report_result(caller.engine_caller(), &report)
            .await
            .map_err(rejection_of_engine_error)?;
        Ok(Response::new(rating::report_result_response(answer)))
    }

    async fn get_ratings(&self, request: Request<pb::GetRatingsRequest>) -> ServiceResult<pb::GetRatingsResponse> {
        let (caller, message) = self.authorized.split_and_charge_rating_read(request, |message| {
            message.user_ids.len().div_ceil(USERS_PER_SEARCH_CHARGE)
        })?;
        let (set_id, users) = RequestReader::default().ratings_query(&message)?;
        let queues = self.authorized.queue_engine_for_rating_reads(&caller);
        let views =
            queues.user_ratings(caller.engine_caller(), set_id, &users).await.map_err(rejection_of_engine_error)?;
        Ok(Response::new(rating::ratings_response(message.user_ids, &users, views, queues.public_user_key_secret())))
    }

    async fn get_leaderboard(
        &self,
        request: Request<pb::GetLeaderboardRequest>,
    ) -> ServiceResult<pb::GetLeaderboardResponse> {
        let (caller, message) = self.authorized.split_and_charge_rating_read(request, |_| 1)?;
        let queues = self.authorized.queue_engine_for_rating_reads(&caller);
        let query = RequestReader::default().leaderboard_query(&message, queues.public_user_key_secret())?;
        let page = queues.leaderboard_page(caller.engine_caller(), query).await.map_err(rejection_of_engine_error)?;
        Ok(Response::new(rating::leaderboard_response(page, queues.public_user_key_secret())))
    }

    async fn predict_outcome(
        &self,
        request: Request<pb::PredictOutcomeRequest>,
    ) -> ServiceResult<pb::PredictOutcomeResponse> {
        let (caller, message) = self
            .authorized
            .split_and_charge_rating_read(request, |message| message.sides.len().div_ceil(USERS_PER_SEARCH_CHARGE))?;
        let (set_id, sides) = RequestReader::default().predict_outcome_query(&message)?;
        let queues = self.authorized.queue_engine_for_rating_reads(&caller);
        let predicted = queues.predict_win_probabilities(caller.engine_caller(), set_id, &sides).await;
        let win_probabilities = predicted.map_err(rejection_of_engine_error)?;
        Ok(Response::new(pb::PredictOutcomeResponse { win_probabilities }))
    }

    async fn get_rating_history(
        &self,
        request: Request<pb::GetRatingHistoryRequest>,
    ) -> ServiceResult<pb::GetRatingHistoryResponse> {
        let (caller, message) = self.authorized.split_and_charge_rating_read(request, |_| 1)?;
        let query = RequestReader::default().rating_history_query(&message)?;
        let queues = self.authorized.queue_engine_for_rating_reads(&caller);
        let changes = queues.rating_history(caller.engine_caller(), query.set_id, query.user).await;
        let changes = changes.map_err(rejection_of_engine_error)?;
        Ok(Response::new(rating::rating_history_response(changes, &query)))
    }

    async fn submit_feedback(
        &self,
        request: Request<pb::SubmitFeedbackRequest>,
    ) -> ServiceResult<pb::SubmitFeedbackResponse> {
        let (caller, message) = self.authorized.split_and_charge_request(request, RateLimitKind::Update, |_| 1)?;
        let feedback = RequestReader::default().submit_feedback_command(message)?;
        self.authorized
            .queue_engine_for_authorized(&caller)
            .submit_feedback(caller.engine_caller(), &feedback)
            .await
            .map_err(rejection_of_engine_error)?;
        Ok(Response::new(pb::SubmitFeedbackResponse {}))
    }
}
