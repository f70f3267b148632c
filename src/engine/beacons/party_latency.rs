//! What a party's latency tokens change in its session.

use crate::domain::id::UserKey;
use crate::domain::ruleset::Ruleset;
use crate::domain::session::Session;
use crate::domain::time::UnixMs;
use crate::engine::beacons::command::LatencyTokens;
use crate::engine::command::Caller;
use crate::engine::common::Common;

impl Common {
    /// Applies the latency tokens of a party to its round trips to regions, as the ruleset trusts them. Returns the paths of ignored
    /// fields, within the session composition.
    pub(crate) fn apply_latency_tokens(
        &self,
        caller: &Caller,
        ruleset: &Ruleset,
        session: &mut Session,
        tokens: &LatencyTokens,
        now: UnixMs,
    ) -> Vec<String> {
        let users: Vec<UserKey> = session.players.iter().map(|player| player.user).collect();
        let party = self.party_round_trips(caller, &users, tokens, now);
        let trust = ruleset.probing.trust;
        let mut ignored = party.ignored;
        ignored.extend(self.apply_beacon_round_trips(&mut session.region_latencies, &party.entries, trust, now));
        ignored
    }
}
