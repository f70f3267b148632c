//! Integration tests in one binary: each further binary would link the whole server again.

// `cfg(test)` tells clippy that helper functions here are tests too.
#[cfg(test)]
mod api;
#[cfg(test)]
mod geo;
#[cfg(test)]
mod player_attributes;
#[cfg(test)]
mod queue;
#[cfg(test)]
mod rating;
#[cfg(test)]
mod repository;
#[cfg(test)]
mod ruleset;
#[cfg(test)]
mod security;
#[cfg(test)]
mod server;
#[cfg(test)]
mod session_match;
#[cfg(test)]
mod sim;
#[cfg(test)]
mod statistics;
#[cfg(test)]
mod store;
#[cfg(test)]
mod support;
#[cfg(test)]
mod wishes;
