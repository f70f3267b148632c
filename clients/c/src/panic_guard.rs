//! Objects that are out of use after a function on them has panicked: their state may be half changed.

use crate::status::FT_ERROR_PANIC;

/// Object of the interface, and whether it may still be used.
pub(crate) struct PanicGuard<Object> {
    object: Object,
    /// A function runs, or has ended by a panic.
    has_unfinished_run: bool,
}

impl<Object> PanicGuard<Object> {
    pub(crate) fn new(object: Object) -> Self {
        Self { object, has_unfinished_run: false }
    }

    /// The object, also after a panic, for `Debug`.
    pub(crate) fn object(&self) -> &Object {
        &self.object
    }

    /// Runs a function on the object, unless an earlier one has ended by a panic.
    pub(crate) fn run<T>(&mut self, function: impl FnOnce(&mut Object) -> T) -> Result<T, i32> {
        if std::mem::replace(&mut self.has_unfinished_run, true) {
            return Err(FT_ERROR_PANIC);
        }
        let result = function(&mut self.object);
        self.has_unfinished_run = false;
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn object_is_out_of_use_after_a_panic() {
        let mut guard = PanicGuard::new(7);
        assert_eq!(guard.run(|number| *number), Ok(7));
        let panicked = catch_unwind(AssertUnwindSafe(|| guard.run(|_| -> i32 { panic!("a bug of the object") })));
        assert!(panicked.is_err());
        assert_eq!((guard.run(|number| *number), *guard.object()), (Err(FT_ERROR_PANIC), 7));
    }
}
