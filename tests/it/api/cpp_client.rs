//! The C++ client builds, says when nobody listens, and plays a session's sides and a queue's against a real server.
//!
//! Needs cmake, a C++ compiler and gRPC's development packages; says loudly what was not tested where they are missing.
//! With `REQUIRE_CPP=1` in the environment, missing packages are a failure.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use crate::support::test_server::TestServer;

/// What cmake says when a package is missing, rather than our files being wrong.
const MISSING_PACKAGE_MESSAGES: &[&str] = &["Could NOT find", "Could not find", "No CMAKE_CXX_COMPILER", "is not able to compile"];

/// The built demo of sessions; `None` where it cannot be built.
pub(crate) fn session_demo() -> Option<PathBuf> {
    demo_binary("fireteam_demo")
}

/// The demo of that name. All are built once, however many tests ask.
fn demo_binary(name: &str) -> Option<PathBuf> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    BUILT.get_or_init(build_demos).as_ref().map(|folder| folder.join(name))
}

/// Runs the demo against `target`.
pub(crate) fn run_demo(demo: &Path, target: &str) -> Output {
    Command::new(demo).arg(target).output().expect("the demo starts")
}

/// Where the demos are.
fn build_demos() -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/cpp");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cpp");
    remove_build_of_another_folder(&folder);
    let configured = Command::new("cmake").arg("-S").arg(source).arg("-B").arg(&folder).output();
    let Ok(configured) = configured else {
        report_skip("cmake is not installed");
        return None;
    };
    let said = output_text(&configured);
    if !configured.status.success() {
        assert!(MISSING_PACKAGE_MESSAGES.iter().any(|it| said.contains(it)), "cmake does not like clients/cpp:\n{said}");
        report_skip(said.lines().find(|line| MISSING_PACKAGE_MESSAGES.iter().any(|it| line.contains(it))).unwrap_or_default());
        return None;
    }
    let built = Command::new("cmake").arg("--build").arg(&folder).output().expect("cmake was there a moment ago");
    assert!(built.status.success(), "the C++ client does not build:\n{}", output_text(&built));
    Some(folder)
}

/// CMake refuses a build folder that was made elsewhere and copied here.
fn remove_build_of_another_folder(folder: &Path) {
    let cache = std::fs::read_to_string(folder.join("CMakeCache.txt")).unwrap_or_default();
    if !cache.is_empty() && !cache.contains(&format!("CMAKE_CACHEFILE_DIR:INTERNAL={}\n", folder.display())) {
        std::fs::remove_dir_all(folder).expect("a folder of ours");
    }
}

fn report_skip(why: &str) {
    assert!(std::env::var_os("REQUIRE_CPP").is_none(), "REQUIRE_CPP is set, and {why}");
    eprintln!(
        "SKIPPED: the C++ client was NOT built or run: {why}\n  apt-get install -y --no-install-recommends g++ cmake \
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

/// S1-37, S1-40: advertised, found, reserved, heard of, confirmed and given back, by another language's client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cpp_demo_runs_host_and_searcher() {
    assert_demo_succeeds("fireteam_demo").await;
}

/// A game server offers seats; two players queue, watch, agree, and are told where to go and what to show there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cpp_demo_runs_a_queued_duel() {
    assert_demo_succeeds("fireteam_queue_demo").await;
}

/// Runs a demo against a server of its own; it must be content.
async fn assert_demo_succeeds(name: &'static str) {
    let Some(demo) = tokio::task::spawn_blocking(|| demo_binary(name)).await.unwrap() else { return };
    let house = TestServer::start().await;
    let target = house.app.server.address.to_string();
    let output = tokio::task::spawn_blocking(move || run_demo(&demo, &target)).await.unwrap();
    assert!(output.status.success(), "{}", output_text(&output));
    assert!(output_text(&output).ends_with("\nok\n"), "{}", output_text(&output));
}
