//! File watcher: calls back once after files have changed, with debouncing, and only if their content is different.
//!
//! Editors, deployment tools and Kubernetes replace files in different ways: renaming over, writing a backup first,
//! swapping the symbolic link `..data`. All of them cause events in the directory, but not reliably on the file.
//! Therefore directories are watched, and a fingerprint of the content decides. Slow polling covers network file systems
//! and lost events. The parent of a directory is watched only while that is missing or a symbolic link: it may have busy files.

mod fingerprint;

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use notify::event::EventKind;
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher as _};

use fingerprint::{DirectoryIdentity, content_fingerprint, directory_identity};

/// Debounce and poll intervals of a watcher.
#[derive(Clone, Copy, Debug)]
pub struct WatchTiming {
    /// Time without events after which a change counts as finished.
    pub quiet_period: Duration,
    /// Time after which the callback runs although events continue.
    pub max_delay: Duration,
    /// Interval at which the content is checked without events.
    pub poll_interval: Duration,
}

/// Default timing: 150 ms quiet period, 2 s maximum delay, polling every 5 s.
pub const DEFAULT_WATCH_TIMING: WatchTiming = WatchTiming {
    quiet_period: Duration::from_millis(150),
    max_delay: Duration::from_secs(2),
    poll_interval: Duration::from_secs(5),
};

/// Delay after a panic, so that a panic at each change cannot occupy a processor.
const PANIC_DELAY: Duration = Duration::from_millis(500);

/// Time that a dropped watcher waits for its thread. A thread that reads a mount that does not answer is abandoned.
const STOP_DEADLINE: Duration = Duration::from_millis(500);

/// Handle of the watcher thread; dropping it stops the thread.
#[derive(Debug)]
pub struct FileWatcher {
    stop: Arc<AtomicBool>,
    wake: SyncSender<()>,
    /// Disconnected when the thread has ended.
    ended: Receiver<()>,
}

/// Watches `paths` and calls `on_change` on a separate thread when their content changes.
///
/// A path is a single file, or a directory with the files directly in it. Paths need not exist yet. Start watching before
/// loading, so that a change in between is reported. A callback that fails to load the files reports that itself; it is
/// called again after the next change. After a panic, of `on_change` as well, the thread calls `on_panic` and continues
/// with the next event or poll. Fails only if the thread or the system's watcher cannot be created.
pub fn watch_paths(
    paths: Vec<PathBuf>,
    timing: WatchTiming,
    mut on_change: impl FnMut() + Send + 'static,
    on_panic: impl Fn(&(dyn Any + Send)) + Send + 'static,
) -> io::Result<FileWatcher> {
    let (wake, wake_receiver) = sync_channel(1);
    let stop = Arc::new(AtomicBool::new(false));
    let watched_paths: Arc<[WatchedPath]> = paths.iter().map(|path| WatchedPath::new(path)).collect();
    let needs_rewatch = Arc::new(AtomicBool::new(false));
    let os_watcher = {
        let (wake, needs_rewatch, watched_paths) = (wake.clone(), needs_rewatch.clone(), watched_paths.clone());
        notify::recommended_watcher(move |event| handle_fs_event(event, &watched_paths, &needs_rewatch, &wake))
            .map_err(io::Error::other)?
    };
    let watched_directories = BTreeMap::new();
    let mut watch_loop = WatchLoop {
        paths,
        watched_paths,
        os_watcher,
        watched_directories,
        needs_rewatch,
        last_fingerprint: None,
        timed_out: false,
    };
    watch_loop.last_fingerprint = watch_loop.fingerprint();
    // After a timeout the thread watches the directories, because that would block too.
    if !watch_loop.timed_out {
        watch_loop.watch_directories();
        watch_loop.last_fingerprint = watch_loop.fingerprint();
    }
    let (end, ended) = sync_channel(1);
    {
        let stop = stop.clone();
        let mut run = move || watch_loop.run(&stop, &wake_receiver, timing, &mut on_change);
        let run = move || {
            let _end: SyncSender<()> = end;
            while let Err(panic) = catch_unwind(AssertUnwindSafe(&mut run)) {
                on_panic(&*panic);
                thread::sleep(PANIC_DELAY);
            }
        };
        thread::Builder::new().name("watch".into()).spawn(run)?;
    }
    Ok(FileWatcher { stop, wake, ended })
}

impl Drop for FileWatcher {
    /// Stops the thread, after waiting for a running callback until a deadline.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // A full channel is fine: the thread is about to wake.
        let _ = self.wake.try_send(());
        let _ = self.ended.recv_timeout(STOP_DEADLINE);
    }
}

/// One watched path and its parent directory.
#[derive(Debug)]
struct WatchedPath {
    path: PathBuf,
    parent: PathBuf,
}

impl WatchedPath {
    fn new(path: &Path) -> Self {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.into());
        let parent = path.parent().unwrap_or(&path).into();
        Self { path, parent }
    }

    /// Directories whose events tell of a change: a plain directory tells when it is moved or removed itself.
    fn directories(&self) -> Vec<PathBuf> {
        if std::fs::symlink_metadata(&self.path).is_ok_and(|metadata| metadata.is_dir()) {
            return vec![self.path.clone()];
        }
        [&self.path, &self.parent].into_iter().filter(|path| path.is_dir()).cloned().collect()
    }

    /// Whether an event on `touched` affects this path. It does for the path itself, for an entry in it, and for a `..`
    /// entry beside it, which Kubernetes uses to swap files. Other files of the parent directory do not count.
    fn is_affected_by(&self, touched: &Path) -> bool {
        let is_sibling = touched.parent() == Some(&self.parent);
        let is_swap_entry = touched.file_name().and_then(OsStr::to_str).is_some_and(|name| name.starts_with(".."));
        touched.starts_with(&self.path) || (is_sibling && is_swap_entry)
    }
}

/// Handles an event on the system's watcher thread. Ignores `Access` events, which this watcher's own reads cause.
fn handle_fs_event(
    event: notify::Result<Event>,
    watched_paths: &[WatchedPath],
    needs_rewatch: &AtomicBool,
    wake: &SyncSender<()>,
) {
    let is_relevant = match &event {
        Ok(event) if matches!(event.kind, EventKind::Access(_)) => false,
        Ok(event) if event.paths.is_empty() => true,
        Ok(event) => {
            let is_watched =
                |path: &PathBuf| watched_paths.iter().any(|watched| watched.path == *path || watched.parent == *path);
            if event.paths.iter().any(is_watched) {
                needs_rewatch.store(true, Ordering::Release);
            }
            event.paths.iter().any(|touched| {
                watched_paths.iter().any(|watched| watched.is_affected_by(touched) || watched.parent == *touched)
            })
        }
        // An event overflow or a lost watch: check the content.
        Err(_) => {
            needs_rewatch.store(true, Ordering::Release);
            true
        }
    };
    if is_relevant {
        // A full channel means that a check is already due.
        let _ = wake.try_send(());
    }
}

/// State of the watcher thread.
struct WatchLoop {
    paths: Vec<PathBuf>,
    watched_paths: Arc<[WatchedPath]>,
    os_watcher: RecommendedWatcher,
    watched_directories: BTreeMap<PathBuf, DirectoryIdentity>,
    needs_rewatch: Arc<AtomicBool>,
    /// `None` before the first read that ended in time.
    last_fingerprint: Option<u64>,
    /// The last read timed out.
    timed_out: bool,
}

impl WatchLoop {
    /// Waits for events or the poll interval, and calls `on_change` if the fingerprint differs. Returns after `stop`.
    fn run(&mut self, stop: &AtomicBool, wake: &Receiver<()>, timing: WatchTiming, on_change: &mut impl FnMut()) {
        while !stop.load(Ordering::Acquire) {
            match wake.recv_timeout(timing.poll_interval) {
                Ok(()) => wait_until_quiet(stop, wake, timing),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if stop.load(Ordering::Acquire) {
                return;
            }
            let Some(mut fingerprint) = self.fingerprint() else { continue };
            if self.watch_directories() {
                // It may have changed before it was watched.
                let Some(current) = self.fingerprint() else { continue };
                fingerprint = current;
            }
            if self.last_fingerprint.replace(fingerprint) != Some(fingerprint) {
                on_change();
            }
        }
    }

    /// Fingerprint of the content; `None` if it could not be read in time, which is logged once.
    fn fingerprint(&mut self) -> Option<u64> {
        match content_fingerprint(&self.paths) {
            Ok(fingerprint) => {
                self.timed_out = false;
                Some(fingerprint)
            }
            Err(error) => {
                if !std::mem::replace(&mut self.timed_out, true) {
                    tracing::warn!(%error, "watched files unreadable, changes are not noticed");
                }
                None
            }
        }
    }

    /// Watches the directories of all paths, and no others. A replaced directory has the same name but another identity; its watch
    /// is renewed, because the old one refers to the former directory. Returns whether a directory is newly watched.
    fn watch_directories(&mut self) -> bool {
        let renew_all = self.needs_rewatch.swap(false, Ordering::AcqRel);
        let directories: BTreeSet<PathBuf> = self.watched_paths.iter().flat_map(WatchedPath::directories).collect();
        let is_unneeded = |directory: &&PathBuf| !directories.contains(*directory);
        for directory in self.watched_directories.keys().filter(is_unneeded).cloned().collect::<Vec<_>>() {
            self.watched_directories.remove(&directory);
            drop(self.os_watcher.unwatch(&directory));
        }
        let mut is_newly_watched = false;
        for directory in directories {
            let identity = directory_identity(&directory);
            let known = self.watched_directories.get(&directory);
            if !renew_all && known == Some(&identity) {
                continue;
            }
            is_newly_watched |= known != Some(&identity);
            if self.watched_directories.remove(&directory).is_some() {
                drop(self.os_watcher.unwatch(&directory));
            }
            if self.os_watcher.watch(&directory, RecursiveMode::NonRecursive).is_ok() {
                self.watched_directories.insert(directory, identity);
            }
        }
        is_newly_watched
    }
}

/// Waits until no event has arrived for `quiet_period`, at most `max_delay`.
fn wait_until_quiet(stop: &AtomicBool, wake: &Receiver<()>, timing: WatchTiming) {
    let quiet_ms = timing.quiet_period.as_millis().max(1);
    // Every round lasts `quiet_period`, so the number of rounds bounds the wait without a clock.
    let rounds_max = (timing.max_delay.as_millis() / quiet_ms).max(1);
    for _ in 0..rounds_max {
        if stop.load(Ordering::Acquire) {
            return;
        }
        thread::sleep(timing.quiet_period);
        if wake.try_recv().is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
