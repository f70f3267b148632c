//! Faults planted on purpose, so that the process suite can show that it would notice them. Without the feature `mutants`
//! there are none, and the places that ask compile to nothing.

/// Whether the planted fault `name` is the one that `MUTANT` names.
#[cfg(feature = "mutants")]
pub fn is(name: &str) -> bool {
    static CHOSEN: std::sync::OnceLock<Option<std::ffi::OsString>> = std::sync::OnceLock::new();
    CHOSEN.get_or_init(|| std::env::var_os("MUTANT")).as_ref().is_some_and(|chosen| chosen == name)
}

/// No: this is no mutant.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub const fn is(_: &str) -> bool {
    false
}
