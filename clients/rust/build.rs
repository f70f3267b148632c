//! Compiles the proto files with protox, so that building the client needs no protoc. Messages with secrets get a `Debug` that
//! hides them.

use std::collections::BTreeSet;
use std::env;
use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use protox::prost_reflect::prost_types::field_descriptor_proto::{Label, Type};
use protox::prost_reflect::prost_types::{DescriptorProto, FieldDescriptorProto};

#[expect(clippy::disallowed_methods, reason = "cargo passes the output directory in the environment")]
fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    println!("cargo:rerun-if-changed={}", root.display());

    let mut compiler = protox::Compiler::new([&root])?;
    compiler.include_source_info(true).include_imports(true);
    compiler.open_files(proto_files(&root.join("fireteam/v1"))?)?;
    let descriptors = compiler.file_descriptor_set();

    let own_files = descriptors.file.iter().filter(|file| file.package() == "fireteam.v1");
    let messages: Vec<&DescriptorProto> =
        own_files.flat_map(|file| &file.message_type).filter(|message| message.field.iter().any(is_secret)).collect();
    let impls = messages.iter().map(|message| debug_impl(message)).collect::<Result<String, _>>()?;
    std::fs::write(PathBuf::from(env::var("OUT_DIR")?).join("debug.rs"), impls)?;
    let hidden: Vec<String> = messages.iter().map(|message| format!(".fireteam.v1.{}", message.name())).collect();

    // Server stubs are for the scripted server of the tests only.
    // No generated `connect()`: its name would clash with the RPC `Connect`, and lib.rs has its own.
    tonic_prost_build::configure()
        .build_transport(false)
        .server_mod_attribute(".", "#[cfg(test)]")
        .skip_debug(hidden)
        .compile_fds(descriptors)?;
    Ok(())
}

/// Whether a field holds a secret: a token that proves a permission, a player's credential, the address of a host, or the key of
/// its probes.
fn is_secret(field: &FieldDescriptorProto) -> bool {
    let name = field.name();
    let is_text = matches!(field.r#type(), Type::Bytes | Type::String);
    is_text
        && (name.ends_with("_token") && !name.ends_with("page_token")
            || ["connect_data", "credential", "probe_key"].contains(&name))
}

/// Source of a message's `Debug`, which prints the lengths of secrets.
fn debug_impl(message: &DescriptorProto) -> Result<String, std::fmt::Error> {
    let mut source = String::new();
    let name = message.name();
    writeln!(source, "impl ::core::fmt::Debug for {name} {{")?;
    writeln!(source, "    fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {{")?;
    writeln!(source, "        f.debug_struct({name:?})")?;
    let mut oneofs = BTreeSet::new();
    for field in &message.field {
        let oneof =
            field.oneof_index.filter(|_| !field.proto3_optional()).and_then(|at| message.oneof_decl.get(at as usize));
        let field_name = oneof.map_or(field.name(), |oneof| oneof.name());
        if oneof.is_some() && !oneofs.insert(field_name.to_owned()) {
            continue;
        }
        // An enum's accessor gives its name instead of its number.
        let is_plain_enum =
            field.r#type() == Type::Enum && field.label() != Label::Repeated && !field.proto3_optional();
        let value = match field {
            _ if oneof.is_none() && is_secret(field) => format!("&debug_secret_length(&self.r#{field_name})"),
            _ if oneof.is_none() && is_plain_enum => format!("&self.{field_name}()"),
            _ => format!("&self.r#{field_name}"),
        };
        writeln!(source, "            .field({field_name:?}, {value})")?;
    }
    writeln!(source, "            .finish()\n    }}\n}}\n")?;
    Ok(source)
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
