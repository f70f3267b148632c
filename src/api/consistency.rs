//! An operator's wish to know whether the server believes what its store says: from the wire and back.

use crate::api::pb;
use crate::api::status::Rejection;
use crate::domain::attribute_values::FieldProblem;
use crate::engine::Engine;
use crate::engine::command::{ConsistencyReport, Inconsistency, InconsistencyKind};
use crate::engine::error::EngineError;

/// Differences that are named where the operator does not say, and at most.
const DIFFERENCES_LISTED_DEFAULT: usize = 100;
const DIFFERENCES_LISTED_MAX: usize = 1_000;

/// Whoever can compare memory with the store.
#[tonic::async_trait]
pub trait ConsistencyChecker: Send + Sync + 'static {
    /// Compares, and lists up to `listed_max` of what differs.
    async fn check_consistency(&self, listed_max: usize) -> Result<ConsistencyReport, EngineError>;
}

#[tonic::async_trait]
impl ConsistencyChecker for Engine {
    async fn check_consistency(&self, listed_max: usize) -> Result<ConsistencyReport, EngineError> {
        Engine::check_consistency(self, listed_max).await
    }
}

/// How many differences are to be named.
pub(super) fn max_differences_listed(wire: &pb::CheckConsistencyRequest) -> Result<usize, Rejection> {
    match wire.max_differences.map_or(DIFFERENCES_LISTED_DEFAULT, |asked| usize::try_from(asked).unwrap_or(usize::MAX))
    {
        asked if asked <= DIFFERENCES_LISTED_MAX => Ok(asked),
        asked => {
            let what = format!("is {asked}, at most {DIFFERENCES_LISTED_MAX} are allowed");
            Err(Rejection::invalid_fields(vec![FieldProblem { path: "max_listed".into(), message: what }]))
        }
    }
}

/// The answer on the wire.
pub(super) fn consistency_response(answer: ConsistencyReport) -> pb::CheckConsistencyResponse {
    pb::CheckConsistencyResponse {
        advertisements: answer.advertisement_count,
        reservations: answer.reservation_count,
        difference_count: answer.inconsistency_count,
        differences: answer.inconsistencies.iter().map(consistency_difference).collect(),
        not_yet_durable: answer.unwritten_count,
        changing: answer.changing_count,
        complete: answer.is_complete,
        took_ms: answer.duration_ms,
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
    let kinds = difference.kinds.iter().map(|it| kind(it).into()).collect();
    pb::ConsistencyDifference { advertisement_id: difference.id.to_string(), kinds }
}
