//! State of all queues for operators who watch: its parts, and the channel from the task that computes it to the watches.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::{Notify, watch};

use crate::domain::id::SetId;
use crate::domain::lifecycle::MatchEndReason;
use crate::domain::time::UnixMs;

/// Width and height of a cell of the map, degrees.
pub const MAP_CELL_DEGREES: f64 = 5.0;

/// Maximum number of sets in an overview.
pub const OVERVIEW_SETS_MAX: usize = 256;

/// State of all queues at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueOverview {
    /// Time of the state.
    pub at: UnixMs,
    /// Live servers that share the store, with this one.
    pub live_servers: u32,
    /// Milliseconds since the changes of other servers were last read. `None` if the store is not shared.
    pub feed_lag_ms: Option<u64>,
    /// Commits fail.
    pub are_commits_failing: bool,
    /// Queues whose passes this server runs.
    pub queues_run_here: u32,
    /// Sets in id order, at most `OVERVIEW_SETS_MAX`.
    pub sets: Vec<SetOverview>,
    /// There are more sets.
    pub is_truncated: bool,
}

/// State of one set in all silos.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SetOverview {
    /// Matchmaking set.
    pub set_id: SetId,
    /// Name of the ruleset in force; empty if none is loaded.
    pub name: Box<str>,
    /// The ruleset has a queue.
    pub has_queue: bool,
    /// Waiting tickets, including paused ones.
    pub waiting_tickets: u64,
    /// Their players.
    pub waiting_players: u64,
    /// Longest wait of a waiting ticket, milliseconds.
    pub longest_wait_ms: u64,
    /// Matches in a ready check.
    pub ready_check_matches: u64,
    /// Matches that wait for a host or its confirmation.
    pub placing_matches: u64,
    /// Matches in play.
    pub playing_matches: u64,
    /// Median and 90th percentile of the waits in the last hour, milliseconds.
    pub wait_p50_and_p90_ms: Option<(u64, u64)>,
    /// Median quality of the matches that started in the last hour.
    pub median_quality: Option<f64>,
    /// Longest last pass of the queues that run here, milliseconds.
    pub last_pass_duration_ms: f64,
    /// Advertised sessions and game servers, as of the last map.
    pub advert_counts: AdvertKindCounts,
    /// Matches that ended since the server started, by reason.
    pub ended_matches: Vec<(MatchEndReason, u64)>,
}

/// Number of advertisements by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdvertKindCounts {
    /// Sessions.
    pub sessions: u32,
    /// Game servers.
    pub game_servers: u32,
}

/// Places of waiting players and of advertisements on a coarse grid.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorldMap {
    /// Number of the map, from 1, increased with each map.
    pub number: u64,
    /// Cells that are not empty.
    pub cells: Vec<MapCell>,
    /// Waiting players whose place is unknown.
    pub waiting_players_without_place: u64,
    /// Advertisements whose place is unknown.
    pub adverts_without_place: u64,
}

/// Cell of the map.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MapCell {
    /// Middle of the cell, degrees north.
    pub latitude: f64,
    /// Middle of the cell, degrees east.
    pub longitude: f64,
    /// Waiting players.
    pub waiting_players: u32,
    /// Advertisements.
    pub adverts: AdvertKindCounts,
}

/// Overview with the latest map.
#[derive(Clone, Debug)]
pub struct OverviewUpdate {
    /// State of all queues.
    pub overview: Arc<QueueOverview>,
    /// The latest map; `None` if the watch has sent it.
    pub map: Option<Arc<WorldMap>>,
}

/// Channel from the task that computes overviews to the watches.
#[derive(Debug)]
pub(crate) struct OverviewChannel {
    updates: watch::Sender<Option<OverviewUpdate>>,
    /// Wakes the task when a watch begins.
    watch_begun: Notify,
    /// Live servers beside this one, as of the last renewal of the leases.
    pub(crate) other_live_servers: AtomicU32,
}

impl Default for OverviewChannel {
    fn default() -> Self {
        Self { updates: watch::Sender::new(None), watch_begun: Notify::new(), other_live_servers: AtomicU32::new(0) }
    }
}

impl OverviewChannel {
    /// Begins a watch.
    pub(crate) fn watch(&self) -> OverviewWatch {
        let mut updates = self.updates.subscribe();
        // The first update may be there already.
        updates.mark_changed();
        self.watch_begun.notify_one();
        OverviewWatch { updates, sent_map_number: 0 }
    }

    /// Waits until a watch begins.
    pub(crate) async fn wait_for_watch(&self) {
        self.watch_begun.notified().await;
    }

    /// Whether any watch is open.
    pub(crate) fn is_watched(&self) -> bool {
        self.updates.receiver_count() > 0
    }

    /// Sends an update to all watches. `None` takes the last one back, so that no later watch begins with an old state.
    pub(crate) fn publish(&self, update: Option<OverviewUpdate>) {
        self.updates.send_replace(update);
    }

    /// Records the number of live servers beside this one.
    pub(crate) fn record_other_live_servers(&self, count: usize) {
        self.other_live_servers.store(u32::try_from(count).unwrap_or(u32::MAX), Ordering::Relaxed);
    }
}

/// Watch of the overview; ends when dropped.
#[derive(Debug)]
pub struct OverviewWatch {
    updates: watch::Receiver<Option<OverviewUpdate>>,
    sent_map_number: u64,
}

impl OverviewWatch {
    /// The next update, with a map if it is new. `None` when the server stops. Updates that the caller was too slow for are left out.
    pub async fn next_update(&mut self) -> Option<OverviewUpdate> {
        loop {
            self.updates.changed().await.ok()?;
            let Some(mut update) = self.updates.borrow_and_update().clone() else { continue };
            update.map = update.map.filter(|map| map.number > self.sent_map_number);
            self.sent_map_number = update.map.as_ref().map_or(self.sent_map_number, |map| map.number);
            return Some(update);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(at: u64, map_number: u64) -> Option<OverviewUpdate> {
        let overview = Arc::new(QueueOverview { at: UnixMs(at), ..QueueOverview::default() });
        let map = Some(Arc::new(WorldMap { number: map_number, ..WorldMap::default() }));
        Some(OverviewUpdate { overview, map })
    }

    /// The channel has no watches before the first and after the last, so the task computes nothing then.
    #[tokio::test]
    async fn overview_channel_is_watched_only_while_a_watch_is_open() {
        let channel = OverviewChannel::default();
        assert!(!channel.is_watched());
        let (first, second) = (channel.watch(), channel.watch());
        drop(first);
        assert!(channel.is_watched());
        drop(second);
        assert!(!channel.is_watched());
        // A watch that has begun and ended wakes the task once more, which then finds none.
        channel.wait_for_watch().await;
    }

    #[tokio::test]
    async fn overview_watch_sends_each_map_once() {
        let channel = OverviewChannel::default();
        let mut watch = channel.watch();
        let seen = |update: Option<OverviewUpdate>| {
            let update = update.unwrap();
            (update.overview.at.0, update.map.map(|map| map.number))
        };
        channel.publish(update(1, 1));
        assert_eq!(seen(watch.next_update().await), (1, Some(1)));
        channel.publish(update(2, 1));
        assert_eq!(seen(watch.next_update().await), (2, None));
        channel.publish(update(3, 2));
        assert_eq!(seen(watch.next_update().await), (3, Some(2)));
        // A later watch begins with the state that is there.
        assert_eq!(seen(channel.watch().next_update().await), (3, Some(2)));
    }
}
