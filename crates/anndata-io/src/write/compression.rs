use std::path::Path;

use hdf5_metno::filters::Filter;
use libdeflater::{CompressionLvl, Compressor};

use crate::AnnDataError;

/// Filter of HDF5's registry: LZF as h5py has it.
const LZF: i32 = 32000;
/// Filter of HDF5's registry: Zstandard.
const ZSTD: i32 = 32015;
/// Parameters that h5py keeps beside LZF: versions of the filter and of liblzf; the bytes of a chunk follow.
const LZF_VERSIONS: [u32; 2] = [4, 0x0105];

/// How chunks are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// Deflate, as `gzip` in h5py.
    Gzip {
        /// 0 to 9.
        level: u8,
        /// Bytes of equal significance together before that.
        shuffle: bool,
    },
    /// LZF, as `lzf` in h5py.
    Lzf,
    /// Zstandard, as `hdf5plugin.Zstd`.
    Zstd {
        /// 1 to 22.
        level: u8,
    },
}

impl Compression {
    /// The filters that a data set has for chunks of so many bytes.
    pub(super) fn filters(self, chunk_bytes: usize) -> Vec<Filter> {
        match self {
            Self::None => Vec::new(),
            Self::Gzip { level, shuffle: false } => vec![Filter::deflate(level)],
            Self::Gzip { level, shuffle: true } => vec![Filter::shuffle(), Filter::deflate(level)],
            Self::Lzf => vec![Filter::user(LZF, &[LZF_VERSIONS[0], LZF_VERSIONS[1], chunk_bytes as u32])],
            Self::Zstd { level } => vec![Filter::user(ZSTD, &[u32::from(level)])],
        }
    }

    /// What compresses chunks of a data set in `path`, for one thread.
    pub(super) fn encoder(self, path: &Path) -> Result<Encoder, AnnDataError> {
        let invalid = |reason: String| AnnDataError::Invalid(format!("{}: {reason}", path.display()));
        let kind = match self {
            Self::None => Kind::None,
            Self::Gzip { level, shuffle } => {
                let valid = CompressionLvl::new(i32::from(level)).ok().filter(|_| level <= 9);
                let level = valid.ok_or_else(|| invalid(format!("gzip has levels 0 to 9, not {level}")))?;
                Kind::Gzip { deflate: Compressor::new(level), shuffle }
            }
            Self::Lzf => Kind::Lzf,
            Self::Zstd { level } => {
                let made = zstd::bulk::Compressor::new(i32::from(level)).map_err(|e| invalid(e.to_string()))?;
                Kind::Zstd(made)
            }
        };
        Ok(Encoder { kind, shuffled: Vec::new() })
    }
}

/// Compresses chunks.
pub(super) struct Encoder {
    kind: Kind,
    shuffled: Vec<u8>,
}

enum Kind {
    None,
    Gzip { deflate: Compressor, shuffle: bool },
    Lzf,
    Zstd(zstd::bulk::Compressor<'static>),
}

impl Encoder {
    /// Compress one chunk of values of `size` bytes. Returns what is to be written and HDF5's mask of the filters that were
    /// left out for it.
    pub(super) fn encode(&mut self, chunk: &[u8], size: usize) -> std::io::Result<(Vec<u8>, u32)> {
        match &mut self.kind {
            Kind::None => Ok((chunk.to_vec(), 0)),
            Kind::Gzip { deflate, shuffle } => {
                let chunk = if *shuffle {
                    shuffle_bytes(chunk, size, &mut self.shuffled);
                    &self.shuffled
                } else {
                    chunk
                };
                let mut out = vec![0; deflate.zlib_compress_bound(chunk.len())];
                let n = deflate.zlib_compress(chunk, &mut out).map_err(|e| std::io::Error::other(e.to_string()))?;
                out.truncate(n);
                Ok((out, 0))
            }
            // What LZF cannot make smaller is stored as it is, as h5py does it.
            Kind::Lzf => Ok(lzf::compress(chunk).map_or_else(|_| (chunk.to_vec(), 1), |out| (out, 0))),
            Kind::Zstd(zstd) => Ok((zstd.compress(chunk)?, 0)),
        }
    }
}

/// All first bytes, then all second ones, and so on: HDF5's filter `shuffle`.
fn shuffle_bytes(values: &[u8], size: usize, out: &mut Vec<u8>) {
    out.resize(values.len(), 0);
    let count = values.len() / size;
    for (index, value) in values.chunks_exact(size).enumerate() {
        for (byte, &b) in value.iter().enumerate() {
            out[byte * count + index] = b;
        }
    }
}
