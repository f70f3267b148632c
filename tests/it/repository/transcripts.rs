//! Tour of docs/TOUR.md: runs each command of its `console` blocks against a real server and compares the output.
//!
//! A line that starts with `$ ` is a command; it continues after a `\`, and takes the lines up to `END` as its input
//! after `<<END`. The lines after it are its output, in which `…` matches any text. grpcurl, curl, jq and cargo are
//! emulated here, so that the test needs none of them; other commands run in `sh`.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::grpc_json::grpcurl;
use crate::support::server_process::{ServerProcess, fireteam_command};

/// Addresses in the tour.
const CLIENTS: &str = "127.0.0.1:50051";
const OPERATORS: &str = "127.0.0.1:50052";

/// One command and its expected output.
#[derive(Debug, PartialEq)]
struct Step {
    command: String,
    stdin: String,
    expected: String,
}

/// Lines of all code blocks of that kind.
fn blocks<'a>(text: &'a str, kind: &str) -> Vec<&'a str> {
    let open = format!("```{kind}\n");
    text.split(&open).skip(1).flat_map(|it| it.split("```").next().unwrap_or_default().lines()).collect()
}

fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut lines = blocks(text, "console").into_iter();
    while let Some(line) = lines.next() {
        let Some(command) = line.strip_prefix("$ ") else {
            let step = steps.last_mut().expect("a block starts with a command");
            step.expected += &format!("{line}\n");
            continue;
        };
        let (mut command, mut stdin) = (command.to_owned(), String::new());
        while let Some(start) = command.strip_suffix('\\') {
            command = format!("{start}{}", lines.next().expect("a command ends").trim_start());
        }
        if let Some((before, after)) = command.split_once("<<END") {
            command = format!("{}{}", before.trim_end(), after);
            stdin = lines.by_ref().take_while(|line| *line != "END").map(|line| format!("{line}\n")).collect();
        }
        steps.push(Step { command, stdin, expected: String::new() });
    }
    steps
}

/// A command's arguments; quotes keep spaces.
fn split_arguments(command: &str) -> Vec<String> {
    let mut split_arguments = vec![String::new()];
    let mut quote = None;
    for letter in command.chars() {
        match (letter, quote) {
            (_, Some(open)) if letter == open => quote = None,
            ('\'' | '"', None) => quote = Some(letter),
            (' ', None) => split_arguments.push(String::new()),
            (_, _) => split_arguments.last_mut().expect("never empty").push(letter),
        }
    }
    split_arguments.retain(|word| !word.is_empty());
    split_arguments
}

/// Whether `output` matches `expected`, line by line; each `…` matches any text within a line.
fn lines_match(expected: &str, output: &str) -> bool {
    expected.lines().count() == output.lines().count()
        && expected.lines().zip(output.lines()).all(|(expected, output)| line_matches(expected, output))
}

fn line_matches(expected: &str, output: &str) -> bool {
    let mut parts = expected.split('…');
    let Some(mut rest) = output.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// Environment of the tour: a folder, shell variables, a server.
struct Tour {
    folder: tempfile::TempDir,
    variables: BTreeMap<String, String>,
    server: ServerProcess,
}

impl Tour {
    async fn run(&mut self, step: &Step) -> String {
        if let Some((name, jq)) = step.command.split_once("=$(jq -r ") {
            let (path, file) = jq.trim_end_matches(')').split_once(' ').expect("a path and a file");
            let text = std::fs::read_to_string(self.folder.path().join(file)).expect("an output file");
            let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            let value = json.pointer(&path.replace('.', "/")).and_then(|it| it.as_str()).expect("a text");
            self.variables.insert(name.to_owned(), value.to_owned());
            return String::new();
        }
        let (first, rest) = step.command.split_once(" | ").unwrap_or((&step.command, ""));
        let first = first.replace(CLIENTS, &self.server.address.to_string());
        let first = split_arguments(&first.replace(OPERATORS, &self.server.operator_address.to_string()));
        let mut stdin = step.stdin.clone();
        for (name, value) in &self.variables {
            stdin = stdin.replace(&format!("${name}"), value);
        }
        let output = match first[0].as_str() {
            "grpcurl" => grpcurl(&first[1..], &stdin).await,
            "curl" => {
                self.server.operator_page(&first[2][first[2].find('/').expect("a path")..]).await.replace('\r', "")
            }
            "cargo" => {
                let flags: Vec<&str> = first.iter().map(String::as_str).skip_while(|it| *it != "--").skip(1).collect();
                let output = fireteam_command(self.folder.path(), &flags).output().expect("run the command");
                String::from_utf8(output.stdout).expect("text")
            }
            // The tour waits a fixed time; the test waits for the event.
            "sleep" => {
                let lines = self.server.log.wait_for_lines("ruleset changed", 1);
                assert_eq!(lines.len(), 1, "{}", self.server.log.text());
                return String::new();
            }
            _ => return shell(self.folder.path(), &step.command, ""),
        };
        if rest.is_empty() { output } else { shell(self.folder.path(), rest, &output) }
    }
}

fn shell(folder: &Path, script: &str, stdin: &str) -> String {
    let mut command = Command::new("sh");
    command.args(["-c", script]).current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("a shell");
    child.stdin.take().expect("piped").write_all(stdin.as_bytes()).expect("write the input");
    let output = child.wait_with_output().expect("wait for the command");
    assert!(output.status.success(), "{script}: {}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// Each command of the tour prints what docs/TOUR.md shows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tour_commands_print_what_the_page_shows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(root.join("docs/TOUR.md")).unwrap();
    let (_, tour) = readme.split_once("\n## A five-minute tour\n").expect("the tour");
    let tour = tour.split("\n## ").next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    ["rulesets", "data"].iter().for_each(|name| copy(&root.join(name), &folder.path().join(name)));
    let mut flags = None;
    for line in blocks(tour, "sh") {
        match line.strip_prefix("cargo run --release -- serve ") {
            Some(given) => flags = Some(split_arguments(given)),
            None => drop(shell(folder.path(), line, "")),
        }
    }
    let flags = flags.expect("the tour starts a server");
    let server = ServerProcess::start(folder.path(), &flags.iter().map(String::as_str).collect::<Vec<_>>());
    let mut runner = Tour { folder, variables: BTreeMap::new(), server };
    let steps = steps(tour);
    assert!(12 < steps.len(), "{} steps", steps.len());
    for step in &steps {
        let output = runner.run(step).await;
        assert!(
            lines_match(&step.expected, &output),
            "$ {}\ndocs/TOUR.md shows\n{}the command printed\n{output}",
            step.command,
            step.expected
        );
    }
}

#[test]
fn tour_parser_separates_commands_and_output() {
    let text = "```console\n$ a \\\n    b <<END | tee f\n{\"x\": \"$ID\"}\nEND\nsaid\n$ c\n```\n```sh\nd\n```\n";
    let step = |command: &str, stdin: &str, expected: &str| Step {
        command: command.into(),
        stdin: stdin.into(),
        expected: expected.into(),
    };
    assert_eq!(steps(text), [step("a b | tee f", "{\"x\": \"$ID\"}\n", "said\n"), step("c", "", "")]);
    assert_eq!(blocks(text, "sh"), ["d"]);
    assert_eq!(split_arguments("a -H 'x: 1'  \"y z\""), ["a", "-H", "x: 1", "y z"]);
}

#[test]
fn tour_output_that_differs_is_reported() {
    for (expected, output, is_match) in [
        ("a\nb\n", "a\nb\n", true),
        ("a\n", "a\nb\n", false),
        ("\"id\": \"…\",", "\"id\": \"77\",", true),
        ("\"id\": \"…\",", "\"ids\": \"77\",", false),
        ("in …, out … .", "in 1, out 2 .", true),
        ("in …, out … .", "in 1, off 2 .", false),
        ("\"score\": 0.09", "\"score\": 0.091", false),
    ] {
        assert_eq!(lines_match(expected, output), is_match, "{expected} / {output}");
    }
}
