//! Matches of a host, and the heartbeats that confirm them and keep them alive.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;

use crate::pb;
use crate::secret_length::debug_secret_length;

/// Matches that one heartbeat may name, and that the server lists at once.
pub(crate) const MATCHES_PER_HEARTBEAT_MAX: usize = 256;

/// Matches after which a round takes no more new ones: they wait for the next round.
const MATCHES_PER_ROUND_MAX: usize = 16 * MATCHES_PER_HEARTBEAT_MAX;

/// Matches of one advertisement, as of the last heartbeat.
///
/// A *round* of heartbeats names each match once: first those that are known, then those that the server lists as new. A host of more
/// matches than a heartbeat may name sends several.
#[derive(Clone)]
pub(crate) struct HostedMatches {
    advertisement_token: Vec<u8>,
    hosted: BTreeSet<String>,
    give_ups_to_send: BTreeSet<String>,
    /// Matches that this round has still to name, in this order.
    still_to_name_in_round: VecDeque<String>,
    /// Matches of this round.
    matches_of_round: BTreeSet<String>,
    is_server_list_full: bool,
}

impl HostedMatches {
    /// Matches of the advertisement with this token; none is known yet.
    pub(crate) fn new(advertisement_token: Vec<u8>) -> Self {
        Self {
            advertisement_token,
            hosted: BTreeSet::new(),
            give_ups_to_send: BTreeSet::new(),
            still_to_name_in_round: VecDeque::new(),
            matches_of_round: BTreeSet::new(),
            is_server_list_full: false,
        }
    }

    /// Proof of the advertisement.
    pub(crate) fn advertisement_token(&self) -> &[u8] {
        &self.advertisement_token
    }

    /// Matches that are confirmed and have not ended.
    pub(crate) fn ids(&self) -> impl Iterator<Item = &str> {
        self.hosted.iter().map(String::as_str)
    }

    /// Whether the server has listed as many matches as it lists at once. It may have more, which it lists by turns.
    pub(crate) fn is_list_full(&self) -> bool {
        self.is_server_list_full
    }

    /// Gives a match up with the next heartbeat.
    pub(crate) fn give_up(&mut self, match_id: &str) {
        self.give_ups_to_send.insert(match_id.to_owned());
    }

    /// Starts a round. Returns its first heartbeat, which may name no match: it asks for new ones.
    pub(crate) fn start_round(&mut self) -> pb::QueueHostHeartbeatRequest {
        let kept_alive = self.hosted.difference(&self.give_ups_to_send);
        self.still_to_name_in_round = self.give_ups_to_send.iter().chain(kept_alive).cloned().collect();
        self.matches_of_round = self.still_to_name_in_round.iter().cloned().collect();
        self.name_matches()
    }

    /// Takes the answer to a heartbeat.
    pub(crate) fn take_response(&mut self, response: &pb::QueueHostHeartbeatResponse) {
        for hosted in &response.matches {
            self.give_ups_to_send.remove(&hosted.match_id);
            match hosted.state() {
                pb::HostedMatchState::Confirming | pb::HostedMatchState::Playing => {
                    self.hosted.insert(hosted.match_id.clone());
                }
                _ => drop(self.hosted.remove(&hosted.match_id)),
            }
        }
        self.is_server_list_full = MATCHES_PER_HEARTBEAT_MAX <= response.hosted_match_ids.len();
        for id in response.hosted_match_ids.iter().take(MATCHES_PER_HEARTBEAT_MAX) {
            // Once: the server may name matches that it does not let this host confirm.
            if self.matches_of_round.len() < MATCHES_PER_ROUND_MAX
                && !self.hosted.contains(id)
                && self.matches_of_round.insert(id.clone())
            {
                self.still_to_name_in_round.push_back(id.clone());
            }
        }
    }

    /// Next heartbeat of the round, to be sent at once. `None` if all matches were named.
    pub(crate) fn next_of_round(&mut self) -> Option<pb::QueueHostHeartbeatRequest> {
        (!self.still_to_name_in_round.is_empty()).then(|| self.name_matches())
    }

    /// Heartbeat with the next matches of the round.
    fn name_matches(&mut self) -> pb::QueueHostHeartbeatRequest {
        let count = self.still_to_name_in_round.len().min(MATCHES_PER_HEARTBEAT_MAX);
        let given_up = &self.give_ups_to_send;
        let beat = |match_id: String| pb::HostedMatchBeat { gives_up: given_up.contains(&match_id), match_id };
        pb::QueueHostHeartbeatRequest {
            advertisement_token: self.advertisement_token.clone(),
            matches: self.still_to_name_in_round.drain(..count).map(beat).collect(),
        }
    }
}

impl fmt::Debug for HostedMatches {
    /// Prints no token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostedMatches")
            .field("advertisement_token", &debug_secret_length(&self.advertisement_token))
            .field("hosted", &self.hosted)
            .field("give_ups_to_send", &self.give_ups_to_send)
            .field("still_to_name_in_round", &self.still_to_name_in_round)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that lists new matches in each answer does not keep a host in one round.
    #[test]
    fn round_of_heartbeats_is_limited() {
        let mut matches = HostedMatches::new(b"token".to_vec());
        let mut next = Some(matches.start_round());
        let mut named = BTreeSet::new();
        for answer in 0.. {
            let Some(request) = next else { break };
            named.extend(request.matches.into_iter().map(|beat| beat.match_id));
            let hosted_match_ids = (0..300).map(|number| format!("{answer} {number}")).collect();
            matches.take_response(&pb::QueueHostHeartbeatResponse { hosted_match_ids, ..Default::default() });
            next = matches.next_of_round();
        }
        assert_eq!(named.len(), MATCHES_PER_ROUND_MAX);
        assert!(matches.is_list_full());
    }
}
