//! Network namespace in which packets can be dropped silently: the test runs itself again inside it.

use std::process::Command;

use crate::support::network_namespace;

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
    if network_namespace::is_inside() {
        return NetnsRun::Inside(Netns(()));
    }
    if let Err(error) = network_namespace::try_setup("iptables -w -A INPUT -d 127.0.7.1 -j DROP") {
        eprintln!(
            "SKIPPED: no network namespace: {test_name} did NOT drop packets; install iproute2 and iptables (Debian: \
             apt-get install iproute2 iptables): {error}"
        );
        return NetnsRun::Unavailable;
    }
    let _machine_lock = crate::report::lock_machine().await;
    network_namespace::run_test_inside("true", test_name);
    NetnsRun::RanInside
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
