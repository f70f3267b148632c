//! The tour of docs/TOUR.md, replayed: every command of its `console` blocks against a real server, every answer compared.
//!
//! A line that begins with `$ ` is a command, which goes on after a `\` and takes the lines up to `END` as its input
//! after `<<END`; what follows is its answer, in which `…` stands for anything. grpcurl, curl, jq and cargo are played
//! here, so that the test needs none of them; the rest is left to `sh`.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::grpc_json::grpcurl;
use crate::support::server_process::{ServerProcess, fireteam_command};

/// Where the tour says that the ports are.
const CLIENTS: &str = "127.0.0.1:50051";
const OPERATORS: &str = "127.0.0.1:50052";

/// One command and what it answers.
#[derive(Debug, PartialEq)]
struct Step {
    command: String,
    stdin: String,
    answer: String,
}

/// The lines of all blocks of that kind.
fn blocks<'a>(text: &'a str, kind: &str) -> Vec<&'a str> {
    let open = format!("```{kind}\n");
    text.split(&open).skip(1).flat_map(|it| it.split("```").next().unwrap_or_default().lines()).collect()
}

fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut lines = blocks(text, "console").into_iter();
    while let Some(line) = lines.next() {
        let Some(command) = line.strip_prefix("$ ") else {
            let step = steps.last_mut().expect("a block begins with a command");
            step.answer += &format!("{line}\n");
            continue;
        };
        let (mut command, mut stdin) = (command.to_owned(), String::new());
        while let Some(begun) = command.strip_suffix('\\') {
            command = format!("{begun}{}", lines.next().expect("a command ends").trim_start());
        }
        if let Some((before, after)) = command.split_once("<<END") {
            command = format!("{}{}", before.trim_end(), after);
            stdin = lines.by_ref().take_while(|line| *line != "END").map(|line| format!("{line}\n")).collect();
        }
        steps.push(Step { command, stdin, answer: String::new() });
    }
    steps
}

/// A command's words; quotes keep spaces.
fn words(command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for letter in command.chars() {
        match (letter, quote) {
            (_, Some(open)) if letter == open => quote = None,
            ('\'' | '"', None) => quote = Some(letter),
            (' ', None) => words.push(String::new()),
            (_, _) => words.last_mut().expect("never empty").push(letter),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Whether `said` is `expected`, line by line, where each `…` may be anything within a line.
fn agree(expected: &str, said: &str) -> bool {
    expected.lines().count() == said.lines().count()
        && expected.lines().zip(said.lines()).all(|(expected, said)| line_agrees(expected, said))
}

fn line_agrees(expected: &str, said: &str) -> bool {
    let mut parts = expected.split('…');
    let Some(mut rest) = said.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// Whoever takes the tour: a folder, a shell's variables, a server.
struct Tourist {
    folder: tempfile::TempDir,
    variables: BTreeMap<String, String>,
    server: ServerProcess,
}

impl Tourist {
    async fn take(&mut self, step: &Step) -> String {
        if let Some((name, jq)) = step.command.split_once("=$(jq -r ") {
            let (path, file) = jq.trim_end_matches(')').split_once(' ').expect("a path and a file");
            let text = std::fs::read_to_string(self.folder.path().join(file)).expect("an answer of before");
            let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            let value = json.pointer(&path.replace('.', "/")).and_then(|it| it.as_str()).expect("a text");
            self.variables.insert(name.to_owned(), value.to_owned());
            return String::new();
        }
        let (first, rest) = step.command.split_once(" | ").unwrap_or((&step.command, ""));
        let first = first.replace(CLIENTS, &self.server.address.to_string());
        let first = words(&first.replace(OPERATORS, &self.server.operator_address.to_string()));
        let mut stdin = step.stdin.clone();
        for (name, value) in &self.variables {
            stdin = stdin.replace(&format!("${name}"), value);
        }
        let said = match first[0].as_str() {
            "grpcurl" => grpcurl(&first[1..], &stdin).await,
            "curl" => {
                self.server.operator_page(&first[2][first[2].find('/').expect("a path")..]).await.replace('\r', "")
            }
            "cargo" => {
                let flags: Vec<&str> = first.iter().map(String::as_str).skip_while(|it| *it != "--").skip(1).collect();
                let output = fireteam_command(self.folder.path(), &flags).output().expect("it starts");
                String::from_utf8(output.stdout).expect("text")
            }
            // A machine may be slower than a reader; what the reader waits for is awaited.
            "sleep" => {
                let lines = self.server.log.wait_for_lines("ruleset changed", 1);
                assert_eq!(lines.len(), 1, "{}", self.server.log.text());
                return String::new();
            }
            _ => return shell(self.folder.path(), &step.command, ""),
        };
        if rest.is_empty() { said } else { shell(self.folder.path(), rest, &said) }
    }
}

fn shell(folder: &Path, script: &str, stdin: &str) -> String {
    let mut command = Command::new("sh");
    command.args(["-c", script]).current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("a shell");
    child.stdin.take().expect("piped").write_all(stdin.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
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

/// Every command of the tour answers what docs/TOUR.md says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tour_is_as_it_is_told() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(root.join("docs/TOUR.md")).unwrap();
    let (_, tour) = readme.split_once("\n## A five-minute tour\n").expect("the tour");
    let tour = tour.split("\n## ").next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    ["rulesets", "data"].iter().for_each(|name| copy(&root.join(name), &folder.path().join(name)));
    let mut flags = None;
    for line in blocks(tour, "sh") {
        match line.strip_prefix("cargo run --release -- serve ") {
            Some(given) => flags = Some(words(given)),
            None => drop(shell(folder.path(), line, "")),
        }
    }
    let flags = flags.expect("the tour starts a server");
    let server = ServerProcess::start(folder.path(), &flags.iter().map(String::as_str).collect::<Vec<_>>());
    let mut tourist = Tourist { folder, variables: BTreeMap::new(), server };
    let steps = steps(tour);
    assert!(12 < steps.len(), "{} steps", steps.len());
    for step in &steps {
        let said = tourist.take(step).await;
        assert!(
            agree(&step.answer, &said),
            "$ {}\ndocs/TOUR.md says\n{}the server says\n{said}",
            step.command,
            step.answer
        );
    }
}

#[test]
fn commands_are_told_from_answers() {
    let text = "```console\n$ a \\\n    b <<END | tee f\n{\"x\": \"$ID\"}\nEND\nsaid\n$ c\n```\n```sh\nd\n```\n";
    let step = |command: &str, stdin: &str, answer: &str| Step {
        command: command.into(),
        stdin: stdin.into(),
        answer: answer.into(),
    };
    assert_eq!(steps(text), [step("a b | tee f", "{\"x\": \"$ID\"}\n", "said\n"), step("c", "", "")]);
    assert_eq!(blocks(text, "sh"), ["d"]);
    assert_eq!(words("a -H 'x: 1'  \"y z\""), ["a", "-H", "x: 1", "y z"]);
}

#[test]
fn a_wrong_answer_is_noticed() {
    for (expected, said, right) in [
        ("a\nb\n", "a\nb\n", true),
        ("a\n", "a\nb\n", false),
        ("\"id\": \"…\",", "\"id\": \"77\",", true),
        ("\"id\": \"…\",", "\"ids\": \"77\",", false),
        ("in …, out … .", "in 1, out 2 .", true),
        ("in …, out … .", "in 1, off 2 .", false),
        ("\"score\": 0.09", "\"score\": 0.091", false),
    ] {
        assert_eq!(agree(expected, said), right, "{expected} / {said}");
    }
}
