use std::io::Read;

use super::{Chain, Filter, Work, blosc, lz4};

impl Chain {
    /// Undo all filters of what may be of any length up to `most` bytes: strings, of which nothing says how long they are
    /// together.
    pub(crate) fn undo_all(&self, src: &[u8], most: usize) -> Result<Vec<u8>, String> {
        let mut data = src.to_vec();
        for filter in self.filters().iter().rev() {
            let bound = usize::try_from(self.most(data.len() as u64)).unwrap_or(usize::MAX).min(most);
            data = match filter {
                Filter::Fletcher32 | Filter::Crc32c => filter.verified(&data)?.to_vec(),
                Filter::Deflate => streamed(flate2::read::ZlibDecoder::new(&data[..]), bound, "zlib")?,
                Filter::Gzip => streamed(flate2::read::MultiGzDecoder::new(&data[..]), bound, "gzip")?,
                Filter::Zstd => {
                    let decoder = zstd::stream::Decoder::new(&data[..]).map_err(|e| e.to_string())?;
                    streamed(decoder, bound, "zstd")?
                }
                Filter::Shuffle(_) => one(*filter, &data, data.len(), bound)?,
                Filter::Blosc => one(*filter, &data, blosc::length(&data)?, bound)?,
                Filter::Lz4 => one(*filter, &data, lz4::length(&data).ok_or("damaged lz4 data")?, bound)?,
                Filter::PlainLz4 => one(*filter, &data, lz4::plain_length(&data).ok_or("damaged lz4 data")?, bound)?,
                Filter::Lzf => return Err("lzf data of an unknown length".to_owned()),
            };
        }
        Ok(data)
    }
}

/// What a decoder gives, if that is no more than `most` bytes.
fn streamed(decoder: impl Read, most: usize, name: &str) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let n = decoder.take(most as u64 + 1).read_to_end(&mut out).map_err(|e| format!("damaged {name} data: {e}"))?;
    if n > most { Err(too_much(most)) } else { Ok(out) }
}

/// Undo one filter that says itself how much becomes of it.
fn one(filter: Filter, data: &[u8], len: usize, most: usize) -> Result<Vec<u8>, String> {
    if len > most {
        return Err(too_much(most));
    }
    let mut out = vec![0; len];
    Chain::of(vec![filter])?.undo(data, 0, &mut out, &mut Work::default())?;
    Ok(out)
}

fn too_much(most: usize) -> String {
    format!("decompresses to more than {most} bytes")
}
