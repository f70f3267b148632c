//! Outcomes of a host of matches as a structure and bytes.

use std::borrow::Cow;

use fireteam_client::match_hosting::{HostEnd, HostingOutcome};
use fireteam_client::matching::CallError;
use prost::Message;

use crate::identifier::{NO_ID, id_text, reason_text};
use crate::queue_types::{
    FT_MATCH_HOST_END_FAILED, FT_MATCH_HOST_END_STOPPED, FT_MATCH_OUTCOME_ENDED, FT_MATCH_OUTCOME_LIST_FULL,
    FT_MATCH_OUTCOME_MATCH, FT_MATCH_OUTCOME_MATCH_ENDED, FT_MATCH_OUTCOME_REFUSED, FT_MATCH_OUTCOME_REPORTED,
    FtMatchOutcome,
};

/// Structure and bytes of an outcome.
pub(crate) fn match_outcome_parts(outcome: &HostingOutcome) -> (FtMatchOutcome, Cow<'_, [u8]>) {
    let mut parts = empty();
    let data = match outcome {
        HostingOutcome::Match(hosted) => {
            parts.kind = FT_MATCH_OUTCOME_MATCH;
            parts.match_id = id_text(&hosted.match_id);
            parts.match_state = u32::try_from(hosted.state).unwrap_or(0);
            hosted.encode_to_vec().into()
        }
        HostingOutcome::MatchEnded { match_id, end_reason } => {
            parts.kind = FT_MATCH_OUTCOME_MATCH_ENDED;
            parts.match_id = id_text(match_id);
            parts.match_end_reason = u32::try_from(i32::from(*end_reason)).unwrap_or(0);
            Cow::Borrowed::<[u8]>(&[])
        }
        HostingOutcome::Reported { match_id, response } => {
            parts.kind = FT_MATCH_OUTCOME_REPORTED;
            parts.match_id = id_text(match_id);
            parts.is_rated = response.rated.into();
            response.encode_to_vec().into()
        }
        HostingOutcome::Refused { match_id, error } => {
            parts.kind = FT_MATCH_OUTCOME_REFUSED;
            parts.match_id = id_text(match_id);
            set_failure(&mut parts, error).into()
        }
        HostingOutcome::ListFull { .. } => {
            parts.kind = FT_MATCH_OUTCOME_LIST_FULL;
            Cow::Borrowed::<[u8]>(&[])
        }
        HostingOutcome::Ended(end) => {
            parts.kind = FT_MATCH_OUTCOME_ENDED;
            match end {
                HostEnd::Stopped => {
                    parts.end_reason = FT_MATCH_HOST_END_STOPPED;
                    Cow::Borrowed::<[u8]>(&[])
                }
                HostEnd::Failed(error) => {
                    parts.end_reason = FT_MATCH_HOST_END_FAILED;
                    set_failure(&mut parts, error).into()
                }
            }
        }
    };
    (parts, data)
}

/// Sets status and reason. Returns the message.
fn set_failure<'error>(parts: &mut FtMatchOutcome, error: &'error CallError) -> &'error [u8] {
    parts.status = error.code.into();
    parts.reason = reason_text(error);
    error.message.as_bytes()
}

fn empty() -> FtMatchOutcome {
    FtMatchOutcome {
        kind: 0,
        match_state: 0,
        match_end_reason: 0,
        end_reason: 0,
        status: 0,
        is_rated: 0,
        match_id: NO_ID,
        reason: NO_ID,
    }
}
