//! Rulesets of a running server.

pub(crate) mod activator;
