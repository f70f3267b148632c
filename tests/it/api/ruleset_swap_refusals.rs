//! Refused swaps of a ruleset: the file and the rulesets stay as they are.

use std::os::unix::fs::symlink;

use tonic::{Code, Status};

use crate::api::ruleset_swap::{code_and_reason, edited, ruleset_xml, swap_request};
use crate::support::generated_client::swap_ruleset_request::Replacement;
use crate::support::generated_client::{ListRulesetsRequest, SwapRulesetRequest, SwapRulesetResponse};
use crate::support::ruleset_dir::{OperatorClient, RulesetDirectory};
use crate::support::test_server::TestServer;

/// A server with one ruleset, and its hash.
struct Fixture {
    directory: RulesetDirectory,
    operator: OperatorClient,
    hash: u32,
    _server: TestServer,
}

impl Fixture {
    async fn start() -> Self {
        let directory = RulesetDirectory::with_files(&[("duel.xml", &ruleset_xml(10))]);
        let server = directory.start_server().await;
        let mut operator = OperatorClient::connect(&server).await;
        let hash = operator.list_rulesets().await[0].service_configuration_hash;
        Self { directory, operator, hash, _server: server }
    }

    async fn swap(&mut self, swap: SwapRulesetRequest) -> Result<SwapRulesetResponse, Status> {
        self.operator.0.swap_ruleset(swap).await.map(tonic::Response::into_inner)
    }

    fn file(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("duel.xml")).expect("the file")
    }

    /// Asserts that the file has this text, no other file was left, and the first ruleset is in force without problems.
    async fn assert_unchanged(&mut self, text: &str, files: usize) {
        assert_eq!(self.file(), text);
        assert_eq!(std::fs::read_dir(self.directory.path()).expect("the folder").count(), files);
        let listed = self.operator.list_rulesets().await;
        assert_eq!((listed.len(), listed[0].service_configuration_hash), (1, self.hash));
        assert!(listed[0].problems.is_empty(), "{listed:?}");
    }
}

/// S1-38: a text with a problem, and a directory with a problem in another file, change nothing. The problems are the answer.
#[tokio::test]
async fn ruleset_swap_with_problems_writes_and_loads_nothing() {
    let mut fixture = Fixture::start().await;
    let broken = ruleset_xml(20).replace("HardFilters", "HardFilterz");
    let refused = fixture.swap(swap_request(fixture.hash, Replacement::RulesetXml(broken))).await.expect("an answer");
    assert!(refused.changes.is_empty(), "{refused:?}");
    let problem = &refused.problems[0];
    assert!(problem.file_name.ends_with("duel.xml") && problem.line == 4, "{problem:?}");
    fixture.assert_unchanged(&ruleset_xml(10), 1).await;

    fixture.directory.write_file("other.xml", "<Ruleset/>");
    let refused = fixture.swap(swap_request(fixture.hash, edited(20))).await.expect("an answer");
    assert!(refused.problems.iter().all(|problem| problem.file_name.ends_with("other.xml")), "{refused:?}");
    assert!(!refused.problems.is_empty());
    fixture.assert_unchanged(&ruleset_xml(10), 2).await;
}

/// A swap names the ruleset in force, and is refused if it is another one, or if a designer has edited the file meanwhile.
#[tokio::test]
async fn ruleset_swap_does_not_overwrite_what_its_caller_has_not_seen() {
    let mut fixture = Fixture::start().await;
    let stale = |status: &Status| {
        assert_eq!(code_and_reason(status), (Code::FailedPrecondition, "STALE_CONFIGURATION".to_owned()), "{status}");
    };
    let other = fixture.swap(swap_request(fixture.hash ^ 1, edited(20))).await.unwrap_err();
    stale(&other);
    assert!(other.message().contains(&format!("the ruleset in force is {}", fixture.hash)), "{other}");
    fixture.assert_unchanged(&ruleset_xml(10), 1).await;

    fixture.directory.write_file("duel.xml", &ruleset_xml(30));
    let edited_file = fixture.swap(swap_request(fixture.hash, edited(20))).await.unwrap_err();
    stale(&edited_file);
    assert!(edited_file.message().starts_with("duel.xml was edited since it was loaded"), "{edited_file}");
    fixture.assert_unchanged(&ruleset_xml(30), 1).await;

    fixture.operator.reload_rulesets().await;
    let first =
        std::mem::replace(&mut fixture.hash, fixture.operator.list_rulesets().await[0].service_configuration_hash);
    let unknown = fixture.swap(swap_request(fixture.hash, Replacement::FormerHash(first ^ 1))).await.unwrap_err();
    stale(&unknown);
    let swapped = fixture.swap(swap_request(fixture.hash, Replacement::FormerHash(first))).await.expect("an answer");
    assert_eq!(swapped.changes[0].current_hash, Some(first));
    assert_eq!(fixture.file(), ruleset_xml(10));
}

/// Invalid fields are named. A text of another set, and one that retires the set, are refused.
#[tokio::test]
async fn ruleset_swap_names_the_invalid_field() {
    let mut fixture = Fixture::start().await;
    let good = swap_request(fixture.hash, edited(20));
    let text = |text: String| Some(Replacement::RulesetXml(text));
    let cases = [
        (SwapRulesetRequest { matchmaking_set_id: None, ..good.clone() }, "matchmaking_set_id: is missing"),
        (SwapRulesetRequest { expected_hash: None, ..good.clone() }, "expected_hash: is missing"),
        (
            SwapRulesetRequest { replacement: None, ..good.clone() },
            "replacement: is missing; set ruleset_xml or former_hash",
        ),
        (SwapRulesetRequest { reason: " ".into(), ..good.clone() }, "reason: is missing"),
        (SwapRulesetRequest { reason: "x".repeat(257), ..good.clone() }, "reason: "),
        (SwapRulesetRequest { replacement: text(" ".repeat(256 * 1024 + 1)), ..good.clone() }, "ruleset_xml: "),
        (
            SwapRulesetRequest {
                replacement: text(ruleset_xml(20).replace("SetId=\"1\"", "SetId=\"2\"")),
                ..good.clone()
            },
            "ruleset_xml: has SetId 2; write SetId 1",
        ),
        (
            SwapRulesetRequest {
                replacement: text(ruleset_xml(20).replace("SetId", "Retired=\"true\" SetId")),
                ..good.clone()
            },
            "ruleset_xml: retires its set",
        ),
        (
            SwapRulesetRequest { replacement: Some(Replacement::FormerHash(fixture.hash)), ..good.clone() },
            "former_hash: is the ruleset in force",
        ),
    ];
    for (request, expected) in cases {
        let status = fixture.swap(request).await.unwrap_err();
        assert_eq!(code_and_reason(&status), (Code::InvalidArgument, "INVALID_REQUEST".to_owned()), "{status}");
        assert!(status.message().starts_with(expected), "{status} is not {expected}");
    }
    let unknown = fixture.swap(SwapRulesetRequest { matchmaking_set_id: Some(9), ..good }).await.unwrap_err();
    assert_eq!(code_and_reason(&unknown), (Code::NotFound, "UNKNOWN_MATCHMAKING_SET".to_owned()));
    fixture.assert_unchanged(&ruleset_xml(10), 1).await;
}

/// The bundled rulesets, a set without a file, and a file behind a link cannot be swapped, and the error says where to change them.
#[tokio::test]
async fn ruleset_swap_of_a_file_that_cannot_be_replaced_is_refused() {
    let not_writable = |status: &Status, text: &str| {
        assert_eq!(
            code_and_reason(status),
            (Code::FailedPrecondition, "RULESET_FILE_NOT_WRITABLE".to_owned()),
            "{status}"
        );
        assert!(status.message().contains(text), "{status} does not contain {text}");
    };
    let server = TestServer::start().await;
    let mut operator = OperatorClient::connect(&server).await;
    let listed = operator.0.list_rulesets(ListRulesetsRequest {}).await.expect("listed").into_inner();
    let (bundled, obstacle) = (&listed.rulesets[0], &*listed.swap_obstacle);
    let swap = SwapRulesetRequest {
        matchmaking_set_id: Some(bundled.matchmaking_set_id),
        ..swap_request(bundled.service_configuration_hash, edited(20))
    };
    let refused = operator.0.swap_ruleset(swap).await.unwrap_err();
    not_writable(&refused, "start it with --rulesets DIRECTORY");
    assert_eq!(refused.message(), obstacle);

    let mut fixture = Fixture::start().await;
    let elsewhere = tempfile::tempdir().expect("a folder");
    let (target, link) = (elsewhere.path().join("duel.xml"), fixture.directory.path().join("duel.xml"));
    std::fs::rename(&link, &target).expect("moved");
    symlink(&target, &link).expect("a link");
    let linked = fixture.swap(swap_request(fixture.hash, edited(20))).await.unwrap_err();
    not_writable(&linked, "duel.xml cannot be written: it is a symbolic link");
    fixture.assert_unchanged(&ruleset_xml(10), 1).await;

    fixture.directory.write_file("other.xml", &ruleset_xml(10).replace("SetId=\"1\"", "SetId=\"2\""));
    fixture.directory.remove_file("duel.xml");
    fixture.operator.reload_rulesets().await;
    let retiring = fixture.swap(swap_request(fixture.hash, edited(20))).await.unwrap_err();
    not_writable(&retiring, "put its file back into the directory");
}
