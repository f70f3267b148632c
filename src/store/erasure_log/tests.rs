//! Erasure log: what survives a restart, a torn line and damage, and what is removed.

use super::*;

const FINGERPRINT: i64 = -7;
const NOW: UnixMs = UnixMs(1_700_000_000_000);

fn open(path: &Path) -> Result<ErasureLog, StoreError> {
    ErasureLog::open(path, 0xabc, FINGERPRINT, NOW)
}

fn numbers(content: &KeptErasures, position: u64) -> Vec<u64> {
    content.after(position).iter().map(|erasure| erasure.number).collect()
}

#[test]
fn erasure_log_keeps_its_lines_over_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.erasures");
    let log = open(&path).unwrap();
    assert_eq!(log.append(NOW, [1; 16], &[]).unwrap(), 1);
    assert_eq!(log.append(NOW, [2; 16], &[[3; 16], [0xff; 16]]).unwrap(), 2);
    let expected = log.content();
    assert!(matches!(open(&path), Err(StoreError::Locked(_))), "one server has the file");
    drop(log);
    let again = ErasureLog::open(&path, 0xdef, FINGERPRINT, NOW).unwrap();
    assert_eq!(again.content(), expected);
    assert_eq!((again.file_id(), again.append(NOW, [4; 16], &[]).unwrap()), (0xabc, 3));
    assert_eq!(numbers(&again.content(), 1), [2, 3]);
    assert_eq!(numbers(&again.content(), 3), [] as [u64; 0]);
    assert_eq!(read_erasures(&path).unwrap().unwrap(), again.content());
    assert!(!again.content().has_dropped_after(0));
}

#[test]
fn erasure_log_removes_a_line_that_was_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.erasures");
    let log = open(&path).unwrap();
    log.append(NOW, [1; 16], &[]).unwrap();
    let complete = fs::read(&path).unwrap();
    log.append(NOW, [2; 16], &[[5; 16]]).unwrap();
    drop(log);
    let whole = fs::read(&path).unwrap();
    for length in complete.len()..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        let log = open(&path).unwrap();
        assert_eq!(numbers(&log.content(), 0), [1], "{length} bytes");
        assert_eq!(log.append(NOW, [2; 16], &[[5; 16]]).unwrap(), 2);
        assert_eq!(fs::read(&path).unwrap(), whole);
    }
    for length in 0..whole.iter().position(|byte| *byte == b'\n').unwrap() {
        fs::write(&path, &whole[..length]).unwrap();
        assert!(open(&path).unwrap().content().erasures.is_empty(), "{length} bytes of the header");
    }
}

#[test]
fn erasure_log_refuses_damage_and_another_secret() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.erasures");
    let log = open(&path).unwrap();
    for user in 0..3 {
        log.append(NOW, [user; 16], &[]).unwrap();
    }
    drop(log);
    let error = ErasureLog::open(&path, 1, 8, NOW).unwrap_err();
    assert!(matches!(&error, StoreError::Incompatible(text) if text.contains("--user-key-file")), "{error}");
    let good = fs::read_to_string(&path).unwrap();
    let without_second: String =
        good.lines().filter(|line| !line.starts_with("2 ")).map(|line| format!("{line}\n")).collect();
    for (text, line) in [
        (good.replace("\n2 ", "\nx "), ":3:"),
        (without_second, ":3:"),
        (good.replace(&"01".repeat(16), "0g"), ":3:"),
        (good.replace(HEADER_WORD, "fireteam-erasure"), ":1:"),
        ("PK\u{3}\u{4} something else".to_owned(), ":1:"),
    ] {
        fs::write(&path, text).unwrap();
        let error = open(&path).unwrap_err();
        assert!(matches!(&error, StoreError::DamagedFile(text) if text.contains(line)), "{error}");
    }
}

#[test]
fn erasure_log_removes_what_is_too_old_or_too_much() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.erasures");
    let log = open(&path).unwrap();
    for (user, days) in [(1, 0), (2, 10), (3, 399)] {
        log.append(UnixMs(NOW.0 + days * 86_400_000), [user; 16], &[]).unwrap();
    }
    drop(log);
    let log = ErasureLog::open(&path, 1, FINGERPRINT, UnixMs(NOW.0 + 401 * 86_400_000)).unwrap();
    assert_eq!(numbers(&log.content(), 0), [2, 3]);
    assert!(log.content().has_dropped_after(0) && !log.content().has_dropped_after(1));
    assert_eq!(log.append(NOW, [4; 16], &[]).unwrap(), 4);
    drop(log);
    let log = ErasureLog::open(&path, 1, FINGERPRINT, UnixMs(NOW.0 + 9_999 * 86_400_000)).unwrap();
    assert_eq!(numbers(&log.content(), 0), [4], "the last one keeps the number");

    let mut content = log.content();
    content.erasures = (1..=20).map(|number| KeptErasure { number, ..content.erasures[0].clone() }).collect();
    assert!(content.prune(NOW, 20));
    assert_eq!(content.erasures.first().map(|erasure| erasure.number), Some(3));
    assert!(!content.prune(NOW, 20));
}

#[cfg(unix)]
#[test]
fn erasure_log_is_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.erasures");
    open(&path).unwrap().append(NOW, [1; 16], &[]).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(open(&path).unwrap_err().to_string().contains("a directory"));
}
