//! Network namespace in which packets can be dropped silently: the test runs itself again inside it. This machine's own
//! network is not changed, and the namespace ends with its last process.

use std::process::{Command, Stdio};

/// Variable that tells the test that it runs inside the namespace.
const INSIDE: &str = "TEST_NETNS";

/// Loopback address of a Postgres whose packets can be dropped.
pub(crate) const REMOTE_ADDRESS: &str = "127.0.7.1";

/// Result of `enter_netns`.
pub(crate) enum NetnsRun {
    /// This process runs inside the namespace.
    Inside(Netns),
    /// This process runs outside, and has run the test inside to its end.
    RanInside,
    /// This machine cannot create a namespace. The skip has been printed.
    Unavailable,
}

/// A network namespace that has only a loopback interface.
pub(crate) struct Netns(());

/// Runs `test_name`, the calling test, again in a network namespace, unless this process is inside one already.
pub(crate) async fn enter_netns(test_name: &str) -> NetnsRun {
    let search_path = std::env::var_os("PATH").unwrap_or_default().into_string().expect("text");
    let path = format!("{search_path}:/usr/sbin:/sbin");
    if std::env::var_os(INSIDE).is_some() {
        return NetnsRun::Inside(Netns(()));
    }
    // A user without privileges needs a user namespace too.
    let namespaces: &[&str] =
        if is_root() { &["--net"] } else { &["--net", "--user", "--map-current-user", "--keep-caps"] };
    let run = |script: &str, arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(namespaces).args(["sh", "-c", script, "sh"]).args(arguments);
        command.env("PATH", &path).stdin(Stdio::null()).env(INSIDE, "1").output()
    };
    let attempt = run("ip link set lo up && iptables -w -A INPUT -d 127.0.7.1 -j DROP", &[]);
    if !attempt.as_ref().is_ok_and(|it| it.status.success()) {
        let error =
            attempt.map_or_else(|error| error.to_string(), |it| String::from_utf8_lossy(&it.stderr).into_owned());
        eprintln!(
            "SKIPPED: no network namespace: {test_name} did NOT drop packets; install iproute2 and iptables (Debian: \
             apt-get install iproute2 iptables): {}",
            error.trim()
        );
        return NetnsRun::Unavailable;
    }
    let _machine_lock = crate::report::lock_machine().await;
    let program = std::env::current_exe().expect("this program").display().to_string();
    let arguments = [&*program, "--exact", test_name, "--nocapture"];
    let output = run("ip link set lo up && exec \"$@\"", &arguments).expect("the test runs");
    print!("{}", String::from_utf8_lossy(&output.stdout));
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{test_name} failed in the network namespace: see above");
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "no test is named {test_name}");
    NetnsRun::RanInside
}

fn is_root() -> bool {
    std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").expect("proc")) == 0
}

impl Netns {
    /// Drops packets to and from `REMOTE_ADDRESS` from now on.
    pub(crate) fn drop_packets(&self) {
        for side in ["-d", "-s"] {
            self.iptables(&["-A", "INPUT", side, REMOTE_ADDRESS, "-j", "DROP"]);
        }
    }

    /// Delivers all packets again.
    pub(crate) fn restore(&self) {
        self.iptables(&["-F", "INPUT"]);
    }

    fn iptables(&self, rule: &[&str]) {
        let status = Command::new("iptables").arg("-w").args(rule).status().expect("iptables runs");
        assert!(status.success(), "iptables {rule:?}");
    }
}
