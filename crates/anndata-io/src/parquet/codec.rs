use parquet::basic::Compression;

/// Decompresses pages of one thread.
pub(super) struct Codec {
    snappy: snap::raw::Decoder,
    gzip: libdeflater::Decompressor,
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl Codec {
    pub(super) fn new() -> Self {
        Self { snappy: snap::raw::Decoder::new(), gzip: libdeflater::Decompressor::new(), zstd: None }
    }

    /// Whether pages of this kind can be decompressed; what to do if not.
    pub(super) fn check(compression: Compression) -> Result<(), String> {
        match compression {
            Compression::UNCOMPRESSED
            | Compression::SNAPPY
            | Compression::GZIP(_)
            | Compression::LZ4
            | Compression::LZ4_RAW
            | Compression::ZSTD(_) => Ok(()),
            other => Err(format!(
                "pages are compressed with {other}, which is not read here: write the file with zstd or snappy"
            )),
        }
    }

    /// Fill `out`, whose length is what the page says it has decompressed.
    pub(super) fn decompress(&mut self, compression: Compression, from: &[u8], out: &mut [u8]) -> Result<(), String> {
        let count = match compression {
            Compression::UNCOMPRESSED if from.len() == out.len() => {
                out.copy_from_slice(from);
                out.len()
            }
            Compression::UNCOMPRESSED => from.len(),
            Compression::SNAPPY => self.snappy.decompress(from, out).map_err(|e| e.to_string())?,
            Compression::GZIP(_) => self.gzip.gzip_decompress(from, out).map_err(|e| e.to_string())?,
            Compression::ZSTD(_) => {
                let zstd = match &mut self.zstd {
                    Some(zstd) => zstd,
                    none => none.insert(zstd::bulk::Decompressor::new().map_err(|e| e.to_string())?),
                };
                zstd.decompress_to_buffer(from, out).map_err(|e| e.to_string())?
            }
            Compression::LZ4_RAW => lz4_flex::block::decompress_into(from, out).map_err(|e| e.to_string())?,
            Compression::LZ4 => hadoop_lz4(from, out)?,
            other => return Err(format!("pages are compressed with {other}")),
        };
        if count == out.len() { Ok(()) } else { Err(format!("it has {count} bytes, its header says {}", out.len())) }
    }
}

/// What the deprecated `LZ4` means in nearly all files: Hadoop's blocks, each behind the number of its bytes
/// decompressed and compressed (big endian).
fn hadoop_lz4(mut from: &[u8], out: &mut [u8]) -> Result<usize, String> {
    let mut done = 0;
    while let Some((head, rest)) = from.split_at_checked(8) {
        let number = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize;
        let (block, rest) = rest.split_at_checked(number(4)).ok_or("an LZ4 block is cut short")?;
        let into = out.get_mut(done..).and_then(|out| out.get_mut(..number(0))).ok_or("an LZ4 block is too long")?;
        done += lz4_flex::block::decompress_into(block, into).map_err(|e| e.to_string())?;
        from = rest;
    }
    if from.is_empty() { Ok(done) } else { Err("an LZ4 block is cut short".to_owned()) }
}
