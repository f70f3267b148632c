//! The examples of the C client as programs, built with the compilers of this machine.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::support::server_process::TEST_TIMEOUT;

/// Libraries of the system that the static library needs, as `rustc --print native-static-libs` lists them.
const SYSTEM_LIBRARIES: &[&str] = &["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl", "-lc"];

/// Language of a program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Language {
    C,
    Cpp,
}

impl Language {
    /// Compiler, its option, and the end of the source's name.
    fn toolchain(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::C => ("gcc", "-std=c11", "c"),
            Self::Cpp => ("g++", "-std=c++17", "cpp"),
        }
    }

    /// Builds the example of this name. `None` if the compiler is not installed, which is printed.
    pub(crate) fn compile(self, example: &str) -> Option<PathBuf> {
        let (compiler, option, extension) = self.toolchain();
        let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients");
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{example}-by-{compiler}"));
        let mut command = Command::new(compiler);
        command.args([option, "-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
        command.arg("-I").arg(clients.join("c/include")).arg("-I").arg(clients.join("cpp/include"));
        command.arg(clients.join(format!("c/examples/{example}.{extension}"))).arg(static_library());
        command.args(SYSTEM_LIBRARIES).arg("-o").arg(&program);
        let Ok(output) = command.output() else {
            assert!(std::env::var_os("REQUIRE_C").is_none(), "REQUIRE_C is set, but {compiler} is missing");
            // Not with eprintln, because the output of a passing test is hidden.
            let notice = format!("SKIPPED: {compiler} is not installed, so `{example}` was NOT played in {self:?}\n");
            std::io::stderr().write_all(notice.as_bytes()).expect("written");
            return None;
        };
        assert!(output.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&output.stderr));
        Some(program)
    }
}

/// Static library of the C client, which cargo builds beside the test.
fn static_library() -> PathBuf {
    let test = std::env::current_exe().expect("this program");
    let library = test.parent().expect("a folder").join("libfireteam_c.a");
    assert!(library.exists(), "{} does not exist", library.display());
    library
}

/// Text of a program that has ended well.
pub(crate) fn printed(output: &Output) -> String {
    let texts = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let text = texts.concat();
    assert!(output.status.success() && text.ends_with("ok\n"), "{text}");
    text
}

/// Program that runs, with the lines that it prints. Killed on drop.
pub(crate) struct RunningProgram {
    child: Child,
    lines: Receiver<String>,
    text: String,
}

impl RunningProgram {
    /// Starts a program whose calls are anonymous.
    pub(crate) fn start(program: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        Self::spawn(command.args(arguments).env_remove("FIRETEAM_TOKEN"))
    }

    /// Starts a program that sends this token with its calls.
    pub(crate) fn start_with_token(program: &Path, arguments: &[&str], token: &str) -> Self {
        let mut command = Command::new(program);
        Self::spawn(command.args(arguments).env("FIRETEAM_TOKEN", token))
    }

    fn spawn(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let (sender, lines) = channel();
        forward_lines(child.stdout.take().expect("piped"), sender.clone());
        forward_lines(child.stderr.take().expect("piped"), sender);
        Self { child, lines, text: String::new() }
    }

    /// Waits for a line with this start. Returns the rest of it.
    pub(crate) fn wait_for(&mut self, start: &str) -> String {
        loop {
            match self.lines.recv_timeout(TEST_TIMEOUT) {
                Ok(line) => {
                    self.text.push_str(&line);
                    self.text.push('\n');
                    if let Some(rest) = line.strip_prefix(start) {
                        return rest.to_owned();
                    }
                }
                Err(error) => panic!("no line `{start}` ({error}):\n{}", self.text),
            }
        }
    }

    /// Sends a line to the program.
    pub(crate) fn send_line(&mut self) {
        self.child.stdin.as_mut().expect("piped").write_all(b"\n").expect("the program reads");
    }

    /// Waits until the program ends with `ok`. Returns all that it has printed.
    pub(crate) fn wait_until_ok(mut self) -> String {
        self.wait_for("ok");
        let status = self.child.wait().expect("an exit");
        assert!(status.success(), "{status}:\n{}", self.text);
        std::mem::take(&mut self.text)
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        // Fails if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends the lines of a pipe, from a thread.
fn forward_lines(pipe: impl Read + Send + 'static, lines: Sender<String>) {
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            if lines.send(line).is_err() {
                break;
            }
        }
    });
}
