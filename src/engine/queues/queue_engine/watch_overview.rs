//! Watches of the state of all queues, for operators.

use crate::engine::queues::overview::OverviewWatch;
use crate::engine::queues::queue_engine::QueueEngine;

impl QueueEngine {
    /// Begins a watch of the state of all queues, which is computed once a second while any watch is open.
    pub fn watch_overview(&self) -> OverviewWatch {
        self.shared.overview.watch()
    }
}
