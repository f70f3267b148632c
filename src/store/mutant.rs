//! Deliberate faults that the process tests must detect. Without the feature `mutants` there are none, and the calls
//! compile to nothing.

/// Whether the environment variable `MUTANT` selects the fault `name`.
#[cfg(feature = "mutants")]
pub fn is(name: &str) -> bool {
    static CHOSEN: std::sync::OnceLock<Option<std::ffi::OsString>> = std::sync::OnceLock::new();
    CHOSEN.get_or_init(|| std::env::var_os("MUTANT")).as_ref().is_some_and(|chosen| chosen == name)
}

/// Always false: the feature `mutants` is off.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub const fn is(_: &str) -> bool {
    false
}
