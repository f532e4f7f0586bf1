use std::sync::Arc;

use super::Build;
use crate::PipelineError;

/// A reader with the source that it borrows from, for a loader without threads.
pub(super) struct OwnReader<B: Build> {
    // Dropped before what it borrows from: fields go in this order.
    reader: B::Reader<'static>,
    _source: Arc<B::Source>,
}

impl<B: Build> OwnReader<B> {
    /// A reader of this builder.
    ///
    /// # Errors
    /// As [`Build::reader`].
    pub(super) fn open(builder: &B) -> Result<Self, PipelineError> {
        let source = Arc::new(builder.source());
        // SAFETY: the source lies on the heap, is never moved or changed, and lives as long as `_source`, which is dropped after
        // the reader. Nobody sees the reader but through `get`, with a lifetime for which it cannot lend what outlives it:
        // `Build::build` takes readers of every lifetime.
        let lent: &'static B::Source = unsafe { &*Arc::as_ptr(&source) };
        Ok(Self { reader: B::reader(lent)?, _source: source })
    }

    /// The reader.
    pub(super) fn get(&mut self) -> &mut B::Reader<'static> {
        &mut self.reader
    }
}
