//! What is accepted, what is refused, and what the refusal says.

use clap::Parser;

use super::*;

#[derive(Parser)]
struct ServeCommandLine {
    #[command(flatten)]
    flags: ServeFlags,
}

fn parse_flags(line: &[&str]) -> ServeFlags {
    ServeCommandLine::try_parse_from([&["fireteam"], line].concat()).unwrap().flags
}

fn load_config(line: &[&str]) -> Result<Config, Vec<String>> {
    load_with_variables(line, &[])
}

fn load_with_variables(line: &[&str], variables: &[&str]) -> Result<Config, Vec<String>> {
    Config::load(parse_flags(line), variables.iter().map(|it| it.to_string()))
        .map_err(|problems| problems.iter().map(ToString::to_string).collect())
}

/// Loads `text` from a file, with `line` on top.
fn load_config_file(text: &str, line: &[&str]) -> Result<Config, Vec<String>> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("fireteam.toml");
    std::fs::write(&file, text).unwrap();
    load_config(&[&["--config", file.to_str().unwrap()], line].concat())
}

fn error_text(loaded: Result<Config, Vec<String>>) -> String {
    loaded.unwrap_err().join("\n")
}

#[test]
fn config_defaults_match_the_manual() {
    let config = validate::validate_settings(RawSettings::default(), |_| false).unwrap();
    let expected = r#"listen = "127.0.0.1:50051"
operator_listen = "127.0.0.1:50052"
store = "sqlite:fireteam.db"
max_staleness_s = 300
rulesets = "bundled:"
locality_db = []
trusted_proxies = []
proxy_protocol = false
token_key_file = "fireteam.token-key"
match_key_file = "fireteam.match-key.pem"
allow_client_locality = false
allow_search_overrides = false
insecure_allow_plaintext = false
insecure_allow_anonymous = false
log_format = "text"
log_level = "info"
time_to_live_s = 90
reservation_hold_s = 30
keep_retired_rulesets_s = 600
cell_degrees = 1.0
session_cell_degrees = 3.0
max_accuracy_radius_km = 500.0
shutdown_deadline_s = 10
"#;
    assert_eq!(config.to_toml().unwrap(), expected);
    let in_a_clone = validate::validate_settings(RawSettings::default(), |_| true).unwrap();
    assert_eq!(in_a_clone.rulesets, RulesetSource::Directory("rulesets".into()));
    assert_eq!(in_a_clone.geoip_db_files, [PathBuf::from("data/dbip-tour.mmdb")]);
}

#[test]
fn printed_config_loads_as_the_same_config() {
    let everything = [
        "--listen=[::1]:1",
        "--operator-listen=127.0.0.2:0",
        "--store=sqlite:/var/lib/a \"b\".db",
        "--rulesets=rules",
        "--locality-db",
        "a.mmdb",
        "b.mmdb",
        "--trusted-proxies=10.0.0.0/8,fd00::/8",
        "--tls-certificate=c.pem",
        "--tls-key=k.pem",
        "--tls-client-ca=ca.pem",
        "--proxy-protocol",
        "--auth-keys=a.pem,b.json",
        "--auth-issuer=https://login.example",
        "--auth-audience=game",
        "--quotas=client.search=0.5/3/90,anonymous.stream=7",
        "--audit-file=audit.jsonl",
        "--token-key-file=keys",
        "--allow-client-locality",
        "--allow-search-overrides=true",
        "--insecure-allow-plaintext",
        "--insecure-allow-anonymous",
        "--log-format=json",
        "--log-level=info,fireteam=debug",
        "--time-to-live-s=5",
        "--reservation-hold-s=120",
        "--keep-retired-rulesets-s=0",
        "--cell-degrees=0.25",
        "--session-cell-degrees=0",
        "--max-accuracy-radius-km=50",
        "--shutdown-deadline-s=25",
    ];
    for line in [&everything[..], &[], &["--store=memory:", "--rulesets=bundled:"]] {
        let config = load_config(line).unwrap();
        assert_eq!(load_config_file(&config.to_toml().unwrap(), &[]).unwrap(), config);
    }
    assert_eq!(load_config(&everything).unwrap().geoip_db_files.len(), 2);
    assert_eq!(load_config(&everything).unwrap().trusted_proxies.len(), 2);
    let memory = load_config(&["--store=memory:"]).unwrap();
    assert_eq!((memory.token_key_file, memory.match_key_file), (None, None));
}

#[test]
fn config_precedence_is_flags_then_file_then_defaults() {
    let config = load_config_file(
        "time_to_live_s = 7\nreservation_hold_s = 8\nallow_client_locality = true",
        &["--time-to-live-s=9", "--allow-client-locality=false"],
    )
    .unwrap();
    assert_eq!((config.time_to_live_s, config.reservation_hold_s, config.shutdown_deadline_s), (9, 8, 10));
    assert!(!config.allow_client_locality);
}

#[test]
fn unknown_config_key_error_has_source_and_suggestion() {
    let said = error_text(load_config_file("lisen = \"127.0.0.1:1\"\ntime-to-live-s = 9\nzebra = 1", &[]));
    assert!(said.contains("fireteam.toml: unknown key `lisen`, did you mean `listen`?"), "{said}");
    assert!(said.contains("unknown key `time-to-live-s`, did you mean `time_to_live_s`?"), "{said}");
    assert!(said.ends_with("unknown key `zebra`"), "{said}");

    let said = error_text(load_with_variables(&[], &["FIRETEAM_LISEN", "FIRETEAM_LISTEN", "PATH", "FIRETEAM_CONFIG"]));
    assert_eq!(said, "environment: unknown key `FIRETEAM_LISEN`, did you mean `FIRETEAM_LISTEN`?");
}

/// A Kubernetes service called `fireteam` puts these into every pod.
#[test]
fn kubernetes_service_variables_are_ignored() {
    let others = ["FIRETEAM_SERVICE_HOST", "FIRETEAM_PORT", "FIRETEAM_PORT_50051_TCP_ADDR", "FIRETEAM_SHARED_DATA"];
    assert!(load_with_variables(&[], &others).is_ok());
}

#[test]
fn config_errors_are_reported_together_with_fixes() {
    let said = error_text(load_config_file(
        "time_to_live_s = 4\nreservation_hold_s = 121\nstore = \"mysql:x\"",
        &[
            "--cell-degrees=NaN",
            "--session-cell-degrees=11",
            "--max-accuracy-radius-km=-1",
            "--shutdown-deadline-s=0",
            "--keep-retired-rulesets-s=86401",
        ],
    ));
    let expected = "store: `mysql:x` is no store: use sqlite:PATH, postgres://HOST/DATABASE or memory:
time_to_live_s: 4 is out of range: use 5 to 600
reservation_hold_s: 121 is out of range: use 1 to 120
keep_retired_rulesets_s: 86401 is out of range: use 0 to 86400
cell_degrees: NaN is out of range: use 0 to 10
session_cell_degrees: 11 is out of range: use 0 to 10
max_accuracy_radius_km: -1 is out of range: use 0 to 20040
shutdown_deadline_s: 0 is out of range: use 1 to 25";
    assert_eq!(said, expected);
    assert!(error_text(load_config(&["--trusted-proxies=0.0.0.0/0"])).contains("would believe anybody"));
    assert!(error_text(load_config(&["--trusted-proxies=::/0"])).contains("would believe anybody"));
    assert!(
        error_text(load_config(&["--trusted-proxies=::ffff:10.0.0.0/104"])).contains("write it as IPv4, 10.0.0.0/")
    );
    assert!(error_text(load_config(&["--operator-listen=127.0.0.1:50051"])).contains("use another port"));
    assert!(load_config(&["--operator-listen=127.0.0.1:0", "--listen=127.0.0.1:0"]).is_ok());
    assert!(error_text(load_config(&["--store=sqlite:"])).contains("use sqlite:PATH"));
    let shared = "--store=postgres://me:secret@db/a";
    let said = error_text(load_config(&[shared]));
    assert!(said.contains("token_key_file: required with a postgres: store"), "{said}");
    assert!(said.contains("match_key_file: required with a postgres: store"), "{said}");
    let config = load_config(&[shared, "--token-key-file=keys", "--match-key-file=match.pem", "--silos=1,2"]).unwrap();
    assert_eq!(config.silos, Some(vec![1, 2]));
    assert!(!config.to_toml().unwrap().contains("secret"), "what is printed is read by others");
    assert!(error_text(load_config(&["--silos=1"])).contains("only with a postgres: store"));
    assert!(error_text(load_config(&["--tls-certificate=c.pem"])).contains("tls_key: required with tls_certificate"));
    assert!(error_text(load_config(&["--tls-key=k.pem"])).contains("tls_certificate: required with tls_key"));
    assert!(error_text(load_config(&["--tls-client-ca=a.pem"])).contains("tls_client_ca: needs tls_certificate"));
    assert!(error_text(load_config(&["--auth-keys=a.pem"])).contains("auth_issuer: required with auth_keys"));
    assert!(error_text(load_config(&["--auth-issuer=a"])).contains("auth_issuer: needs auth_keys"));
    assert!(
        error_text(load_config(&["--auth-keys=a.pem", "--auth-issuer="]))
            .contains("auth_issuer: must be 1 to 256 bytes")
    );
    assert!(error_text(load_config(&["--proxy-protocol"])).contains("proxy_protocol: needs trusted_proxies"));
    assert!(
        error_text(load_config(&["--config=/nowhere/at/all.toml"])).contains("/nowhere/at/all.toml: cannot be read")
    );
    let said = error_text(load_config_file("listen = 5", &[]));
    assert!(said.contains("fireteam.toml") && said.contains("line 1"), "{said}");
    assert!(error_text(load_config_file("listen = ", &[])).contains("line 1"));
    assert!(error_text(load_config_file(&"#".repeat(70_000), &[])).contains("larger than"));
}

/// SEC-15: each cell of address × operator address × TLS × identity × flags. A port that others can reach needs TLS or a
/// word that it has none, and identities or a word that there are none; for operators that word does not count.
#[test]
fn public_address_requires_tls_and_authentication() {
    let loopback = ["127.0.0.1", "127.9.9.9", "[::1]", "[::ffff:127.0.0.1]"];
    let public = ["0.0.0.0", "192.0.2.1", "10.0.0.1", "[::]", "[2001:db8::1]", "[::ffff:1.2.3.4]"];
    let addresses: Vec<_> = loopback.iter().map(|it| (it, false)).chain(public.iter().map(|it| (it, true))).collect();
    let mut cells = 0;
    for ((listen, exposed), (operator, operator_exposed)) in
        addresses.iter().flat_map(|one| addresses.iter().map(move |other| (*one, *other)))
    {
        for bits in 0..16 {
            let [tls, auth, plaintext, anonymous] = [1, 2, 4, 8].map(|bit| bits & bit != 0);
            let (listen, operator) = (format!("--listen={listen}:1"), format!("--operator-listen={operator}:2"));
            let mut line = vec![listen.as_str(), &operator, "--trusted-proxies=10.0.0.0/8"];
            line.extend([["--tls-certificate=c.pem", "--tls-key=k.pem"]].iter().flatten().filter(|_| tls));
            line.extend([["--auth-keys=a.pem", "--auth-issuer=me"]].iter().flatten().filter(|_| auth));
            line.extend(plaintext.then_some("--insecure-allow-plaintext"));
            line.extend(anonymous.then_some("--insecure-allow-anonymous"));
            let problems = load_config(&line).err().unwrap_or_default();
            let ports = [(exposed, "listen", anonymous), (operator_exposed, "operator_listen", false)];
            let wanted: Vec<_> = ports
                .iter()
                .filter(|(exposed, ..)| *exposed)
                .map(|(_, key, anyone)| (key, tls || plaintext, auth || *anyone))
                .filter(|(_, private, known)| !private || !known)
                .collect();
            assert_eq!(problems.len(), wanted.len(), "{line:?}: {problems:?}");
            for (problem, (key, private, known)) in problems.iter().zip(wanted) {
                assert!(problem.starts_with(&format!("{key} = ")), "{problem}");
                assert_eq!(problem.contains("--tls-certificate FILE and --tls-key FILE"), !private, "{problem}");
                assert_eq!(problem.contains("--insecure-allow-plaintext"), !private, "{problem}");
                assert_eq!(problem.contains("--auth-keys FILE and --auth-issuer TEXT"), !known, "{problem}");
                let may = !known && *key == "listen";
                assert_eq!(problem.contains("--insecure-allow-anonymous"), may, "{problem}");
            }
            cells += 1;
        }
    }
    assert_eq!(cells, 1_600);
}

/// SEC-15, SEC-7: where a balancer ends TLS, its word for where calls come from has to count, and nobody else's.
#[test]
fn public_plaintext_requires_trusted_proxies() {
    let line = ["--listen=0.0.0.0:1", "--insecure-allow-plaintext", "--insecure-allow-anonymous"];
    assert!(error_text(load_config(&line)).contains("trusted_proxies: required with --insecure-allow-plaintext"));
    let config = load_config(&[&line[..], &["--trusted-proxies=10.0.0.0/8"]].concat()).unwrap();
    assert_eq!(config.security_warnings().len(), 2);
    assert!(load_config(&line[1..]).unwrap().security_warnings().is_empty(), "on loopback the flags mean nothing");
}

/// SEC-11: a developer on loopback is not held back; whoever lets strangers in, or asks for it, has quotas.
#[test]
fn rate_limits_apply_to_public_or_authenticated_servers() {
    let rules = |line: &[&str]| load_config(line).unwrap().rate_limit_rules().map(|rules| rules.len());
    let public = [
        "--listen=0.0.0.0:1",
        "--insecure-allow-plaintext",
        "--insecure-allow-anonymous",
        "--trusted-proxies=10.0.0.0/8",
    ];
    let all = Some(QUOTA_DEFAULTS.len());
    assert_eq!(rules(&[]), None);
    assert_eq!(rules(&public), all);
    assert_eq!(rules(&["--auth-keys=a.pem", "--auth-issuer=me"]), all);
    assert_eq!(rules(&["--quotas=client.search=1/1/1"]), all);
    assert_eq!(rules(&[&public[..], &["--quotas=off"]].concat()), None);
    let config = load_config(&["--quotas=client.search=1/2/3,server.stream=4"]).unwrap();
    let written: Vec<String> = config.rate_limit_rules().unwrap().iter().map(ToString::to_string).collect();
    assert!(written.contains(&"client.search=1/2/3".into()) && written.contains(&"server.stream=4".into()));
    assert!(written.contains(&"client.update=1/5/300".into()), "what is not said is as it was: {written:?}");
}
