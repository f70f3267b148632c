//! Host of matches: confirms the matches of an advertisement, and keeps them alive until they end.

use std::fmt;
use std::time::Duration;

use crate::advertisement::Advertisement;
use crate::client::Client;
use crate::error::Error;
use crate::match_hosting::hosted_matches::HostedMatches;
use crate::pb;

/// Interval of the heartbeats before the server has named one.
const FIRST_HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);

/// Host of the matches of one advertisement. The advertisement may be deleted meanwhile.
///
/// Call [`MatchHost::heartbeat`] after each [`crate::HostEvent::Match`], and at the latest after [`MatchHost::time_to_next_heartbeat`].
#[derive(Clone)]
pub struct MatchHost {
    client: Client,
    matches: HostedMatches,
    time_to_next_heartbeat: Duration,
}

impl MatchHost {
    /// Host of the matches of `advertisement`.
    pub fn new(client: Client, advertisement: &Advertisement) -> Self {
        Self::from_advertisement_token(client, advertisement.token().to_vec())
    }

    /// Host of the matches of the advertisement with this token, as after a restart of the game server.
    pub fn from_advertisement_token(client: Client, advertisement_token: Vec<u8>) -> Self {
        let matches = HostedMatches::new(advertisement_token);
        Self { client, matches, time_to_next_heartbeat: FIRST_HEARTBEAT_INTERVAL }
    }

    /// Matches that this host has confirmed and that have not ended.
    pub fn hosted_match_ids(&self) -> impl Iterator<Item = &str> {
        self.matches.ids()
    }

    /// Time until the next heartbeat.
    pub fn time_to_next_heartbeat(&self) -> Duration {
        self.time_to_next_heartbeat
    }

    /// Gives a match up with the next heartbeat. Another game server is sought if play has not begun.
    pub fn give_up(&mut self, match_id: &str) {
        self.matches.give_up(match_id);
    }

    /// Whether the server has listed 256 matches of the advertisement, as many as it lists at once. It lists more by turns, so a new one may
    /// be confirmed too late, and get another game server: publish another advertisement.
    pub fn is_list_full(&self) -> bool {
        self.matches.is_list_full()
    }

    /// Confirms new matches and keeps the others alive, by one call for each 256 of them. Returns all matches that this host has or had until
    /// now, as they are now.
    pub async fn heartbeat(&mut self) -> Result<Vec<pb::HostedMatch>, Error> {
        let mut matches = Vec::new();
        let mut next = Some(self.matches.start_round());
        while let Some(request) = next {
            let response = self.client.host_heartbeat(request).await?;
            self.matches.take_response(&response);
            self.time_to_next_heartbeat = Duration::from_millis(response.next_beat_in_ms);
            matches.extend(response.matches);
            next = self.matches.next_of_round();
        }
        Ok(matches)
    }
}

impl fmt::Debug for MatchHost {
    /// Prints no token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MatchHost")
            .field("matches", &self.matches)
            .field("time_to_next_heartbeat", &self.time_to_next_heartbeat)
            .finish_non_exhaustive()
    }
}
