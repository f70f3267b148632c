//! Test support: servers on free ports, scripted parts, certificates, tokens, Postgres.

pub(crate) mod allocator;
#[path = "../common/certs.rs"]
pub(crate) mod certs;
pub(crate) mod database;
pub(crate) mod faulty_engine;
#[path = "../common/faulty_store.rs"]
pub(crate) mod faulty_store;
pub(crate) mod generated_client;
pub(crate) mod grpc_json;
pub(crate) mod hostile_documents;
pub(crate) mod http_client;
pub(crate) mod message_fields;
pub(crate) mod party_site;
pub(crate) mod queue_server;
pub(crate) mod ruleset_dir;
pub(crate) mod scripted_engine;
pub(crate) mod scripted_server;
pub(crate) mod server_process;
pub(crate) mod shared_data;
pub(crate) mod source_tree;
pub(crate) mod test_server;
pub(crate) mod tokens;
