//! The simulator.

pub(crate) mod command;
pub(crate) mod rating_study;
pub(crate) mod searches;
pub(crate) mod world;
