//! The repository itself: dependency rules, wording, documents, coverage.

pub(crate) mod client_packages;
pub(crate) mod configuration;
pub(crate) mod coverage;
pub(crate) mod dashboards;
pub(crate) mod dependency_floors;
pub(crate) mod fuzz_corpus;
pub(crate) mod generated_clients;
pub(crate) mod instruction_counts;
pub(crate) mod layering;
pub(crate) mod packaging;
pub(crate) mod structure;
pub(crate) mod tidy;
pub(crate) mod transcripts;
pub(crate) mod words;
