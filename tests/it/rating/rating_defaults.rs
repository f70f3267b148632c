//! Default constants of rating systems: those of the papers for new sets, and the former ones for sets with ratings from
//! version 0.2.0, which stay on their scale until the ruleset states a constant.

use fireteam::config::{Config, StoreTarget};
use fireteam::domain::id::RulesetHash;
use fireteam::domain::ruleset::Ruleset;
use fireteam::domain::ruleset::rating::RatingSystem;
use fireteam::rules::parse_ruleset;
use fireteam_client::{Client, pb};
use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Connection as _};

use crate::rating::results_and_leaderboards::{Duel, rating};
use crate::rating::scale_changes::{as_set, duel_with};
use crate::support::certs::write_private_file;
use crate::support::database::create_test_database;
use crate::support::generated_client::CheckRulesetRequest;
use crate::support::queue_server::SET_ID;
use crate::support::ruleset_dir::{OperatorClient, RulesetDirectory};
use crate::support::test_server::TestServer;

const TRUESKILL: &str = r#"<Rating System="trueskill"/>"#;
const FORMER_SCALE: &str = r#"trueskill Mu="25" Sigma="8.333333333333334" Beta="10""#;
const CURRENT_SCALE: &str = r#"trueskill Mu="25" Sigma="8.333333333333334" Beta="6.25""#;

fn ruleset(rating: &str) -> Ruleset {
    parse_ruleset("a.xml", &format!(r#"<Ruleset Name="a" SetId="7">{rating}</Ruleset>"#)).expect("a valid ruleset")
}

/// S1-65: Beta and Tau follow the initial deviation, and Glicko's period is the one that its C belongs to.
#[test]
fn defaults_are_those_of_the_papers() {
    let system = |rating: &str| ruleset(rating).rating.expect("a rating").system;
    let RatingSystem::TrueSkill { beta, tau, .. } = system(r#"<Rating System="trueskill" Sigma="400"/>"#) else {
        panic!("another system")
    };
    assert_eq!((beta, tau), (300.0, 4.0));
    let RatingSystem::PlackettLuce { beta, tau, .. } = system(r#"<Rating System="plackett_luce" Sigma="400"/>"#) else {
        panic!("another system")
    };
    assert_eq!((beta, tau), (200.0, 4.0));
    let RatingSystem::Glicko { period_ms, .. } = system(r#"<Rating System="glicko"/>"#) else {
        panic!("another system")
    };
    assert_eq!(period_ms, 5_259_600_000);
    let stated = system(r#"<Rating System="trueskill" Beta="10" Tau="0.5"/>"#);
    assert!(matches!(stated, RatingSystem::TrueSkill { beta: 10.0, tau: 0.5, .. }), "{stated:?}");
}

/// S1-11: with the former defaults a ruleset has the hash that version 0.2.0 prints for it.
#[test]
fn former_defaults_have_the_hash_of_version_0_2_0() {
    let hashes = [
        (TRUESKILL, 719_194_472),
        (r#"<Rating System="glicko"/>"#, 2_792_895_490),
        (r#"<Rating System="plackett_luce" Sigma="400"/>"#, 1_560_923_634),
    ];
    for (rating, hash) in hashes {
        let current = ruleset(rating);
        let former = current.with_former_rating_defaults().expect("another ruleset");
        assert_eq!(former.hash, RulesetHash(hash), "{rating}");
        assert_ne!(former.hash, current.hash, "{rating}");
        assert!(former.with_former_rating_defaults().is_none());
    }
    for rating in [r#"<Rating System="elo"/>"#, r#"<Rating System="glicko2"/>"#, r#"<Rating System="plackett_luce"/>"#]
    {
        assert!(ruleset(rating).with_former_rating_defaults().is_none(), "{rating}");
    }
}

/// `fireteam check` says what a set with older ratings keeps.
#[test]
fn check_names_the_constants_whose_default_has_changed() {
    let directory = RulesetDirectory::with_files(&[("duel.xml", &duel_with(TRUESKILL))]);
    let print = || {
        let mut out = Vec::new();
        assert!(fireteam::cli::check::check_rulesets(&[directory.path().to_owned()], &mut out));
        String::from_utf8(out).expect("text")
    };
    let text = print();
    assert!(text.contains(r#"the defaults Beta="6.25""#) && text.contains(r#"keeps Beta="10""#), "{text}");
    directory.write_file("duel.xml", &duel_with(r#"<Rating System="trueskill" Beta="10"/>"#));
    let text = print();
    assert!(!text.contains("defaults"), "{text}");
}

/// Starts a server on `store` with the keys in `keys`.
async fn start(directory: &RulesetDirectory, store: &StoreTarget, keys: &tempfile::TempDir) -> TestServer {
    let (store, folder) = (store.clone(), keys.path().to_owned());
    let change = move |config: &mut Config| {
        config.store = store;
        config.token_key_file = Some(folder.join("token-key"));
        config.user_key_file = Some(folder.join("user-key"));
    };
    directory.start_server_with_config(change).await
}

/// Scale and number of ratings of the current ruleset of `set`.
async fn scale_of(operator: &mut OperatorClient, set: u32) -> (String, u64) {
    let listed = operator.list_rulesets().await;
    let current = listed.iter().find(|ruleset| ruleset.matchmaking_set_id == set).expect("the set is listed");
    let ratings = current.ratings.clone().expect("ratings");
    (ratings.scale, ratings.rating_count)
}

async fn hash_of(client: &Client) -> u32 {
    let request = pb::MatchmakingGetConfigurationRequest { matchmaking_set_id: Some(SET_ID), ..Default::default() };
    client.get_configuration(request).await.expect("configuration").service_configuration_hash
}

/// A set that was played with version 0.2.0 keeps its scale, its ratings and its hash; a match in play is rated on it after
/// a restart; a new set beside it uses the new defaults.
async fn check_set_keeps_former_defaults(store: StoreTarget, execute_sql: impl AsyncFn(&str)) {
    let keys = tempfile::tempdir().expect("a folder");
    write_private_file(&keys.path().join("user-key"), &"5e".repeat(32));
    let directory =
        RulesetDirectory::with_files(&[("duel.xml", &duel_with(r#"<Rating System="trueskill" Beta="10"/>"#))]);
    let server = start(&directory, &store, &keys).await;
    let duel = Duel::start(&server, ["ann", "bob"]).await;
    let client = server.client().await;
    client.report_result(duel.ann_won()).await.expect("report");
    let before = rating(&client, "ann").await;
    assert!(before > 25.0, "{before}");
    let hash = hash_of(&client).await;
    server.shut_down().await;
    // As version 0.2.0 leaves it: ratings, and no record of their scale.
    execute_sql("delete from first_rating_scale").await;

    directory.write_file("duel.xml", &duel_with(TRUESKILL));
    let server = start(&directory, &store, &keys).await;
    let (client, mut operator) = (server.client().await, OperatorClient::connect(&server).await);
    assert_eq!(rating(&client, "ann").await, before);
    assert_eq!(hash_of(&client).await, hash);
    assert_eq!(scale_of(&mut operator, SET_ID).await, (FORMER_SCALE.to_owned(), 2));
    directory.write_file("new.xml", &as_set(&duel_with(TRUESKILL), 12));
    assert_eq!(operator.reload_rulesets().await.problems, []);
    assert_eq!(scale_of(&mut operator, 12).await, (CURRENT_SCALE.to_owned(), 0));
    assert_eq!(scale_of(&mut operator, SET_ID).await, (FORMER_SCALE.to_owned(), 2));
    let duel = Duel::start(&server, ["ann", "bob"]).await;
    let report = duel.ann_won();
    drop((client, operator, duel));
    server.shut_down().await;

    // Other text of the same meaning does not move the set, and neither does a restart.
    directory.write_file("duel.xml", &duel_with(r#"<Rating System="trueskill" Mu="25"/>"#));
    let server = start(&directory, &store, &keys).await;
    let (client, mut operator) = (server.client().await, OperatorClient::connect(&server).await);
    assert_eq!(scale_of(&mut operator, 12).await, (CURRENT_SCALE.to_owned(), 0));
    let change = client.report_result(report).await.expect("report").changes.remove(0);
    assert_eq!(change.before.expect("before").rating, before, "the match is rated on its own scale");
    let after = rating(&client, "ann").await;
    assert!(after > before);

    // A stated constant moves the set to another scale, as a stated former one brings it back.
    let stated = duel_with(r#"<Rating System="trueskill" Beta="6.25"/>"#);
    let request = CheckRulesetRequest { ruleset_xml: stated.clone(), ..Default::default() };
    let expected = "the rating scale changes: 2 ratings begin again";
    assert_eq!(operator.0.check_ruleset(request).await.expect("check").into_inner().rating_change, expected);
    let request = CheckRulesetRequest { ruleset_xml: duel_with(TRUESKILL), ..Default::default() };
    assert_eq!(operator.0.check_ruleset(request).await.expect("check").into_inner().rating_change, "");
    directory.write_file("duel.xml", &stated);
    operator.reload_rulesets().await;
    assert_eq!(scale_of(&mut operator, SET_ID).await, (CURRENT_SCALE.to_owned(), 0));
    directory.write_file("duel.xml", &duel_with(r#"<Rating System="trueskill" Beta="10"/>"#));
    operator.reload_rulesets().await;
    assert_eq!(scale_of(&mut operator, SET_ID).await, (FORMER_SCALE.to_owned(), 2));
    assert_eq!(rating(&client, "ann").await, after);
    server.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn set_with_ratings_of_version_0_2_0_keeps_its_defaults_on_sqlite() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    let url = format!("sqlite:{}", path.display());
    check_set_keeps_former_defaults(StoreTarget::Sqlite(path), async |sql| {
        let mut connection = SqliteConnection::connect(&url).await.expect("open");
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut connection).await.expect("SQL");
        connection.close().await.expect("close");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn set_with_ratings_of_version_0_2_0_keeps_its_defaults_on_postgres() {
    let Some(database) = create_test_database("set_with_ratings_of_version_0_2_0_keeps_its_defaults_on_postgres").await
    else {
        return;
    };
    let store = StoreTarget::Postgres(fireteam::config::PostgresUrl::parse(&database.url).expect("a URL"));
    check_set_keeps_former_defaults(store, async |sql| {
        let mut connection = database.connect().await;
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut connection).await.expect("SQL");
    })
    .await;
}

/// Sets of one pool use the same constants: the former ones if one of the sets keeps them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pool_uses_the_former_defaults_of_its_oldest_set() {
    let folder = tempfile::tempdir().expect("a folder");
    let keys = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    let directory = RulesetDirectory::with_files(&[("duel.xml", &duel_with(TRUESKILL))]);
    let store = StoreTarget::Sqlite(path.clone());
    let server = start(&directory, &store, &keys).await;
    server.shut_down().await;
    let mut connection = SqliteConnection::connect(&format!("sqlite:{}", path.display())).await.expect("open");
    let sql = "update first_rating_scale set rating_defaults = 0";
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut connection).await.expect("SQL");
    connection.close().await.expect("close");

    let pooled = r#"<Rating System="trueskill" Pool="duels"/>"#;
    directory.write_file("duel.xml", &duel_with(pooled));
    directory.write_file("new.xml", &as_set(&duel_with(pooled), 12));
    let server = start(&directory, &store, &keys).await;
    let mut operator = OperatorClient::connect(&server).await;
    for set in [SET_ID, 12] {
        assert_eq!(scale_of(&mut operator, set).await.0, FORMER_SCALE);
    }
    // One file states the new constant: then the pool has it.
    directory.write_file("new.xml", &as_set(&duel_with(&pooled.replace("/>", r#" Beta="6.25"/>"#)), 12));
    assert_eq!(operator.reload_rulesets().await.problems, []);
    for set in [SET_ID, 12] {
        assert_eq!(scale_of(&mut operator, set).await.0, CURRENT_SCALE);
    }
    server.shut_down().await;
}
