//! Calls that the measurement of beacons asks for, and their answers.

use crate::matching::CallId;
use crate::matching::call_table::IdempotentRequest;
use crate::pb;

/// Call to make now, once: the state machine repeats it where that helps. Its attempt has a deadline of 5 s.
#[derive(Clone, Debug, PartialEq)]
pub struct BeaconsCall {
    /// Number to return with the answer.
    pub id: CallId,
    /// The request.
    pub request: BeaconsRequest,
}

/// Request of the latency service.
#[derive(Clone, Debug, PartialEq)]
pub enum BeaconsRequest {
    /// Fetches the live beacons.
    GetBeacons(pb::GetBeaconsRequest),
    /// Reports receipts.
    ReportTrips(pb::ReportTripsRequest),
}

/// Answer to a [`BeaconsRequest`]: the variant of the same name.
#[derive(Clone, Debug, PartialEq)]
pub enum BeaconsAnswer {
    /// To [`BeaconsRequest::GetBeacons`].
    GetBeacons(pb::GetBeaconsResponse),
    /// To [`BeaconsRequest::ReportTrips`].
    ReportTrips(pb::ReportTripsResponse),
}

impl IdempotentRequest for BeaconsRequest {
    type Answer = BeaconsAnswer;

    fn is_answered_by(&self, answer: &BeaconsAnswer) -> bool {
        match self {
            BeaconsRequest::GetBeacons(_) => matches!(answer, BeaconsAnswer::GetBeacons(_)),
            BeaconsRequest::ReportTrips(_) => matches!(answer, BeaconsAnswer::ReportTrips(_)),
        }
    }

    fn attempts_max(&self) -> Option<u32> {
        None
    }
}
