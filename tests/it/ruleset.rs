//! Rulesets: parsing, validation, hashing, reload.

pub(crate) mod action_probabilities;
pub(crate) mod allocation;
pub(crate) mod catalog;
pub(crate) mod check_warnings;
pub(crate) mod cross_checks;
pub(crate) mod documented_numbers;
pub(crate) mod expansion;
pub(crate) mod golden_diagnostics;
pub(crate) mod hash;
pub(crate) mod hostile;
pub(crate) mod shipped_files;
pub(crate) mod wait_outlook;
pub(crate) mod xml_well_formed;
