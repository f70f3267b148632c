//! A server that is killed while it writes has everything that it acknowledged when it comes back (R2).

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use fireteam::domain::time::UnixMs;
use fireteam::store::sqlite::SqliteStore;
use fireteam::store::{AdvertWrite, Store};
use sqlx::Connection;
use sqlx::sqlite::SqliteConnection;

use crate::store::advert_rows::{ad, put, reserve, seats};

/// Tells the child, which is this very test in another process, where to write.
const CHILD: &str = "FIRETEAM_TEST_CRASH_FILE";
const ROUNDS: u32 = 6;
const ACKNOWLEDGED_MIN: u32 = 25;

/// The batch `n`: a pair that says `n`, and one reservation that is never made twice.
fn batch(n: u32) -> Vec<AdvertWrite> {
    let pair = 2 * (n % 8);
    let word = n.to_string();
    vec![
        put(ad(pair, 1_000, 1, &word), 1_000, 1),
        put(ad(pair + 1, 1_000, 1, &word), 1_000, 1),
        reserve(seats(n, pair, 1, 900), 1),
    ]
}

/// Writes until it is killed, from the first batch that is not there. Says so after each acknowledgement.
async fn write_until_killed(path: &Path) {
    let store = SqliteStore::open(path).await.unwrap();
    let first = acknowledged(&store).await.map_or(0, |last| last + 1);
    for n in first.. {
        store.commit(&batch(n)).await.unwrap();
        println!("\nacknowledged {n}");
    }
}

/// The last batch in the store. Fails when a batch is there in part.
async fn acknowledged(store: &SqliteStore) -> Option<u32> {
    let stored = store.load_advertisements(UnixMs(2)).await.unwrap();
    let words: Vec<u32> =
        stored.iter().map(|it| std::str::from_utf8(&it.advertisement.connect_data).unwrap().parse().unwrap()).collect();
    for pair in words.chunks(2) {
        assert_eq!(pair[0], pair[1], "a batch happened in part");
    }
    let last = *words.iter().max()?;
    let reservations: usize = stored.iter().map(|it| it.reservations.len()).sum();
    assert_eq!(reservations, last as usize + 1, "each batch made one reservation");
    Some(last)
}

async fn integrity(path: &Path) -> String {
    let mut connection = SqliteConnection::connect(&format!("sqlite:{}", path.display())).await.unwrap();
    sqlx::query_scalar("pragma integrity_check").fetch_one(&mut connection).await.unwrap()
}

/// R2, in short: SIGKILL in the middle of writing, several times over the same file.
#[tokio::test]
async fn a_killed_writer_loses_nothing_that_it_acknowledged() {
    if let Some(path) = std::env::var_os(CHILD) {
        return write_until_killed(Path::new(&path)).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "store::sqlite_crash::a_killed_writer_loses_nothing_that_it_acknowledged", "--nocapture"])
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut heard = Vec::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let numbers = |line: String| line.strip_prefix("acknowledged ").and_then(|n| n.parse::<u32>().ok());
        while heard.len() < (ACKNOWLEDGED_MIN + 7 * round) as usize {
            heard.extend(numbers(lines.next().expect("the child ended by itself")));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // What it said before it died is still in the pipe.
        heard.extend(lines.filter_map(numbers));

        let store = SqliteStore::open(&path).await.expect("the lock of a dead server is free");
        let there = acknowledged(&store).await.unwrap();
        assert!(*heard.last().unwrap() <= there, "heard {heard:?}, found {there}");
        store.close().await;
        assert_eq!(integrity(&path).await, "ok");
    }
}
