use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::Arc;

use super::failure::Failure;
use super::unit::Unit;
use crate::source::piece::fill;

/// Bytes of a part that is asked for, and where in a buffer they go.
#[derive(Debug)]
pub(in crate::source) struct Arriving {
    unit: Arc<Unit>,
    /// Bytes of the object.
    range: Range<u64>,
    at: usize,
}

impl Arriving {
    /// None if the bytes cannot be had any more.
    pub(super) fn new(unit: Arc<Unit>, range: Range<u64>, at: usize) -> Option<Self> {
        unit.want(range.end - range.start).then_some(Self { unit, range, at })
    }

    /// Wait for the bytes.
    ///
    /// # Errors
    /// They cannot be had.
    pub(in crate::source) fn take(self, into: &mut [MaybeUninit<u8>]) -> Result<(), Failure> {
        let bytes = self.unit.wait()?;
        let start = (self.range.start - self.unit.range().start) as usize;
        let bytes = &bytes[start..start + (self.range.end - self.range.start) as usize];
        fill(&mut into[self.at..self.at + bytes.len()], bytes);
        Ok(())
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        self.unit.done(self.range.end - self.range.start);
    }
}

/// Parts that were asked for ahead of their readers: they are there, or on their way, as long as this is kept.
#[derive(Debug, Default)]
pub struct Ahead(Vec<Arc<Unit>>);

impl Ahead {
    pub(super) fn of(units: Vec<Arc<Unit>>) -> Self {
        Self(units)
    }

    /// Keep others as well.
    pub fn add(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}
