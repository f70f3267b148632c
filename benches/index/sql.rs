//! Goals PS5 and PS6: the same searches by SQLite with the best possible index, in the same run.
//!
//! Bundled SQLite has no square root, so it orders by the square of the distance, which is less work than ours.

use fireteam::domain::attribute::AttributeValue;
use fireteam::domain::index::{IndexEntry, InstructionSet};
use fireteam::domain::session::Session;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, Row};

use crate::harness::{Timing, compare, quantile};
use crate::index::world::World;
use crate::population::{NOW, PopulationKind, RuleOptions};

const TABLE: &str = "create table ads (id blob primary key, playlist text not null, seats integer not null, \
    expires integer not null, skill real not null, x real not null, y real not null, z real not null)";
/// Covering index of the filtered search.
const INDEX: &str = "create index by_playlist on ads (playlist, seats, expires, skill, x, y, z, id)";
const BEST: &str = "order by 0.6 * abs(skill - ?2) / 3000 + 0.4 * ((x - ?3) * (x - ?3) + (y - ?4) * (y - ?4) \
    + (z - ?5) * (z - ?5)) / 64e6 limit 50";

pub(super) fn run(wanted: &dyn Fn(&str) -> bool) {
    let base = RuleOptions { skill: 0.6, distance: 0.4, ..RuleOptions::default() };
    if wanted("PS5") {
        against("PS5", "1 % equality filter", RuleOptions { key: true, ..base }, "playlist = ?1 and", 7);
    }
    if wanted("PS6") {
        against("PS6", "weighted order, nothing to index", base, "?1 is not null and", 2);
    }
}

fn against(goal: &str, name: &str, rules: RuleOptions, filter: &str, queries: usize) {
    let world = World::new(rules, PopulationKind::Uniform);
    world.check_against_oracle(&world.ruleset);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let folder = tempfile::tempdir().expect("a folder");
    let options = SqliteConnectOptions::new().filename(folder.path().join("ads.db")).create_if_missing(true);
    let options =
        options.pragma("cache_size", "-1000000").pragma("mmap_size", "1000000000").pragma("synchronous", "off");
    let mut connection = runtime.block_on(async {
        let mut connection = options.connect().await.expect("a database");
        fill(&mut connection, &world).await;
        connection
    });
    let sql = format!("select id from ads where {filter} seats >= 1 and expires > {NOW} {BEST}");
    let search = |number: usize, connection: &mut SqliteConnection| {
        let (session, _) = &world.searchers[number % world.searchers.len()];
        let at = session.locality.expect("a location");
        runtime.block_on(async {
            let query = sqlx::query(AssertSqlSafe(sql.clone())).bind(text(session, "playlist")).bind(skill(session));
            let query = query.bind(f64::from(at.x)).bind(f64::from(at.y)).bind(f64::from(at.z));
            let rows = query.fetch_all(connection).await.expect("rows");
            assert_eq!(rows.len(), 50, "SQLite finds as many");
            assert_eq!(rows[0].get::<Vec<u8>, _>(0).len(), 16);
        });
    };
    let mut number = 0;
    compare(
        goal,
        name,
        "SQLite",
        || world.search(&world.ruleset, InstructionSet::Widest, 0.5),
        || -> Timing {
            quantile(queries, 0.5, |_| {
                number += 1;
                search(number, &mut connection);
            })
        },
    );
}

async fn fill(connection: &mut SqliteConnection, world: &World) {
    connection.execute(TABLE).await.expect("a table");
    let mut transaction = connection.begin().await.expect("a transaction");
    let entries: Vec<&IndexEntry> = world.index.entries().collect();
    for chunk in entries.chunks(1_000) {
        let placeholders: Vec<&str> = chunk.iter().map(|_| "(?, ?, ?, ?, ?, ?, ?, ?)").collect();
        let sql = format!("insert into ads values {}", placeholders.join(", "));
        let mut query = sqlx::query(AssertSqlSafe(sql));
        for entry in chunk {
            let session = &entry.advertisement.session;
            let at = session.locality.expect("a location");
            query = query.bind(entry.advertisement.id.as_bytes().to_vec()).bind(text(session, "playlist"));
            query = query.bind(i64::from(entry.open_seats)).bind(entry.expires_at.0 as i64).bind(skill(session));
            query = query.bind(f64::from(at.x)).bind(f64::from(at.y)).bind(f64::from(at.z));
        }
        query.execute(&mut *transaction).await.expect("rows go in");
    }
    transaction.commit().await.expect("a commit");
    connection.execute(INDEX).await.expect("an index");
    connection.execute("analyze").await.expect("statistics");
}

fn text(session: &Session, name: &str) -> String {
    match session.stated_attribute_value(name) {
        Some(AttributeValue::String(text)) => text.to_string(),
        _ => String::new(),
    }
}

fn skill(session: &Session) -> f64 {
    match session.stated_attribute_value("skill") {
        Some(AttributeValue::Number(number)) => *number,
        _ => f64::NAN,
    }
}
