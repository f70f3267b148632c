//! Compiles proto/ with protox, so that the build needs no protoc. Saves the descriptor sets for reflection, and the list of
//! migrations.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};

use prost::Message as _;
use prost_types::FileDescriptorProto;

/// Response messages that `src/api/response_encoder.rs` encodes, so that a response with many candidates needs one buffer.
const PRE_ENCODED_MESSAGES: [&str; 2] =
    [".fireteam.v1.MatchmakingSearchResponse", ".fireteam.v1.MatchmakingReportLatencyResponse"];

/// Proto files whose services each port serves.
const PROTO_FILES_BY_PORT: [(&str, &[&str]); 2] = [
    (
        "matchmaking",
        &[
            "fireteam/v1/matchmaking.proto",
            "fireteam/v1/latency.proto",
            "fireteam/v1/queue.proto",
            "fireteam/v1/ratings.proto",
            "fireteam/v1/allocation.proto",
        ],
    ),
    ("operator", &["fireteam/v1/operator.proto"]),
];

/// Large fields of the envelopes. An envelope carries one of its fields and is moved often, so boxes keep it small. The
/// fields of the most frequent responses are not boxed.
const BOXED_FIELDS: [&str; 4] = [
    ".fireteam.v1.MatchmakingCoreRequest.search_request",
    ".fireteam.v1.MatchmakingCoreRequest.update_advertisement_request",
    ".fireteam.v1.MatchmakingCoreResponse.get_configuration_response",
    ".fireteam.v1.MatchmakingCoreResponse.error",
];

#[expect(clippy::disallowed_methods, reason = "cargo passes the output directory in the environment")]
fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    println!("cargo:rerun-if-changed=migrations");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    for store in ["sqlite", "postgres"] {
        std::fs::write(out.join(format!("migrations_{store}.rs")), migration_list_source(store)?)?;
    }

    // One descriptor set per port: reflection on the client port must not list the operator service.
    let mut served_methods = Vec::new();
    for (name, files) in PROTO_FILES_BY_PORT {
        let mut descriptors = compile_protos(files)?.file_descriptor_set();
        // Imported files keep their messages, but not their services, which another port serves.
        let is_imported = |file: &&mut FileDescriptorProto| !files.contains(&file.name());
        descriptors.file.iter_mut().filter(is_imported).for_each(|file| file.service.clear());
        std::fs::write(out.join(format!("{name}.bin")), descriptors.encode_to_vec())?;
        served_methods.extend(descriptors.file.iter().flat_map(method_names));
    }
    // `src/api/rpc_method.rs` compares its table with this list at compile time.
    std::fs::write(out.join("served.rs"), format!("{served_methods:?}"))?;
    let all_files = PROTO_FILES_BY_PORT.iter().flat_map(|(_, files)| files.iter().copied()).collect::<Vec<_>>();
    let all_descriptors = compile_protos(&all_files)?.file_descriptor_set();

    let mut server = tonic_prost_build::configure().build_client(false).btree_map(".");
    for field in BOXED_FIELDS {
        server = server.boxed(field);
    }
    for message in PRE_ENCODED_MESSAGES {
        server = server.extern_path(message, "crate::api::response_encoder::EncodedCandidatesResponse");
    }
    server.compile_fds(all_descriptors.clone())?;

    // The same messages without substitutions, with clients, for tests only. Tests compare the server's own encoding with it.
    let plain = out.join("plain");
    std::fs::create_dir_all(&plain)?;
    // No transport: the generated function `connect` would conflict with the RPC of that name.
    tonic_prost_build::configure()
        .build_server(false)
        .build_transport(false)
        .btree_map(".")
        .out_dir(plain)
        .compile_fds(all_descriptors)?;

    // For an example allocator, and for the stand-in server of its test.
    println!("cargo:rerun-if-changed=examples/allocators/agones.proto");
    let mut agones = protox::Compiler::new([Path::new("examples/allocators")])?;
    agones.open_files(["agones.proto"])?;
    let agones_out = out.join("agones");
    std::fs::create_dir_all(&agones_out)?;
    tonic_prost_build::configure()
        .build_transport(false)
        .btree_map(".")
        .server_mod_attribute(".", "#[cfg(test)]")
        .out_dir(agones_out)
        .compile_fds(agones.file_descriptor_set())?;
    Ok(())
}

/// Rust source of an array of a store's migrations: version, description and SQL of each. sqlx's macro does the same, but
/// compiles sqlx and SQLite a second time, for the build.
fn migration_list_source(store: &str) -> Result<String, Box<dyn Error>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(Path::new("migrations").join(store))? {
        names.push(entry?.file_name().into_string().map_err(|name| format!("{name:?} is not UTF-8; rename it"))?);
    }
    names.sort();
    let mut source = String::from("[");
    for name in names {
        let parts = name.strip_suffix(".sql").and_then(|stem| stem.split_once('_'));
        let (version, description) =
            parts.ok_or(format!("migrations/{store}/{name}: name it <version>_<words>.sql"))?;
        let (version, description) = (version.parse::<i64>()?, description.replace('_', " "));
        let path = format!("concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/migrations/{store}/{name}\")");
        source += &format!("({version}, {description:?}, include_str!({path})), ");
    }
    Ok(source + "]")
}

/// Methods of a file's services, as `package.Service/Method`.
fn method_names(file: &FileDescriptorProto) -> Vec<String> {
    let service_methods = |service: &prost_types::ServiceDescriptorProto| {
        let service_name = format!("{}.{}", file.package(), service.name());
        service.method.iter().map(|method| format!("{service_name}/{}", method.name())).collect::<Vec<_>>()
    };
    file.service.iter().flat_map(service_methods).collect()
}

/// Compiles proto files with their comments: these document the generated code, and reflection serves them.
fn compile_protos(files: &[&str]) -> Result<protox::Compiler, Box<dyn Error>> {
    let mut compiler = protox::Compiler::new([Path::new("proto")])?;
    compiler.include_source_info(true).include_imports(true);
    compiler.open_files(files)?;
    Ok(compiler)
}
