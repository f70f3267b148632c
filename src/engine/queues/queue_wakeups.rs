//! Wake-ups of queue runners: a change wakes the runner of its own queue, and a new queue is listed for the lease task.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::Notify;

use crate::domain::id::SetId;
use crate::domain::time::UnixMs;
use crate::store::queues::QueueKey;

/// Runners of this replica, and queues without one.
///
/// A queue is in one of three states: it has a runner here, another replica holds its lease, or it is unknown. A change
/// of an unknown queue lists it as new.
#[derive(Debug, Default)]
pub(crate) struct QueueWakeups {
    runners: BTreeMap<QueueKey, RegisteredRunner>,
    /// Queues whose lease another replica holds.
    held_elsewhere: BTreeSet<QueueKey>,
    queues_to_lease: BTreeSet<QueueKey>,
    /// Next due time of each runner that has one.
    due_queues: BTreeSet<(UnixMs, QueueKey)>,
    last_runner_id: u64,
    /// Runners that have ended since `take_ended_runners`.
    ended_runners: Vec<(QueueKey, u64)>,
}

#[derive(Debug)]
struct RegisteredRunner {
    id: u64,
    wakeup: Arc<Notify>,
    due_at: Option<UnixMs>,
}

/// Registration of one runner.
#[derive(Clone, Debug)]
pub(crate) struct RunnerHandle {
    pub(crate) key: QueueKey,
    /// Distinguishes the runner from an earlier one of the same queue.
    pub(crate) id: u64,
    /// Wakes the runner. A notification before the wait is kept.
    pub(crate) wakeup: Arc<Notify>,
}

impl QueueWakeups {
    /// Wakes the runners of changed queues. Returns whether a queue is new, so that the lease task must be woken.
    pub(crate) fn wake_changed_queues(&mut self, changed: impl IntoIterator<Item = QueueKey>) -> bool {
        let mut has_new = false;
        for key in changed {
            if let Some(runner) = self.runners.get(&key) {
                runner.wakeup.notify_one();
            } else if !self.held_elsewhere.contains(&key) {
                has_new |= self.queues_to_lease.insert(key);
            }
        }
        has_new
    }

    /// Wakes the runners that are due at `now`. A runner also has a timer; this covers a clock that was set forward.
    pub(crate) fn wake_due(&mut self, now: UnixMs) {
        while let Some(&(due_at, key)) = self.due_queues.first()
            && due_at <= now
        {
            self.due_queues.pop_first();
            if let Some(runner) = self.runners.get_mut(&key) {
                runner.due_at = None;
                runner.wakeup.notify_one();
            }
        }
    }

    /// Wakes the runners of the sets for which `is_changed` is true.
    pub(crate) fn wake_sets(&self, is_changed: impl Fn(SetId) -> bool) {
        let changed = self.runners.iter().filter(|(key, _)| is_changed(key.set_id));
        changed.for_each(|(_, runner)| runner.wakeup.notify_one());
    }

    /// Sets the time at which a runner must run again at the latest.
    pub(crate) fn set_due(&mut self, handle: &RunnerHandle, due_at: Option<UnixMs>) {
        let Some(runner) = self.runners.get_mut(&handle.key).filter(|runner| runner.id == handle.id) else { return };
        if runner.due_at == due_at {
            return;
        }
        runner.due_at.map(|previous| self.due_queues.remove(&(previous, handle.key)));
        runner.due_at = due_at;
        due_at.map(|due_at| self.due_queues.insert((due_at, handle.key)));
    }

    /// Takes the queues that changed and have no known lease.
    pub(crate) fn take_new_queues(&mut self) -> BTreeSet<QueueKey> {
        std::mem::take(&mut self.queues_to_lease)
    }

    /// Records a lease that another replica holds.
    pub(crate) fn mark_held_elsewhere(&mut self, key: QueueKey) {
        self.queues_to_lease.remove(&key);
        self.held_elsewhere.insert(key);
    }

    /// Forgets which leases other replicas hold; the next renewal records them again.
    pub(crate) fn clear_held_elsewhere(&mut self) {
        self.held_elsewhere.clear();
    }

    /// Registers a runner; `None` if the queue already has one.
    pub(crate) fn register_runner(&mut self, key: QueueKey) -> Option<RunnerHandle> {
        if self.runners.contains_key(&key) {
            return None;
        }
        self.held_elsewhere.remove(&key);
        self.queues_to_lease.remove(&key);
        self.last_runner_id += 1;
        let (id, wakeup) = (self.last_runner_id, Arc::new(Notify::new()));
        self.runners.insert(key, RegisteredRunner { id, wakeup: Arc::clone(&wakeup), due_at: None });
        Some(RunnerHandle { key, id, wakeup })
    }

    /// Removes a runner that has ended. Changes of its queue list it as new again. Returns false if it was not
    /// registered.
    pub(crate) fn remove_runner(&mut self, handle: &RunnerHandle) -> bool {
        self.set_due(handle, None);
        if self.runners.get(&handle.key).is_none_or(|runner| runner.id != handle.id) {
            return false;
        }
        self.runners.remove(&handle.key);
        self.ended_runners.push((handle.key, handle.id));
        true
    }

    /// Takes the queues and ids of the runners that have ended since the last call.
    pub(crate) fn take_ended_runners(&mut self) -> Vec<(QueueKey, u64)> {
        std::mem::take(&mut self.ended_runners)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::id::SiloId;
    use futures_util::FutureExt as _;

    const FIRST: QueueKey = QueueKey { set_id: SetId(1), silo: SiloId(0) };
    const SECOND: QueueKey = QueueKey { set_id: SetId(2), silo: SiloId(0) };

    fn is_woken(handle: &RunnerHandle) -> bool {
        handle.wakeup.notified().now_or_never().is_some()
    }

    #[test]
    fn queue_wakeup_reaches_the_changed_queue_only() {
        let mut wakeups = QueueWakeups::default();
        let [first, second] = [FIRST, SECOND].map(|key| wakeups.register_runner(key).unwrap());
        assert!(!wakeups.wake_changed_queues([SECOND]));
        assert_eq!([is_woken(&first), is_woken(&second)], [false, true]);
        wakeups.wake_sets(|set_id| set_id == FIRST.set_id);
        assert_eq!([is_woken(&first), is_woken(&second)], [true, false]);
    }

    #[test]
    fn queue_wakeup_of_a_queue_without_runner_lists_it_once() {
        let mut wakeups = QueueWakeups::default();
        assert!(wakeups.wake_changed_queues([FIRST]));
        assert!(!wakeups.wake_changed_queues([FIRST]), "it is listed already");
        assert_eq!(wakeups.take_new_queues(), BTreeSet::from([FIRST]));
        wakeups.mark_held_elsewhere(FIRST);
        assert!(!wakeups.wake_changed_queues([FIRST]));
        let runner = wakeups.register_runner(FIRST).unwrap();
        assert!(wakeups.register_runner(FIRST).is_none());
        assert!(wakeups.remove_runner(&runner) && !wakeups.remove_runner(&runner));
        assert_eq!(wakeups.take_ended_runners(), [(FIRST, runner.id)]);
        assert!(wakeups.wake_changed_queues([FIRST]), "an ended runner does not hide later changes");
    }

    #[test]
    fn queue_wakeup_happens_at_the_due_time() {
        let mut wakeups = QueueWakeups::default();
        let [first, second] = [FIRST, SECOND].map(|key| wakeups.register_runner(key).unwrap());
        wakeups.set_due(&first, Some(UnixMs(10)));
        wakeups.set_due(&second, Some(UnixMs(20)));
        wakeups.set_due(&first, Some(UnixMs(30)));
        wakeups.wake_due(UnixMs(29));
        assert_eq!([is_woken(&first), is_woken(&second)], [false, true]);
        wakeups.wake_due(UnixMs(30));
        assert_eq!([is_woken(&first), is_woken(&second)], [true, false]);
        wakeups.set_due(&first, Some(UnixMs(40)));
        wakeups.remove_runner(&first);
        assert!(wakeups.due_queues.is_empty());
    }
}
