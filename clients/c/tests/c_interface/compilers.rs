//! C and C++ compilers: the example is built with all warnings as errors, and the headers with those for other systems, too. A compiler that is
//! missing is a notice on stderr; with `REQUIRE_C=1` in the environment, a missing gcc or g++ is a failure.

use std::io::Write;
use std::path::Path;
#[cfg(feature = "client")]
use std::path::PathBuf;
use std::process::Command;

/// Compiler: its command, its flags, and whether the tests may need it.
pub(crate) struct Compiler {
    command: &'static str,
    flags: &'static [&'static str],
    is_required: bool,
}

pub(crate) const GCC: Compiler =
    Compiler { command: "gcc", flags: &["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"], is_required: true };
pub(crate) const GXX: Compiler = Compiler { command: "g++", flags: CPP_FLAGS, is_required: true };
pub(crate) const CLANG: Compiler = Compiler {
    command: "clang",
    flags: &["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"],
    is_required: false,
};
const CLANGXX: Compiler = Compiler { command: "clang++", flags: CPP_FLAGS, is_required: false };
/// Windows. Its programs cannot run here, and the example needs POSIX sockets: only the header is compiled.
const MINGW: Compiler = Compiler {
    command: "x86_64-w64-mingw32-gcc",
    flags: &["-std=c11", "-Wall", "-Wextra", "-Werror"],
    is_required: false,
};

const MINGWXX: Compiler = Compiler { command: "x86_64-w64-mingw32-g++", flags: CPP_FLAGS, is_required: false };

/// C++17 with all warnings as errors.
const CPP_FLAGS: &[&str] = &["-x", "c++", "-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror"];

/// Libraries of the system that the static library needs, as `rustc --print native-static-libs` lists them.
#[cfg(feature = "client")]
const SYSTEM_LIBRARIES: &[&str] = &["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl", "-lc"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Static library, which cargo builds beside the test.
#[cfg(feature = "client")]
pub(crate) fn static_library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.parent().unwrap().join("libfireteam_c.a");
    assert!(library.exists(), "{} does not exist", library.display());
    library
}

/// Runs a compiler. `None` if it is not installed.
fn run(compiler: &Compiler, arguments: &mut dyn FnMut(&mut Command)) -> Option<()> {
    let mut command = Command::new(compiler.command);
    command.args(compiler.flags).arg("-I").arg(root().join("include")).arg("-I").arg(root().join("../cpp/include"));
    arguments(&mut command);
    let Ok(output) = command.output() else {
        let name = compiler.command;
        assert!(
            !compiler.is_required || std::env::var_os("REQUIRE_C").is_none(),
            "REQUIRE_C is set, but {name} is missing"
        );
        // Not with eprintln, because the output of a passing test is hidden.
        let notice = format!("SKIPPED: {name} is not installed, so the C interface was NOT compiled with it\n");
        std::io::stderr().write_all(notice.as_bytes()).unwrap();
        return None;
    };
    assert!(output.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&output.stderr));
    Some(())
}

/// The example in C as a program. `None` if the compiler is not installed.
#[cfg(feature = "client")]
pub(crate) fn build_program(compiler: &Compiler) -> Option<PathBuf> {
    build_source(compiler, &root().join("examples/search.c"), "search")
}

/// A source as a program with this name and that of the compiler. `None` if the compiler is not installed.
#[cfg(feature = "client")]
fn build_source(compiler: &Compiler, source: &Path, name: &str) -> Option<PathBuf> {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", compiler.command));
    run(compiler, &mut |command| {
        command.arg(source).args(["-x", "none"]).arg(static_library());
        command.args(SYSTEM_LIBRARIES).arg("-o").arg(&program);
    })?;
    Some(program)
}

/// Each compiler takes the header by itself, as C11 or C++17.
#[test]
fn header_compiles_alone() {
    for compiler in [&GCC, &GXX, &CLANG, &CLANGXX, &MINGW, &MINGWXX] {
        check_syntax(
            compiler,
            "header",
            "#include <fireteam.h>\nint fireteam_version(void);\nint fireteam_version(void) { return FT_INTERFACE_VERSION; }\n",
        );
    }
}

/// Each compiler takes each C++ header by itself. They are templates: the consumer of the package instantiates them.
#[test]
fn cpp_headers_compile_alone() {
    for compiler in [&GXX, &CLANGXX, &MINGWXX] {
        for header in ["beacons", "client", "match_host", "matching", "object", "queueing"] {
            check_syntax(compiler, header, &format!("#include <fireteam/{header}.hpp>\n"));
        }
        let consumer = std::fs::read_to_string(root().join("tests/consumer/main.cpp")).unwrap();
        check_syntax(compiler, "consumer", &consumer);
    }
}

/// Each compiler of this system takes the examples: those in C as C++, too.
#[test]
fn examples_compile() {
    for (compiler, examples) in [
        (&GCC, ["search.c", "queue.c"].as_slice()),
        (&CLANG, &["search.c", "queue.c"]),
        (&GXX, &["search.c", "queue.c", "search.cpp", "host.cpp", "queue.cpp", "game_server.cpp"]),
        (&CLANGXX, &["search.c", "queue.c", "search.cpp", "host.cpp", "queue.cpp", "game_server.cpp"]),
    ] {
        for example in examples {
            run(compiler, &mut |command| {
                command.arg("-fsyntax-only").arg(root().join("examples").join(example));
            });
        }
    }
}

/// The consumer of the package, built by another compiler, runs with the library.
#[cfg(feature = "client")]
#[test]
fn consumer_by_clang_runs() {
    let source = root().join("tests/consumer/main.cpp");
    let Some(program) = build_source(&CLANGXX, &source, "consumer") else { return };
    let output = Command::new(program).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n", "{}", String::from_utf8_lossy(&output.stderr));
}

/// Checks a source without output.
fn check_syntax(compiler: &Compiler, name: &str, text: &str) {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.txt", compiler.command));
    std::fs::write(&source, text).unwrap();
    let language = if compiler.flags.contains(&"c++") { "c++" } else { "c" };
    run(compiler, &mut |command| {
        command.args(["-x", language, "-fsyntax-only"]).arg(&source);
    });
}
