//! Memory of a device in a rank that fails.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

use crate::error::RankError;

/// A value that owns memory of a device, and is leaked where the rank fails.
///
/// After most CUDA errors every further call fails. The destructor of memory that two streams have used makes such a call (page-locked
/// memory too) and ends the process, before the rank could say why it failed. So on a GPU the value is dropped only when it is taken out,
/// neither by an early return nor by a panic. On the host it is dropped like any other value.
pub struct LeakOnFailure<T> {
    inner: ManuallyDrop<T>,
    on_gpu: bool,
}

impl<T> LeakOnFailure<T> {
    pub fn new(inner: T, on_gpu: bool) -> Self {
        Self { inner: ManuallyDrop::new(inner), on_gpu }
    }

    /// Take the value out, where all is well.
    pub fn into_inner(self) -> T {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped, and nobody uses it again.
        unsafe { ManuallyDrop::take(&mut this.inner) }
    }

    /// Drop the value, unless `result` is a failure of this rank itself.
    pub fn drop_after<R>(self, result: &Result<R, RankError>) {
        if !matches!(result, Err(error) if error.is_own_failure()) {
            drop(self.into_inner());
        }
    }
}

impl<T> Deref for LeakOnFailure<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for LeakOnFailure<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T> Drop for LeakOnFailure<T> {
    fn drop(&mut self) {
        if !self.on_gpu {
            // SAFETY: `into_inner`, the only other place that takes the value, forgets `self`.
            unsafe { ManuallyDrop::drop(&mut self.inner) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    struct Counted<'a>(&'a Cell<u32>);

    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }

    /// Whether what `way` is given is dropped.
    fn drops(on_gpu: bool, way: impl FnOnce(LeakOnFailure<Counted<'_>>)) -> bool {
        let drops = Cell::new(0);
        way(LeakOnFailure::new(Counted(&drops), on_gpu));
        assert!(drops.get() < 2);
        drops.get() == 1
    }

    #[test]
    fn a_failing_rank_frees_nothing_of_a_gpu() {
        let failed: Result<(), RankError> = Err(RankError::Panicked("no memory".to_owned()));
        let stopped: Result<(), RankError> = Err(RankError::Interrupted);
        for on_gpu in [false, true] {
            let returned = drops(on_gpu, |it| {
                let _returns = it;
            });
            assert_eq!(returned, !on_gpu, "an early return");
            assert_eq!(drops(on_gpu, |it| it.drop_after(&failed)), !on_gpu);
            assert!(drops(on_gpu, |it| it.drop_after(&stopped)), "the device is well");
            assert!(drops(on_gpu, |it| it.drop_after(&Ok(()))));
            assert!(drops(on_gpu, |it| drop(it.into_inner())));
            let panicked = drops(on_gpu, |it| {
                let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
                    let _unwound = it;
                    panic!("libtorch's");
                }));
                assert!(caught.is_err());
            });
            assert_eq!(panicked, !on_gpu, "a panic");
        }
    }
}
