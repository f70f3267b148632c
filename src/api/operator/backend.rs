//! Backend of the Operator service. Access needs an authorized operator or viewer.

use std::sync::Arc;

use crate::api::authorization::{AuthorizedCaller, OperatorCallerKind, OperatorOnly};
use crate::api::consistency::ConsistencyChecker;
use crate::api::drain::Drain;
use crate::api::operator::ruleset_admin::RulesetAdmin;
use crate::api::status::Rejection;
use crate::engine::error::EngineError;
use crate::engine::queues::QueueEngine;

/// Rulesets, consistency checker, queues and drain switch.
#[derive(Clone)]
pub(super) struct OperatorBackend {
    rulesets: Arc<dyn RulesetAdmin>,
    consistency_checker: Arc<dyn ConsistencyChecker>,
    queues: Option<QueueEngine>,
    drain: Drain,
}

impl OperatorBackend {
    pub(super) fn new(
        rulesets: Arc<dyn RulesetAdmin>,
        consistency_checker: Arc<dyn ConsistencyChecker>,
        queues: Option<QueueEngine>,
        drain: Drain,
    ) -> Self {
        Self { rulesets, consistency_checker, queues, drain }
    }

    /// The queues. Fails as draining if a test has started the server without queues.
    pub(super) fn queue_engine<P: OperatorCallerKind>(
        &self,
        _: &AuthorizedCaller<P>,
    ) -> Result<&QueueEngine, Rejection> {
        self.queues.as_ref().ok_or_else(|| EngineError::Draining.into())
    }

    pub(super) fn ruleset_admin<P: OperatorCallerKind>(&self, _: &AuthorizedCaller<P>) -> &dyn RulesetAdmin {
        &*self.rulesets
    }

    pub(super) fn consistency_checker<P: OperatorCallerKind>(
        &self,
        _: &AuthorizedCaller<P>,
    ) -> &dyn ConsistencyChecker {
        &*self.consistency_checker
    }

    pub(super) fn drain(&self, _: &AuthorizedCaller<OperatorOnly>) -> &Drain {
        &self.drain
    }
}
