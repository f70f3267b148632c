//! Matches as their hosts see them: built after each change, and sent to the host.

use std::sync::Arc;

use crate::domain::attribute::{AttributeValue, ShortString};
use crate::domain::id::{AdvertisementId, ReservationId};
use crate::domain::lifecycle::{Assignment, Match, MatchStage, MatchTicket};
use crate::domain::ruleset::Ruleset;
use crate::domain::session::Session;
use crate::domain::time::UnixMs;
use crate::engine::hosted_match::{HostedMatch, HostedMatchDetails, HostedMatchState, HostedParty, HostedPlayer};
use crate::engine::queues::shared_state::SharedState;
use crate::rules::catalog::MatchRulesetLookup;

/// Change of a match that may concern its host: before and after.
pub(crate) type MatchBeforeAndAfter = (Option<Arc<Match>>, Arc<Match>);

impl SharedState {
    /// Sends changes of matches to their hosts.
    pub(crate) fn notify_hosts(&self, changes: Vec<MatchBeforeAndAfter>, now: UnixMs) {
        for (before, after) in changes {
            let host_before = before.as_deref().and_then(advertisement_of_host);
            let host_after = advertisement_of_host(&after);
            if let Some((advertisement, _)) = host_before.filter(|host| Some(host) != host_after.as_ref()) {
                let has_ended = matches!(after.stage, MatchStage::Ended { .. });
                let state = if has_ended { HostedMatchState::Ended } else { HostedMatchState::NotHosted };
                self.adverts.remove_hosted_match_and_notify(advertisement, after.id, state);
            }
            if let Some((advertisement, _)) = host_after {
                self.adverts.set_hosted_match(advertisement, self.hosted_match(&after), now);
            }
        }
    }

    /// Match as its host sees it.
    pub(crate) fn hosted_match(&self, match_: &Match) -> HostedMatch {
        let state = match match_.stage {
            MatchStage::Confirming { confirm_by, .. } => HostedMatchState::AwaitingHostConfirmation(confirm_by),
            MatchStage::Playing { .. } => HostedMatchState::Playing,
            MatchStage::Ended { .. } => HostedMatchState::Ended,
            MatchStage::ReadyCheck { .. } | MatchStage::Placing { .. } => HostedMatchState::NotHosted,
        };
        let Some((advertisement_id, reservation_id)) =
            advertisement_of_host(match_).or_else(|| session_in_play(match_))
        else {
            return HostedMatch::new_without_details(match_.id, state);
        };
        let ruleset = match self.common.ruleset_of_match(match_.set_id, match_.ruleset_hash) {
            MatchRulesetLookup::Known(ruleset) => Some(ruleset),
            MatchRulesetLookup::NotLoaded | MatchRulesetLookup::Unrecoverable => None,
        };
        let reservations = match_.session_match_start_by_host.as_ref().map_or(&[][..], |start| &start.reservations);
        let reservations = reservations.iter().copied().chain(std::iter::repeat(None));
        let party = |(match_ticket, reservation_id)| HostedParty {
            reservation_id,
            ..self.hosted_party(match_, match_ticket, ruleset.as_deref())
        };
        let details = HostedMatchDetails {
            set_id: match_.set_id,
            ruleset_hash: match_.ruleset_hash,
            advertisement_id,
            reservation_id,
            region: match_.region.clone(),
            chosen_values: match_.chosen_values.clone(),
            bots_by_team: match_.bots_by_team.clone(),
            is_backfill: match_.backfilled_session.is_some(),
            parties: match_.tickets.iter().zip(reservations).map(party).collect(),
        };
        HostedMatch { details: Some(details), ..HostedMatch::new_without_details(match_.id, state) }
    }

    fn hosted_party(&self, match_: &Match, match_ticket: &MatchTicket, ruleset: Option<&Ruleset>) -> HostedParty {
        let ticket = self.cache.read().ticket(match_ticket.ticket_id).map(|stored| Arc::clone(&stored.ticket));
        let host_data = ruleset.map(|ruleset| ruleset.hosting.host_data).unwrap_or_default();
        let roles = ruleset.and_then(|ruleset| ruleset.teams.as_ref()).map(|teams| &teams.roles);
        let entry_ratings = ticket.as_ref().filter(|_| host_data.includes_ratings).map(|ticket| &ticket.player_ratings);
        let entered = ticket.as_ref().filter(|_| host_data.includes_attributes).map(|ticket| &ticket.session);
        let players = match_ticket.players.iter().enumerate().map(|(index, player)| HostedPlayer {
            player_key: self.common.match_player_key(match_.id, player.user),
            team_role: player.role.and_then(|role| Some(roles?.get(usize::from(role))?.name.clone())),
            has_left: player.left_at.is_some(),
            rating: entry_ratings.and_then(|ratings| ratings.get(index).copied()),
            attributes: entered.zip(ruleset).map_or_else(Vec::new, |(session, ruleset)| {
                let details = session.players.get(index).and_then(|player| player.details.as_ref());
                trusted_attributes(ruleset, session, details.map_or(&[], |details| &details.attributes))
            }),
        });
        HostedParty {
            team: match_ticket.team,
            reservation_id: None,
            players: players.collect(),
            attributes: entered
                .zip(ruleset)
                .map_or_else(Vec::new, |(session, ruleset)| trusted_attributes(ruleset, session, &session.attributes)),
        }
    }
}

/// Those of a session's attributes that the ruleset trusts its caller with.
fn trusted_attributes(
    ruleset: &Ruleset,
    session: &Session,
    attributes: &[(ShortString, AttributeValue)],
) -> Vec<(ShortString, AttributeValue)> {
    attributes
        .iter()
        .filter(|(name, _)| ruleset.trusts_attribute_from_origin(name, session.value_origin))
        .cloned()
        .collect()
}

/// Advertisement and reservation of a match that must be confirmed or is being played, if it has them.
fn advertisement_of_host(match_: &Match) -> Option<(AdvertisementId, Option<ReservationId>)> {
    let assignment = match &match_.stage {
        MatchStage::Confirming { assignment, .. } | MatchStage::Playing { assignment, .. } => assignment,
        MatchStage::ReadyCheck { .. } | MatchStage::Placing { .. } | MatchStage::Ended { .. } => return None,
    };
    match assignment {
        Assignment::GameServer { advertisement, reservation, .. } => Some((*advertisement, *reservation)),
        Assignment::PeerHost { .. } | Assignment::Unhosted => None,
    }
}

/// Session whose match is being played, also if a player hosts it.
fn session_in_play(match_: &Match) -> Option<(AdvertisementId, Option<ReservationId>)> {
    let start = match_.session_match_start_by_host.as_ref()?;
    matches!(match_.stage, MatchStage::Playing { .. }).then_some((start.advertisement, None))
}
