//! Requests of the matchmaking service that may be repeated, and how often.

use crate::matching::call::{Answer, Request};
use crate::matching::call_table::IdempotentRequest;

/// Attempts of a report, after which it is dropped, and of a draw.
const REPORT_AND_DRAW_ATTEMPTS_MAX: u32 = 2;

impl IdempotentRequest for Request {
    type Answer = Answer;

    fn is_answered_by(&self, answer: &Answer) -> bool {
        match self {
            Request::ChooseAction(_) => matches!(answer, Answer::ChooseAction(_)),
            Request::GetConfiguration(_) => matches!(answer, Answer::GetConfiguration(_)),
            Request::Search(_) => matches!(answer, Answer::Search(_)),
            Request::ReportLatency(_) => matches!(answer, Answer::ReportLatency(_)),
            Request::Reserve(_) => matches!(answer, Answer::Reserve(_)),
            Request::Release(_) => matches!(answer, Answer::Release),
            Request::UpdateAdvertisement(_) => matches!(answer, Answer::UpdateAdvertisement(_)),
            Request::DeleteAdvertisement(_) => matches!(answer, Answer::DeleteAdvertisement),
        }
    }

    fn attempts_max(&self) -> Option<u32> {
        matches!(self, Request::ReportLatency(_) | Request::ChooseAction(_)).then_some(REPORT_AND_DRAW_ATTEMPTS_MAX)
    }
}
