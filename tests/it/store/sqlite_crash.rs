//! SQLite store killed while it writes: every acknowledged batch is there after a restart (R2).

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use fireteam::domain::time::UnixMs;
use fireteam::store::sqlite::SqliteStore;
use fireteam::store::{AdvertWrite, Store};
use sqlx::Connection;
use sqlx::sqlite::SqliteConnection;

use crate::store::advert_rows::{ad, put, reserve, seats};

/// File to write. Set for the child process, which runs this same test.
const CHILD: &str = "FIRETEAM_TEST_CRASH_FILE";
const ROUNDS: u32 = 6;
const ACKNOWLEDGED_MIN: u32 = 25;

/// Batch `n`: two advertisements with `n` as connect data, and a reservation that no other batch makes.
fn batch(n: u32) -> Vec<AdvertWrite> {
    let pair = 2 * (n % 8);
    let text = n.to_string();
    vec![
        put(ad(pair, 1_000, 1, &text), 1_000, 1),
        put(ad(pair + 1, 1_000, 1, &text), 1_000, 1),
        reserve(seats(n, pair, 1, 900), 1),
    ]
}

/// Writes until it is killed, from the first missing batch. Prints a line after each acknowledgement.
async fn write_until_killed(path: &Path) {
    let store = SqliteStore::open(path).await.unwrap();
    let first = last_stored_batch(&store).await.map_or(0, |last| last + 1);
    for n in first.. {
        store.commit_adverts(&batch(n)).await.unwrap();
        println!("\nacknowledged {n}");
    }
}

/// The last batch in the store. Panics if a batch was stored in part.
async fn last_stored_batch(store: &SqliteStore) -> Option<u32> {
    let stored = store.load_advertisements(UnixMs(2)).await.unwrap();
    let texts: Vec<u32> =
        stored.iter().map(|it| std::str::from_utf8(&it.advertisement.connect_data).unwrap().parse().unwrap()).collect();
    for pair in texts.chunks(2) {
        assert_eq!(pair[0], pair[1], "a batch was stored in part");
    }
    let last = *texts.iter().max()?;
    let reservations: usize = stored.iter().map(|it| it.reservations.len()).sum();
    assert_eq!(reservations, last as usize + 1, "each batch made one reservation");
    Some(last)
}

async fn integrity_check(path: &Path) -> String {
    let mut connection = SqliteConnection::connect(&format!("sqlite:{}", path.display())).await.unwrap();
    sqlx::query_scalar("pragma integrity_check").fetch_one(&mut connection).await.unwrap()
}

/// R2, short version: SIGKILL during writes, several times over the same file.
#[tokio::test]
async fn kill_during_writes_keeps_acknowledged_batches() {
    if let Some(path) = std::env::var_os(CHILD) {
        return write_until_killed(Path::new(&path)).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "store::sqlite_crash::kill_during_writes_keeps_acknowledged_batches", "--nocapture"])
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut acknowledged = Vec::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let batch_number = |line: String| line.strip_prefix("acknowledged ").and_then(|n| n.parse::<u32>().ok());
        while acknowledged.len() < (ACKNOWLEDGED_MIN + 7 * round) as usize {
            acknowledged.extend(batch_number(lines.next().expect("the child ended before it was killed")));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // Lines that the child wrote before it died are still in the pipe.
        acknowledged.extend(lines.filter_map(batch_number));

        let store = SqliteStore::open(&path).await.expect("the lock of a dead server is free");
        let last_stored = last_stored_batch(&store).await.unwrap();
        assert!(*acknowledged.last().unwrap() <= last_stored, "acknowledged {acknowledged:?}, stored {last_stored}");
        store.close().await;
        assert_eq!(integrity_check(&path).await, "ok");
    }
}
