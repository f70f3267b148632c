//! Swap of a ruleset by an operator: the file, who loaded each version, a restart, and several servers on one store.

use std::path::Path;

use fireteam::auth::identity::Role;
use fireteam::config::StoreTarget;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt;

use crate::support::database::create_test_database;
use crate::support::generated_client::swap_ruleset_request::Replacement;
use crate::support::generated_client::{
    GetRulesetRequest, ListRulesetsRequest, ReloadRulesetsRequest, RulesetStatus, SwapRulesetRequest,
    SwapRulesetResponse,
};
use crate::support::queue_server::wait_until;
use crate::support::ruleset_dir::{OperatorClient, RulesetDirectory};
use crate::support::server_process::ServerProcess;
use crate::support::test_server::TestServer;
use crate::support::tokens::TokenIssuer;

/// Set of the tests.
pub(crate) const SET: u32 = 1;

/// Ruleset file with a comment, and a limit of skill.
pub(crate) fn ruleset_xml(limit: u32) -> String {
    format!(
        "<!-- Agreed with the designers. -->\n<Ruleset Name=\"Duel\" SetId=\"{SET}\">\n  <Attributes><Attribute \
         Name=\"skill\" Type=\"number\" Min=\"0\" Max=\"100\" Trust=\"client\"/></Attributes>\n  <HardFilters><Within \
         Attribute=\"skill\" Limit=\"{limit}\"/></HardFilters>\n</Ruleset>\n"
    )
}

/// Swap of the ruleset in force with `expected_hash`.
pub(crate) fn swap_request(expected_hash: u32, replacement: Replacement) -> SwapRulesetRequest {
    SwapRulesetRequest {
        matchmaking_set_id: Some(SET),
        expected_hash: Some(expected_hash),
        replacement: Some(replacement),
        reason: "waits are too long".into(),
    }
}

/// An edited text as a replacement.
pub(crate) fn edited(limit: u32) -> Replacement {
    Replacement::RulesetXml(ruleset_xml(limit))
}

/// Code and reason of an error.
pub(crate) fn code_and_reason(status: &Status) -> (Code, String) {
    (status.code(), status.get_details_error_info().map(|info| info.reason).unwrap_or_default())
}

/// A server with authentication on a SQLite file, its operators, and its rulesets directory.
struct AuthenticatedOperators {
    directory: RulesetDirectory,
    server: TestServer,
    issuer: TokenIssuer,
    folder: tempfile::TempDir,
}

impl AuthenticatedOperators {
    async fn start() -> Self {
        let directory = RulesetDirectory::with_files(&[("duel.xml", &ruleset_xml(10))]);
        let folder = tempfile::tempdir().expect("a folder");
        let issuer = TokenIssuer::new(&crate::support::test_server::TestClock::new());
        let (auth, path) = (issuer.write_jwt_settings(folder.path()), folder.path().to_owned());
        let server = directory
            .start_server_with_config(|config| {
                config.auth = Some(auth);
                config.audit_log_file = Some(path.join("audit.jsonl"));
                config.store = StoreTarget::Sqlite(path.join("fireteam.db"));
            })
            .await;
        Self { directory, server, issuer, folder }
    }

    fn request<T>(&self, role: Role, subject: &str, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let header = self.issuer.authorization_header(role, subject).parse().expect("a header");
        request.metadata_mut().insert("authorization", header);
        request
    }

    async fn swap(&self, subject: &str, swap: SwapRulesetRequest) -> SwapRulesetResponse {
        let mut operator = OperatorClient::connect(&self.server).await;
        let response = operator.0.swap_ruleset(self.request(Role::Operator, subject, swap)).await;
        response.expect("swapped").into_inner()
    }

    /// Versions of the set with hash, loader and the time since the start of the clock, milliseconds.
    async fn versions(&self, start_ms: u64) -> Vec<(u32, String, u64)> {
        let mut operator = OperatorClient::connect(&self.server).await;
        let request = self.request(Role::Viewer, "wall", ListRulesetsRequest {});
        let listed = operator.0.list_rulesets(request).await.expect("listed").into_inner();
        let version = |status: RulesetStatus| {
            (status.service_configuration_hash, status.loaded_by, status.loaded_at_unix_ms - start_ms)
        };
        listed.rulesets.into_iter().map(version).collect()
    }

    fn file(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("duel.xml")).expect("the file")
    }
}

/// S1-37: an operator loads an edited text and rolls back. The file has each text with its comments, each version has its time
/// and its loader, also after a restart, and the audit log has the reason.
#[tokio::test]
async fn ruleset_swap_replaces_the_file_and_rolls_back_to_the_former_text() {
    let mut fixture = AuthenticatedOperators::start().await;
    let start_ms = fixture.issuer.now_s * 1_000 + 345;
    let first = fixture.versions(start_ms).await;
    let [(old, by, 0)] = &first[..] else { panic!("one version: {first:?}") };
    let (old, ana, ben) = (*old, "operator ana (the-game)".to_owned(), "operator ben (the-game)".to_owned());
    assert_eq!(by, "start");

    fixture.server.clock.advance_ms(1_000);
    let swapped = fixture.swap("ana", swap_request(old, edited(20))).await;
    let [change] = &swapped.changes[..] else { panic!("one change: {swapped:?}") };
    let new = change.current_hash.expect("a hash");
    assert_eq!((change.previous_hash, &*swapped.file_name, swapped.problems.len()), (Some(old), "duel.xml", 0));
    assert_eq!(fixture.file(), ruleset_xml(20));
    let versions = [(new, ana.clone(), 1_000), (old, "start".to_owned(), 0)];
    assert_eq!(fixture.versions(start_ms).await, versions);

    // The folder has what the server has, so that neither a reload nor a restart changes anything.
    fixture.server.clock.advance_ms(1_000);
    let mut operator = OperatorClient::connect(&fixture.server).await;
    let reload = fixture.request(Role::Operator, "ben", ReloadRulesetsRequest {});
    let reloaded = operator.0.reload_rulesets(reload).await.expect("reloaded").into_inner();
    assert!(reloaded.changes.is_empty() && reloaded.problems.is_empty(), "{reloaded:?}");
    fixture.server = fixture.server.restart_after(1_000).await;
    assert_eq!(fixture.versions(start_ms).await, versions);

    let back = fixture.swap("ben", swap_request(new, Replacement::FormerHash(old))).await;
    assert_eq!((back.changes[0].previous_hash, back.changes[0].current_hash), (Some(new), Some(old)));
    assert_eq!(fixture.file(), ruleset_xml(10), "with its comment");
    let versions = [(old, ben, 3_000), (new, ana, 1_000)];
    assert_eq!(fixture.versions(start_ms).await, versions);
    let read = GetRulesetRequest { matchmaking_set_id: Some(SET), service_configuration_hash: Some(new) };
    let mut operator = OperatorClient::connect(&fixture.server).await;
    let former = operator.0.get_ruleset(fixture.request(Role::Viewer, "wall", read)).await.expect("found").into_inner();
    assert_eq!(former.ruleset_xml, ruleset_xml(20));

    let audit = std::fs::read_to_string(fixture.folder.path().join("audit.jsonl")).expect("the audit log");
    let of_swaps: Vec<&str> = audit.lines().filter(|line| line.contains("OperatorService/SwapRuleset")).collect();
    let target = r#""target":"set 1, duel.xml, an edited text, 0 problems: waits are too long""#;
    let changes = format!(r#""ruleset_changes":[{{"set_id":1,"before":{old},"after":{new}}}],"outcome":"OK""#);
    assert!(of_swaps[0].contains(target) && of_swaps[0].contains(&changes), "{audit}");
    assert!(of_swaps[0].contains(r#""subject":"ana""#), "{audit}");
    assert!(of_swaps[1].contains(&format!("former version {old}, 0 problems: waits are too long")), "{audit}");
}

/// SEC-4: a viewer sees who loaded the rulesets and tries texts, and can neither swap nor reload. The list says so before a try.
#[tokio::test]
async fn ruleset_swap_by_a_viewer_is_refused_and_changes_nothing() {
    let fixture = AuthenticatedOperators::start().await;
    let mut operator = OperatorClient::connect(&fixture.server).await;
    let list = async |role, operator: &mut OperatorClient| {
        let listed = operator.0.list_rulesets(fixture.request(role, "someone", ListRulesetsRequest {})).await;
        listed.expect("listed").into_inner()
    };
    assert_eq!(list(Role::Operator, &mut operator).await.swap_obstacle, "");
    let listed = list(Role::Viewer, &mut operator).await;
    assert_eq!(listed.swap_obstacle, "the role viewer changes nothing; use an operator's token");
    let swap = swap_request(listed.rulesets[0].service_configuration_hash, edited(20));
    let refused = operator.0.swap_ruleset(fixture.request(Role::Viewer, "wall", swap)).await.unwrap_err();
    assert_eq!(code_and_reason(&refused), (Code::PermissionDenied, "ROLE_NOT_ALLOWED".to_owned()));
    let reload = fixture.request(Role::Viewer, "wall", ReloadRulesetsRequest {});
    assert_eq!(operator.0.reload_rulesets(reload).await.unwrap_err().code(), Code::PermissionDenied);
    assert_eq!(fixture.file(), ruleset_xml(10));
    assert_eq!(list(Role::Viewer, &mut operator).await.rulesets, listed.rulesets);
}

/// Two servers on one database. `folders` are their rulesets directories.
fn start_two_servers(folder: &Path, url: &str, folders: [&str; 2]) -> [ServerProcess; 2] {
    folders.map(|rulesets| {
        std::fs::create_dir_all(folder.join(rulesets)).expect("a folder");
        std::fs::write(folder.join(rulesets).join("duel.xml"), ruleset_xml(10)).expect("a file");
        let keys = ["--token-key-file", "token-key", "--match-key-file", "match-key.pem"];
        ServerProcess::start(folder, &[&["--store", url, "--rulesets", rulesets][..], &keys].concat())
    })
}

/// Versions of the set as a server lists them: hash, loader and time.
async fn listed(server: &ServerProcess) -> Vec<(u32, String, u64)> {
    let listed = server.operator_client().await.list_rulesets(ListRulesetsRequest {}).await.expect("listed");
    let version =
        |status: RulesetStatus| (status.service_configuration_hash, status.loaded_by, status.loaded_at_unix_ms);
    listed.into_inner().rulesets.into_iter().map(version).collect()
}

/// Swaps on a server, and returns the new version.
async fn swap_on(server: &ServerProcess, replacement: Replacement) -> (u32, String, u64) {
    let current = listed(server).await[0].0;
    let swap = swap_request(current, replacement);
    let swapped = server.operator_client().await.swap_ruleset(swap).await.expect("swapped").into_inner();
    assert!(swapped.problems.is_empty(), "{swapped:?}");
    listed(server).await.swap_remove(0)
}

/// Servers that share a store and a directory: a swap on one is loaded by the other, which knows who did it. The change of the
/// file that the swap makes is no further load.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ruleset_swap_in_a_shared_directory_reaches_the_other_server_with_its_loader() {
    let Some(database) = create_test_database("ruleset_swap_in_a_shared_directory").await else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let [here, there] = start_two_servers(folder.path(), &database.url, ["shared", "shared"]);
    let first = listed(&here).await.swap_remove(0);
    assert_eq!((first.clone(), &*first.1), (listed(&there).await.swap_remove(0), "start"));

    let new = swap_on(&here, edited(20)).await;
    assert_eq!(new.1, "operator");
    wait_until("the other server has the version", async || listed(&there).await == [new.clone(), first.clone()]).await;
    let back = swap_on(&there, Replacement::FormerHash(first.0)).await;
    assert!(back.0 == first.0 && back.1 == "operator" && first.2 < back.2, "{first:?} {back:?}");
    wait_until("the first server has it again", async || listed(&here).await == [back.clone(), new.clone()]).await;
    assert_eq!(std::fs::read_to_string(folder.path().join("shared/duel.xml")).expect("the file"), ruleset_xml(10));
}

/// Servers with a directory each: a swap changes one of them. The other keeps its ruleset until its own file changes, and then
/// has the version with the same loader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ruleset_swap_with_separate_directories_changes_one_server() {
    let Some(database) = create_test_database("ruleset_swap_with_separate_directories").await else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let [here, there] = start_two_servers(folder.path(), &database.url, ["here", "there"]);
    let first = listed(&here).await.swap_remove(0);
    let new = swap_on(&here, edited(20)).await;
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name).join("duel.xml")).expect("the file");
    assert_eq!((read("here"), read("there")), (ruleset_xml(20), ruleset_xml(10)));
    assert_eq!(listed(&there).await.swap_remove(0), first);
    // The other server knows the version as a former one, and its operator can load it too.
    wait_until("the other server knows the version", async || listed(&there).await == [first.clone(), new.clone()])
        .await;
    assert_eq!(swap_on(&there, Replacement::FormerHash(new.0)).await, new);
    assert_eq!(read("there"), ruleset_xml(20));
}
