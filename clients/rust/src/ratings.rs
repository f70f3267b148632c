//! Calls of the rating service: match results, ratings, leaderboards, predictions and feedback.

use crate::client::Client;
use crate::error::Error;
use crate::pb;
use crate::ticket::Ticket;

/// User ids of one side of a match.
pub type UserIdsOfOneSide<'a> = &'a [&'a str];

impl Client {
    /// Reports the result of a match. The request contains the proof of permission. Idempotent: a repeated report changes
    /// nothing.
    pub async fn report_result(&self, request: pb::ReportResultRequest) -> Result<pb::ReportResultResponse, Error> {
        self.channel().call_ratings(request, |mut stub, request| async move { stub.report_result(request).await }).await
    }

    /// Ratings of users in a set's pool and on its scale, in the order of `user_ids`. Sets with the same pool have the
    /// same ratings.
    pub async fn get_ratings(&self, set_id: u32, user_ids: &[&str]) -> Result<Vec<pb::UserRating>, Error> {
        let user_ids = user_ids.iter().map(|&user| user.to_owned()).collect();
        let request = pb::GetRatingsRequest { matchmaking_set_id: Some(set_id), user_ids };
        let response = self
            .channel()
            .call_ratings(request, |mut stub, request| async move { stub.get_ratings(request).await })
            .await?;
        Ok(response.ratings)
    }

    /// A page of the leaderboard of a set's pool and scale.
    pub async fn get_leaderboard(
        &self,
        request: pb::GetLeaderboardRequest,
    ) -> Result<pb::GetLeaderboardResponse, Error> {
        self.channel()
            .call_ratings(request, |mut stub, request| async move { stub.get_leaderboard(request).await })
            .await
    }

    /// Win probability of each side, if they played now.
    pub async fn predict_outcome(&self, set_id: u32, sides: &[UserIdsOfOneSide<'_>]) -> Result<Vec<f64>, Error> {
        let to_side = |user_ids: &UserIdsOfOneSide<'_>| pb::PredictedSide {
            user_ids: user_ids.iter().map(|&user_id| user_id.to_owned()).collect(),
        };
        let sides = sides.iter().map(to_side).collect();
        let request = pb::PredictOutcomeRequest { matchmaking_set_id: Some(set_id), sides };
        let response = self
            .channel()
            .call_ratings(request, |mut stub, request| async move { stub.predict_outcome(request).await })
            .await?;
        Ok(response.win_probabilities)
    }

    /// Rating changes of a user in a set's pool and on its scale, latest first.
    pub async fn get_rating_history(
        &self,
        request: pb::GetRatingHistoryRequest,
    ) -> Result<pb::GetRatingHistoryResponse, Error> {
        self.channel()
            .call_ratings(request, |mut stub, request| async move { stub.get_rating_history(request).await })
            .await
    }

    /// Submits a player's feedback on a match, 1 to 5 stars.
    pub async fn submit_feedback(
        &self,
        request: pb::SubmitFeedbackRequest,
    ) -> Result<pb::SubmitFeedbackResponse, Error> {
        self.channel()
            .call_ratings(request, |mut stub, request| async move { stub.submit_feedback(request).await })
            .await
    }
}

impl Ticket {
    /// Reports the result of the match `match_id`, which a player hosts: every player reports, hosting or not. Or which has no
    /// host, from the backend. `ranks` has pairs of team number and rank; rank 1 is the best. The answer's state says
    /// whether other sides must report too.
    pub async fn report_result(&self, match_id: &str, ranks: &[(u32, i32)]) -> Result<pb::ReportResultResponse, Error> {
        let request = pb::ReportResultRequest {
            match_id: match_id.to_owned(),
            team_ranks: ranks.iter().map(|&(team, rank)| pb::TeamRank { team, rank }).collect(),
            ticket_token: self.reference().ticket_token,
            ..Default::default()
        };
        self.channel().call_ratings(request, |mut stub, request| async move { stub.report_result(request).await }).await
    }

    /// Submits feedback of this ticket's only player on the match `match_id`, 1 to 5 stars.
    pub async fn submit_feedback(&self, match_id: &str, stars: u32) -> Result<(), Error> {
        let request = pb::SubmitFeedbackRequest {
            match_id: match_id.to_owned(),
            ticket_token: self.reference().ticket_token,
            player_key: String::new(),
            stars,
        };
        self.channel()
            .call_ratings(request, |mut stub, request| async move { stub.submit_feedback(request).await })
            .await
            .map(|_| ())
    }
}
