//! The ways in which files are replaced, each detected by events, without polling.

use std::fs;
use std::sync::mpsc::{Receiver, channel};

use super::*;

/// No polling, so that every detected change comes from a system event.
const WITHOUT_POLLING: WatchTiming = WatchTiming {
    quiet_period: Duration::from_millis(20),
    max_delay: Duration::from_secs(1),
    poll_interval: Duration::from_secs(3600),
};
/// Long enough for a busy machine; only a failing test waits that long.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

struct WatchFixture {
    folder: tempfile::TempDir,
    changes: Receiver<Option<String>>,
    _watcher: FileWatcher,
}

/// Watches `watched` in a folder that `prepare` has filled; each callback sends the content of `read`.
fn watch_fixture(timing: WatchTiming, prepare: impl FnOnce(&Path), watched: &str, read: &str) -> WatchFixture {
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path());
    let (sender, changes) = channel();
    let read = folder.path().join(read);
    let on_change = move || drop(sender.send(fs::read_to_string(&read).ok()));
    let watcher = watch_paths(vec![folder.path().join(watched)], timing, on_change, |_| {}).unwrap();
    WatchFixture { folder, changes, _watcher: watcher }
}

impl WatchFixture {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Waits until a callback has read `expected`; intermediate contents may be read before it.
    fn wait_for_content(&self, expected: Option<&str>) {
        while self.changes.recv_timeout(TEST_TIMEOUT).expect("the change is reported in time").as_deref() != expected {}
    }

    /// Replaces a file atomically. Written in place, it would be empty for a moment, which a callback might read.
    fn replace_file(&self, name: &str, text: &str) {
        fs::write(self.path("put.tmp"), text).unwrap();
        fs::rename(self.path("put.tmp"), self.path(name)).unwrap();
    }

    /// Makes a change that must be reported, and checks that nothing was reported before it.
    fn assert_no_change_before(&self, probe: &str) {
        self.replace_file(probe, "probe");
        assert_eq!(self.changes.recv_timeout(TEST_TIMEOUT).unwrap().as_deref(), Some("probe"));
        assert!(self.changes.try_recv().is_err());
    }
}

fn create_rules_folder(folder: &Path) {
    fs::create_dir(folder.join("rules")).unwrap();
    fs::write(folder.join("rules/a.xml"), "one").unwrap();
}

#[test]
fn file_watch_reports_a_file_renamed_over() {
    let fixture = watch_fixture(WITHOUT_POLLING, create_rules_folder, "rules", "rules/a.xml");
    for text in ["two", "three"] {
        fs::write(fixture.path("a.tmp"), text).unwrap();
        fs::rename(fixture.path("a.tmp"), fixture.path("rules/a.xml")).unwrap();
        fixture.wait_for_content(Some(text));
    }
}

#[test]
fn file_watch_reports_an_editor_save() {
    let fixture = watch_fixture(WITHOUT_POLLING, create_rules_folder, "rules", "rules/a.xml");
    fs::rename(fixture.path("rules/a.xml"), fixture.path("rules/a.xml~")).unwrap();
    fs::write(fixture.path("rules/a.xml"), "two").unwrap();
    fs::remove_file(fixture.path("rules/a.xml~")).unwrap();
    fixture.wait_for_content(Some("two"));
    fs::write(fixture.path("rules/a.xml"), "three").unwrap();
    fixture.wait_for_content(Some("three"));
}

#[cfg(unix)]
fn create_config_map(folder: &Path) {
    use std::os::unix::fs::symlink;
    for (version, text) in [("..1", "one"), ("..2", "two"), ("..3", "three")] {
        fs::create_dir_all(folder.join("rules").join(version)).unwrap();
        fs::write(folder.join("rules").join(version).join("a.xml"), text).unwrap();
    }
    symlink("..1", folder.join("rules/..data")).unwrap();
    symlink("..data/a.xml", folder.join("rules/a.xml")).unwrap();
}

/// Swaps the `..data` link as the kubelet does, twice: a watch on the file itself would miss the second swap.
#[cfg(unix)]
#[test]
fn file_watch_reports_a_config_map_swap() {
    for watched in ["rules", "rules/a.xml"] {
        let fixture = watch_fixture(WITHOUT_POLLING, create_config_map, watched, "rules/a.xml");
        for (version, text) in [("..2", "two"), ("..3", "three")] {
            std::os::unix::fs::symlink(version, fixture.path("rules/..data_tmp")).unwrap();
            fs::rename(fixture.path("rules/..data_tmp"), fixture.path("rules/..data")).unwrap();
            fixture.wait_for_content(Some(text));
        }
    }
}

#[test]
fn file_watch_follows_a_recreated_directory() {
    let fixture = watch_fixture(WITHOUT_POLLING, create_rules_folder, "rules", "rules/a.xml");
    for text in ["two", "three"] {
        fs::remove_dir_all(fixture.path("rules")).unwrap();
        fixture.wait_for_content(None);
        fs::create_dir(fixture.path("rules")).unwrap();
        fs::write(fixture.path("rules/a.xml"), text).unwrap();
        fixture.wait_for_content(Some(text));
        fs::write(fixture.path("rules/a.xml"), "later").unwrap();
        fixture.wait_for_content(Some("later"));
    }
}

#[test]
fn file_watch_follows_a_directory_renamed_into_place() {
    let fixture = watch_fixture(WITHOUT_POLLING, create_rules_folder, "rules", "rules/a.xml");
    fs::create_dir(fixture.path("next")).unwrap();
    fs::write(fixture.path("next/a.xml"), "two").unwrap();
    fs::rename(fixture.path("rules"), fixture.path("old")).unwrap();
    fs::rename(fixture.path("next"), fixture.path("rules")).unwrap();
    fixture.wait_for_content(Some("two"));
    fs::write(fixture.path("rules/a.xml"), "three").unwrap();
    fixture.wait_for_content(Some("three"));
}

#[test]
fn file_watch_reports_a_path_created_later() {
    let fixture = watch_fixture(WITHOUT_POLLING, |_| (), "rules", "rules/a.xml");
    create_rules_folder(fixture.folder.path());
    fixture.wait_for_content(Some("one"));
    fs::write(fixture.path("rules/a.xml"), "two").unwrap();
    fixture.wait_for_content(Some("two"));
}

#[test]
fn file_watch_of_one_file_ignores_its_siblings() {
    let fixture = watch_fixture(WITHOUT_POLLING, create_rules_folder, "rules/a.xml", "rules/a.xml");
    fs::write(fixture.path("b.tmp"), "two").unwrap();
    fs::rename(fixture.path("b.tmp"), fixture.path("rules/a.xml")).unwrap();
    fixture.wait_for_content(Some("two"));
    // Writes to a sibling file, such as a database, are not reported.
    fs::write(fixture.path("rules/neighbour.db"), "noise").unwrap();
    fixture.assert_no_change_before("rules/a.xml");
}

#[test]
fn file_watch_ignores_unchanged_content() {
    let fixture = watch_fixture(WITHOUT_POLLING, create_rules_folder, "rules", "rules/a.xml");
    fixture.replace_file("rules/a.xml", "one");
    fixture.assert_no_change_before("rules/a.xml");
}

/// Inodes of the directories that this process watches, as the kernel lists them.
fn watched_inodes() -> Vec<u64> {
    let mut inodes = Vec::new();
    for file in fs::read_dir("/proc/self/fdinfo").unwrap().filter_map(Result::ok) {
        let text = fs::read_to_string(file.path()).unwrap_or_default();
        let watches = text.lines().filter(|line| line.starts_with("inotify "));
        inodes.extend(watches.filter_map(|line| {
            let inode = line.split_whitespace().find_map(|field| field.strip_prefix("ino:"))?;
            u64::from_str_radix(inode, 16).ok()
        }));
    }
    inodes
}

/// The parent of a directory is not watched: a database in it would wake the watcher with each write. It is watched while the
/// directory is missing.
#[test]
#[cfg(target_os = "linux")]
fn file_watch_of_a_directory_does_not_watch_its_parent() {
    use std::os::unix::fs::MetadataExt as _;
    let fixture = watch_fixture(WITHOUT_POLLING, create_rules_folder, "rules", "rules/a.xml");
    let inode_of = |path: &Path| fs::metadata(path).unwrap().ino();
    let parent = inode_of(&fixture.path("."));
    let is_watched = |inode: u64| watched_inodes().contains(&inode);
    assert!(is_watched(inode_of(&fixture.path("rules"))) && !is_watched(parent));
    fs::remove_dir_all(fixture.path("rules")).unwrap();
    fixture.wait_for_content(None);
    assert!(is_watched(parent), "to see when the directory comes back");
    fs::create_dir(fixture.path("rules")).unwrap();
    fixture.replace_file("rules/a.xml", "again");
    fixture.wait_for_content(Some("again"));
    fixture.replace_file("rules/a.xml", "and again");
    fixture.wait_for_content(Some("and again"));
    assert!(is_watched(inode_of(&fixture.path("rules"))) && !is_watched(parent));
}

/// The target of a symbolic link changes, without an event in the watched directory.
#[cfg(unix)]
#[test]
fn file_watch_polling_reports_a_change_without_events() {
    let pace = WatchTiming { poll_interval: Duration::from_millis(20), ..WITHOUT_POLLING };
    let prepare = |folder: &Path| {
        fs::create_dir_all(folder.join("rules")).unwrap();
        fs::create_dir_all(folder.join("far")).unwrap();
        fs::write(folder.join("far/a.xml"), "one").unwrap();
        std::os::unix::fs::symlink("../far/a.xml", folder.join("rules/a.xml")).unwrap();
    };
    let fixture = watch_fixture(pace, prepare, "rules", "rules/a.xml");
    fs::write(fixture.path("far/a.xml"), "two").unwrap();
    fixture.wait_for_content(Some("two"));
}

#[test]
fn file_watch_ends_when_dropped() {
    let WatchFixture { folder, changes, _watcher: watcher } =
        watch_fixture(WITHOUT_POLLING, create_rules_folder, "rules", "rules/a.xml");
    drop(watcher);
    fs::write(folder.path().join("rules/a.xml"), "two").unwrap();
    // The callback has been dropped, and its end of the channel with it.
    assert_eq!(changes.recv_timeout(TEST_TIMEOUT), Err(RecvTimeoutError::Disconnected));
}
