//! Party of a search, a reservation of one or its explanation, with its floors to beacons: the same for all of them.

use crate::domain::ruleset::Ruleset;
use crate::domain::session::Session;
use crate::domain::time::UnixMs;
use crate::engine::beacons::party_floors::PartyPredictor;
use crate::engine::beacons::party_latency::{AppliedLatencyTokens, apply_latency_tokens};
use crate::engine::checked_session::CheckedSession;
use crate::engine::command::Caller;
use crate::engine::common::Common;
use crate::engine::error::EngineError;
use crate::engine::latency_tokens::LatencyTokens;

/// Party of a search.
#[derive(Debug)]
pub(crate) struct SearchingParty {
    /// Its session, with round trips to regions as its tokens prove them.
    pub(crate) checked: CheckedSession,
    /// Predictor of its round trips; `None` if the ruleset does not predict them, or the party has too few floors to beacons.
    pub(crate) predictor: Option<PartyPredictor>,
}

impl SearchingParty {
    /// Validates `session` against `ruleset`, and applies the party's latency tokens and place.
    pub(crate) fn new(
        common: &Common,
        caller: &Caller,
        ruleset: &Ruleset,
        mut session: Session,
        tokens: &LatencyTokens,
        now: UnixMs,
    ) -> Result<Self, EngineError> {
        let AppliedLatencyTokens { ignored_fields: mut ignored, floors } =
            apply_latency_tokens(common, caller, ruleset, &mut session, tokens, now);
        let (session, untrusted) = common.with_resolved_locality(caller, session)?;
        ignored.extend(untrusted);
        let checked = CheckedSession::new(&common.party_values, ruleset, caller, session, ignored)?;
        let predictor = floors.predictor(&common.beacons, checked.session.locality, now);
        Ok(Self { checked, predictor })
    }
}
