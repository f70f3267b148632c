//! Client packages in other languages: each has the version and licence of the server, a README and a sample, Go's committed stubs
//! have each message, field, value and call of `proto/`, and C#'s each call. `clients/check-samples` builds and plays them.

use crate::support::source_tree::{self, SourceFile, assert_exact_violations, assert_no_violations};

/// A client: its folder, its sample, and the lines of a file that say version and licence. `{version}` stands for the server's.
struct ClientPackage {
    folder: &'static str,
    sample: &'static str,
    manifest: &'static str,
    lines: &'static [&'static str],
}

const CLIENT_PACKAGES: &[ClientPackage] = &[
    ClientPackage {
        folder: "clients/typescript",
        sample: "sample/duel.ts",
        manifest: "package.json",
        lines: &[r#""version": "{version}","#, r#""license": "MIT OR Apache-2.0","#, r#""private": true,"#],
    },
    ClientPackage {
        folder: "clients/go",
        sample: "cmd/duel/main.go",
        manifest: "go.mod",
        // Go modules take their version from a tag, and their licence from the repository.
        lines: &["module github.com/fireteam-dev/fireteam/clients/go"],
    },
    ClientPackage {
        folder: "clients/python",
        sample: "duel.py",
        manifest: "pyproject.toml",
        lines: &[r#"version = "{version}""#, r#"license = "MIT OR Apache-2.0""#],
    },
    ClientPackage {
        folder: "clients/csharp",
        sample: "sample/Duel.cs",
        manifest: "src/AssemblyInfo.cs",
        lines: &[
            r#"[assembly: AssemblyVersion("{version}.0")]"#,
            r#"[assembly: AssemblyMetadata("License", "MIT OR Apache-2.0")]"#,
        ],
    },
];

/// Pages that link to each client.
const LINKING_PAGES: &[&str] = &["clients/README.md", "docs/CLIENTS.md", "docs/README.md"];

/// Contract files whose stubs are committed for Go. Operators' calls are not part of a client.
const GO_CONTRACTS: &[&str] = &["allocation", "errors", "latency", "matchmaking", "queue", "ratings"];

#[test]
fn client_packages_have_version_licence_readme_and_sample() {
    let tree = source_tree::read_source_files(source_tree::repository_root());
    assert_no_violations(&incomplete_packages(&tree, env!("CARGO_PKG_VERSION")));
}

#[test]
fn client_packages_go_stubs_match_the_contract() {
    let tree = source_tree::read_source_files(source_tree::repository_root());
    assert_no_violations(&stale_go_stubs(&tree));
}

fn text_of<'a>(tree: &'a [SourceFile], path: &str) -> Option<&'a str> {
    tree.iter().find(|source| source.path == path).map(|source| source.text.as_str())
}

fn incomplete_packages(tree: &[SourceFile], version: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for package in CLIENT_PACKAGES {
        let manifest = format!("{}/{}", package.folder, package.manifest);
        let text = text_of(tree, &manifest).unwrap_or_default();
        for line in package.lines.iter().map(|line| line.replace("{version}", version)) {
            if !text.lines().any(|found| found.trim() == line) {
                complaints.push(format!("{manifest}: lacks the line `{line}`"));
            }
        }
        if text_of(tree, &format!("{}/{}", package.folder, package.sample)).is_none() {
            complaints.push(format!("{}: has no sample {}", package.folder, package.sample));
        }
        let readme = format!("{}/README.md", package.folder);
        if !text_of(tree, &readme).is_some_and(|text| text.contains("duel") && text.contains("FIRETEAM_SERVER")) {
            complaints.push(format!("{readme}: does not say how to play the sample and run the tests"));
        }
        let name = package.folder.trim_start_matches("clients/");
        for page in LINKING_PAGES {
            let text = text_of(tree, page).unwrap_or_default();
            if ![format!("]({name}"), format!("](../{}", package.folder)].iter().any(|link| text.contains(link)) {
                complaints.push(format!("{page}: does not link to {}", package.folder));
            }
        }
    }
    complaints
}

/// Names of the contract that Go's stubs lack. Comments may differ until `clients/go/generate` runs.
fn stale_go_stubs(tree: &[SourceFile]) -> Vec<String> {
    let mut complaints = Vec::new();
    for name in GO_CONTRACTS {
        let proto = format!("proto/fireteam/v1/{name}.proto");
        let stubs: String = [".pb.go", "_grpc.pb.go"]
            .iter()
            .filter_map(|end| text_of(tree, &format!("clients/go/fireteamv1/{name}{end}")))
            .collect();
        let contract = text_of(tree, &proto).unwrap_or_default();
        let lacking = contract.lines().filter_map(expected_in_go).filter(|expected| !stubs.contains(expected.as_str()));
        complaints
            .extend(lacking.map(|expected| format!("{proto}: Go's stubs lack `{expected}`; run clients/go/generate")));
    }
    complaints
}

/// Enums of the contract that the C# client names, and their prefixes.
const CSHARP_ENUMS: [&str; 2] = ["TICKET_STATE_", "TICKET_END_REASON_"];

#[test]
fn client_packages_csharp_enums_match_the_contract() {
    let tree = source_tree::read_source_files(source_tree::repository_root());
    assert_no_violations(&stale_csharp_enums(&tree));
}

/// Values of enums of the contract that C# lacks.
fn stale_csharp_enums(tree: &[SourceFile]) -> Vec<String> {
    let enums = text_of(tree, "clients/csharp/src/Enums.cs").unwrap_or_default();
    let contract = text_of(tree, "proto/fireteam/v1/queue.proto").unwrap_or_default();
    let mut complaints = Vec::new();
    for line in contract.lines() {
        let Some((name, number)) = line.trim().trim_end_matches(';').split_once(" = ") else { continue };
        let Some(value) = CSHARP_ENUMS.iter().find_map(|prefix| name.strip_prefix(prefix)) else { continue };
        let words = value.split('_').map(|word| word[..1].to_owned() + &word[1..].to_lowercase());
        let expected = format!("{} = {number},", words.collect::<String>());
        if !enums.lines().any(|line| line.trim() == expected) {
            complaints.push(format!("clients/csharp/src/Enums.cs: lacks `{expected}` of {name}"));
        }
    }
    complaints
}

#[test]
fn client_packages_csharp_stubs_match_the_contract() {
    let tree = source_tree::read_source_files(source_tree::repository_root());
    assert!(tree.iter().any(|source| source.path == "clients/csharp/grpc/QueueGrpc.cs"), "the stubs are read");
    assert_no_violations(&stale_csharp_stubs(&tree));
}

/// Calls of the contract that the stubs for gRPC for .NET lack.
fn stale_csharp_stubs(tree: &[SourceFile]) -> Vec<String> {
    let is_stub =
        |source: &&SourceFile| source.path.starts_with("clients/csharp/grpc/") && source.path.ends_with("Grpc.cs");
    let stubs: String = tree.iter().filter(is_stub).map(|source| source.text.as_str()).collect();
    let mut complaints = Vec::new();
    for name in GO_CONTRACTS {
        let proto = format!("proto/fireteam/v1/{name}.proto");
        let contract = text_of(tree, &proto).unwrap_or_default();
        let calls = contract.lines().filter_map(|line| line.trim().strip_prefix("rpc ")?.split('(').next());
        let lacking = calls.filter(|call| !stubs.contains(&format!("\"{call}\",")));
        complaints.extend(
            lacking.map(|call| format!("{proto}: C#'s stubs lack the call {call}; run clients/csharp/grpc/generate")),
        );
    }
    complaints
}

/// Text that the stubs have for a declaration of the contract; `None` for other lines.
fn expected_in_go(line: &str) -> Option<String> {
    let code = source_tree::strip_line_comment(line).trim().trim_end_matches(['{', '}', ';', ' ']);
    if let Some(name) = code.strip_prefix("message ") {
        return Some(format!("type {name} struct {{"));
    }
    if let Some(call) = code.strip_prefix("rpc ") {
        return Some(format!("_{}_FullMethodName", call.split('(').next()?));
    }
    let (declared, number) = code.split_once(" = ")?;
    // Options and packages have no number.
    number.split_whitespace().next()?.parse::<u32>().ok()?;
    match declared.rsplit_once(' ') {
        None => Some(format!("_{declared} ")),
        Some((_, field)) => Some(format!(",name={field},")),
    }
}

#[test]
fn client_packages_violations_are_reported() {
    let tree = source_tree::example_tree(&[
        ("clients/typescript/package.json", "{\n  \"version\": \"1.0.0\",\n  \"private\": true,\n}\n"),
        ("clients/typescript/sample/duel.ts", "// Sample.\n"),
        ("clients/typescript/README.md", "npm run duel; FIRETEAM_SERVER=x npm test\n"),
        ("clients/go/go.mod", "module github.com/fireteam-dev/fireteam/clients/go\n"),
        ("clients/go/README.md", "No test.\n"),
        ("clients/python/pyproject.toml", "version = \"1.0.1\"\nlicense = \"MIT OR Apache-2.0\"\n"),
        ("clients/python/README.md", "duel, FIRETEAM_SERVER\n"),
        ("clients/python/duel.py", "\n"),
        ("clients/csharp/src/Enums.cs", "  Waiting = 1,\n"),
        ("clients/csharp/src/AssemblyInfo.cs", "[assembly: AssemblyVersion(\"1.0.0.0\")]\n"),
        ("clients/csharp/sample/Duel.cs", "\n"),
        ("clients/csharp/README.md", "duel, FIRETEAM_SERVER\n"),
        ("clients/README.md", "[TypeScript](typescript), [Go](go), [Python](python), [C#](csharp)\n"),
        (
            "docs/CLIENTS.md",
            "[TypeScript](../clients/typescript), [Python](../clients/python), [C#](../clients/csharp)\n",
        ),
        (
            "docs/README.md",
            "[a](../clients/typescript), [b](../clients/go), [c](../clients/python), [d](../clients/csharp)\n",
        ),
        (
            "proto/fireteam/v1/queue.proto",
            "service Q {\n  rpc Enter(A) returns (B);\n  rpc Leave(A) returns (B);\n}\nmessage None {}\nmessage A {\n  // Id = 1;\n\
             \x20 TICKET_STATE_WAITING = 1;\n  TICKET_END_REASON_NOT_ACCEPTED = 6;\n\
             \x20 optional uint32 set_id = 1;\n  repeated string gone = 2;\n  map<string, B> values = 9;\n}\n\
             enum E {\n  E_ONE = 1;\n  E_TWO = 2;\n}\n",
        ),
        (
            "clients/go/fireteamv1/queue.pb.go",
            "type None struct {\ntype A struct {\nSetId `protobuf:\"varint,1,opt,name=set_id,json=setId\"`\n\
             V `protobuf:\"bytes,9,rep,name=values,proto3\"`\n\tE_E_ONE E = 1\n\
             \tE_TICKET_STATE_WAITING E = 1\n\tE_TICKET_END_REASON_NOT_ACCEPTED E = 6\n",
        ),
        ("clients/go/fireteamv1/queue_grpc.pb.go", "Q_Enter_FullMethodName = 1\n"),
        ("clients/csharp/grpc/QueueGrpc.cs", "        \"Enter\",\n"),
    ]);
    assert_exact_violations(
        &incomplete_packages(&tree, "1.0.0"),
        &[
            "clients/typescript/package.json: lacks the line `\"license\"",
            "clients/go: has no sample",
            "clients/go/README.md: does not say",
            "docs/CLIENTS.md: does not link to clients/go",
            "clients/python/pyproject.toml: lacks the line `version = \"1.0.0\"`",
            "clients/csharp/src/AssemblyInfo.cs: lacks the line `[assembly: AssemblyMetadata",
        ],
    );
    assert_exact_violations(
        &stale_csharp_enums(&tree),
        &["lacks `NotAccepted = 6,` of TICKET_END_REASON_NOT_ACCEPTED"],
    );
    assert_exact_violations(&stale_csharp_stubs(&tree), &["queue.proto: C#'s stubs lack the call Leave; run"]);
    assert_exact_violations(
        &stale_go_stubs(&tree),
        &["queue.proto: Go's stubs lack `_Leave_", "queue.proto: Go's stubs lack `,name=gone,`", "lack `_E_TWO "],
    );
}
