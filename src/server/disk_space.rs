//! Free space of the disks that the server writes to: a metric, a warning and a note in `/readyz` before a disk is full.

use std::io;
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
    readiness_notes: Mutex<Vec<String>>,
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
            readiness_notes: Mutex::default(),
        })
    }

    /// Notes for operators about disks with little free space, one line each.
    pub(super) fn notes(&self) -> Vec<String> {
        self.readiness_notes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Measures all disks. Blocks, for each disk until a deadline. What the log says is on the page of readiness already.
    pub(super) fn measure(&self) {
        let measured = self.folders.iter().map(|(name, folder)| (*name, folder, files::disk_space(folder)));
        let measured: Vec<_> = measured.collect();
        let notes = measured.iter().filter_map(|(name, folder, space)| self.record(*name, folder, space)).collect();
        *self.readiness_notes.lock().unwrap_or_else(PoisonError::into_inner) = notes;
        for (name, _, space) in &measured {
            let folder = name.as_str();
            match space {
                Ok(space) if space.free_bytes < self.warning_bytes => {
                    let free_mib = space.free_bytes >> 20;
                    tracing::warn!(folder, free_mib, "disk nearly full, its limit is reached");
                }
                Err(error) if !is_missing_folder(error) => {
                    tracing::warn!(folder, %error, "free space of a disk unknown")
                }
                Ok(_) | Err(_) => {}
            }
        }
    }

    /// Records a measurement; returns a note if the disk has little free space, or if the space is not known. A folder that does not
    /// exist is skipped.
    fn record(&self, name: DiskFolder, folder: &Path, space: &io::Result<DiskSpace>) -> Option<String> {
        let folder_name = name.as_str();
        match space {
            Ok(space) => {
                let free_bytes = space.free_bytes;
                self.metrics.disk_free_bytes.get_or_create(&name).set(i64::try_from(free_bytes).unwrap_or(i64::MAX));
                let (free_mib, path) = (free_bytes >> 20, folder.display());
                (free_bytes < self.warning_bytes).then(|| {
                    format!(
                        "the disk of the {folder_name} ({path}) has {free_mib} MiB free; free space before it is full"
                    )
                })
            }
            Err(error) if is_missing_folder(error) => None,
            Err(error) => Some(format!("the free space of the disk of the {folder_name} is not known: {error}")),
        }
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

fn is_missing_folder(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
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
            readiness_notes: Mutex::default(),
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
