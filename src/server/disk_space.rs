//! Free space of the disks that the server writes to: a metric, a warning and a note in `/readyz` before a disk is full.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::config::{Config, StoreTarget};
use crate::files::{self, DiskSpace};
use crate::supervisor::TaskSupervisor;
use crate::telemetry::label::{DiskFolder, TaskLabel};
use crate::telemetry::metric::Metrics;

/// Interval of measurements, and of the warning while a disk has little free space.
const MEASURE_INTERVAL: Duration = Duration::from_secs(30);

/// Measures the disks of the folders that the server writes to.
#[derive(Debug)]
pub(super) struct DiskMonitor {
    folders: Vec<(DiskFolder, PathBuf)>,
    /// Free space below which a disk is reported, bytes; 0 for never.
    warning_bytes: u64,
    metrics: Arc<Metrics>,
    /// Disks with little free space, as text for operators.
    notes: Mutex<Vec<String>>,
}

impl DiskMonitor {
    /// Monitor of the folders that `config` names.
    pub(super) fn new(config: &Config, metrics: Arc<Metrics>) -> Arc<Self> {
        let folder_of = |file: &Path| {
            let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
            folder.unwrap_or(Path::new(".")).to_owned()
        };
        let store = match &config.store {
            StoreTarget::Sqlite(file) => Some(folder_of(file)),
            StoreTarget::Memory | StoreTarget::Postgres(_) => None,
        };
        let folders = [
            (DiskFolder::Store, store),
            (DiskFolder::AuditLog, config.audit_log_file.as_deref().map(folder_of)),
            (DiskFolder::PassFailures, config.pass_failure_dir.clone()),
        ];
        Arc::new(Self {
            folders: folders.into_iter().filter_map(|(name, folder)| Some((name, folder?))).collect(),
            warning_bytes: u64::from(config.disk_free_warning_mib) << 20,
            metrics,
            notes: Mutex::default(),
        })
    }

    /// Notes for operators about disks with little free space, one line each.
    pub(super) fn notes(&self) -> Vec<String> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Measures all disks. Blocks, for each disk until a deadline.
    pub(super) fn measure(&self) {
        let mut notes = Vec::new();
        for (name, folder) in &self.folders {
            match files::disk_space(folder) {
                Ok(space) => notes.extend(self.record(*name, folder, space)),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => {
                    let folder_name = name.as_str();
                    tracing::warn!(folder = folder_name, %error, "free space of a disk unknown");
                    notes.push(format!("the free space of the disk of the {folder_name} is not known: {error}"));
                }
            }
        }
        *self.notes.lock().unwrap_or_else(PoisonError::into_inner) = notes;
    }

    /// Records a measurement; returns a note if the disk has little free space.
    fn record(&self, name: DiskFolder, folder: &Path, space: DiskSpace) -> Option<String> {
        self.metrics.disk_free_bytes.get_or_create(&name).set(i64::try_from(space.free_bytes).unwrap_or(i64::MAX));
        if self.warning_bytes <= space.free_bytes {
            return None;
        }
        let (free_mib, path) = (space.free_bytes >> 20, folder.display());
        tracing::warn!(folder = name.as_str(), free_mib, "disk nearly full, its limit is reached");
        Some(format!(
            "the disk of the {} ({path}) has {free_mib} MiB free; free space before it is full",
            name.as_str()
        ))
    }

    /// Runs the task that measures the disks until `shutdown`.
    pub(super) fn spawn(self: &Arc<Self>, supervisor: &TaskSupervisor, shutdown: &CancellationToken) {
        let (monitor, stop) = (self.clone(), shutdown.clone());
        let start = move || monitor.clone().run(stop.clone());
        drop(supervisor.spawn_restarting(TaskLabel::DiskSpace, shutdown, start));
    }

    async fn run(self: Arc<Self>, shutdown: CancellationToken) {
        if self.folders.is_empty() {
            return;
        }
        loop {
            let monitor = self.clone();
            // A panic is in the log; the next measurement is tried.
            let _ = tokio::task::spawn_blocking(move || monitor.measure()).await;
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(MEASURE_INTERVAL) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk with less free space than the limit has a note; the metric is there in any case.
    #[test]
    fn disk_with_little_space_has_a_note() {
        let metrics = Arc::new(Metrics::new());
        let folder = std::env::temp_dir();
        let monitor = |warning_bytes| DiskMonitor {
            folders: vec![(DiskFolder::Store, folder.clone()), (DiskFolder::AuditLog, folder.join("missing"))],
            warning_bytes,
            metrics: metrics.clone(),
            notes: Mutex::default(),
        };
        let roomy = monitor(0);
        roomy.measure();
        assert_eq!(roomy.notes(), [""; 0]);
        let full = monitor(u64::MAX);
        full.measure();
        let notes = full.notes();
        assert!(notes.len() == 1 && notes[0].contains("MiB free"), "{notes:?}");
        assert!(metrics.render().contains("fireteam_disk_free_bytes{folder=\"store\"}"));
    }
}
