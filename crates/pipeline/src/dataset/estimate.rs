use std::fmt;

/// Records that are encoded to find how large a store will be.
pub(crate) const ESTIMATED_FROM: u64 = 64;
/// LMDB's page, bytes.
pub(crate) const PAGE: u64 = 4096;
/// A node of more bytes has its value in pages of its own.
const NODE_MAX: u64 = 2038;

/// How large a store will be, before anything of it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// What the whole store will take, in bytes.
    pub bytes: u64,
    /// Records that were encoded to find that.
    pub from: u64,
    /// What of it is there already, left by a stopped conversion, in bytes.
    pub there: u64,
    /// Bytes that are free where it is written.
    pub free: u64,
}

impl Estimate {
    /// Bytes that there is no room for.
    pub fn missing(&self) -> u64 {
        self.bytes.saturating_sub(self.there).saturating_sub(self.free)
    }
}

/// `about 854.8 GB (estimated from 64 records), 80.1 GB are free, 774.7 GB are missing`
impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let records = if self.from == 1 { "record" } else { "records" };
        write!(f, "about {} (estimated from {} {records}), ", Decimal(self.bytes), self.from)?;
        if self.there > 0 {
            write!(f, "{} of it are there, ", Decimal(self.there))?;
        }
        write!(f, "{} are free", Decimal(self.free))?;
        if self.missing() > 0 { write!(f, ", {} are missing", Decimal(self.missing())) } else { Ok(()) }
    }
}

/// Bytes that a record takes in an LMDB file, from the lengths of its key and value: in leaves of the tree, and in pages of
/// its own.
pub(crate) fn record_bytes(key: u64, value: u64) -> (u64, u64) {
    let (header, pointer) = (8, 2);
    if header + key + value > NODE_MAX {
        ((header + key + 8).next_multiple_of(2) + pointer, (16 + value).next_multiple_of(PAGE))
    } else {
        ((header + key + value).next_multiple_of(2) + pointer, 0)
    }
}

/// Bytes of an LMDB file of so many records, each with `leaf` bytes in leaves of the tree and `pages` bytes in pages of its own: two meta
/// pages, and a percent of the leaves for branches and what a full leaf has no more room for.
pub(crate) fn lmdb_bytes(records: u64, leaf: f64, pages: f64) -> u64 {
    ((leaf * 1.01 + pages) * records as f64) as u64 + 4 * PAGE
}

/// Bytes in decimal units, as disks are sold and as the published sizes are given.
struct Decimal(u64);

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0 as f64;
        match self.0 {
            1_000_000_000.. => write!(f, "{:.1} GB", bytes / 1e9),
            1_000_000.. => write!(f, "{:.1} MB", bytes / 1e6),
            _ => write!(f, "{:.1} kB", bytes / 1e3),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_says_what_is_missing() {
        let estimate = Estimate { bytes: 854_800_000_000, from: 64, there: 0, free: 80_100_000_000 };
        assert_eq!(
            estimate.to_string(),
            "about 854.8 GB (estimated from 64 records), 80.1 GB are free, 774.7 GB are missing"
        );
        let rest = Estimate { there: 800_000_000_000, ..estimate };
        assert_eq!(rest.missing(), 0);
        assert!(rest.to_string().ends_with(", 800.0 GB of it are there, 80.1 GB are free"), "{rest}");
    }
}
