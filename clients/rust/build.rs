//! Compiles the proto files with protox, so that building the client needs no protoc.

use std::error::Error;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    println!("cargo:rerun-if-changed={}", root.display());

    let mut compiler = protox::Compiler::new([&root])?;
    compiler.include_source_info(true).include_imports(true);
    compiler.open_files(proto_files(&root.join("fireteam/v1"))?)?;

    // Server stubs are for the scripted server of the tests only.
    // No generated `connect()`: its name would clash with the RPC `Connect`, and lib.rs has its own.
    tonic_prost_build::configure()
        .build_transport(false)
        .server_mod_attribute(".", "#[cfg(test)]")
        .compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}

/// Proto files of one package, in name order, so that the generated code is deterministic.
fn proto_files(folder: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "proto") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
