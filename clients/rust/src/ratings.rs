//! Results and ratings: what came of a match, how good users are, who leads.

use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use crate::client::Client;
use crate::error::Error;
use crate::pb;
use crate::pb::rating_service_client::RatingServiceClient;
use crate::ticket::Ticket;

/// Users of one side, by their accounts.
pub type SideUserIds<'a> = &'a [&'a str];

impl Client {
    /// Says what came of a match, with a proof in it. Once is enough, and again changes nothing: it is repeated when the server is out
    /// of reach.
    pub async fn report_result(&self, request: pb::ReportResultRequest) -> Result<pb::ReportResultResponse, Error> {
        self.call_ratings(request, |mut stub, request| async move { stub.report_result(request).await }).await
    }

    /// How good users are in a set, in the order asked.
    pub async fn get_ratings(&self, set_id: u32, user_ids: &[&str]) -> Result<Vec<pb::UserRating>, Error> {
        let user_ids = user_ids.iter().map(|&user| user.to_owned()).collect();
        let request = pb::GetRatingsRequest { matchmaking_set_id: Some(set_id), user_ids };
        let asked =
            self.call_ratings(request, |mut stub, request| async move { stub.get_ratings(request).await }).await;
        Ok(asked?.ratings)
    }

    /// A part of a set's leaderboard.
    pub async fn get_leaderboard(
        &self,
        request: pb::GetLeaderboardRequest,
    ) -> Result<pb::GetLeaderboardResponse, Error> {
        self.call_ratings(request, |mut stub, request| async move { stub.get_leaderboard(request).await }).await
    }

    /// The chance of each side to come in first, if they met now.
    pub async fn predict_outcome(&self, set_id: u32, sides: &[SideUserIds<'_>]) -> Result<Vec<f64>, Error> {
        let side = |users: &SideUserIds<'_>| pb::PredictedSide {
            user_ids: users.iter().map(|&user| user.to_owned()).collect(),
        };
        let sides = sides.iter().map(side).collect();
        let request = pb::PredictOutcomeRequest { matchmaking_set_id: Some(set_id), sides };
        let asked =
            self.call_ratings(request, |mut stub, request| async move { stub.predict_outcome(request).await }).await;
        Ok(asked?.win_probabilities)
    }

    /// What matches have made of a user's rating, latest first.
    pub async fn get_rating_history(
        &self,
        request: pb::GetRatingHistoryRequest,
    ) -> Result<pb::GetRatingHistoryResponse, Error> {
        self.call_ratings(request, |mut stub, request| async move { stub.get_rating_history(request).await }).await
    }

    /// Says what a player thought of a match, 1 to 5.
    pub async fn submit_feedback(
        &self,
        request: pb::SubmitFeedbackRequest,
    ) -> Result<pb::SubmitFeedbackResponse, Error> {
        self.call_ratings(request, |mut stub, request| async move { stub.submit_feedback(request).await }).await
    }

    async fn call_ratings<Question, Reply, Asked>(
        &self,
        question: Question,
        ask: impl Fn(RatingServiceClient<Channel>, Request<Question>) -> Asked,
    ) -> Result<Reply, Error>
    where
        Question: Clone,
        Asked: Future<Output = Result<Response<Reply>, Status>>,
    {
        self.call_with_retries(question, |channel, request| ask(RatingServiceClient::new(channel), request)).await
    }
}

impl Ticket {
    /// Says what came of the match `match_id`, which this ticket's own player hosts: where each team came in, by their numbers,
    /// 1 for the best.
    pub async fn report_result(&self, match_id: &str, ranks: &[(u32, i32)]) -> Result<pb::ReportResultResponse, Error> {
        let request = pb::ReportResultRequest {
            match_id: match_id.to_owned(),
            team_ranks: ranks.iter().map(|&(team, rank)| pb::TeamRank { team, rank }).collect(),
            ticket_token: self.reference().ticket_token,
            ..Default::default()
        };
        self.client().report_result(request).await
    }

    /// Says what this ticket's only player thought of the match `match_id`, 1 to 5.
    pub async fn submit_feedback(&self, match_id: &str, score: u32) -> Result<(), Error> {
        let request = pb::SubmitFeedbackRequest {
            match_id: match_id.to_owned(),
            ticket_token: self.reference().ticket_token,
            player_key: String::new(),
            stars: score,
        };
        self.client().submit_feedback(request).await.map(|_| ())
    }
}
