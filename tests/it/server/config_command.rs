//! The fireteam command as a process: sources of settings, and the exit code of each refusal.

use std::process::{Command, Output};

/// Arguments, environment variables, and the expected text on standard error.
type RefusalCase<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], &'a str);

struct CommandOutput {
    exit_code: i32,
    stdout: String,
    stderr: String,
}

/// Runs the binary in an empty directory, without `FIRETEAM_` variables except `variables`.
fn run_in_empty_folder(arguments: &[&str], variables: &[(&str, &str)]) -> CommandOutput {
    let folder = tempfile::tempdir().unwrap();
    run_in_folder(folder.path(), arguments, variables)
}

fn run_in_folder(folder: &std::path::Path, arguments: &[&str], variables: &[(&str, &str)]) -> CommandOutput {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fireteam"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FIRETEAM_") {
            command.env_remove(name);
        }
    }
    let Output { status, stdout, stderr } =
        command.current_dir(folder).args(arguments).envs(variables.iter().copied()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    CommandOutput { exit_code: status.code().unwrap(), stdout: text(stdout), stderr: text(stderr) }
}

fn printed_value(run: &CommandOutput, key: &str) -> String {
    assert_eq!(run.exit_code, 0, "{}", run.stderr);
    let table: toml::Table = run.stdout.parse().unwrap();
    table[key].to_string()
}

#[test]
fn configuration_flags_override_variables_and_variables_override_the_file() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("f.toml"),
        "advertisement_ttl_s = 6\nreservation_ttl_s = 6\nshutdown_grace_period_s = 6",
    )
    .unwrap();
    let variables =
        [("FIRETEAM_ADVERTISEMENT_TTL_S", "7"), ("FIRETEAM_RESERVATION_TTL_S", "7"), ("FIRETEAM_CONFIG", "f.toml")];
    let run = run_in_folder(folder.path(), &["--print-config", "--advertisement-ttl-s", "8"], &variables);
    let values = ["advertisement_ttl_s", "reservation_ttl_s", "shutdown_grace_period_s", "ruleset_retention_s"];
    assert_eq!(values.map(|key| printed_value(&run, key)), ["8", "7", "6", "600"]);
}

#[test]
fn configuration_variables_accept_lists_and_switches() {
    let variables = [
        ("FIRETEAM_GEOIP_DB", "a.mmdb,b.mmdb"),
        ("FIRETEAM_TRUSTED_PROXIES", "10.0.0.0/8,fd00::/8"),
        ("FIRETEAM_ALLOW_CLIENT_LOCALITY", "true"),
        ("FIRETEAM_SERVICE_HOST", "10.0.0.1"),
    ];
    let run = run_in_empty_folder(&["serve", "--print-config"], &variables);
    assert_eq!(printed_value(&run, "geoip_db"), r#"["a.mmdb", "b.mmdb"]"#);
    assert_eq!(printed_value(&run, "trusted_proxies"), r#"["10.0.0.0/8", "fd00::/8"]"#);
    assert_eq!(printed_value(&run, "allow_client_locality"), "true");
}

/// Defaults depend on the files of a clone; an empty directory has none of them.
#[test]
fn configuration_defaults_depend_on_existing_files() {
    let empty = run_in_empty_folder(&["--print-config"], &[]);
    assert_eq!(
        (printed_value(&empty, "rulesets"), printed_value(&empty, "geoip_db")),
        (r#""bundled:""#.into(), "[]".into())
    );
    let clone = run_in_folder(env!("CARGO_MANIFEST_DIR").as_ref(), &["--print-config"], &[]);
    assert_eq!(printed_value(&clone, "geoip_db"), r#"["data/dbip-tour.mmdb"]"#);
}

/// SEC-15: an unsafe or invalid configuration exits with code 2 and names the flags, before any file is created.
#[test]
fn unsafe_or_invalid_configuration_exits_with_code_2() {
    let cases: [RefusalCase; 10] = [
        (&["--listen", "0.0.0.0:50051"], &[], "or --insecure-allow-plaintext where a load balancer ends TLS"),
        (
            &["--operator-listen=[::]:1", "--insecure-allow-plaintext"],
            &[],
            "give --auth-keys FILE and --auth-issuer TEXT",
        ),
        (&[], &[("FIRETEAM_LISTEN", "192.0.2.1:1")], "listen = 192.0.2.1:1 can be reached from outside"),
        (&[], &[("FIRETEAM_LISEN", "x")], "unknown key `FIRETEAM_LISEN`; did you mean `FIRETEAM_LISTEN`?"),
        (&[], &[("FIRETEAM_ADVERTISEMENT_TTL_S", "soon")], "invalid value 'soon' for '--advertisement-ttl-s"),
        (&["--advertisement-ttl-s=1"], &[], "advertisement_ttl_s: 1 is out of range; use 5 to 600"),
        (&["--config=absent.toml"], &[], "absent.toml: cannot be read"),
        (&["--rate-limits=client.search=fast"], &[], "write PER_SECOND/BURST/PER_5_MIN, such as 2/10/300"),
        (&["--log-level=loud"], &[], "unknown log level `loud`"),
        (&["--lisen=127.0.0.1:1"], &[], "--listen"),
    ];
    for (arguments, variables, expected) in cases {
        let folder = tempfile::tempdir().unwrap();
        let run = run_in_folder(folder.path(), arguments, variables);
        assert_eq!(run.exit_code, 2, "{arguments:?}: {}", run.stderr);
        assert!(run.stderr.contains(expected), "{arguments:?}: {}", run.stderr);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "no file was created");
    }
}

#[test]
fn help_and_version_are_printed() {
    let help = run_in_empty_folder(&["--help"], &[]);
    assert_eq!(help.exit_code, 0);
    for word in ["--geoip-db", "--insecure-allow-plaintext", "FIRETEAM_STORE", "check", "health", "Exit codes"] {
        assert!(help.stdout.contains(word), "{word}");
    }
    assert!(run_in_empty_folder(&["--version"], &[]).stdout.starts_with("fireteam "));
    assert_eq!(run_in_empty_folder(&["check"], &[]).exit_code, 2);
}

/// No server listens on this port of this loopback address.
#[test]
fn health_command_without_a_server_exits_with_code_1() {
    let run = run_in_empty_folder(&["health", "--address", "127.77.77.77:1"], &[]);
    assert_eq!(run.exit_code, 1);
    assert!(run.stderr.contains("127.77.77.77:1"), "{}", run.stderr);
}
