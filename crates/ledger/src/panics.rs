//! The `parquet` crate panics on some damaged files. Here that becomes its error, and nothing is printed.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use parquet::errors::ParquetError;

thread_local! {
    /// Whether this thread is inside [`without_panics`].
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// What `read` returns; a panic of it on this thread as [`ParquetError::General`]. What `read` has changed when it panics must not be
/// used any more.
///
/// # Errors
/// Those of `read`, and its panics.
pub fn without_panics<T, E: From<ParquetError>>(read: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let other = take_hook();
        set_hook(Box::new(move |panic| {
            if !INSIDE.get() {
                other(panic);
            }
        }));
    });
    INSIDE.set(true);
    let result = catch_unwind(AssertUnwindSafe(read));
    INSIDE.set(false);
    result.unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<&str>().map(|words| (*words).to_owned());
        let words = words.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(ParquetError::General(format!("the file is damaged ({words})")).into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_that_says_its_words() {
        let read = |index: usize| without_panics(|| Ok::<_, ParquetError>([1, 2, 3][index]));
        assert_eq!(read(2).unwrap(), 3);
        let error = read(std::hint::black_box(7)).unwrap_err().to_string();
        assert!(error.contains("the file is damaged (index out of bounds"), "{error}");
        assert!(!INSIDE.get());
    }
}
