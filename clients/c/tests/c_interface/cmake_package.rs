//! CMake package: a project finds an installed fireteam, its C++ program runs, and the installed examples are built. Prints a notice if cmake is not installed.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use crate::compilers::static_library;

/// Runs cmake. Returns whether it is installed.
fn cmake(change: impl FnOnce(&mut Command)) -> bool {
    let mut command = Command::new("cmake");
    change(&mut command);
    let Ok(output) = command.output() else {
        assert!(std::env::var_os("REQUIRE_C").is_none(), "REQUIRE_C is set, but cmake is missing");
        // Not with eprintln, because the output of a passing test is hidden.
        let notice = b"SKIPPED: cmake is not installed, so the package of the C interface was NOT built\n";
        std::io::stderr().write_all(notice).unwrap();
        return false;
    };
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "{command:?}:\n{text}");
    true
}

#[test]
fn cmake_package_is_found_by_a_project() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cmake-package");
    // An earlier build may be of another folder, which cmake refuses.
    let _ = std::fs::remove_dir_all(&folder);
    let (package, prefix, consumer) = (folder.join("package"), folder.join("prefix"), folder.join("consumer"));
    let is_installed = cmake(|command| {
        let mut library = std::ffi::OsString::from("-DFIRETEAM_C_LIBRARY=");
        library.push(static_library());
        command.arg("-S").arg(root.join("../cpp")).arg("-B").arg(&package).arg("-DFIRETEAM_STUBS=OFF").arg(library);
    });
    if !is_installed {
        return;
    }
    cmake(|command| {
        command.arg("--install").arg(&package).arg("--prefix").arg(&prefix);
    });
    build(&root.join("tests/consumer"), &prefix, &consumer);
    let output = Command::new(consumer.join("consumer")).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n", "{}", String::from_utf8_lossy(&output.stderr));

    // The installed examples are a project of their own.
    let examples = folder.join("examples");
    build(&prefix.join("share/fireteam/examples"), &prefix, &examples);
    for example in ["search", "host", "queue", "game_server", "search_in_c", "queue_in_c"] {
        let output = Command::new(examples.join(example)).output().unwrap();
        assert!(String::from_utf8_lossy(&output.stderr).starts_with("use: "), "{example}: {output:?}");
    }
}

/// Builds a project with the installed package.
fn build(source: &Path, prefix: &Path, folder: &Path) {
    cmake(|command| {
        let mut prefix_path = std::ffi::OsString::from("-DCMAKE_PREFIX_PATH=");
        prefix_path.push(prefix);
        command.arg("-S").arg(source).arg("-B").arg(folder).arg(prefix_path);
    });
    cmake(|command| {
        command.arg("--build").arg(folder);
    });
}
