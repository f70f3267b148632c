//! Texts of startup and command errors: each names the thing that is wrong, states a cause once, and holds no secret.

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use crate::support::server_process::{ServerProcess, fireteam_command, run_until_exit};

/// Standard output and standard error of a command that fails.
fn failing_output(folder: &Path, arguments: &[&str]) -> String {
    let output = fireteam_command(folder, arguments).output().unwrap();
    assert!(!output.status.success(), "{arguments:?}");
    [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat()
}

/// Error line of a server that does not start.
fn startup_error(folder: &Path, arguments: &[&str]) -> String {
    let ended = run_until_exit(folder, arguments);
    assert_ne!(ended.exit_code, Some(0), "{}", ended.log);
    let errors: Vec<&str> = ended.log.lines().filter(|line| !line.contains(" INFO ")).collect();
    errors.join("\n")
}

#[test]
fn startup_error_names_the_missing_folder_of_the_sqlite_file() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}/missing/fireteam.db", folder.path().display());
    let error = startup_error(folder.path(), &["--store", &store]);
    assert!(error.contains(&format!("the folder {}/missing does not exist", folder.path().display())), "{error}");
    assert!(error.contains("create it") && !error.contains("key file"), "{error}");
    fs::create_dir(folder.path().join("missing")).unwrap();
    ServerProcess::start(folder.path(), &["--store", &store]).kill();
}

/// A host name is resolved for both ports; the server listens at the first of its addresses that can be bound.
#[tokio::test]
async fn listen_address_may_be_a_host_name() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["--listen", "localhost:0", "--operator-listen", "localhost:0", "--store", "memory:"];
    let server = ServerProcess::start_without_ports(folder.path(), &names);
    for address in [server.address, server.operator_address] {
        assert!(address.ip().is_loopback() && address.port() != 0, "{address}");
        assert!(fireteam::server::run::check_remote_health(address, None).await.unwrap());
        let health = ["health", "--address", &format!("localhost:{}", address.port())];
        assert!(fireteam_command(folder.path(), &health).status().unwrap().success());
    }
}

#[test]
fn listen_address_error_names_the_host() {
    let folder = tempfile::tempdir().unwrap();
    for (address, expected) in [
        ("no-such-host.invalid:1", "host `no-such-host.invalid` cannot be resolved"),
        ("localhost", "`localhost` has no port; use HOST:PORT, such as 127.0.0.1:50051"),
        ("localhost:70000", "port `70000` is not a number from 0 to 65535"),
    ] {
        let error = failing_output(folder.path(), &["serve", "--store", "memory:", "--listen", address]);
        assert!(error.contains(expected), "{error}");
    }
    let error = failing_output(folder.path(), &["serve", "--listen=localhost:7", "--operator-listen=127.0.0.1:7"]);
    assert!(error.contains("use another port"), "{error}");
}

#[test]
fn startup_error_names_host_and_port_of_the_database_without_its_password() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let keys = ["--token-key-file", "token-key", "--match-key-file", "match-key.pem"];
    for (host, expected) in [
        (format!("127.0.0.1:{port}"), format!("postgres at 127.0.0.1:{port}")),
        ("no-such-host.invalid:6543".into(), "postgres at no-such-host.invalid:6543".into()),
        ("no-such-host.invalid".into(), "postgres at no-such-host.invalid:5432".into()),
    ] {
        let store = format!("postgres://me:s3cret-canary@{host}/none");
        let error = startup_error(folder.path(), &[&["--store", &store, "--store-wait-s", "0"], &keys[..]].concat());
        assert!(error.contains(&expected), "{error}");
        assert!(!error.contains("s3cret-canary"), "{error}");
    }
}

/// Each error of the operating system is printed once, by the server and by the commands.
#[test]
fn error_of_the_operating_system_is_printed_once() {
    let folder = tempfile::tempdir().unwrap();
    let issuer = ["--auth-issuer", "studio"];
    for flags in [
        &["--geoip-db", "missing"][..],
        &["--tls-certificate", "missing", "--tls-key", "missing"],
        &["--auth-keys", "missing", issuer[0], issuer[1]],
        &["--audit-log-file", "missing/log"],
        &["--token-key-file", "missing/key"],
        &["--match-key-file", "missing/key"],
        &["--rulesets", "missing"],
        &["--store", "postgres://127.0.0.1:1/none", "--store-wait-s=0", "--token-key-file=a", "--match-key-file=b"],
    ] {
        let error = startup_error(folder.path(), flags);
        assert_eq!(error.matches("(os error ").count(), 1, "{flags:?}: {error}");
    }
    for command in [
        &["serve", "--config", "missing"][..],
        &["check", "missing"],
        &["health", "--address", "127.0.0.1:1"],
        &["health", "--address", "127.0.0.1:1", "--ca", "missing"],
        &["token", "--key", "missing", "--issuer", "studio", "--subject", "ada"],
        &["backtest", "missing"],
        &["backtest", "missing", "--ruleset", "missing"],
        &["simulate", "missing"],
        &["import-ratings", "missing", "--set", "1"],
        &["export-matches", "--ca", "missing", "--operator", "https://127.0.0.1:1"],
        &["export-matches", "--operator", "http://127.0.0.1:1"],
    ] {
        let error = failing_output(folder.path(), command);
        assert_eq!(error.matches("(os error ").count(), 1, "{command:?}: {error}");
    }
}

/// `fireteam check` prints each problem once: a line that editors link to, then the marked source.
#[test]
fn check_command_prints_each_problem_once() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.xml"), "<Ruleset Name=\"A\" SetId=\"1\">\n  <Foo/>\n</Ruleset>\n").unwrap();
    let output = failing_output(folder.path(), &["check", "a.xml"]);
    assert_eq!(output.matches("has no child element `Foo`").count(), 1, "{output}");
    assert_eq!(output.matches("a.xml").count(), 1, "{output}");
    assert!(output.starts_with("a.xml:2:4: <Ruleset> has no child element `Foo`; use "), "{output}");
    assert!(output.contains("2 |   <Foo/>\n  |    ^^^\n"), "{output}");
    assert!(output.ends_with("\n1 problem\n"), "{output}");
}
