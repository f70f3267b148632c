//! Passwords of the database: never in an error, the printed configuration, the help or the log.

use std::fs;

use crate::support::server_process::{fireteam_command, run_until_exit};

const PASSWORD: &str = "s3cret-canary";

/// Parts of the password that an output must not have either.
const PARTS: [&str; 2] = ["s3cret", "canary"];

fn assert_hidden(source: &str, output: &str) {
    for part in PARTS {
        assert!(!output.contains(part), "{source}: {output}");
    }
}

/// SEC-15: a mistyped store URL is refused without its password, from a flag, a variable and a file. A valid one is printed
/// without it, however it is written.
#[test]
fn store_url_with_a_mistake_does_not_print_its_password() {
    let folder = tempfile::tempdir().unwrap();
    let keys = ["--token-key-file", "token-key", "--match-key-file", "match-key.pem"];
    let mut outputs = Vec::new();
    for url in [
        format!("postgre://me:{PASSWORD}@db/fireteam"),
        format!("postgres:/me:{PASSWORD}@db/fireteam"),
        format!("postgres//me:{PASSWORD}@db/fireteam"),
        format!(" postgres://me:{PASSWORD}@db/fireteam"),
        format!("Postgres://me:{PASSWORD}@db/fireteam"),
        format!("me:{PASSWORD}@db/fireteam"),
        "postgres://me:s3cret?canary@127.0.0.1:1/fireteam".to_owned(),
        "postgres://me:s3cret/canary@127.0.0.1:1/fireteam".to_owned(),
        "postgres://me:s3cret#canary@127.0.0.1:1/fireteam".to_owned(),
        format!("postgres://me:{PASSWORD}"),
        format!("postgres://127.0.0.1:1/fireteam?PASSWORD={PASSWORD}"),
        format!("postgres://127.0.0.1:1/fireteam?pasword={PASSWORD}"),
    ] {
        let given = [&["--store", &url], &keys[..]].concat();
        let printed = fireteam_command(folder.path(), &[&["serve", "--print-config"], &given[..]].concat()).output();
        outputs.push(printed.unwrap());
        fs::write(folder.path().join("fireteam.toml"), format!("store = \"{url}\"\nsilos = 7\n")).unwrap();
        outputs.push(fireteam_command(folder.path(), &["--config", "fireteam.toml"]).output().unwrap());
        fs::write(folder.path().join("fireteam.toml"), format!("store = \"{url}\n")).unwrap();
        outputs.push(fireteam_command(folder.path(), &["--config", "fireteam.toml"]).output().unwrap());
        let mut help = fireteam_command(folder.path(), &["serve", "--help"]);
        outputs.push(help.env("FIRETEAM_STORE", &url).output().unwrap());
        let listen = ["--listen", &url, "--store", "memory:"];
        outputs.push(fireteam_command(folder.path(), &[&["serve"], &listen[..]].concat()).output().unwrap());
        let refused = run_until_exit(folder.path(), &[&given[..], &["--log-level", "trace"]].concat());
        assert_hidden(&format!("the log for {url}"), &refused.log);
    }
    for output in outputs {
        assert_hidden("standard output", &String::from_utf8(output.stdout).unwrap());
        assert_hidden("standard error", &String::from_utf8(output.stderr).unwrap());
    }
}
