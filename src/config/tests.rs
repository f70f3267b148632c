//! Configuration tests: accepted settings, rejected settings, and error messages.

use std::path::Path;

use clap::Parser;

use super::raw::{RawSettings, ServeFlags};
use super::*;

#[derive(Parser)]
struct ServeCommandLine {
    #[command(flatten)]
    flags: ServeFlags,
}

fn parse_flags(arguments: &[&str]) -> ServeFlags {
    ServeCommandLine::try_parse_from([&["fireteam"], arguments].concat()).unwrap().flags
}

fn load_config(arguments: &[&str]) -> Result<Config, Vec<String>> {
    load_with_variables(arguments, &[])
}

fn load_with_variables(arguments: &[&str], variables: &[&str]) -> Result<Config, Vec<String>> {
    Config::load(parse_flags(arguments), variables.iter().map(|name| name.to_string()))
        .map_err(|errors| errors.iter().map(ToString::to_string).collect())
}

/// Loads `text` from a file, with `arguments` as flags.
fn load_config_file(text: &str, arguments: &[&str]) -> Result<Config, Vec<String>> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("fireteam.toml");
    std::fs::write(&file, text).unwrap();
    load_config(&[&["--config", file.to_str().unwrap()], arguments].concat())
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
store_wait_s = 30
max_silos = 1024
max_silos_per_user = 8
max_advertisements_per_client = 1
max_advertisements_per_server = 1000
max_reservations_per_client = 1
max_tickets_per_user = 4
max_staleness_s = 300
rulesets = "bundled:"
geoip_db = []
trusted_proxies = []
proxy_protocol = false
audit_log_max_mib = 64
audit_log_max_files = 100
token_key_file = "fireteam.token-key"
match_key_file = "fireteam.match-key.pem"
user_key_file = "fireteam.user-key"
erasure_log_file = "fireteam.erasures"
receipt_prefix = "place"
observe_tcp = true
allow_client_locality = false
allow_search_overrides = false
insecure_allow_plaintext = false
insecure_allow_anonymous = false
log_format = "text"
log_level = "info"
log_max_kib_per_minute = 768
otlp_sample_ratio = 0.01
disk_free_warning_mib = 512
advertisement_ttl_s = 90
reservation_ttl_s = 30
ruleset_retention_s = 600
ruleset_removal_grace_s = 600
location_grid_degrees = 1.0
session_location_grid_degrees = 3.0
geoip_max_accuracy_radius_km = 500.0
shutdown_grace_period_s = 10
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
        "--geoip-db",
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
        "--rate-limits=client.search=0.5/3/90,anonymous.stream=7",
        "--audit-log-file=audit.jsonl",
        "--token-key-file=keys",
        "--user-key-file=secret",
        "--beacon-fleet-key-file=fleet keys",
        "--receipt-prefix=strict",
        "--beacon-listen=[::]:7777",
        "--beacon-id=4294967295",
        "--beacon-region=us east",
        "--beacon-place=-33.9/-151.25",
        "--beacon-announce-address=2001:db8::7",
        "--beacon-packets-per-second=1000000",
        "--rating-retention-days=365",
        "--pass-failure-dir=failed passes",
        "--allow-client-locality",
        "--allow-search-overrides=true",
        "--insecure-allow-plaintext",
        "--insecure-allow-anonymous",
        "--log-format=json",
        "--log-level=info,fireteam=debug",
        "--advertisement-ttl-s=5",
        "--reservation-ttl-s=120",
        "--ruleset-retention-s=0",
        "--location-grid-degrees=0.25",
        "--session-location-grid-degrees=0",
        "--region-places=eu=50.1/8.7,us east=39/-77.5",
        "--geoip-max-accuracy-radius-km=50",
        "--shutdown-grace-period-s=25",
    ];
    for arguments in [&everything[..], &[], &["--store=memory:", "--rulesets=bundled:"]] {
        let config = load_config(arguments).unwrap();
        assert_eq!(load_config_file(&config.to_toml().unwrap(), &[]).unwrap(), config);
    }
    assert_eq!(load_config(&everything).unwrap().geoip_db_files.len(), 2);
    assert_eq!(load_config(&everything).unwrap().trusted_proxies.len(), 2);
    let memory = load_config(&["--store=memory:"]).unwrap();
    assert_eq!((memory.token_key_file, memory.match_key_file, memory.user_key_file), (None, None, None));
    assert_eq!(memory.erasure_log_file, None);
}

#[test]
fn config_precedence_is_flags_then_file_then_defaults() {
    let config = load_config_file(
        "advertisement_ttl_s = 7\nreservation_ttl_s = 8\nallow_client_locality = true",
        &["--advertisement-ttl-s=9", "--allow-client-locality=false"],
    )
    .unwrap();
    assert_eq!((config.advertisement_ttl_s, config.reservation_ttl_s, config.shutdown_grace_period_s), (9, 8, 10));
    assert!(!config.allow_client_locality);
}

#[test]
fn unknown_config_key_error_has_source_and_suggestion() {
    let message = error_text(load_config_file("lisen = \"127.0.0.1:1\"\nadvertisement-ttl-s = 9\nzebra = 1", &[]));
    assert!(message.contains("fireteam.toml: unknown key `lisen`; did you mean `listen`?"), "{message}");
    assert!(message.contains("unknown key `advertisement-ttl-s`; did you mean `advertisement_ttl_s`?"), "{message}");
    assert!(message.ends_with("unknown key `zebra`; remove it"), "{message}");

    let message =
        error_text(load_with_variables(&[], &["FIRETEAM_LISEN", "FIRETEAM_LISTEN", "PATH", "FIRETEAM_CONFIG"]));
    assert_eq!(message, "environment: unknown key `FIRETEAM_LISEN`; did you mean `FIRETEAM_LISTEN`?");
}

/// Kubernetes sets these variables in each pod if a service is named `fireteam`.
#[test]
fn kubernetes_service_variables_are_ignored() {
    let foreign_variables =
        ["FIRETEAM_SERVICE_HOST", "FIRETEAM_PORT", "FIRETEAM_PORT_50051_TCP_ADDR", "FIRETEAM_SHARED_DATA"];
    assert!(load_with_variables(&[], &foreign_variables).is_ok());
}

#[test]
fn config_errors_are_reported_together_with_fixes() {
    let message = error_text(load_config_file(
        "advertisement_ttl_s = 4\nreservation_ttl_s = 121\nstore = \"mysql:x\"",
        &[
            "--location-grid-degrees=NaN",
            "--session-location-grid-degrees=11",
            "--geoip-max-accuracy-radius-km=-1",
            "--shutdown-grace-period-s=0",
            "--ruleset-retention-s=86401",
            "--ruleset-removal-grace-s=86402",
        ],
    ));
    let expected = "store: the text is not a store; use sqlite:PATH, postgres://HOST/DATABASE or memory:
advertisement_ttl_s: 4 is out of range; use 5 to 600
reservation_ttl_s: 121 is out of range; use 1 to 120
ruleset_retention_s: 86401 is out of range; use 0 to 86400
ruleset_removal_grace_s: 86402 is out of range; use 0 to 86400
location_grid_degrees: NaN is out of range; use 0 to 10
session_location_grid_degrees: 11 is out of range; use 0 to 10
geoip_max_accuracy_radius_km: -1 is out of range; use 0 to 20040
shutdown_grace_period_s: 0 is out of range; use 1 to 25";
    assert_eq!(message, expected);
    assert!(error_text(load_config(&["--trusted-proxies=0.0.0.0/0"])).contains("contains all addresses"));
    assert!(error_text(load_config(&["--trusted-proxies=::/0"])).contains("contains all addresses"));
    assert!(
        error_text(load_config(&["--trusted-proxies=::ffff:10.0.0.0/104"])).contains("write it as IPv4, 10.0.0.0/")
    );
    assert!(error_text(load_config(&["--operator-listen=127.0.0.1:50051"])).contains("use another port"));
    assert!(load_config(&["--operator-listen=127.0.0.1:0", "--listen=127.0.0.1:0"]).is_ok());
    assert!(error_text(load_config(&["--store=sqlite:"])).contains("use sqlite:PATH"));
    let postgres_store = "--store=postgres://me:secret@db/a";
    let message = error_text(load_config(&[postgres_store]));
    assert!(message.contains("token_key_file: required with a postgres: store"), "{message}");
    assert!(message.contains("match_key_file: required with a postgres: store"), "{message}");
    let config =
        load_config(&[postgres_store, "--token-key-file=keys", "--match-key-file=match.pem", "--silos=1,2"]).unwrap();
    assert_eq!(config.silos, Some(vec![1, 2]));
    assert!(!config.to_toml().unwrap().contains("secret"), "a printed configuration must not contain the password");
    assert!(error_text(load_config(&["--silos=1"])).contains("only valid with a postgres: store"));
    assert!(error_text(load_config(&["--tls-certificate=c.pem"])).contains("tls_key: required with tls_certificate"));
    assert!(error_text(load_config(&["--tls-key=k.pem"])).contains("tls_certificate: required with tls_key"));
    assert!(error_text(load_config(&["--tls-client-ca=a.pem"])).contains("tls_client_ca: needs tls_certificate"));
    assert!(error_text(load_config(&["--auth-keys=a.pem"])).contains("auth_issuer: required with auth_keys"));
    assert!(error_text(load_config(&["--auth-issuer=a"])).contains("auth_issuer: needs auth_keys"));
    assert!(
        error_text(load_config(&["--auth-keys=a.pem", "--auth-issuer="]))
            .contains("auth_issuer: not valid; give 1 to 256 bytes")
    );
    assert!(error_text(load_config(&["--proxy-protocol"])).contains("proxy_protocol: needs trusted_proxies"));
    assert!(
        error_text(load_config(&["--config=/nowhere/at/all.toml"])).contains("/nowhere/at/all.toml: cannot be read")
    );
    let message = error_text(load_config_file("listen = 5", &[]));
    assert!(message.contains("fireteam.toml") && message.contains("line 1"), "{message}");
    assert!(error_text(load_config_file("listen = ", &[])).contains("line 1"));
    assert!(error_text(load_config_file(&"#".repeat(70_000), &[])).contains("larger than"));
}

/// An origin that no browser would send, or that would allow more than it says, is refused.
#[test]
fn cors_origins_are_scheme_host_and_port() {
    let flag = |origin: &str| format!("--cors-origins={origin}");
    for valid in ["https://game.example", "http://localhost:8080", "http://[::1]:8080", "capacitor://localhost", "*"] {
        assert_eq!(load_config(&[&flag(valid)]).unwrap().cors_origins, [valid]);
    }
    assert_eq!(load_config(&["--cors-origins=HTTPS://Game.Example"]).unwrap().cors_origins, ["https://game.example"]);
    for invalid in [
        "game.example",
        "https://game.example/",
        "https://*.example",
        "https://game.example:443",
        "https://game.example:0x1",
        "https://user@game.example",
        "https://",
        "null",
        "http://[::1",
        "https://a b",
    ] {
        let message = error_text(load_config(&[&flag(invalid)]));
        assert!(
            message.contains(&format!("cors_origins: `{invalid}` is no origin; give scheme and host")),
            "{message}"
        );
    }
    let message = error_text(load_config(&["--cors-origins=*,https://game.example"]));
    assert!(message.contains("cors_origins: `*` allows all origins; give it alone"), "{message}");
    let many = vec!["https://game.example"; 65].join(",");
    assert!(
        error_text(load_config(&[&flag(&many)])).contains("cors_origins: 65 origins are too many; give at most 64")
    );
}

/// SEC-4: keys that are limited to unknown roles, and issuers that could sign for players of each other, are refused.
#[test]
fn auth_issuer_errors_say_what_to_write() {
    let auth = ["--auth-keys=client=a.pem", "--auth-issuer=game"];
    for (setting, problem) in [
        (
            "--auth-keys=player=a.pem",
            "auth_keys: `player` is not a role; write ROLE=FILE or ROLE+ROLE=FILE with client,",
        ),
        ("--auth-keys=operator=", "auth_keys: `operator=` names no file"),
        ("--auth-issuers=studio ops", "auth_issuers: `studio ops` is not an issuer; write"),
        ("--auth-issuers=tls ops operator=b.pem", "auth_issuers: `tls` is reserved"),
        ("--auth-issuers=studio ops b.pem", "`game` and `studio` both sign for `client`"),
        ("--auth-issuers=game ops operator=b.pem", "auth_issuers: `game` has two audiences"),
        ("--auth-issuers=studio ops root=b.pem", "auth_issuers: `root` is not a role"),
    ] {
        let arguments = [&auth[..], &[setting]].concat();
        let message = error_text(load_config(&arguments));
        assert!(message.contains(problem), "{setting}: {message}");
    }
    assert!(error_text(load_config(&["--auth-issuers=a b c"])).contains("auth_issuers: needs auth_keys"));
}

/// SEC-15: safe by default, for each combination of client address, operator address, TLS, authentication and flags. A
/// public port requires TLS or a flag that allows plaintext, and authentication or a flag that allows anonymous
/// callers. That second flag does not apply to operators.
#[test]
fn public_address_requires_tls_and_authentication() {
    let loopback = ["127.0.0.1", "127.9.9.9", "[::1]", "[::ffff:127.0.0.1]"];
    let public = ["0.0.0.0", "192.0.2.1", "10.0.0.1", "[::]", "[2001:db8::1]", "[::ffff:1.2.3.4]"];
    let addresses: Vec<_> =
        loopback.iter().map(|address| (address, false)).chain(public.iter().map(|address| (address, true))).collect();
    let mut cells = 0;
    for ((listen, exposed), (operator, operator_exposed)) in
        addresses.iter().flat_map(|first| addresses.iter().map(move |second| (*first, *second)))
    {
        for bits in 0..16 {
            let [tls, auth, allow_plaintext, anonymous] = [1, 2, 4, 8].map(|bit| bits & bit != 0);
            let (listen, operator) = (format!("--listen={listen}:1"), format!("--operator-listen={operator}:2"));
            let mut arguments = vec![listen.as_str(), &operator, "--trusted-proxies=10.0.0.0/8"];
            arguments.extend([["--tls-certificate=c.pem", "--tls-key=k.pem"]].iter().flatten().filter(|_| tls));
            arguments.extend([["--auth-keys=a.pem", "--auth-issuer=me"]].iter().flatten().filter(|_| auth));
            arguments.extend(allow_plaintext.then_some("--insecure-allow-plaintext"));
            arguments.extend(anonymous.then_some("--insecure-allow-anonymous"));
            let errors = load_config(&arguments).err().unwrap_or_default();
            let ports = [(exposed, "listen", anonymous), (operator_exposed, "operator_listen", false)];
            let expected_errors: Vec<_> = ports
                .iter()
                .filter(|(exposed, ..)| *exposed)
                .map(|(_, key, anonymous_allowed)| (key, tls || allow_plaintext, auth || *anonymous_allowed))
                .filter(|(_, encrypted, authenticated)| !encrypted || !authenticated)
                .collect();
            assert_eq!(errors.len(), expected_errors.len(), "{arguments:?}: {errors:?}");
            for (error, (key, encrypted, authenticated)) in errors.iter().zip(expected_errors) {
                assert!(error.starts_with(&format!("{key} = ")), "{error}");
                assert_eq!(error.contains("--tls-certificate FILE and --tls-key FILE"), !encrypted, "{error}");
                assert_eq!(error.contains("--insecure-allow-plaintext"), !encrypted, "{error}");
                assert_eq!(error.contains("--auth-keys FILE and --auth-issuer TEXT"), !authenticated, "{error}");
                let offers_anonymous = !authenticated && *key == "listen";
                assert_eq!(error.contains("--insecure-allow-anonymous"), offers_anonymous, "{error}");
            }
            cells += 1;
        }
    }
    assert_eq!(cells, 1_600);
}

/// SEC-15, SEC-7: if a load balancer ends TLS, its `x-forwarded-for` must be trusted, and no other sender's.
#[test]
fn public_plaintext_requires_trusted_proxies() {
    let arguments = ["--listen=0.0.0.0:1", "--insecure-allow-plaintext", "--insecure-allow-anonymous"];
    assert!(error_text(load_config(&arguments)).contains("trusted_proxies: required with --insecure-allow-plaintext"));
    let config = load_config(&[&arguments[..], &["--trusted-proxies=10.0.0.0/8"]].concat()).unwrap();
    assert_eq!(config.security_warnings().len(), 2);
    assert!(
        load_config(&arguments[1..]).unwrap().security_warnings().is_empty(),
        "the flags have no effect on loopback"
    );
}

/// SEC-11: anonymous callers on loopback have no rate limits. Public or authenticated servers have them, and so have
/// servers that set them.
#[test]
fn rate_limits_apply_to_public_or_authenticated_servers() {
    let rules = |arguments: &[&str]| load_config(arguments).unwrap().effective_rate_limits().map(|rules| rules.len());
    let public = [
        "--listen=0.0.0.0:1",
        "--insecure-allow-plaintext",
        "--insecure-allow-anonymous",
        "--trusted-proxies=10.0.0.0/8",
    ];
    let all = Some(DEFAULT_RATE_LIMITS.len());
    assert_eq!(rules(&[]), None);
    assert_eq!(rules(&public), all);
    assert_eq!(rules(&["--auth-keys=a.pem", "--auth-issuer=me"]), all);
    assert_eq!(rules(&["--rate-limits=client.search=1/1/1"]), all);
    assert_eq!(rules(&[&public[..], &["--rate-limits=off"]].concat()), None);
    let config = load_config(&["--rate-limits=client.search=1/2/3,game_server.stream=4"]).unwrap();
    let rule_texts: Vec<String> = config.effective_rate_limits().unwrap().iter().map(ToString::to_string).collect();
    assert!(rule_texts.contains(&"client.search=1/2/3".into()) && rule_texts.contains(&"game_server.stream=4".into()));
    assert!(
        rule_texts.contains(&"client.update=1/5/300".into()),
        "limits without an override keep their default: {rule_texts:?}"
    );
}

/// Keys limited to roles, and several issuers, as written and as printed.
#[test]
fn auth_issuers_and_key_roles_round_trip() {
    let arguments = [
        "--auth-keys=client=players.json,./old=keys.pem",
        "--auth-issuer=https://login.example",
        "--auth-issuers=studio ops operator+game_server=studio keys.pem,studio ops operator=b.pem",
    ];
    let config = load_config(&arguments[..2]).unwrap();
    let auth = config.auth.clone().unwrap();
    let keys: Vec<_> = auth.issuers[0].keys.iter().map(|keys| (keys.file.to_str().unwrap(), &*keys.roles)).collect();
    assert_eq!(keys, [("players.json", &["client"][..]), ("./old=keys.pem", &[])]);
    let config = load_config(&arguments).unwrap();
    let issuers = config.auth.clone().unwrap().issuers;
    assert_eq!((&*issuers[1].name, &*issuers[1].audience, issuers.len()), ("studio", "ops", 2));
    let keys: Vec<_> = issuers[1].keys.iter().map(|keys| (keys.file.to_str().unwrap(), &*keys.roles)).collect();
    assert_eq!(keys, [("studio keys.pem", &["operator", "game_server"][..]), ("b.pem", &["operator"])]);
    let printed = config.to_toml().unwrap();
    assert_eq!(Config::from_toml(Path::new("printed.toml"), &printed).unwrap(), config, "{printed}");
}
