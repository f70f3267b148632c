//! The C++ client builds, reports a missing server, and runs its session and queue demos against a real server. Needs
//! cmake, a C++ compiler and gRPC's development packages; prints a notice if they are missing. With `REQUIRE_CPP=1` in
//! the environment, missing packages fail the tests.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use crate::support::test_server::TestServer;

/// Messages of cmake about missing packages, as opposed to errors in the project's files.
const MISSING_PACKAGE_MESSAGES: &[&str] =
    &["Could NOT find", "Could not find", "No CMAKE_CXX_COMPILER", "is not able to compile"];

/// Path of the session demo; `None` if it cannot be built.
pub(crate) fn session_demo() -> Option<PathBuf> {
    demo_binary("fireteam_demo")
}

/// Path of a demo. All demos are built once per test process.
fn demo_binary(name: &str) -> Option<PathBuf> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    BUILT.get_or_init(build_demos).as_ref().map(|folder| folder.join(name))
}

/// Runs the demo against `target`.
pub(crate) fn run_demo(demo: &Path, target: &str) -> Output {
    Command::new(demo).arg(target).output().expect("run the demo")
}

/// Builds the demos and returns their directory.
fn build_demos() -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/cpp");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cpp");
    remove_build_of_another_folder(&folder);
    let configured = Command::new("cmake").arg("-S").arg(source).arg("-B").arg(&folder).output();
    let Ok(configured) = configured else {
        report_skip("cmake is not installed");
        return None;
    };
    let output = output_text(&configured);
    if !configured.status.success() {
        assert!(
            MISSING_PACKAGE_MESSAGES.iter().any(|message| output.contains(message)),
            "cmake failed for clients/cpp:\n{output}"
        );
        report_skip(
            output
                .lines()
                .find(|line| MISSING_PACKAGE_MESSAGES.iter().any(|message| line.contains(message)))
                .unwrap_or_default(),
        );
        return None;
    }
    let built = Command::new("cmake").arg("--build").arg(&folder).output().expect("run cmake");
    assert!(built.status.success(), "the C++ client failed to build:\n{}", output_text(&built));
    Some(folder)
}

/// Removes a build directory that was copied from elsewhere, because cmake refuses it.
fn remove_build_of_another_folder(folder: &Path) {
    let cache = std::fs::read_to_string(folder.join("CMakeCache.txt")).unwrap_or_default();
    if !cache.is_empty() && !cache.contains(&format!("CMAKE_CACHEFILE_DIR:INTERNAL={}\n", folder.display())) {
        std::fs::remove_dir_all(folder).expect("remove the build directory");
    }
}

fn report_skip(reason: &str) {
    assert!(std::env::var_os("REQUIRE_CPP").is_none(), "REQUIRE_CPP is set, but {reason}");
    eprintln!(
        "SKIPPED: the C++ client was NOT built or run: {reason}\n  apt-get install -y --no-install-recommends g++ cmake \
         pkg-config libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc"
    );
}

fn output_text(output: &Output) -> String {
    [output.stdout.as_slice(), output.stderr.as_slice()].map(String::from_utf8_lossy).concat()
}

#[test]
fn cpp_demo_reports_a_missing_server_in_one_line() {
    let Some(demo) = session_demo() else { return };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    drop(listener);
    let output = run_demo(&demo, &target);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output_text(&output), format!("check failed: a server listens at {target}\n"));
}

/// S1-37, S1-40: the C++ client advertises, finds, reserves, receives events, confirms and releases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cpp_demo_runs_host_and_searcher() {
    assert_demo_succeeds("fireteam_demo").await;
}

/// A game server advertises; two players enter a queue, watch, accept, and receive their assignment and credential.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cpp_demo_runs_a_queued_duel() {
    assert_demo_succeeds("fireteam_queue_demo").await;
}

/// Runs a demo against a new server; the demo must succeed.
async fn assert_demo_succeeds(name: &'static str) {
    let Some(demo) = tokio::task::spawn_blocking(|| demo_binary(name)).await.unwrap() else { return };
    let server = TestServer::start().await;
    let target = server.app.server.address.to_string();
    let output = tokio::task::spawn_blocking(move || run_demo(&demo, &target)).await.unwrap();
    assert!(output.status.success(), "{}", output_text(&output));
    assert!(output_text(&output).ends_with("\nok\n"), "{}", output_text(&output));
}
