//! The one test binary; each module below is a chapter. One binary, because every file beside it would link the
//! whole server again.

// `cfg(test)` says nothing new to the compiler; it tells clippy that the helpers here are tests too.
#[cfg(test)]
mod admission;
#[cfg(test)]
mod advertise_rpc;
#[cfg(test)]
mod audit_rpc;
#[cfg(test)]
mod bad_numbers;
#[cfg(test)]
mod badges;
#[cfg(test)]
mod config_command;
#[cfg(test)]
mod connect_rpc;
#[cfg(test)]
mod consent_rpc;
#[cfg(test)]
mod convert_answer;
#[cfg(test)]
mod convert_fields;
#[cfg(test)]
mod convert_session;
#[cfg(test)]
mod coverage;
#[cfg(test)]
mod cpp_client;
#[cfg(test)]
mod database;
#[cfg(test)]
mod doors_rpc;
#[cfg(test)]
mod expiry_outage;
#[cfg(test)]
mod faulty_store;
#[cfg(test)]
mod feed;
#[cfg(test)]
mod floors;
#[cfg(test)]
mod fuzz_corpus;
#[cfg(test)]
mod geo_data;
#[cfg(test)]
mod geo_regret;
#[cfg(test)]
mod geo_tour;
#[cfg(test)]
mod geo_vectors;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod hostile_documents;
#[cfg(test)]
mod identity_life;
#[cfg(test)]
mod identity_matrix;
#[cfg(test)]
mod import_ratings;
#[cfg(test)]
mod layering;
#[cfg(test)]
mod match_credential;
#[cfg(test)]
mod ownership;
#[cfg(test)]
#[path = "../common/papers.rs"]
mod papers;
#[cfg(test)]
mod plain;
#[cfg(test)]
mod process;
#[cfg(test)]
mod process_badges;
#[cfg(test)]
mod process_canary;
#[cfg(test)]
mod process_flood;
#[cfg(test)]
mod process_kill;
#[cfg(test)]
mod process_lane;
#[cfg(test)]
mod process_queue;
#[cfg(test)]
mod process_start;
#[cfg(test)]
mod process_stop;
#[cfg(test)]
mod process_swap;
#[cfg(test)]
mod process_tls;
#[cfg(test)]
mod queue_kit;
#[cfg(test)]
mod queue_pace;
#[cfg(test)]
mod queue_pipeline;
#[cfg(test)]
mod queue_races;
#[cfg(test)]
mod queue_replay;
#[cfg(test)]
mod queue_rpc;
#[cfg(test)]
mod queue_wishes;
#[cfg(test)]
mod quota_rpc;
#[cfg(test)]
mod rate_command;
#[cfg(test)]
mod ratings_rpc;
#[cfg(test)]
mod readme;
#[cfg(test)]
mod readme_calls;
#[cfg(test)]
mod reload_rpc;
#[cfg(test)]
mod replicas;
#[cfg(test)]
mod rulebook;
#[cfg(test)]
mod ruleset_catalog;
#[cfg(test)]
mod ruleset_chances;
#[cfg(test)]
mod ruleset_expansion;
#[cfg(test)]
mod ruleset_files;
#[cfg(test)]
mod ruleset_golden;
#[cfg(test)]
mod ruleset_hash;
#[cfg(test)]
mod ruleset_hostile;
#[cfg(test)]
mod ruleset_outlook;
#[cfg(test)]
mod ruleset_seeds;
#[cfg(test)]
mod ruleset_sense;
#[cfg(test)]
mod ruleset_wellformed;
#[cfg(test)]
mod scripted;
#[cfg(test)]
mod search_allocations;
#[cfg(test)]
mod search_cost;
#[cfg(test)]
mod search_rpc;
#[cfg(test)]
mod search_token_rpc;
#[cfg(test)]
mod seats_rpc;
#[cfg(test)]
mod shared_data;
#[cfg(test)]
mod sim_study;
#[cfg(test)]
mod sim_world;
#[cfg(test)]
mod simulate_command;
#[cfg(test)]
mod sources;
#[cfg(test)]
mod stage;
#[cfg(test)]
mod store_crash;
#[cfg(test)]
mod store_file;
#[cfg(test)]
mod store_kit;
#[cfg(test)]
mod store_model;
#[cfg(test)]
mod store_queue_file;
#[cfg(test)]
mod store_queue_kit;
#[cfg(test)]
mod store_queue_model;
#[cfg(test)]
mod store_queue_sequences;
#[cfg(test)]
mod store_queue_servers;
#[cfg(test)]
mod store_queue_story;
#[cfg(test)]
mod store_results;
#[cfg(test)]
mod store_runs;
#[cfg(test)]
mod store_sequences;
#[cfg(test)]
mod store_story;
#[cfg(test)]
mod systems;
#[cfg(test)]
mod systems_aims;
#[cfg(test)]
mod tidy;
#[cfg(test)]
mod token_key_file;
#[cfg(test)]
mod trilateration;
#[cfg(test)]
mod trust;
#[cfg(test)]
mod update_runs;
#[cfg(test)]
mod vector_phases;
#[cfg(test)]
mod vector_queues;
#[cfg(test)]
mod vector_ratings;
#[cfg(test)]
mod vector_scores;
#[cfg(test)]
mod vector_stories;
#[cfg(test)]
mod vector_teams;
#[cfg(test)]
mod walk_rpc;
#[cfg(test)]
mod wire_connect;
#[cfg(test)]
mod wire_doors;
#[cfg(test)]
mod wire_edge;
#[cfg(test)]
mod wire_frames;
#[cfg(test)]
mod wire_operator;
#[cfg(test)]
mod wire_proxy;
#[cfg(test)]
mod wire_shutdown;
#[cfg(test)]
mod wire_tls;
#[cfg(test)]
mod wire_vectors;
