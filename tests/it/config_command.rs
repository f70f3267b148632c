//! The command as a process: where settings come from, and the exit code of every refusal.

use std::process::{Command, Output};

/// Arguments, variables, and what standard error says.
type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], &'a str);

struct Run {
    code: i32,
    out: String,
    err: String,
}

/// Runs the server's binary in an empty folder, without any of our variables but those given.
fn run(arguments: &[&str], variables: &[(&str, &str)]) -> Run {
    let folder = tempfile::tempdir().unwrap();
    run_in(folder.path(), arguments, variables)
}

fn run_in(folder: &std::path::Path, arguments: &[&str], variables: &[(&str, &str)]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fireteam"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FIRETEAM_") {
            command.env_remove(name);
        }
    }
    let Output { status, stdout, stderr } =
        command.current_dir(folder).args(arguments).envs(variables.iter().copied()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Run { code: status.code().unwrap(), out: text(stdout), err: text(stderr) }
}

fn printed(run: &Run, key: &str) -> String {
    assert_eq!(run.code, 0, "{}", run.err);
    let table: toml::Table = run.out.parse().unwrap();
    table[key].to_string()
}

#[test]
fn flags_beat_variables_and_variables_beat_the_file() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("f.toml"), "time_to_live_s = 6\nreservation_hold_s = 6\nshutdown_deadline_s = 6")
        .unwrap();
    let variables =
        [("FIRETEAM_TIME_TO_LIVE_S", "7"), ("FIRETEAM_RESERVATION_HOLD_S", "7"), ("FIRETEAM_CONFIG", "f.toml")];
    let run = run_in(folder.path(), &["--print-config", "--time-to-live-s", "8"], &variables);
    let values = ["time_to_live_s", "reservation_hold_s", "shutdown_deadline_s", "keep_retired_rulesets_s"];
    assert_eq!(values.map(|key| printed(&run, key)), ["8", "7", "6", "600"]);
}

#[test]
fn lists_and_switches_come_from_variables_too() {
    let variables = [
        ("FIRETEAM_LOCALITY_DB", "a.mmdb,b.mmdb"),
        ("FIRETEAM_TRUSTED_PROXIES", "10.0.0.0/8,fd00::/8"),
        ("FIRETEAM_ALLOW_CLIENT_LOCALITY", "true"),
        ("FIRETEAM_SERVICE_HOST", "10.0.0.1"),
    ];
    let run = run(&["serve", "--print-config"], &variables);
    assert_eq!(printed(&run, "locality_db"), r#"["a.mmdb", "b.mmdb"]"#);
    assert_eq!(printed(&run, "trusted_proxies"), r#"["10.0.0.0/8", "fd00::/8"]"#);
    assert_eq!(printed(&run, "allow_client_locality"), "true");
}

/// The defaults look for what a clone has; an empty folder has none of it.
#[test]
fn defaults_depend_on_what_is_there() {
    let empty = run(&["--print-config"], &[]);
    assert_eq!((printed(&empty, "rulesets"), printed(&empty, "locality_db")), (r#""bundled:""#.into(), "[]".into()));
    let clone = run_in(env!("CARGO_MANIFEST_DIR").as_ref(), &["--print-config"], &[]);
    assert_eq!(printed(&clone, "locality_db"), r#"["data/dbip-tour.mmdb"]"#);
}

/// SEC-15: unsafe cells exit with 2 and name the exact flags, before anything is opened.
#[test]
fn what_is_unsafe_or_wrong_ends_with_code_two() {
    let cases: [Case; 10] = [
        (&["--listen", "0.0.0.0:50051"], &[], "or --insecure-allow-plaintext where a balancer ends TLS"),
        (
            &["--operator-listen=[::]:1", "--insecure-allow-plaintext"],
            &[],
            "give --auth-keys FILE and --auth-issuer TEXT",
        ),
        (&[], &[("FIRETEAM_LISTEN", "192.0.2.1:1")], "listen = 192.0.2.1:1 can be reached from outside"),
        (&[], &[("FIRETEAM_LISEN", "x")], "unknown key `FIRETEAM_LISEN`, did you mean `FIRETEAM_LISTEN`?"),
        (&[], &[("FIRETEAM_TIME_TO_LIVE_S", "soon")], "invalid value 'soon' for '--time-to-live-s"),
        (&["--time-to-live-s=1"], &[], "time_to_live_s: 1 is out of range: use 5 to 600"),
        (&["--config=absent.toml"], &[], "absent.toml: cannot be read"),
        (&["--quotas=client.search=fast"], &[], "write PER_SECOND/BURST/PER_5_MIN, such as 2/10/300"),
        (&["--log-level=loud"], &[], "log level `loud` is not known"),
        (&["--lisen=127.0.0.1:1"], &[], "--listen"),
    ];
    for (arguments, variables, expected) in cases {
        let folder = tempfile::tempdir().unwrap();
        let run = run_in(folder.path(), arguments, variables);
        assert_eq!(run.code, 2, "{arguments:?}: {}", run.err);
        assert!(run.err.contains(expected), "{arguments:?}: {}", run.err);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was made");
    }
}

#[test]
fn help_and_version_are_there() {
    let help = run(&["--help"], &[]);
    assert_eq!(help.code, 0);
    for word in ["--locality-db", "--insecure-allow-plaintext", "FIRETEAM_STORE", "check", "health", "Exit codes"] {
        assert!(help.out.contains(word), "{word}");
    }
    assert!(run(&["--version"], &[]).out.starts_with("fireteam "));
    assert_eq!(run(&["check"], &[]).code, 2);
}

/// Nobody listens on this port of this loopback address.
#[test]
fn health_of_nobody_is_code_one() {
    let run = run(&["health", "--address", "127.77.77.77:1"], &[]);
    assert_eq!(run.code, 1);
    assert!(run.err.contains("127.77.77.77:1"), "{}", run.err);
}
