//! Checks of the files that a server reads, of disks, and of the clock.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use crate::auth::authenticator::Authenticator;
use crate::auth::key_file::{self, KeyFileError};
use crate::auth::match_credential;
use crate::cli::doctor::finding::Finding;
use crate::clock::{Clock as _, SystemClock};
use crate::config::{Config, RulesetSource, StoreTarget};
use crate::engine::rulesets::load_rulesets;
use crate::files;
use crate::geo::{GeoIpLocator, LocatorSettings};
use crate::server::tls::ReloadableTlsConfig;

/// Age of a geolocation file at which it should be replaced, days.
const LOCALITY_FILE_AGE_MAX_DAYS: u64 = 60;

const DAY_S: u64 = 24 * 60 * 60;

/// Folder in which systemd says that the clock was synchronized.
const TIME_SYNC_FOLDER: &str = "/run/systemd/timesync";

/// Checks all files that `config` names, but those of the store.
pub(super) fn check_files(config: &Config, clock: &SystemClock) -> Vec<Finding> {
    let mut findings = check_key_files(config);
    findings.extend(check_tls_and_auth_keys(config));
    findings.push(check_rulesets(&config.rulesets));
    findings.extend(check_locality_files(config, clock.now().0 / 1_000));
    findings.extend(check_disks(config));
    findings
}

/// Key files that exist must be readable, private and in their format. They are never created here.
fn check_key_files(config: &Config) -> Vec<Finding> {
    type Load = fn(&Path) -> Result<(), KeyFileError>;
    // Of a file that exists, the new key is not used.
    let files: [(&'static str, &Option<std::path::PathBuf>, Load); 4] = [
        ("token keys", &config.token_key_file, |path| key_file::load_or_create_signer(path, [0; 32]).map(drop)),
        ("match keys", &config.match_key_file, |path| {
            match_credential::load_or_create_match_keys(path, &[0; 32]).map(drop)
        }),
        ("user key", &config.user_key_file, |path| {
            key_file::load_or_create_public_user_key_secret(path, [0; 32]).map(drop)
        }),
        ("fleet keys", &config.beacon_fleet_key_file, |path| key_file::load_beacon_fleet_keys(path).map(drop)),
    ];
    let named = files.into_iter().filter_map(|(check, path, load)| Some((check, path.as_deref()?, load)));
    let check_file = |(check, path, load): (&'static str, &Path, Load)| {
        let found = path.display().to_string();
        if !path.exists() {
            let found = format!("{found} does not exist; the first start creates it");
            return match config.store {
                StoreTarget::Postgres(_) => {
                    Finding::warn(check, found, "none for the first server; otherwise copy the file of the others")
                }
                _ => Finding::ok(check, found),
            };
        }
        match load(path) {
            Ok(()) => Finding::ok(check, format!("{found}: private, valid")),
            Err(error) => Finding::fail_with(check, &error.to_string()),
        }
    };
    named.map(check_file).collect()
}

fn check_tls_and_auth_keys(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(files) = &config.tls {
        findings.push(match ReloadableTlsConfig::open(files.clone()) {
            Ok(_) => Finding::ok("TLS files", format!("{}: certificate and key match", files.certificate.display())),
            Err(error) => Finding::fail_with("TLS files", &error.to_string()),
        });
    }
    if config.auth.is_some() {
        findings.push(match Authenticator::new(config.auth.clone(), Arc::new(SystemClock::start())) {
            Ok(loaded) => Finding::ok("auth keys", format!("{} files", loaded.key_files().len())),
            Err(error) => Finding::fail_with("auth keys", &error.to_string()),
        });
    }
    findings
}

fn check_rulesets(source: &RulesetSource) -> Finding {
    const CHECK: &str = "rulesets";
    let (directory, name) = match source {
        RulesetSource::Directory(directory) => (Some(directory.as_path()), directory.display().to_string()),
        RulesetSource::Bundled => (None, "bundled".to_owned()),
    };
    match load_rulesets(directory) {
        Ok(loaded) => Finding::ok(CHECK, format!("{name}: {} rulesets", loaded.rulesets.len())),
        Err(problems) => {
            let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
            Finding::fail(CHECK, lines.join(" | "), format!("mend the files; `fireteam check {name}` shows the places"))
        }
    }
}

/// Geolocation files: each is loaded on its own, so that each has its own verdict.
fn check_locality_files(config: &Config, now_s: u64) -> Vec<Finding> {
    const CHECK: &str = "locality file";
    const REMEDY: &str = "get the file of this month, and rename it over this one (docs/OPERATING.md#locations)";
    if config.geoip_db_files.is_empty() {
        let remedy =
            "name a city file with --geoip-db (docs/OPERATING.md#locations), unless clients measure round trips";
        return vec![Finding::warn(CHECK, "none: locations of players are unknown", remedy)];
    }
    let check_file = |path: &std::path::PathBuf| {
        let loaded = match GeoIpLocator::load_files(std::slice::from_ref(path), LocatorSettings::default()) {
            Ok(loaded) => loaded,
            Err(error) => return Finding::fail_with(CHECK, &error.to_string()),
        };
        let built_s = loaded.oldest_build_timestamp_s().unwrap_or(0);
        let days = now_s.saturating_sub(built_s) / DAY_S;
        let found = format!("{} was built {days} days ago", path.display());
        if days <= LOCALITY_FILE_AGE_MAX_DAYS { Finding::ok(CHECK, found) } else { Finding::warn(CHECK, found, REMEDY) }
    };
    config.geoip_db_files.iter().map(check_file).collect()
}

/// Free space of the disks that the server writes to.
fn check_disks(config: &Config) -> Vec<Finding> {
    const CHECK: &str = "disk";
    let folder_of = |file: &Path| {
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        folder.unwrap_or(Path::new(".")).to_owned()
    };
    let store = match &config.store {
        StoreTarget::Sqlite(file) => Some(folder_of(file)),
        StoreTarget::Memory | StoreTarget::Postgres(_) => None,
    };
    let mut folders: Vec<_> = [store, config.audit_log_file.as_deref().map(folder_of), config.pass_failure_dir.clone()]
        .into_iter()
        .flatten()
        .filter(|folder| folder.exists())
        .collect();
    folders.dedup();
    let check_folder = |folder: std::path::PathBuf| match files::disk_space(&folder) {
        Ok(space) => {
            let free_mib = space.free_bytes >> 20;
            let found = format!("{}: {free_mib} MiB free", folder.display());
            if u64::from(config.disk_free_warning_mib) <= free_mib {
                Finding::ok(CHECK, found)
            } else {
                let remedy = format!("free space: the limit of a warning is {} MiB", config.disk_free_warning_mib);
                Finding::warn(CHECK, found, remedy)
            }
        }
        Err(error) => Finding::skip(CHECK, format!("{}: {error}", folder.display()), "look at its file system"),
    };
    folders.into_iter().map(check_folder).collect()
}

/// Whether systemd has synchronized the clock. Other programs, and containers, do not say so in a file.
pub(super) fn check_clock_synchronization() -> Finding {
    const CHECK: &str = "clock";
    let folder = Path::new(TIME_SYNC_FOLDER);
    if File::open(folder.join("synchronized")).is_ok() {
        Finding::ok(CHECK, "synchronized by systemd-timesyncd")
    } else if folder.exists() {
        Finding::warn(CHECK, "not synchronized since the start of the machine", "see `timedatectl timesync-status`")
    } else {
        let remedy = "see that a time service, such as chrony, synchronizes this machine";
        Finding::skip(CHECK, "not known: there is no systemd-timesyncd here", remedy)
    }
}
