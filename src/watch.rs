//! Notices that files on disk have changed: tells once, when it has become quiet, and never for nothing.
//!
//! Editors, deployment tools and Kubernetes replace files in different ways: renaming over, writing a backup first,
//! swapping the symbolic link `..data`. All of them are seen in the directory and none of them reliably in the file, so
//! directories are watched, and a look at the content decides. A slow poll stands behind it, for network file systems and
//! for what the kernel forgets to say.

mod fingerprint;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use notify::event::EventKind;
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher as _};

use fingerprint::{FileIdentity, content_fingerprint, file_identity};

/// How patient a watcher is.
#[derive(Clone, Copy, Debug)]
pub struct DebounceTiming {
    /// How long nothing must happen before a change counts as finished.
    pub quiet_period: Duration,
    /// After how much unrest the callback is called all the same.
    pub max_delay: Duration,
    /// How often the content is looked at although nothing was heard.
    pub poll_interval: Duration,
}

/// 150 ms of quiet, 2 s of unrest, a look every 5 s.
pub const DEFAULT_DEBOUNCE: DebounceTiming = DebounceTiming {
    quiet_period: Duration::from_millis(150),
    max_delay: Duration::from_secs(2),
    poll_interval: Duration::from_secs(5),
};

/// A thread that watches until this is dropped.
#[derive(Debug)]
pub struct FileWatcher {
    stop: Arc<AtomicBool>,
    wake: SyncSender<()>,
    thread: Option<JoinHandle<()>>,
}

/// Watches `paths`, directories (the files directly in them) or single files, and calls `on_change` on a thread of its
/// own whenever their content has become another. Paths need not exist yet.
///
/// Start watching first, then load: what changes in between is told. A callback that fails to load says so itself; it is
/// called again when the content changes again. Errors only if the thread or the system's watcher cannot be had.
pub fn watch_paths(
    paths: Vec<PathBuf>,
    pace: DebounceTiming,
    on_change: impl FnMut() + Send + 'static,
) -> io::Result<FileWatcher> {
    let (wake, woken) = sync_channel(1);
    let stop = Arc::new(AtomicBool::new(false));
    let places: Arc<[WatchedPath]> = paths.iter().map(|path| WatchedPath::new(path)).collect();
    let rearm = Arc::new(AtomicBool::new(false));
    let ears = {
        let (wake, rearm, places) = (wake.clone(), rearm.clone(), places.clone());
        notify::recommended_watcher(move |event| handle_fs_event(event, &places, &rearm, &wake))
            .map_err(io::Error::other)?
    };
    let mut rounds = WatchLoop {
        paths,
        watched_paths: places,
        os_watcher: ears,
        watched_directories: BTreeMap::new(),
        needs_rewatch: rearm,
        last_fingerprint: 0,
    };
    rounds.watch_directories();
    rounds.last_fingerprint = content_fingerprint(&rounds.paths);
    let thread = {
        let stop = stop.clone();
        thread::Builder::new().name("watch".into()).spawn(move || rounds.run(&stop, &woken, pace, on_change))?
    };
    Ok(FileWatcher { stop, wake, thread: Some(thread) })
}

impl Drop for FileWatcher {
    /// Ends the thread, and waits for a callback that is running.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // A full channel is as good: the thread is about to wake anyway.
        let _ = self.wake.try_send(());
        if let Some(thread) = self.thread.take().filter(|it| it.thread().id() != thread::current().id()) {
            drop(thread.join());
        }
    }
}

/// One watched path and the directories whose events concern it.
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

    /// Whether something happened here: to the path, to an entry of it, or to one of the `..` entries beside it through
    /// which Kubernetes swaps a file. What other files of the parent directory do is no concern of ours.
    fn is_affected_by(&self, touched: &Path) -> bool {
        let beside = touched.parent() == Some(&self.parent);
        let swapped = touched.file_name().and_then(OsStr::to_str).is_some_and(|name| name.starts_with(".."));
        touched.starts_with(&self.path) || (beside && swapped)
    }
}

/// Runs on the system's watcher thread. Our own reading is an `Access` event and must not wake us.
fn handle_fs_event(event: notify::Result<Event>, places: &[WatchedPath], rearm: &AtomicBool, wake: &SyncSender<()>) {
    let concerns = match &event {
        Ok(event) if matches!(event.kind, EventKind::Access(_)) => false,
        Ok(event) if event.paths.is_empty() => true,
        Ok(event) => {
            let is_watched = |it: &PathBuf| places.iter().any(|place| place.path == *it || place.parent == *it);
            if event.paths.iter().any(is_watched) {
                rearm.store(true, Ordering::Release);
            }
            event
                .paths
                .iter()
                .any(|touched| places.iter().any(|it| it.is_affected_by(touched) || it.parent == *touched))
        }
        // An overflow or a lost watch: look for ourselves.
        Err(_) => {
            rearm.store(true, Ordering::Release);
            true
        }
    };
    if concerns {
        // A full channel means that a look is already due.
        let _ = wake.try_send(());
    }
}

struct WatchLoop {
    paths: Vec<PathBuf>,
    watched_paths: Arc<[WatchedPath]>,
    os_watcher: RecommendedWatcher,
    watched_directories: BTreeMap<PathBuf, FileIdentity>,
    needs_rewatch: Arc<AtomicBool>,
    last_fingerprint: u64,
}

impl WatchLoop {
    fn run(mut self, stop: &AtomicBool, woken: &Receiver<()>, pace: DebounceTiming, mut on_change: impl FnMut()) {
        loop {
            match woken.recv_timeout(pace.poll_interval) {
                Ok(()) => wait_until_quiet(stop, woken, pace),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if stop.load(Ordering::Acquire) {
                return;
            }
            self.watch_directories();
            let content = content_fingerprint(&self.paths);
            if content != self.last_fingerprint {
                self.last_fingerprint = content;
                on_change();
            }
        }
    }

    /// Listens at every path that is a directory and at every parent. A directory that was replaced has the same name
    /// and another identity, and the ears are still at the old one.
    fn watch_directories(&mut self) {
        let again = self.needs_rewatch.swap(false, Ordering::AcqRel);
        let wanted: Vec<PathBuf> =
            self.watched_paths.iter().flat_map(|it| [&it.path, &it.parent]).filter(|it| it.is_dir()).cloned().collect();
        for directory in wanted {
            let identity = file_identity(&directory);
            if !again && self.watched_directories.get(&directory) == Some(&identity) {
                continue;
            }
            if self.watched_directories.remove(&directory).is_some() {
                drop(self.os_watcher.unwatch(&directory));
            }
            if self.os_watcher.watch(&directory, RecursiveMode::NonRecursive).is_ok() {
                self.watched_directories.insert(directory, identity);
            }
        }
    }
}

/// Waits until nothing has happened for `quiet`, or until there has been unrest for `unrest_max`.
fn wait_until_quiet(stop: &AtomicBool, woken: &Receiver<()>, pace: DebounceTiming) {
    let quiet_ms = pace.quiet_period.as_millis().max(1);
    // Every round lasts `quiet`, so counting rounds bounds the wait without asking a clock.
    let rounds_max = (pace.max_delay.as_millis() / quiet_ms).max(1);
    for _ in 0..rounds_max {
        if stop.load(Ordering::Acquire) {
            return;
        }
        thread::sleep(pace.quiet_period);
        if woken.try_recv().is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
