//! An operator's wish to know whether the server believes what its store says: from the wire and back.

use crate::api::pb;
use crate::api::status::Rejection;
use crate::domain::facts::FieldProblem;
use crate::engine::Engine;
use crate::engine::command::{AuditAnswer, Difference, DifferenceKind};
use crate::engine::fault::Fault;

/// Differences that are named where the operator does not say, and at most.
const LISTED_DEFAULT: usize = 100;
const LISTED_MAX: usize = 1_000;

/// Whoever can compare memory with the store.
#[tonic::async_trait]
pub trait Auditor: Send + Sync + 'static {
    /// Compares, and lists up to `listed_max` of what differs.
    async fn audit(&self, listed_max: usize) -> Result<AuditAnswer, Fault>;
}

#[tonic::async_trait]
impl Auditor for Engine {
    async fn audit(&self, listed_max: usize) -> Result<AuditAnswer, Fault> {
        Engine::audit(self, listed_max).await
    }
}

/// How many differences are to be named.
pub(super) fn listed_max(wire: &pb::CheckConsistencyRequest) -> Result<usize, Rejection> {
    match wire.max_differences.map_or(LISTED_DEFAULT, |asked| usize::try_from(asked).unwrap_or(usize::MAX)) {
        asked if asked <= LISTED_MAX => Ok(asked),
        asked => {
            let what = format!("is {asked}, at most {LISTED_MAX} are allowed");
            Err(Rejection::of_fields(vec![FieldProblem { path: "max_listed".into(), what }]))
        }
    }
}

/// The answer on the wire.
pub(super) fn wire_answer(answer: AuditAnswer) -> pb::CheckConsistencyResponse {
    pb::CheckConsistencyResponse {
        advertisements: answer.advertisements,
        reservations: answer.reservations,
        difference_count: answer.differences,
        differences: answer.listed.iter().map(wire_difference).collect(),
        not_yet_durable: answer.pending,
        changing: answer.in_motion,
        complete: answer.complete,
        took_ms: answer.took_ms,
    }
}

fn wire_difference(difference: &Difference) -> pb::ConsistencyDifference {
    use pb::ConsistencyDifferenceKind as Wire;
    let kind = |kind: &DifferenceKind| match kind {
        DifferenceKind::MissingInMemory => Wire::MissingInMemory,
        DifferenceKind::MissingInStore => Wire::MissingInStore,
        DifferenceKind::Version => Wire::Version,
        DifferenceKind::Content => Wire::Content,
        DifferenceKind::Seats => Wire::Reservations,
        DifferenceKind::Expiry => Wire::Expiry,
        DifferenceKind::Holder => Wire::HeartbeatOwner,
        DifferenceKind::Index => Wire::Index,
        DifferenceKind::Unreadable => Wire::Unreadable,
    };
    let kinds = difference.kinds.iter().map(|it| kind(it).into()).collect();
    pb::ConsistencyDifference { advertisement_id: difference.id.to_string(), kinds }
}
