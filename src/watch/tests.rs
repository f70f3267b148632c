//! The ways in which files are replaced, each heard without the help of the poll.

use std::fs;
use std::sync::mpsc::{Receiver, channel};

use super::*;

/// No poll: what these tests hear, the system said.
const BY_EAR: Pace =
    Pace { quiet: Duration::from_millis(20), unrest_max: Duration::from_secs(1), poll: Duration::from_secs(3600) };
/// Long enough for a busy machine; passed only by a test that fails.
const PATIENCE: Duration = Duration::from_secs(20);

struct Scene {
    folder: tempfile::TempDir,
    heard: Receiver<Option<String>>,
    _watcher: Watcher,
}

/// Watches `watched` in a folder that `prepare` has furnished; each call of the callback reads `read`.
fn scene(pace: Pace, prepare: impl FnOnce(&Path), watched: &str, read: &str) -> Scene {
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path());
    let (tell, heard) = channel();
    let read = folder.path().join(read);
    let watcher =
        watch(vec![folder.path().join(watched)], pace, move || drop(tell.send(fs::read_to_string(&read).ok())))
            .unwrap();
    Scene { folder, heard, _watcher: watcher }
}

impl Scene {
    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Waits until the callback has read `expected`; states on the way there may be seen too.
    fn hears(&self, expected: Option<&str>) {
        while self.heard.recv_timeout(PATIENCE).expect("a change was not noticed").as_deref() != expected {}
    }

    /// Gives a file a content at once. Written in place it would be empty for a moment, and a busy machine may see that.
    fn put(&self, name: &str, text: &str) {
        fs::write(self.at("put.tmp"), text).unwrap();
        fs::rename(self.at("put.tmp"), self.at(name)).unwrap();
    }

    /// Makes a change that must be noticed, and takes it as proof that nothing before was.
    fn has_heard_nothing(&self, probe: &str) {
        self.put(probe, "probe");
        assert_eq!(self.heard.recv_timeout(PATIENCE).unwrap().as_deref(), Some("probe"));
        assert!(self.heard.try_recv().is_err());
    }
}

fn with_rules(folder: &Path) {
    fs::create_dir(folder.join("rules")).unwrap();
    fs::write(folder.join("rules/a.xml"), "one").unwrap();
}

#[test]
fn a_file_renamed_over_is_noticed() {
    let scene = scene(BY_EAR, with_rules, "rules", "rules/a.xml");
    for text in ["two", "three"] {
        fs::write(scene.at("a.tmp"), text).unwrap();
        fs::rename(scene.at("a.tmp"), scene.at("rules/a.xml")).unwrap();
        scene.hears(Some(text));
    }
}

#[test]
fn an_editors_save_is_noticed() {
    let scene = scene(BY_EAR, with_rules, "rules", "rules/a.xml");
    fs::rename(scene.at("rules/a.xml"), scene.at("rules/a.xml~")).unwrap();
    fs::write(scene.at("rules/a.xml"), "two").unwrap();
    fs::remove_file(scene.at("rules/a.xml~")).unwrap();
    scene.hears(Some("two"));
    fs::write(scene.at("rules/a.xml"), "three").unwrap();
    scene.hears(Some("three"));
}

#[cfg(unix)]
fn config_map(folder: &Path) {
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
fn a_config_map_swap_is_noticed() {
    for watched in ["rules", "rules/a.xml"] {
        let scene = scene(BY_EAR, config_map, watched, "rules/a.xml");
        for (version, text) in [("..2", "two"), ("..3", "three")] {
            std::os::unix::fs::symlink(version, scene.at("rules/..data_tmp")).unwrap();
            fs::rename(scene.at("rules/..data_tmp"), scene.at("rules/..data")).unwrap();
            scene.hears(Some(text));
        }
    }
}

#[test]
fn a_directory_deleted_and_made_again_is_watched_again() {
    let scene = scene(BY_EAR, with_rules, "rules", "rules/a.xml");
    for text in ["two", "three"] {
        fs::remove_dir_all(scene.at("rules")).unwrap();
        scene.hears(None);
        fs::create_dir(scene.at("rules")).unwrap();
        fs::write(scene.at("rules/a.xml"), text).unwrap();
        scene.hears(Some(text));
        fs::write(scene.at("rules/a.xml"), "later").unwrap();
        scene.hears(Some("later"));
    }
}

#[test]
fn a_directory_renamed_into_place_is_watched() {
    let scene = scene(BY_EAR, with_rules, "rules", "rules/a.xml");
    fs::create_dir(scene.at("next")).unwrap();
    fs::write(scene.at("next/a.xml"), "two").unwrap();
    fs::rename(scene.at("rules"), scene.at("old")).unwrap();
    fs::rename(scene.at("next"), scene.at("rules")).unwrap();
    scene.hears(Some("two"));
    fs::write(scene.at("rules/a.xml"), "three").unwrap();
    scene.hears(Some("three"));
}

#[test]
fn a_path_that_comes_to_be_later_is_watched() {
    let scene = scene(BY_EAR, |_| (), "rules", "rules/a.xml");
    with_rules(scene.folder.path());
    scene.hears(Some("one"));
    fs::write(scene.at("rules/a.xml"), "two").unwrap();
    scene.hears(Some("two"));
}

#[test]
fn a_single_file_is_watched_by_its_directory() {
    let scene = scene(BY_EAR, with_rules, "rules/a.xml", "rules/a.xml");
    fs::write(scene.at("b.tmp"), "two").unwrap();
    fs::rename(scene.at("b.tmp"), scene.at("rules/a.xml")).unwrap();
    scene.hears(Some("two"));
    // A neighbour, such as a database that is written all the time, is no news.
    fs::write(scene.at("rules/neighbour.db"), "noise").unwrap();
    scene.has_heard_nothing("rules/a.xml");
}

#[test]
fn the_same_content_written_again_is_no_news() {
    let scene = scene(BY_EAR, with_rules, "rules", "rules/a.xml");
    scene.put("rules/a.xml", "one");
    scene.has_heard_nothing("rules/a.xml");
}

/// Nothing happens in the watched directory, but what its link points to changes.
#[cfg(unix)]
#[test]
fn what_the_system_does_not_say_the_poll_finds() {
    let pace = Pace { poll: Duration::from_millis(20), ..BY_EAR };
    let prepare = |folder: &Path| {
        fs::create_dir_all(folder.join("rules")).unwrap();
        fs::create_dir_all(folder.join("far")).unwrap();
        fs::write(folder.join("far/a.xml"), "one").unwrap();
        std::os::unix::fs::symlink("../far/a.xml", folder.join("rules/a.xml")).unwrap();
    };
    let scene = scene(pace, prepare, "rules", "rules/a.xml");
    fs::write(scene.at("far/a.xml"), "two").unwrap();
    scene.hears(Some("two"));
}

#[test]
fn a_dropped_watcher_calls_no_more() {
    let Scene { folder, heard, _watcher: watcher } = scene(BY_EAR, with_rules, "rules", "rules/a.xml");
    drop(watcher);
    fs::write(folder.path().join("rules/a.xml"), "two").unwrap();
    // The callback, and with it its end of the channel, is gone.
    assert_eq!(heard.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected));
}
