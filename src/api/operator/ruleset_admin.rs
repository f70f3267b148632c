//! Ruleset administration, as the Operator service uses it.

use std::sync::Arc;

use crate::domain::id::{RulesetHash, SetId};
use crate::domain::ruleset::Ruleset;
use crate::engine::error::{EngineError, SwapObstacle};
use crate::engine::rulesets::{
    CheckRulesetAnswer, ReloadReport, RetiredSetCounts, RulesetListing, RulesetProblem, RulesetReloader, RulesetSwap,
    SwapReport,
};

/// Checks, finds, reloads, swaps, lists and retires rulesets.
#[tonic::async_trait]
pub trait RulesetAdmin: Send + Sync + 'static {
    /// Validates a file's text without loading it. Returns its hash and its effect on ratings, or all problems.
    fn check(&self, file_name: &str, xml: &str) -> Result<CheckRulesetAnswer, Vec<RulesetProblem>>;
    /// Parses a file's text without loading it. `None` for a file that retires its set.
    fn parse(&self, file_name: &str, xml: &str) -> Result<Option<Arc<Ruleset>>, Vec<RulesetProblem>>;
    /// A cached ruleset: the one in force, or the one with `hash`.
    fn find(&self, set_id: SetId, hash: Option<RulesetHash>) -> Option<Arc<Ruleset>>;
    /// Reloads the rulesets from their source. `by` says who.
    async fn reload(&self, by: &str) -> ReloadReport;
    /// Replaces the ruleset of one set in its file, and loads it. `by` says who.
    async fn swap(&self, swap: &RulesetSwap, by: &str) -> Result<SwapReport, EngineError>;
    /// Reason that swaps are refused now, as far as it is known without trying.
    fn swap_obstacle(&self) -> Option<SwapObstacle>;
    /// Ends the grace period of a set whose file was removed. With `force` its waiting tickets end too.
    async fn retire_set(&self, set_id: SetId, force: bool) -> Result<RetiredSetCounts, EngineError>;
    /// Lists rulesets by set: the current one first, then former versions, the one that was loaded last first.
    fn list_rulesets(&self) -> Vec<RulesetListing>;
}

#[tonic::async_trait]
impl RulesetAdmin for RulesetReloader {
    fn check(&self, file_name: &str, xml: &str) -> Result<CheckRulesetAnswer, Vec<RulesetProblem>> {
        RulesetReloader::check(self, file_name, xml)
    }

    fn parse(&self, file_name: &str, xml: &str) -> Result<Option<Arc<Ruleset>>, Vec<RulesetProblem>> {
        RulesetReloader::parse(self, file_name, xml)
    }

    fn find(&self, set_id: SetId, hash: Option<RulesetHash>) -> Option<Arc<Ruleset>> {
        RulesetReloader::find(self, set_id, hash)
    }

    async fn reload(&self, by: &str) -> ReloadReport {
        RulesetReloader::reload(self, by).await
    }

    async fn swap(&self, swap: &RulesetSwap, by: &str) -> Result<SwapReport, EngineError> {
        RulesetReloader::swap(self, swap, by).await
    }

    fn swap_obstacle(&self) -> Option<SwapObstacle> {
        RulesetReloader::swap_obstacle(self)
    }

    async fn retire_set(&self, set_id: SetId, force: bool) -> Result<RetiredSetCounts, EngineError> {
        RulesetReloader::retire_set(self, set_id, force).await
    }

    fn list_rulesets(&self) -> Vec<RulesetListing> {
        RulesetReloader::list(self)
    }
}
