use std::io::{self, Read};

use flate2::read::MultiGzDecoder;

/// How a shard is compressed, as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Codec {
    Zstd,
    Gzip,
    Snappy,
}

/// No data becomes smaller with Snappy: 64 bytes take three.
const SNAPPY_RATIO: u64 = 22;

impl Codec {
    /// Of what an index says: `zstd`, `zstd:7`, …
    ///
    /// # Errors
    /// It is not read here.
    pub(super) fn named(compression: &str) -> Result<Self, String> {
        match compression.split(':').next().unwrap_or_default() {
            "zstd" => Ok(Self::Zstd),
            "gz" => Ok(Self::Gzip),
            "snappy" => Ok(Self::Snappy),
            _ => Err(format!(
                "shards are compressed with \"{compression}\", which is not read here: decompress them, or write them with \
                 zstd, gz or snappy"
            )),
        }
    }

    /// The first bytes of what is compressed, as far as they can be had without all of it.
    pub(super) fn first<const N: usize>(self, packed: impl Read) -> io::Result<Option<[u8; N]>> {
        let mut first = [0; N];
        match self {
            Self::Zstd => zstd::stream::read::Decoder::new(packed)?.read_exact(&mut first)?,
            Self::Gzip => MultiGzDecoder::new(packed).read_exact(&mut first)?,
            Self::Snappy => return Ok(None),
        }
        Ok(Some(first))
    }

    /// An error if so many bytes cannot become as many as `bytes`.
    pub(super) fn check_ratio(self, packed: u64, bytes: u64) -> Result<(), String> {
        if self == Self::Snappy && bytes > packed.saturating_mul(SNAPPY_RATIO) {
            return Err(format!("{packed} bytes of Snappy are never {bytes}"));
        }
        Ok(())
    }

    /// What is compressed: exactly `bytes` bytes, into `out`, which grows with them and not before.
    pub(super) fn unpack(self, packed: &[u8], bytes: u64, out: &mut Vec<u8>) -> Result<(), String> {
        /// Room that is made before anything is known, for each byte.
        const USUAL: u64 = 16;
        self.check_ratio(packed.len() as u64, bytes)?;
        let failed = |e: &dyn std::fmt::Display| format!("cannot be decompressed: {e}");
        out.clear();
        let room = match self {
            Self::Snappy => bytes,
            _ => bytes.min(packed.len() as u64 * USUAL),
        };
        out.try_reserve_exact(room as usize).map_err(|e| failed(&e))?;
        // One byte more shows that there are more.
        let most = bytes.saturating_add(1);
        match self {
            Self::Zstd => {
                let decoder = zstd::stream::read::Decoder::with_buffer(packed).map_err(|e| failed(&e))?;
                decoder.take(most).read_to_end(out).map_err(|e| failed(&e))?;
            }
            Self::Gzip => {
                MultiGzDecoder::new(packed).take(most).read_to_end(out).map_err(|e| failed(&e))?;
            }
            Self::Snappy => {
                let says = snap::raw::decompress_len(packed).map_err(|e| failed(&e))?;
                if says as u64 != bytes {
                    return Err(other_length(bytes));
                }
                out.resize(says, 0);
                snap::raw::Decoder::new().decompress(packed, out).map_err(|e| failed(&e))?;
            }
        }
        if out.len() as u64 != bytes {
            return Err(other_length(bytes));
        }
        Ok(())
    }
}

fn other_length(bytes: u64) -> String {
    format!("is not {bytes} bytes when it is decompressed, as the index says")
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn what_is_compressed_comes_back_and_no_more() {
        let data: Vec<u8> = (0..100_000_u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&data).unwrap();
        for (codec, packed) in [
            (Codec::Zstd, zstd::bulk::compress(&data, 3).unwrap()),
            (Codec::Gzip, gzip.finish().unwrap()),
            (Codec::Snappy, snap::raw::Encoder::new().compress_vec(&data).unwrap()),
        ] {
            let mut out = Vec::new();
            codec.unpack(&packed, data.len() as u64, &mut out).unwrap();
            assert!(out == data, "{codec:?}");
            for bytes in [0, data.len() as u64 - 1, data.len() as u64 + 1, u64::MAX] {
                let reason = codec.unpack(&packed, bytes, &mut out).unwrap_err();
                assert!(reason.contains("bytes"), "{codec:?}: {reason}");
                assert!(out.capacity() <= data.len() * 16, "{codec:?}: {}", out.capacity());
            }
            assert!(codec.unpack(&packed[..packed.len() / 2], data.len() as u64, &mut out).is_err());
            let first = codec.first::<4>(&packed[..]).unwrap();
            assert!(first.is_none_or(|first| first == data[..4]));
        }
        assert!(Codec::named("br:3").unwrap_err().contains("\"br:3\""));
        assert_eq!(Codec::named("gz:9"), Ok(Codec::Gzip));
    }
}
