//! Network namespaces of tests: a test runs itself again in a process inside one. This machine's own network is not changed,
//! and a namespace ends with its last process.

use std::process::{Command, Output, Stdio};

/// Variable that tells a test that it runs inside its namespace.
const INSIDE: &str = "TEST_NETNS";

/// Whether this process runs inside a namespace that `run_test_inside` has made.
pub(crate) fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Makes a namespace with a loopback interface and runs the shell script `setup` in it, as a trial. Returns the reason if this
/// machine cannot do so.
pub(crate) fn try_setup(setup: &str) -> Result<(), String> {
    match run_inside(setup, &[]) {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Runs the test `test_name` of this program in a new namespace after the shell script `setup`, and prints its output. Panics
/// if it fails.
pub(crate) fn run_test_inside(setup: &str, test_name: &str) {
    let program = std::env::current_exe().expect("this program").display().to_string();
    let script = format!("{setup} && exec \"$@\"");
    let output = run_inside(&script, &[&*program, "--exact", test_name, "--nocapture"]).expect("the test runs");
    print!("{}", String::from_utf8_lossy(&output.stdout));
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{test_name} failed in the network namespace: see above");
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "no test is named {test_name}");
}

fn run_inside(script: &str, arguments: &[&str]) -> std::io::Result<Output> {
    let search_path = std::env::var_os("PATH").unwrap_or_default().into_string().expect("text");
    // A user without privileges needs a user namespace too.
    let namespaces: &[&str] =
        if is_root() { &["--net"] } else { &["--net", "--user", "--map-current-user", "--keep-caps"] };
    let script = format!("ip link set lo up && {script}");
    let mut command = Command::new("unshare");
    command.args(namespaces).args(["sh", "-c", &script, "sh"]).args(arguments);
    command.env("PATH", format!("{search_path}:/usr/sbin:/sbin")).env(INSIDE, "1").stdin(Stdio::null()).output()
}

fn is_root() -> bool {
    std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").expect("proc")) == 0
}
