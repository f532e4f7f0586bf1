use std::ops::Range;
use std::path::{Path, PathBuf};

use expctl_record::StoreKind;

use super::mask_decoder::MaskDecoder;
use super::{MaskSizes, RecordDecoder, Sample, ids};
use crate::PipelineError;

/// Decodes the records of any kind of store. Threads share it.
pub struct StoreDecoder {
    store: PathBuf,
    form: Form,
}

enum Form {
    Json(RecordDecoder),
    Masks(MaskDecoder),
    Ids { genes: usize },
}

impl StoreDecoder {
    /// A decoder of the base store.
    pub fn json(store: &Path, decoder: RecordDecoder) -> Self {
        Self { store: store.to_owned(), form: Form::Json(decoder) }
    }

    /// A decoder of a store that was made from the base store, for a trial with these edge types.
    ///
    /// # Errors
    /// The store has no masks of an edge type, or is the base store.
    pub fn converted(
        store: &Path,
        kind: StoreKind,
        sizes: MaskSizes,
        edge_types: &[String],
        metabolism: bool,
    ) -> Result<Self, PipelineError> {
        let form = if kind == StoreKind::Ids {
            Form::Ids { genes: sizes.genes() }
        } else {
            let masks = MaskDecoder::new(kind, sizes, edge_types, metabolism);
            Form::Masks(masks.map_err(|reason| PipelineError::Invalid(format!("{}: {reason}", store.display())))?)
        };
        Ok(Self { store: store.to_owned(), form })
    }

    /// Decode record `index`, which lies at `range` of the batch's `bytes`, into `sample`, whose buffers are used again.
    /// Masks are not copied: the sample says where they lie in `bytes`. After an error the sample has no meaning.
    ///
    /// # Errors
    /// The record does not have the documented content.
    pub fn decode(
        &self,
        index: u64,
        bytes: &[u8],
        range: Range<usize>,
        sample: &mut Sample,
    ) -> Result<(), PipelineError> {
        let result = match &self.form {
            Form::Json(decoder) => return decoder.decode(index, &bytes[range], sample),
            Form::Masks(decoder) => decoder.decode(bytes, range, sample),
            Form::Ids { genes } => ids::decode(&bytes[range], *genes, sample),
        };
        result.map_err(|reason| PipelineError::Record { store: self.store.clone(), index, reason })
    }
}
