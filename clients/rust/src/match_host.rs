//! Host of matches: confirms the matches of an advertisement, and keeps them alive until they end.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use crate::advertisement::Advertisement;
use crate::client::Client;
use crate::error::Error;
use crate::pb;
use crate::secret_length::debug_secret_length;

/// Interval of the heartbeats before the server has named one.
const FIRST_BEAT_INTERVAL: Duration = Duration::from_secs(1);

/// Matches that one heartbeat may name.
const MATCHES_PER_BEAT_MAX: usize = 256;

/// Host of the matches of one advertisement. The advertisement may be deleted meanwhile.
///
/// Call [`MatchHost::heartbeat`] after each [`crate::HostEvent::Match`], and at the latest after [`MatchHost::time_to_next_heartbeat`].
#[derive(Clone)]
pub struct MatchHost {
    client: Client,
    advertisement_token: Vec<u8>,
    hosted: BTreeSet<String>,
    given_up: BTreeSet<String>,
    time_to_next_heartbeat: Duration,
}

impl MatchHost {
    /// Host of the matches of `advertisement`.
    pub fn new(client: Client, advertisement: &Advertisement) -> Self {
        Self::from_advertisement_token(client, advertisement.token().to_vec())
    }

    /// Host of the matches of the advertisement with this token, as after a restart of the game server.
    pub fn from_advertisement_token(client: Client, advertisement_token: Vec<u8>) -> Self {
        let (hosted, given_up) = (BTreeSet::new(), BTreeSet::new());
        Self { client, advertisement_token, hosted, given_up, time_to_next_heartbeat: FIRST_BEAT_INTERVAL }
    }

    /// Matches that this host has confirmed and that have not ended.
    pub fn hosted_match_ids(&self) -> impl Iterator<Item = &str> {
        self.hosted.iter().map(String::as_str)
    }

    /// Time until the next heartbeat.
    pub fn time_to_next_heartbeat(&self) -> Duration {
        self.time_to_next_heartbeat
    }

    /// Gives a match up with the next heartbeat. Another game server is sought if play has not begun.
    pub fn give_up(&mut self, match_id: &str) {
        self.given_up.insert(match_id.to_owned());
    }

    /// Confirms new matches and keeps the others alive. Returns all matches that this host has or had until now, as they
    /// are now.
    pub async fn heartbeat(&mut self) -> Result<Vec<pb::HostedMatch>, Error> {
        let known: Vec<String> = self.hosted.union(&self.given_up).take(MATCHES_PER_BEAT_MAX).cloned().collect();
        let response = self.send_heartbeat(known).await?;
        let new = response.hosted_match_ids.into_iter().filter(|id| !self.hosted.contains(id));
        let new: Vec<String> = new.collect();
        let mut matches = response.matches;
        if !new.is_empty() {
            matches.extend(self.send_heartbeat(new).await?.matches);
        }
        Ok(matches)
    }

    async fn send_heartbeat(&mut self, match_ids: Vec<String>) -> Result<pb::QueueHostHeartbeatResponse, Error> {
        let beat = |match_id: String| pb::HostedMatchBeat { gives_up: self.given_up.contains(&match_id), match_id };
        let request = pb::QueueHostHeartbeatRequest {
            advertisement_token: self.advertisement_token.clone(),
            matches: match_ids.into_iter().map(beat).collect(),
        };
        let response = self.client.host_heartbeat(request).await?;
        for hosted in &response.matches {
            self.given_up.remove(&hosted.match_id);
            match hosted.state() {
                pb::HostedMatchState::Confirming | pb::HostedMatchState::Playing => {
                    self.hosted.insert(hosted.match_id.clone());
                }
                _ => drop(self.hosted.remove(&hosted.match_id)),
            }
        }
        self.time_to_next_heartbeat = Duration::from_millis(response.next_beat_in_ms);
        Ok(response)
    }
}

impl fmt::Debug for MatchHost {
    /// Prints no token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MatchHost")
            .field("advertisement_token", &debug_secret_length(&self.advertisement_token))
            .field("hosted", &self.hosted)
            .field("given_up", &self.given_up)
            .field("time_to_next_heartbeat", &self.time_to_next_heartbeat)
            .finish_non_exhaustive()
    }
}
