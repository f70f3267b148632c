//! Heartbeat of the host of matches: confirms them, keeps them alive during play, or gives them up.

use futures_util::future::join_all;

use crate::auth::token::AdvertisementClaim;
use crate::domain::id::{AdvertisementId, MatchId};
use crate::domain::lifecycle::{Assignment, MatchStage};
use crate::domain::ruleset::teams::{HostingSpec, default_host_confirm_ms};
use crate::engine::command::Caller;
use crate::engine::error::EngineError;
use crate::engine::hosted_match::{HostedMatch, HostedMatchState};
use crate::engine::queues::command::{
    EndMatchCommand, EndMatchProof, HostHeartbeatAnswer, HostHeartbeatCommand, HostedMatchBeat,
};
use crate::engine::queues::queue_engine::QueueEngine;

/// Confirmation time of a set whose ruleset is not loaded, milliseconds.
const CONFIRM_MS_WITHOUT_RULESET: u32 = 30_000;

impl QueueEngine {
    /// Confirms matches, keeps them alive or gives them up, as their host. Needs no advertisement: the token is the proof.
    pub async fn host_heartbeat(
        &self,
        caller: &Caller,
        heartbeat: HostHeartbeatCommand,
    ) -> Result<HostHeartbeatAnswer, EngineError> {
        let claim = self.verify_host_advertisement_token(caller, &heartbeat.advertisement_token)?;
        let beats = heartbeat.matches.iter();
        let token = &heartbeat.advertisement_token;
        let answers =
            join_all(beats.map(|beat| self.apply_hosted_match_beat(caller, claim.advertisement_id, token, *beat)))
                .await;
        let matches = answers.into_iter().collect::<Result<Vec<_>, EngineError>>()?;
        let now = self.shared.common.clock.now();
        let ruleset = self.shared.common.rulesets.ruleset_in_force(claim.set_id);
        let may_have_to_confirm = self.shared.adverts.is_advert_in_memory(claim.advertisement_id, claim.set_id)
            || matches.iter().any(|hosted| matches!(hosted.state, HostedMatchState::AwaitingHostConfirmation(_)));
        let interval_ms = |hosting: &HostingSpec| {
            if may_have_to_confirm {
                hosting.heartbeat_interval_before_confirm_ms().min(hosting.play_heartbeat_interval_ms())
            } else {
                hosting.play_heartbeat_interval_ms()
            }
        };
        let next_beat_in_ms = ruleset.as_ref().map_or_else(
            || u64::from(default_host_confirm_ms(CONFIRM_MS_WITHOUT_RULESET)),
            |ruleset| interval_ms(&ruleset.hosting),
        );
        let hosted_match_ids = self.shared.adverts.schedule_beat_and_list_matches(
            claim.advertisement_id,
            claim.set_id,
            next_beat_in_ms,
            now,
        );
        let matches = matches.into_iter().map(|hosted| hosted.with_time_left_at(now)).collect();
        Ok(HostHeartbeatAnswer { matches, hosted_match_ids, next_beat_in_ms })
    }

    /// Whether a heartbeat with this token was asked for and is due, so that it is not charged. It is then taken.
    pub fn take_uncharged_host_beat(&self, caller: &Caller, advertisement_token: &[u8]) -> bool {
        self.verify_host_advertisement_token(caller, advertisement_token).is_ok_and(|claim| {
            self.shared.adverts.consume_expected_beat(claim.advertisement_id, self.shared.common.clock.now())
        })
    }

    /// The one match that an advertisement hosts. Fails if it hosts none or several.
    pub(crate) fn only_match_of_host(
        &self,
        caller: &Caller,
        advertisement_token: &[u8],
    ) -> Result<MatchId, EngineError> {
        let claim = self.verify_host_advertisement_token(caller, advertisement_token)?;
        let hosted = self.shared.adverts.hosted_match_ids(claim.advertisement_id);
        match &*hosted {
            [only] => Ok(*only),
            _ => Err(EngineError::MatchIdRequired { hosted }),
        }
    }

    /// Claim of an advertisement token that was issued to this caller.
    pub(super) fn verify_host_advertisement_token(
        &self,
        caller: &Caller,
        token: &[u8],
    ) -> Result<AdvertisementClaim, EngineError> {
        let claim = self.shared.common.token_signer.verify::<AdvertisementClaim>(token);
        claim.filter(|claim| claim.subject == caller.subject).ok_or(EngineError::NotOwner)
    }

    /// Applies the heartbeat of one match. Fails only if the store is unavailable.
    async fn apply_hosted_match_beat(
        &self,
        caller: &Caller,
        advertisement: AdvertisementId,
        token: &[u8],
        beat: HostedMatchBeat,
    ) -> Result<HostedMatch, EngineError> {
        let not_hosted = HostedMatch::new_without_details(beat.match_id, HostedMatchState::NotHosted);
        let is_host =
            |host: Option<&Assignment>| host.is_some_and(|host| host.is_on_game_server_with_id(advertisement));
        let Some(found) = self.shared.find_match(beat.match_id).await? else { return Ok(not_hosted) };
        let mut match_ = found.into_match();
        if !is_host(match_.stage.assignment_since_confirming())
            && let Some(newer) = self.shared.wait_for_newer_match(&match_).await?
        {
            match_ = newer;
        }
        if !is_host(match_.stage.assignment_since_confirming()) {
            return Ok(not_hosted);
        }
        if beat.is_given_up {
            let proof = EndMatchProof::GameServer(token.to_vec());
            let end = EndMatchCommand { match_id: Some(beat.match_id), proof, has_game_server_failed: true };
            self.end_match(caller, end).await?;
        } else {
            let after = self.shared.apply_host_heartbeat(&match_, self.shared.common.clock.now()).await?;
            // The seats no longer expire.
            if let (MatchStage::Confirming { .. }, MatchStage::Playing { assignment, .. }) =
                (&match_.stage, &after.stage)
                && let Assignment::GameServer { advertisement, reservation: Some(reservation), .. } = assignment
            {
                self.shared.adverts.confirm_seats_and_extend_advert(*advertisement, match_.set_id, *reservation);
            }
        }
        let after = self.shared.cache.read().match_by_id(beat.match_id).cloned().unwrap_or(match_);
        let is_told = is_host(after.stage.assignment_since_confirming()) || after.stage.end_reason().is_some();
        Ok(if is_told { self.shared.hosted_match(&after) } else { not_hosted })
    }
}
