//! Dependency rule: each `crate::x` and each outside crate that a file names must be allowed for its layer. The table
//! is the rule; docs/ARCHITECTURE.md gives the reasons.

use std::collections::BTreeSet;

use crate::support::source_tree::{self, SourceFile};

/// One layer: `src/name.rs` and everything under `src/name/`.
struct Layer {
    name: &'static str,
    /// The siblings that it may name, besides itself.
    ours: &'static [&'static str],
    /// The watched outside crates that it may name.
    theirs: &'static [&'static str],
}

/// Lowest first. A layer that is not listed fails the test; add it with its dependencies.
const LAYERS: &[Layer] = &[
    Layer { name: "domain", ours: &[], theirs: &["ecow", "pulp", "skillratings"] },
    Layer { name: "files", ours: &[], theirs: &["rustix", "tempfile"] },
    Layer { name: "clock", ours: &["domain"], theirs: &["nix", "rand", "tokio", "tracing"] },
    Layer { name: "watch", ours: &["domain", "clock", "files"], theirs: &["notify", "tokio", "tokio_util", "tracing"] },
    Layer { name: "config", ours: &["domain", "files"], theirs: &["serde", "toml", "clap", "http", "ipnet"] },
    Layer {
        name: "telemetry",
        ours: &["domain", "files"],
        theirs: &[
            "futures_util",
            "opentelemetry",
            "opentelemetry_otlp",
            "opentelemetry_sdk",
            "prometheus_client",
            "tonic",
            "tracing",
            "tracing_subscriber",
            "serde",
            "serde_json",
        ],
    },
    Layer {
        name: "supervisor",
        ours: &["domain", "telemetry"],
        theirs: &["futures_util", "tokio", "tokio_util", "tracing"],
    },
    Layer {
        name: "auth",
        ours: &["domain", "config", "clock", "files"],
        theirs: &[
            "fireteam_probe",
            "aes",
            "arc_swap",
            "aws_lc_rs",
            "base64",
            "fireteam_probe",
            "governor",
            "hmac",
            "ipnet",
            "jsonwebtoken",
            "serde",
            "serde_json",
            "subtle",
            "tracing",
            "x509_parser",
        ],
    },
    Layer {
        name: "beacon",
        ours: &["domain", "clock", "telemetry", "supervisor"],
        theirs: &["fireteam_probe", "futures_util", "parking_lot", "rustix", "tokio", "tokio_util", "tracing"],
    },
    Layer {
        name: "store",
        ours: &["domain", "telemetry", "clock", "supervisor", "files"],
        theirs: &["sqlx", "serde", "serde_json", "tokio", "tokio_stream", "tokio_util", "tracing"],
    },
    Layer {
        name: "rules",
        ours: &["domain", "watch", "telemetry", "clock", "files"],
        theirs: &["quick_xml", "arc_swap", "annotate_snippets", "tokio", "tokio_util", "tracing"],
    },
    Layer {
        name: "geo",
        ours: &["domain", "watch", "telemetry", "clock", "files"],
        theirs: &["maxminddb", "arc_swap", "ipnet", "serde", "tokio", "tokio_util", "tracing"],
    },
    Layer {
        name: "engine",
        ours: &["domain", "clock", "store", "rules", "geo", "auth", "telemetry", "watch", "supervisor"],
        theirs: &[
            "fireteam_probe",
            "tokio",
            "tokio_util",
            "tracing",
            "arc_swap",
            "bytes",
            "futures_util",
            "parking_lot",
            "indexmap",
            "thin_vec",
        ],
    },
    Layer {
        name: "api",
        ours: &["domain", "engine", "auth", "telemetry"],
        theirs: &[
            "base64",
            "futures_util",
            "tonic",
            "tonic_health",
            "tonic_prost",
            "tonic_reflection",
            "tonic_types",
            "tonic_web",
            "prost",
            "prost_reflect",
            "prost_types",
            "serde_json",
            "serde_path_to_error",
            "strsim",
            "tower",
            "tower_http",
            "tokio",
            "tokio_stream",
            "tokio_util",
            "tracing",
            "bytes",
            "http",
            "http_body",
            "http_body_util",
            "ipnet",
        ],
    },
    Layer {
        name: "console",
        ours: &["domain", "engine", "auth", "telemetry"],
        theirs: &["axum", "tonic", "tower", "tower_http", "tokio", "serde", "serde_json", "tracing", "http"],
    },
    Layer {
        name: "server",
        ours: &[
            "domain",
            "clock",
            "files",
            "watch",
            "config",
            "telemetry",
            "supervisor",
            "auth",
            "beacon",
            "store",
            "rules",
            "geo",
            "engine",
            "api",
            "console",
        ],
        theirs: &[
            "libc",
            "nix",
            "anyhow",
            "arc_swap",
            "aws_lc_rs",
            "axum",
            "tonic",
            "tonic_health",
            "tonic_web",
            "tower",
            "tower_http",
            "hyper",
            "hyper_util",
            "http",
            "ppp",
            "rustls",
            "tokio",
            "tokio_rustls",
            "tokio_stream",
            "tokio_util",
            "tracing",
        ],
    },
    Layer {
        name: "sim",
        ours: &["domain"],
        theirs: &["csv", "fireteam_client", "fireteam_domain", "rand", "rand_distr", "rand_pcg", "serde", "toml"],
    },
    Layer {
        name: "cli",
        ours: ANY,
        theirs: &[
            "anyhow",
            "base64",
            "clap",
            "csv",
            "http",
            "humantime",
            "indicatif",
            "prost",
            "rand",
            "serde",
            "serde_json",
            "sha2",
            "tokio",
            "tokio_util",
            "toml",
            "tonic",
            "tonic_health",
            "tonic_prost",
            "tracing",
        ],
    },
    Layer { name: "main", ours: ANY, theirs: &["mimalloc"] },
    // The crate's own list of modules.
    Layer { name: "lib", ours: ANY, theirs: &["fireteam_domain", "fireteam_sim"] },
];

/// May name every layer.
const ANY: &[&str] = &["*"];

/// Small value crates that any layer may name. Each other dependency of Cargo.toml may be named only by the layers that
/// list it.
const COMMON: &[&str] = &["async_trait", "fail", "futures_core", "hashbrown", "sha2", "thiserror"];

/// Breaks replay: clock, random numbers, disk, threads, and collections whose order differs from run to run.
const FORBIDDEN_IN_DOMAIN: &[&str] = &[
    "::now()",
    "std::fs",
    "std::io",
    "std::env",
    "std::net",
    "std::thread",
    "std::process",
    "std::collections::HashMap",
    "std::collections::HashSet",
    "RandomState",
    "async ",
    ".await",
    "println!",
    "eprintln!",
];

/// Outside crates that unit tests of every layer may name, besides the layers that list them.
const IN_ALL_TESTS: &[&str] = &["tempfile"];

/// Files and folders of the engine, and the modules of the engine that each must not name. The queues use advertisements
/// only through a handle, so its file and the command that it takes are the exceptions.
const ENGINE_PARTS: &[(&str, &[&str])] = &[
    ("src/engine/common.rs", &["adverts", "queues"]),
    ("src/engine/adverts/", &["queues"]),
    ("src/engine/queues/", &["adverts"]),
];

/// Modules of `adverts` that the queues may name.
const ADVERTS_OF_QUEUES: &[&str] = &["adverts::adverts_for_queues::", "adverts::writer_command::ReserveSeats"];

#[test]
fn halves_of_the_engine_are_separate() {
    let tree = source_tree::read_source_files(source_tree::repository_root());
    for (part, _) in ENGINE_PARTS {
        assert!(tree.iter().any(|source| source.path.starts_with(part)), "{part} does not exist");
    }
    source_tree::assert_no_violations(&engine_crossings(&tree));
}

#[test]
fn crossing_between_halves_of_the_engine_is_noticed() {
    let toy = source_tree::example_tree(&[
        ("src/engine/common.rs", "use crate::engine::adverts::expiry::X;\nuse crate::engine::error::EngineError;\n"),
        ("src/engine/adverts/search.rs", "use crate::engine::queues::leases::X;\nuse crate::engine::common::Common;\n"),
        (
            "src/engine/queues/leases.rs",
            "use crate::engine::adverts::adverts_for_queues::AdvertsForQueues;\nfn of(set: crate::engine::adverts::advert_set::Set) {}\n",
        ),
    ]);
    source_tree::assert_exact_violations(
        &engine_crossings(&toy),
        &[
            "src/engine/common.rs:1: may not use engine::adverts",
            "src/engine/adverts/search.rs:1: may not use engine::queues",
            "src/engine/queues/leases.rs:2: may not use engine::adverts",
        ],
    );
}

/// Uses of one half of the engine by the other, or by what is below both.
fn engine_crossings(tree: &[SourceFile]) -> Vec<String> {
    let mut complaints = Vec::new();
    for (part, forbidden) in ENGINE_PARTS {
        for source in tree.iter().filter(|source| source.path.starts_with(part)) {
            for (number, line) in source.text.lines().enumerate() {
                let code = source_tree::strip_line_comment(line);
                for path in code.split("crate::engine::").skip(1) {
                    let is_allowed = ADVERTS_OF_QUEUES.iter().any(|allowed| path.starts_with(allowed));
                    let crossed = forbidden.iter().filter(|half| path.starts_with(&format!("{half}::")) && !is_allowed);
                    let at = format!("{}:{}", source.path, number + 1);
                    complaints.extend(crossed.map(|half| format!("{at}: may not use engine::{half}")));
                }
            }
        }
    }
    complaints
}

#[test]
fn layering_is_respected() {
    source_tree::assert_no_violations(&complaints(&source_tree::read_source_files(source_tree::repository_root())));
}

#[test]
fn layering_violations_are_reported() {
    let example = source_tree::example_tree(&[
        (
            "Cargo.toml",
            "[package]\n[dependencies]\nsqlx = \"1\"\ntempfile = \"3\"\ntonic = \"1\"\ntracing = \"1\"\nserde-yaml = \"1\"\nanyhow = \"1\"\n[lints]\nx = 1\n",
        ),
        ("src/geo.rs", "use serde_yaml::Value;\n"),
        ("src/sim.rs", "use crate::store::Store;\n"),
        (
            "crates/fireteam-domain/src/pass.rs",
            "fn pass() { let at = Instant::now(); }\nuse tracing::info;\n// sqlx::query is fine to mention\n",
        ),
        ("crates/fireteam-domain/src/pass/tests.rs", "let rounds = std::env::var_os(\"ROUNDS\");\n"),
        ("crates/fireteam-domain/src/order.rs", "use std::collections::HashMap;\n"),
        ("src/engine/queues.rs", "use tonic::Status;\nuse crate::store::Store;\nuse crate::domain::id::SetId;\n"),
        ("src/engine.rs", "use crate::{domain, api};\n"),
        ("src/api/search.rs", "use crate::store::Store;\nuse tonic::Status;\n"),
        ("src/api/pb.rs", "type Row = sqlx::Row;\n"),
        ("src/watch.rs", "use tempfile::tempdir;\n#[cfg(test)]\nmod tests {\n    use tempfile::tempdir;\n}\n"),
        ("src/rules.rs", "pub(in crate::engine) struct Draft;\n"),
        ("src/plumbing.rs", "use crate::domain::id::SetId;\n"),
        ("src/cli/serve.rs", "use crate::server::Server;\nuse anyhow::Context;\n"),
        ("tests/it/main.rs", "use crate::store::Store; use sqlx::query;\n"),
    ]);
    source_tree::assert_exact_violations(
        &complaints(&example),
        &[
            "src/geo.rs:1: geo may not use serde_yaml",
            "src/sim.rs:1: sim may not use crate::store",
            "crates/fireteam-domain/src/pass.rs:1: domain may not use `::now()`",
            "crates/fireteam-domain/src/pass.rs:2: domain may not use tracing",
            "crates/fireteam-domain/src/order.rs:1: domain may not use `std::collections::HashMap`",
            "src/engine/queues.rs:1: engine may not use tonic",
            "src/engine.rs:1: one `use crate::layer::...;` a line",
            "src/api/search.rs:1: api may not use crate::store",
            "src/api/pb.rs:1: api may not use sqlx",
            "src/watch.rs:1: watch may not use tempfile",
            "src/rules.rs:1: rules may not use crate::engine",
            "src/plumbing.rs: `plumbing` is no layer",
        ],
    );
}

fn complaints(tree: &[SourceFile]) -> Vec<String> {
    let is_manifest = |path: &str| path == "Cargo.toml" || path.starts_with("crates/") && path.ends_with("/Cargo.toml");
    let manifests = tree.iter().filter(|source| is_manifest(&source.path));
    let watched: BTreeSet<String> = manifests.flat_map(|manifest| dependencies(&manifest.text)).collect();
    let watched: Vec<String> = watched.into_iter().collect();
    let is_watched_in_tests = |name: &&String| !IN_ALL_TESTS.contains(&name.as_str());
    let watched_in_tests: Vec<String> = watched.iter().filter(is_watched_in_tests).cloned().collect();
    let mut complaints = Vec::new();
    for source in tree.iter().filter(|source| source.path.ends_with(".rs")) {
        let Some(name) = layer_of(&source.path) else { continue };
        let is_own_crate = source.path.starts_with("crates/");
        let Some(layer) = LAYERS.iter().find(|layer| layer.name == name) else {
            complaints
                .push(format!("{}: `{name}` is no layer; add it to the table with its dependencies", source.path));
            continue;
        };
        let tests_from = first_line_of_tests(source);
        for (number, line) in source.text.lines().enumerate() {
            let code = source_tree::strip_line_comment(line);
            let at = format!("{}:{}", source.path, number + 1);
            let watched = if number < tests_from { &watched } else { &watched_in_tests };
            complaints.extend(
                line_violations(layer, code, watched, is_own_crate).into_iter().map(|what| format!("{at}: {what}")),
            );
            if name == "domain" && !is_test(&source.path) {
                let found = FORBIDDEN_IN_DOMAIN.iter().filter(|it| code.contains(**it));
                complaints.extend(found.map(|it| format!("{at}: domain may not use `{it}`")));
            }
        }
    }
    complaints
}

/// Violations of one line. In a crate of its own, `crate::` is the layer itself.
fn line_violations(layer: &Layer, code: &str, watched: &[String], is_own_crate: bool) -> Vec<String> {
    let mut complaints = Vec::new();
    let any = layer.ours == ANY;
    if code.contains("crate::{") && !code.contains("$crate::{") {
        complaints.push(
            "one `use crate::layer::...;` a line, so that each dependency between layers can be found".to_owned(),
        );
    }
    for used in names_after("crate::", code).into_iter().filter(|_| !is_own_crate) {
        let known = LAYERS.iter().any(|it| it.name == used);
        if known && used != layer.name && !any && !layer.ours.contains(&used.as_str()) {
            complaints.push(format!("{} may not use crate::{used}", layer.name));
        }
    }
    for outside in watched {
        if !layer.theirs.contains(&outside.as_str()) && names_crate(code, outside) {
            complaints.push(format!("{} may not use {outside}", layer.name));
        }
    }
    complaints
}

/// Files such as `src/domain/index/tests.rs`, which may read environment variables and vectors.
fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

/// Index of the line where the unit tests of a file begin: 0 for a file of tests.
fn first_line_of_tests(source: &SourceFile) -> usize {
    if is_test(&source.path) || source.path.ends_with("_tests.rs") {
        return 0;
    }
    source.text.lines().position(|line| line.starts_with("#[cfg(test)]")).unwrap_or(usize::MAX)
}

/// Crates under `[dependencies]`, as code names them, without the common ones.
fn dependencies(manifest: &str) -> Vec<String> {
    let section = manifest.split("\n[").find_map(|it| it.strip_prefix("dependencies]")).unwrap_or_default();
    let key = |line: &str| Some(line.split_once('=')?.0.trim().replace('-', "_"));
    section.lines().filter_map(key).filter(|name| !COMMON.contains(&name.as_str())).collect()
}

/// `src/queue/pass.rs` and `src/queue.rs` are layer `queue`; the crate `crates/fireteam-sim` is layer `sim`. `None` for other
/// files.
fn layer_of(path: &str) -> Option<&str> {
    if let Some(inside) = path.strip_prefix("crates/fireteam-") {
        return inside.split_once("/src/").map(|(name, _)| name);
    }
    let inside = path.strip_prefix("src/")?;
    inside.split('/').next().map(|name| name.trim_end_matches(".rs"))
}

/// Identifiers after `prefix`.
fn names_after(prefix: &str, code: &str) -> Vec<String> {
    let name = |rest: &str| rest.chars().take_while(|it| it.is_alphanumeric() || *it == '_').collect::<String>();
    code.split(prefix).skip(1).map(name).filter(|name| !name.is_empty()).collect()
}

/// Whether `code` names the outside crate `name`: as a path (`name::`) or in an attribute or a use (`use name;`), and
/// not as the tail of a longer path or word (`crate::tracing::`, `my_http::`).
fn names_crate(code: &str, name: &str) -> bool {
    code.match_indices(name).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = &code[at + name.len()..];
        let whole = !before.is_some_and(|it| it.is_alphanumeric() || it == '_' || it == ':' || it == '"');
        whole && (after.starts_with("::") || (after.starts_with(';') && code.trim_start().starts_with("use ")))
    })
}
