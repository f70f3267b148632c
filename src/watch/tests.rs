//! The ways in which files are replaced, each heard without the help of the poll.

use std::fs;
use std::sync::mpsc::{Receiver, channel};

use super::*;

/// No poll: what these tests hear, the system said.
const WITHOUT_POLLING: DebounceTiming = DebounceTiming {
    quiet_period: Duration::from_millis(20),
    max_delay: Duration::from_secs(1),
    poll_interval: Duration::from_secs(3600),
};
/// Long enough for a busy machine; passed only by a test that fails.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

struct WatchFixture {
    folder: tempfile::TempDir,
    changes: Receiver<Option<String>>,
    _watcher: FileWatcher,
}

/// Watches `watched` in a folder that `prepare` has furnished; each call of the callback reads `read`.
fn watch_fixture(pace: DebounceTiming, prepare: impl FnOnce(&Path), watched: &str, read: &str) -> WatchFixture {
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path());
    let (tell, heard) = channel();
    let read = folder.path().join(read);
    let watcher =
        watch_paths(vec![folder.path().join(watched)], pace, move || drop(tell.send(fs::read_to_string(&read).ok())))
            .unwrap();
    WatchFixture { folder, changes: heard, _watcher: watcher }
}

impl WatchFixture {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Waits until the callback has read `expected`; states on the way there may be seen too.
    fn wait_for_content(&self, expected: Option<&str>) {
        while self.changes.recv_timeout(TEST_TIMEOUT).expect("a change was not noticed").as_deref() != expected {}
    }

    /// Gives a file a content at once. Written in place it would be empty for a moment, and a busy machine may see that.
    fn replace_file(&self, name: &str, text: &str) {
        fs::write(self.path("put.tmp"), text).unwrap();
        fs::rename(self.path("put.tmp"), self.path(name)).unwrap();
    }

    /// Makes a change that must be noticed, and takes it as proof that nothing before was.
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
    let scene = watch_fixture(WITHOUT_POLLING, create_rules_folder, "rules", "rules/a.xml");
    for text in ["two", "three"] {
        fs::write(scene.path("a.tmp"), text).unwrap();
        fs::rename(scene.path("a.tmp"), scene.path("rules/a.xml")).unwrap();
        scene.wait_for_content(Some(text));
    }
}

#[test]
fn file_watch_reports_an_editor_save() {
    let scene = watch_fixture(WITHOUT_POLLING, create_rules_folder, "rules", "rules/a.xml");
    fs::rename(scene.path("rules/a.xml"), scene.path("rules/a.xml~")).unwrap();
    fs::write(scene.path("rules/a.xml"), "two").unwrap();
    fs::remove_file(scene.path("rules/a.xml~")).unwrap();
    scene.wait_for_content(Some("two"));
    fs::write(scene.path("rules/a.xml"), "three").unwrap();
    scene.wait_for_content(Some("three"));
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

/// Swaps the `..data` link as the kubelet does, twice: a watch on the file itself is deaf after the first.
#[cfg(unix)]
#[test]
fn file_watch_reports_a_config_map_swap() {
    for watched in ["rules", "rules/a.xml"] {
        let scene = watch_fixture(WITHOUT_POLLING, create_config_map, watched, "rules/a.xml");
        for (version, text) in [("..2", "two"), ("..3", "three")] {
            std::os::unix::fs::symlink(version, scene.path("rules/..data_tmp")).unwrap();
            fs::rename(scene.path("rules/..data_tmp"), scene.path("rules/..data")).unwrap();
            scene.wait_for_content(Some(text));
        }
    }
}

#[test]
fn file_watch_follows_a_recreated_directory() {
    let scene = watch_fixture(WITHOUT_POLLING, create_rules_folder, "rules", "rules/a.xml");
    for text in ["two", "three"] {
        fs::remove_dir_all(scene.path("rules")).unwrap();
        scene.wait_for_content(None);
        fs::create_dir(scene.path("rules")).unwrap();
        fs::write(scene.path("rules/a.xml"), text).unwrap();
        scene.wait_for_content(Some(text));
        fs::write(scene.path("rules/a.xml"), "later").unwrap();
        scene.wait_for_content(Some("later"));
    }
}

#[test]
fn file_watch_follows_a_directory_renamed_into_place() {
    let scene = watch_fixture(WITHOUT_POLLING, create_rules_folder, "rules", "rules/a.xml");
    fs::create_dir(scene.path("next")).unwrap();
    fs::write(scene.path("next/a.xml"), "two").unwrap();
    fs::rename(scene.path("rules"), scene.path("old")).unwrap();
    fs::rename(scene.path("next"), scene.path("rules")).unwrap();
    scene.wait_for_content(Some("two"));
    fs::write(scene.path("rules/a.xml"), "three").unwrap();
    scene.wait_for_content(Some("three"));
}

#[test]
fn file_watch_reports_a_path_created_later() {
    let scene = watch_fixture(WITHOUT_POLLING, |_| (), "rules", "rules/a.xml");
    create_rules_folder(scene.folder.path());
    scene.wait_for_content(Some("one"));
    fs::write(scene.path("rules/a.xml"), "two").unwrap();
    scene.wait_for_content(Some("two"));
}

#[test]
fn file_watch_of_one_file_ignores_its_siblings() {
    let scene = watch_fixture(WITHOUT_POLLING, create_rules_folder, "rules/a.xml", "rules/a.xml");
    fs::write(scene.path("b.tmp"), "two").unwrap();
    fs::rename(scene.path("b.tmp"), scene.path("rules/a.xml")).unwrap();
    scene.wait_for_content(Some("two"));
    // A neighbour, such as a database that is written all the time, is no news.
    fs::write(scene.path("rules/neighbour.db"), "noise").unwrap();
    scene.assert_no_change_before("rules/a.xml");
}

#[test]
fn file_watch_ignores_unchanged_content() {
    let scene = watch_fixture(WITHOUT_POLLING, create_rules_folder, "rules", "rules/a.xml");
    scene.replace_file("rules/a.xml", "one");
    scene.assert_no_change_before("rules/a.xml");
}

/// Nothing happens in the watched directory, but what its link points to changes.
#[cfg(unix)]
#[test]
fn file_watch_polling_reports_a_change_without_events() {
    let pace = DebounceTiming { poll_interval: Duration::from_millis(20), ..WITHOUT_POLLING };
    let prepare = |folder: &Path| {
        fs::create_dir_all(folder.join("rules")).unwrap();
        fs::create_dir_all(folder.join("far")).unwrap();
        fs::write(folder.join("far/a.xml"), "one").unwrap();
        std::os::unix::fs::symlink("../far/a.xml", folder.join("rules/a.xml")).unwrap();
    };
    let scene = watch_fixture(pace, prepare, "rules", "rules/a.xml");
    fs::write(scene.path("far/a.xml"), "two").unwrap();
    scene.wait_for_content(Some("two"));
}

#[test]
fn file_watch_ends_when_dropped() {
    let WatchFixture { folder, changes: heard, _watcher: watcher } =
        watch_fixture(WITHOUT_POLLING, create_rules_folder, "rules", "rules/a.xml");
    drop(watcher);
    fs::write(folder.path().join("rules/a.xml"), "two").unwrap();
    // The callback, and with it its end of the channel, is gone.
    assert_eq!(heard.recv_timeout(TEST_TIMEOUT), Err(RecvTimeoutError::Disconnected));
}
