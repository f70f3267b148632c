//! Search loop as programs in C and C++, built with the compilers of this machine from the examples of the C client.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Libraries of the system that the static library needs, as `rustc --print native-static-libs` lists them.
const SYSTEM_LIBRARIES: &[&str] = &["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl", "-lc"];

/// Language of a program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Language {
    C,
    Cpp,
}

impl Language {
    /// Compiler, its options, and the source in the folder of the C client.
    fn build(self) -> (&'static str, &'static [&'static str], &'static str) {
        match self {
            Self::C => ("gcc", &["-std=c11"], "examples/search.c"),
            Self::Cpp => ("g++", &["-std=c++17"], "examples/search.cpp"),
        }
    }

    /// Builds the program. `None` if the compiler is not installed, which is printed.
    pub(super) fn compile(self) -> Option<PathBuf> {
        let (compiler, options, source) = self.build();
        let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients");
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("search-by-{compiler}"));
        let mut command = Command::new(compiler);
        command.args(options).args(["-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
        command.arg("-I").arg(clients.join("c/include")).arg("-I").arg(clients.join("cpp/include"));
        command
            .arg(clients.join("c").join(source))
            .arg(static_library())
            .args(SYSTEM_LIBRARIES)
            .arg("-o")
            .arg(&program);
        let Ok(output) = command.output() else {
            assert!(std::env::var_os("REQUIRE_C").is_none(), "REQUIRE_C is set, but {compiler} is missing");
            // Not with eprintln, because the output of a passing test is hidden.
            let notice =
                format!("SKIPPED: {compiler} is not installed, so the search loop was NOT played in {self:?}\n");
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
pub(super) fn printed(output: &Output) -> String {
    let texts = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let text = texts.concat();
    assert!(output.status.success() && text.ends_with("ok\n"), "{text}");
    text
}
