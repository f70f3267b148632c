//! Matches of a host, and the heartbeats that confirm them and keep them alive.

use std::collections::BTreeSet;
use std::fmt;

use crate::pb;
use crate::secret_length::debug_secret_length;

/// Matches that one heartbeat may name.
pub(crate) const MATCHES_PER_BEAT_MAX: usize = 256;

/// Matches of one advertisement, as of the last heartbeat.
#[derive(Clone)]
pub(crate) struct HostedMatches {
    advertisement_token: Vec<u8>,
    hosted: BTreeSet<String>,
    given_up: BTreeSet<String>,
}

impl HostedMatches {
    /// Matches of the advertisement with this token; none is known yet.
    pub(crate) fn new(advertisement_token: Vec<u8>) -> Self {
        Self { advertisement_token, hosted: BTreeSet::new(), given_up: BTreeSet::new() }
    }

    /// Proof of the advertisement.
    pub(crate) fn advertisement_token(&self) -> &[u8] {
        &self.advertisement_token
    }

    /// Matches that are confirmed and have not ended.
    pub(crate) fn ids(&self) -> impl Iterator<Item = &str> {
        self.hosted.iter().map(String::as_str)
    }

    /// Gives a match up with the next heartbeat.
    pub(crate) fn give_up(&mut self, match_id: &str) {
        self.given_up.insert(match_id.to_owned());
    }

    /// Heartbeat that names all known matches.
    pub(crate) fn heartbeat(&self) -> pb::QueueHostHeartbeatRequest {
        self.request(self.hosted.union(&self.given_up).take(MATCHES_PER_BEAT_MAX).cloned())
    }

    /// Takes the answer to a heartbeat. Returns the heartbeat that confirms the matches which were not known before, if there are any.
    pub(crate) fn take_response(
        &mut self,
        response: &pb::QueueHostHeartbeatResponse,
    ) -> Option<pb::QueueHostHeartbeatRequest> {
        for hosted in &response.matches {
            self.given_up.remove(&hosted.match_id);
            match hosted.state() {
                pb::HostedMatchState::Confirming | pb::HostedMatchState::Playing => {
                    self.hosted.insert(hosted.match_id.clone());
                }
                _ => drop(self.hosted.remove(&hosted.match_id)),
            }
        }
        let new = response.hosted_match_ids.iter().filter(|id| !self.hosted.contains(*id)).take(MATCHES_PER_BEAT_MAX);
        let request = self.request(new.cloned());
        (!request.matches.is_empty()).then_some(request)
    }

    fn request(&self, match_ids: impl Iterator<Item = String>) -> pb::QueueHostHeartbeatRequest {
        let beat = |match_id: String| pb::HostedMatchBeat { gives_up: self.given_up.contains(&match_id), match_id };
        pb::QueueHostHeartbeatRequest {
            advertisement_token: self.advertisement_token.clone(),
            matches: match_ids.map(beat).collect(),
        }
    }
}

impl fmt::Debug for HostedMatches {
    /// Prints no token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostedMatches")
            .field("advertisement_token", &debug_secret_length(&self.advertisement_token))
            .field("hosted", &self.hosted)
            .field("given_up", &self.given_up)
            .finish()
    }
}
