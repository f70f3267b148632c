//! The server process: start, configuration, reload of files, stop.

pub(crate) mod beacon;
pub(crate) mod config_command;
pub(crate) mod dashboards;
pub(crate) mod doctor;
pub(crate) mod error_messages;
pub(crate) mod file_reload;
pub(crate) mod full_disk;
pub(crate) mod graceful_shutdown;
pub(crate) mod hidden_passwords;
pub(crate) mod recorded_alerts;
pub(crate) mod special_files;
pub(crate) mod startup;
pub(crate) mod stop;
pub(crate) mod store_wait;
pub(crate) mod task_panics;
pub(crate) mod tls_certificates;
pub(crate) mod traces;
