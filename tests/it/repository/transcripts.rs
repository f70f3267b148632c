//! Transcripts of docs/: `docs/tour.sh` runs each page's commands against a real server, and each output is compared with the page.
//!
//! In a page, a line of a `console` block that begins with `$ ` is a command. It continues after a `\`, and takes the lines up to
//! `END` as its input after `<<END`. The lines after it are its output. `…` in a line stands for any text; a line that is only
//! `…` stands for any lines. The script gets grpcurl, curl and jq from this test, so that it runs where they are not installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::certs::{CertificateAuthority, write_private_file};
use crate::support::grpc_json::grpcurl;
use crate::support::server_process::fireteam_command;
use crate::support::shared_data::shared_data;

/// Time limit of a page. Simulations of docs/DESIGNERS.md take longest.
const PAGE_TIMEOUT_S: &str = "600";

/// One command and its output.
#[derive(Debug, PartialEq)]
struct Step {
    /// The command as the page shows it, with its input.
    command: String,
    output: String,
}

#[test]
fn tour_page_shows_what_the_server_answers() {
    assert_page_is_current("TOUR.md", 16, |_| {});
}

#[test]
fn queues_page_shows_what_the_server_answers() {
    assert_page_is_current("QUEUES.md", 30, |_| {});
}

#[test]
fn designers_page_shows_what_simulator_and_server_print() {
    assert_page_is_current("DESIGNERS.md", 10, copy_measured_round_trips);
}

#[test]
fn simulator_page_shows_what_the_simulator_prints() {
    assert_page_is_current("SIMULATOR.md", 2, copy_measured_round_trips);
}

fn copy_measured_round_trips(folder: &Path) {
    if let Some(measured) = shared_data("latency-wonderproxy") {
        let pings = measured.join("pings-2020-07-19-2020-07-20-grouped.csv");
        fs::copy(pings, folder.join("pings.csv")).unwrap();
        fs::copy(measured.join("servers-2020-07-19.csv"), folder.join("servers.csv")).unwrap();
    }
}

#[test]
fn operating_page_shows_what_a_public_server_answers() {
    assert_page_is_current("OPERATING.md", 6, |folder| {
        let authority = CertificateAuthority::new("tour");
        let server = authority.server_certificate();
        write_private_file(&folder.join("ca.pem"), &authority.pem);
        write_private_file(&folder.join("chain.pem"), &server.certificate);
        write_private_file(&folder.join("key.pem"), &server.key);
        assert!(fireteam_command(folder, &["keygen", "--out", "issuer"]).output().unwrap().status.success());
    });
}

#[test]
fn sessions_page_shows_what_the_server_answers() {
    assert_page_is_current("SESSIONS.md", 25, |folder| {
        assert!(fireteam_command(folder, &["keygen", "--out", "issuer"]).output().unwrap().status.success());
    });
}

#[test]
fn json_page_shows_what_curl_prints() {
    if Command::new("curl").arg("--version").output().is_err() {
        eprintln!("SKIPPED: curl is not installed, so docs/JSON.md was NOT compared with its output");
        return;
    }
    assert_page_is_current("JSON.md", 10, |folder| fs::write(folder.join(INSTALLED_CURL), "").unwrap());
}

/// Marks a folder whose page needs the installed curl, because the one of this test only sends GET.
const INSTALLED_CURL: &str = ".installed-curl";

/// Runs a page with `docs/tour.sh` in a folder that `prepare` has filled, and compares each output with the page.
fn assert_page_is_current(page: &str, steps_min: usize, prepare: impl Fn(&Path)) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = root.join("docs").join(page);
    let expected = steps(&console_lines(&fs::read_to_string(&page).unwrap()));
    assert!(expected.len() >= steps_min, "{}: {} steps", page.display(), expected.len());
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path());
    let printed = run_page(root, &page, folder.path());
    let printed = steps(&printed.lines().map(str::to_owned).collect::<Vec<_>>());
    let commands = |steps: &[Step]| steps.iter().map(|step| step.command.clone()).collect::<Vec<_>>();
    assert_eq!(commands(&printed), commands(&expected), "commands that ran: {printed:#?}");
    for (expected, printed) in expected.iter().zip(&printed) {
        if expected.command.contains("pings.csv") && !folder.path().join("pings.csv").exists() {
            eprintln!("SKIPPED: {} needs measured round trips, which are not here", expected.command);
            continue;
        }
        // A pass may have judged the ticket before Enter answers.
        let printed_output = match expected.command.contains("QueueService/Enter") {
            true => printed.output.replace("    \"blockingRule\": \"no_candidates\",\n", ""),
            false => printed.output.clone(),
        };
        assert!(
            matches(&expected.output, &printed_output),
            "$ {}\n{} shows\n{}the program printed\n{}",
            expected.command,
            page.display(),
            expected.output,
            printed.output
        );
    }
}

fn run_page(root: &Path, page: &Path, folder: &Path) -> String {
    let tools = Tools::install(tempfile::tempdir().unwrap().keep());
    if folder.join(INSTALLED_CURL).exists() {
        fs::remove_file(tools.folder.join("curl")).unwrap();
    }
    // Both ports are held until just before the script binds them.
    let ports: Vec<_> = (0..2).map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let port = |index: usize| ports[index].local_addr().unwrap().port().to_string();
    let mut command = Command::new("timeout");
    command.arg(PAGE_TIMEOUT_S).arg(root.join("docs/tour.sh")).arg(page);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("FIRETEAM_")) {
        command.env_remove(name);
    }
    let mut path = tools.folder.clone().into_os_string();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap());
    command.env("PATH", path).env("TOUR_DIR", folder).env("TOUR_BINARY", env!("CARGO_BIN_EXE_fireteam"));
    command.env("TOUR_CLIENT_PORT", port(0)).env("TOUR_OPERATOR_PORT", port(1)).current_dir(folder);
    drop(ports);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
    let (output, ()) = std::thread::scope(|scope| {
        let served = scope.spawn(|| tools.serve_calls(folder));
        let output = child.wait_with_output().unwrap();
        fs::write(tools.folder.join("request"), "end\n").unwrap();
        (output, served.join().unwrap())
    });
    fs::remove_dir_all(&tools.folder).unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "docs/tour.sh: {}\n{printed}", output.status);
    printed
}

/// grpcurl, curl and jq as scripts that pass each call to this process through a FIFO and print its reply.
struct Tools {
    folder: PathBuf,
}

impl Tools {
    fn install(folder: PathBuf) -> Self {
        let call = format!(
            "#!/bin/sh\ncd_to={folder}\ncase \" $* \" in *' -d @ '*) cat;; esac >$cd_to/stdin\n\
             printf '%s\\n' \"${{0##*/}}\" \"$@\" >$cd_to/arguments\necho call >$cd_to/request\nexec cat $cd_to/reply\n",
            folder = folder.display()
        );
        for tool in ["grpcurl", "curl", "jq"] {
            fs::write(folder.join(tool), &call).unwrap();
        }
        // A page waits one second for a pass or for a changed file. A busy machine may need more.
        let sleep = "#!/bin/sh\ncase $1 in 0.*) exec /bin/sleep $1;; *) exec /bin/sleep 4;; esac\n";
        fs::write(folder.join("sleep"), sleep).unwrap();
        shell(&folder, "chmod +x grpcurl curl jq sleep && mkfifo request reply");
        Self { folder }
    }

    /// Answers calls until the request is `end`.
    fn serve_calls(&self, folder: &Path) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        while fs::read_to_string(self.folder.join("request")).unwrap() != "end\n" {
            let arguments = fs::read_to_string(self.folder.join("arguments")).unwrap();
            let arguments: Vec<String> = arguments.lines().map(str::to_owned).collect();
            let stdin = fs::read_to_string(self.folder.join("stdin")).unwrap();
            let reply = match arguments[0].as_str() {
                "grpcurl" => runtime.block_on(grpcurl(folder, &arguments[1..], &stdin)),
                "curl" => runtime.block_on(http_get(arguments.last().unwrap())),
                _ => json_value(folder, &arguments[1..]),
            };
            fs::write(self.folder.join("reply"), reply).unwrap();
        }
    }
}

/// Body of the response to `curl -s URL`.
async fn http_get(url: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let (host, path) = url.trim_start_matches("http://").split_once('/').expect("a URL with a path");
    let mut socket = tokio::net::TcpStream::connect(host).await.unwrap();
    let request = format!("GET /{path} HTTP/1.0\r\nhost: {host}\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    socket.read_to_string(&mut response).await.unwrap();
    response.split_once("\r\n\r\n").expect("a header").1.to_owned()
}

/// `jq -r .path[0].to.text FILE`.
fn json_value(folder: &Path, arguments: &[String]) -> String {
    let [_, path, file] = arguments else { panic!("jq -r PATH FILE, not {arguments:?}") };
    let text = fs::read_to_string(folder.join(file)).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let pointer = path.replace(['.', '['], "/").replace(']', "");
    let value = json.pointer(&pointer).and_then(|value| value.as_str());
    format!("{}\n", value.unwrap_or_else(|| panic!("{path} of {file} is no string: {text}")))
}

fn shell(folder: &Path, script: &str) {
    let status = Command::new("sh").args(["-c", script]).current_dir(folder).status().unwrap();
    assert!(status.success(), "{script}: {status}");
}

/// Lines of all `console` blocks of a page.
fn console_lines(page: &str) -> Vec<String> {
    let blocks = page.split("```console\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default());
    blocks.flat_map(str::lines).map(str::to_owned).collect()
}

fn steps(lines: &[String]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut lines = lines.iter();
    while let Some(line) = lines.next() {
        let Some(command) = line.strip_prefix("$ ") else {
            steps.last_mut().expect("a block begins with a command").output += &format!("{line}\n");
            continue;
        };
        let mut command = command.to_owned();
        while command.ends_with('\\') {
            command += &format!("\n{}", lines.next().expect("the rest of a command"));
        }
        if command.contains("<<END") {
            for line in lines.by_ref() {
                command += &format!("\n{line}");
                if line == "END" {
                    break;
                }
            }
        }
        steps.push(Step { command, output: String::new() });
    }
    steps
}

/// Whether `printed` is `expected`, where `…` stands for any text of a line, and a line that is only `…` for any lines.
fn matches(expected: &str, printed: &str) -> bool {
    fn lines_match(expected: &[&str], printed: &[&str]) -> bool {
        match expected {
            [] => printed.is_empty(),
            ["…", rest @ ..] => (0..=printed.len()).any(|skipped| lines_match(rest, &printed[skipped..])),
            [line, rest @ ..] => {
                let Some((first, others)) = printed.split_first() else { return false };
                line_matches(line, first) && lines_match(rest, others)
            }
        }
    }
    lines_match(&expected.lines().collect::<Vec<_>>(), &printed.lines().collect::<Vec<_>>())
}

/// Time, milliseconds, that may pass until a server tells how much of a duration is left.
const ELAPSED_MS_MAX: u64 = 5_000;

/// Whether both lines tell the time left until something expires, and the printed time is a little shorter.
fn remaining_time_matches(expected: &str, printed: &str) -> bool {
    let ms = |line: &str| -> Option<u64> {
        line.trim().strip_prefix(r#""expiresInMs": ""#)?.trim_end_matches(['"', ',']).parse().ok()
    };
    let elapsed = ms(expected).zip(ms(printed)).and_then(|(expected, printed)| expected.checked_sub(printed));
    elapsed.is_some_and(|elapsed| elapsed <= ELAPSED_MS_MAX) && expected.ends_with(',') == printed.ends_with(',')
}

fn line_matches(expected: &str, printed: &str) -> bool {
    if remaining_time_matches(expected, printed) {
        return true;
    }
    let mut parts = expected.split('…');
    let Some(mut rest) = printed.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[test]
fn transcript_commands_are_separated_from_their_output() {
    let page = "```console\n$ a \\\n    b <<END | tee f\n{\"x\": \"$ID\"}\nEND\nprinted\n$ c\n```\n```sh\nd\n```\n";
    let step = |command: &str, output: &str| Step { command: command.into(), output: output.into() };
    let found = steps(&console_lines(page));
    assert_eq!(found, [step("a \\\n    b <<END | tee f\n{\"x\": \"$ID\"}\nEND", "printed\n"), step("c", "")]);
}

#[test]
fn transcript_with_a_wrong_answer_is_noticed() {
    for (expected, printed, right) in [
        ("a\nb\n", "a\nb\n", true),
        ("a\n", "a\nb\n", false),
        ("a\n…\nd\n", "a\nb\nc\nd\n", true),
        ("a\n…\nd\n", "a\nd\n", true),
        ("a\n…\nd\n", "a\nb\nc\n", false),
        ("\"id\": \"…\",", "\"id\": \"77\",", true),
        ("\"id\": \"…\",", "\"ids\": \"77\",", false),
        ("in …, out … .", "in 1, out 2 .", true),
        ("in …, out … .", "in 1, off 2 .", false),
        ("\"score\": 0.09", "\"score\": 0.091", false),
        ("  \"expiresInMs\": \"90000\",", "  \"expiresInMs\": \"89999\",", true),
        ("\"expiresInMs\": \"90000\"", "\"expiresInMs\": \"90001\"", false),
        ("\"expiresInMs\": \"90000\"", "\"expiresInMs\": \"60000\"", false),
        ("\"deadlineInMs\": \"90000\"", "\"deadlineInMs\": \"89999\"", false),
    ] {
        assert_eq!(matches(expected, printed), right, "{expected} / {printed}");
    }
}
