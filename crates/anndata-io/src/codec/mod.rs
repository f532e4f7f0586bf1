//! Filters and codecs of chunks.
//!
//! Invariant: for any input, the output has exactly the size of a chunk, or there is an error; nothing is read or written
//! outside of the buffers.

use std::io;

pub mod filter_chain;
pub mod filters;

/// Why a chunk cannot be decompressed. The texts are predicates of the chunk or of its array.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    #[error(
        "is written with the filter {}; those that can be read are gzip, shuffle, fletcher32, lzf, blosc, lz4 and zstd: write \
         the file again with one of them, in Python by `import hdf5plugin, anndata` and \
         `anndata.read_h5ad(old).write_h5ad(new, compression=\"gzip\")`",
        filter_chain::filter_name(*number)
    )]
    UnknownFilter { number: i32 },
    #[error("is compressed twice, with two filters; write the file again with one")]
    CompressedTwice,
    #[error("damaged {codec} data")]
    Damaged { codec: &'static str },
    #[error("damaged {codec} data: {source}")]
    Decoder { codec: &'static str, source: io::Error },
    #[error("compressed with blosc's snappy, which is not built in: write it again with lz4 or zstd")]
    BloscSnappy,
    #[error("its checksum ({checksum}) is another one")]
    Checksum { checksum: &'static str },
    /// Sizes in bytes.
    #[error("decompresses to {found} bytes instead of {expected}")]
    Length { found: usize, expected: usize },
    #[error("decompresses to more than {max_bytes} bytes")]
    TooLong { max_bytes: usize },
    #[error("{codec} data of an unknown length")]
    UnknownLength { codec: &'static str },
    #[error("there is no {codec} decompressor: {source}")]
    NoDecompressor { codec: &'static str, source: io::Error },
    #[error("{codec} cannot compress {bytes} bytes")]
    NotCompressed { codec: &'static str, bytes: usize },
}
