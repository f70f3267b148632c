//! Conversion of CheckConsistency requests and responses: compares the server's memory with its store.

use crate::api::pb;
use crate::api::status::Rejection;
use crate::domain::attribute_values::FieldProblem;
use crate::engine::Engine;
use crate::engine::command::{ConsistencyReport, Inconsistency, InconsistencyKind};
use crate::engine::error::EngineError;

/// Default of `max_differences`.
const DIFFERENCES_LISTED_DEFAULT: usize = 100;
/// Limit of `max_differences`.
const DIFFERENCES_LISTED_MAX: usize = 1_000;

/// Compares memory with the store. Tests replace the engine by a scripted one.
#[tonic::async_trait]
pub trait ConsistencyChecker: Send + Sync + 'static {
    /// Compares advertisements in memory with the store; lists at most `max_listed` differences.
    async fn check_consistency(&self, max_listed: usize) -> Result<ConsistencyReport, EngineError>;
}

#[tonic::async_trait]
impl ConsistencyChecker for Engine {
    async fn check_consistency(&self, max_listed: usize) -> Result<ConsistencyReport, EngineError> {
        Engine::check_consistency(self, max_listed).await
    }
}

/// Checks `max_differences`: the number of differences to list.
pub(super) fn checked_max_differences(wire: &pb::CheckConsistencyRequest) -> Result<usize, Rejection> {
    let requested = wire
        .max_differences
        .map_or(DIFFERENCES_LISTED_DEFAULT, |requested| usize::try_from(requested).unwrap_or(usize::MAX));
    if requested <= DIFFERENCES_LISTED_MAX {
        return Ok(requested);
    }
    let message = format!("is {requested}; at most {DIFFERENCES_LISTED_MAX} are allowed");
    Err(Rejection::invalid_fields(vec![FieldProblem { path: "max_differences".into(), message }]))
}

/// Converts a report to the response message.
pub(super) fn consistency_response(report: ConsistencyReport) -> pb::CheckConsistencyResponse {
    pb::CheckConsistencyResponse {
        advertisements: report.advertisement_count,
        reservations: report.reservation_count,
        difference_count: report.inconsistency_count,
        differences: report.inconsistencies.iter().map(consistency_difference).collect(),
        not_yet_durable: report.unwritten_count,
        changing: report.changing_count,
        complete: report.is_complete,
        took_ms: report.duration_ms,
    }
}

fn consistency_difference(difference: &Inconsistency) -> pb::ConsistencyDifference {
    use pb::ConsistencyDifferenceKind as Wire;
    let kind = |kind: &InconsistencyKind| match kind {
        InconsistencyKind::MissingInMemory => Wire::MissingInMemory,
        InconsistencyKind::MissingInStore => Wire::MissingInStore,
        InconsistencyKind::Version => Wire::Version,
        InconsistencyKind::Content => Wire::Content,
        InconsistencyKind::Reservations => Wire::Reservations,
        InconsistencyKind::Expiry => Wire::Expiry,
        InconsistencyKind::HeartbeatOwner => Wire::HeartbeatOwner,
        InconsistencyKind::Index => Wire::Index,
        InconsistencyKind::Unreadable => Wire::Unreadable,
    };
    let kinds = difference.kinds.iter().map(|inconsistency| kind(inconsistency).into()).collect();
    pb::ConsistencyDifference { advertisement_id: difference.id.to_string(), kinds }
}
