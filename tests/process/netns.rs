//! A network of the test's own, in which packets are dropped without a word to anybody: the test runs itself again in it.
//! This machine's network is left alone, and the other one goes with its last process.

use std::process::{Command, Stdio};

/// Says that this is the test that runs in a network of its own.
const INSIDE: &str = "APART";

/// An address of this machine at which a Postgres listens that is to be cut off.
pub(crate) const FAR: &str = "127.0.7.1";

/// What was made of it.
pub(crate) enum Apart {
    /// This is inside.
    Inside(Network),
    /// This is outside, and the test has been run inside.
    Told,
    /// It cannot be had here, which has been said.
    Impossible,
}

/// A network with nothing in it but this machine, by as many addresses as one likes.
pub(crate) struct Network(());

/// Runs `story`, which asks, again in a network of its own, unless this is it already.
pub(crate) async fn network(story: &str) -> Apart {
    let within_reach = std::env::var_os("PATH").unwrap_or_default().into_string().expect("text");
    let path = format!("{within_reach}:/usr/sbin:/sbin");
    if std::env::var_os(INSIDE).is_some() {
        return Apart::Inside(Network(()));
    }
    // One that is nobody in particular may be somebody in a world of its own.
    let own: &[&str] = if is_root() { &["--net"] } else { &["--net", "--user", "--map-current-user", "--keep-caps"] };
    let run = |script: &str, arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(own).args(["sh", "-c", script, "sh"]).args(arguments).env("PATH", &path).stdin(Stdio::null());
        command.env(INSIDE, "1").output()
    };
    let tried = run("ip link set lo up && iptables -w -A INPUT -d 127.0.7.1 -j DROP", &[]);
    if !tried.as_ref().is_ok_and(|it| it.status.success()) {
        let why = tried.map_or_else(|error| error.to_string(), |it| String::from_utf8_lossy(&it.stderr).into_owned());
        eprintln!(
            "SKIPPED: no network of its own: {story} did NOT drop packets; install iproute2 and iptables (Debian: \
             apt-get install iproute2 iptables): {}",
            why.trim()
        );
        return Apart::Impossible;
    }
    let _turn = crate::report::turn().await;
    let own = std::env::current_exe().expect("this program").display().to_string();
    let arguments = [&*own, "--exact", story, "--nocapture"];
    let told = run("ip link set lo up && exec \"$@\"", &arguments).expect("it runs");
    print!("{}", String::from_utf8_lossy(&told.stdout));
    eprint!("{}", String::from_utf8_lossy(&told.stderr));
    assert!(told.status.success(), "{story} failed in a network of its own: see above");
    assert!(String::from_utf8_lossy(&told.stdout).contains("1 passed"), "{story} is no test");
    Apart::Told
}

fn is_root() -> bool {
    std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").expect("proc")) == 0
}

impl Network {
    /// From now on what is sent to `FAR`, and what is sent from there, is lost on the way.
    pub(crate) fn cut(&self) {
        for side in ["-d", "-s"] {
            self.filter(&["-A", "INPUT", side, FAR, "-j", "DROP"]);
        }
    }

    /// Everything arrives again.
    pub(crate) fn heal(&self) {
        self.filter(&["-F", "INPUT"]);
    }

    fn filter(&self, rule: &[&str]) {
        let done = Command::new("iptables").arg("-w").args(rule).status().expect("iptables runs");
        assert!(done.success(), "iptables {rule:?}");
    }
}
