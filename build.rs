//! Compiles proto/ with protox, so that building needs no protoc, and saves the descriptors that reflection serves.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};

use prost::Message as _;
use prost_types::FileDescriptorProto;

/// Messages that the server writes already encoded, so that an answer of many candidates costs one buffer.
const ENCODED_BY_HAND: [&str; 2] =
    [".fireteam.v1.MatchmakingSearchResponse", ".fireteam.v1.MatchmakingReportLatencyResponse"];

/// Proto files served on each port.
const PORTS: [(&str, &[&str]); 2] = [
    ("matchmaking", &["fireteam/v1/matchmaking.proto", "fireteam/v1/queue.proto", "fireteam/v1/ratings.proto"]),
    ("operator", &["fireteam/v1/operator.proto"]),
];

/// Large parts of envelopes, of which each carries one: in boxes an envelope is small, and it is passed on from hand to
/// hand. What most answers carry is not put in a box.
const BOXED: [&str; 4] = [
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
        std::fs::write(out.join(format!("migrations_{store}.rs")), migration_list(store)?)?;
    }

    // One descriptor set for each port: what players see must not list the operator's service.
    let mut served = Vec::new();
    for (name, files) in PORTS {
        let mut set = compiled(files)?.file_descriptor_set();
        // Of what is imported messages are described, and no service that is served elsewhere.
        let imported = |file: &&mut FileDescriptorProto| !files.contains(&file.name());
        set.file.iter_mut().filter(imported).for_each(|file| file.service.clear());
        std::fs::write(out.join(format!("{name}.bin")), set.encode_to_vec())?;
        served.extend(set.file.iter().flat_map(methods));
    }
    // The table of methods is held against it while it is compiled.
    std::fs::write(out.join("served.rs"), format!("{served:?}"))?;
    let all = PORTS.iter().flat_map(|(_, files)| files.iter().copied()).collect::<Vec<_>>();
    let all = compiled(&all)?.file_descriptor_set();

    let mut server = tonic_prost_build::configure().build_client(false).btree_map(".");
    for field in BOXED {
        server = server.boxed(field);
    }
    for message in ENCODED_BY_HAND {
        server = server.extern_path(message, "crate::api::response_encoder::EncodedResponse");
    }
    server.compile_fds(all.clone())?;

    // The same messages in their plain form, with clients, for tests alone: a judge of what is written by hand.
    let plain = out.join("plain");
    std::fs::create_dir_all(&plain)?;
    // A generated `connect()` would clash with the rpc of that name, hence no transport.
    tonic_prost_build::configure()
        .build_server(false)
        .build_transport(false)
        .btree_map(".")
        .out_dir(plain)
        .compile_fds(all)?;
    Ok(())
}

/// Array of a store's migration files, as Rust source: version, description and SQL of each. sqlx's macro would do the
/// same, but it compiles sqlx and SQLite a second time, for the build.
fn migration_list(store: &str) -> Result<String, Box<dyn Error>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(Path::new("migrations").join(store))? {
        names.push(entry?.file_name().into_string().map_err(|name| format!("{name:?} is not UTF-8; rename it"))?);
    }
    names.sort();
    let mut list = String::from("[");
    for name in names {
        let parts = name.strip_suffix(".sql").and_then(|stem| stem.split_once('_'));
        let (version, description) =
            parts.ok_or(format!("migrations/{store}/{name}: name it <version>_<words>.sql"))?;
        let (version, description) = (version.parse::<i64>()?, description.replace('_', " "));
        let path = format!("concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/migrations/{store}/{name}\")");
        list += &format!("({version}, {description:?}, include_str!({path})), ");
    }
    Ok(list + "]")
}

/// The methods of a file, as `package.Service/Method`.
fn methods(file: &FileDescriptorProto) -> Vec<String> {
    let of_service = |service: &prost_types::ServiceDescriptorProto| {
        let named = format!("{}.{}", file.package(), service.name());
        service.method.iter().map(|method| format!("{named}/{}", method.name())).collect::<Vec<_>>()
    };
    file.service.iter().flat_map(of_service).collect()
}

/// Comments are kept: they become documentation of the generated code and of what reflection describes.
fn compiled(files: &[&str]) -> Result<protox::Compiler, Box<dyn Error>> {
    let mut compiler = protox::Compiler::new([Path::new("proto")])?;
    compiler.include_source_info(true).include_imports(true);
    compiler.open_files(files)?;
    Ok(compiler)
}
