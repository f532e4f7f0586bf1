/// Where a chunk of a data set lies in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// First byte in the file.
    pub(crate) offset: u64,
    /// Bytes in the file.
    pub(crate) bytes: u32,
    /// Bit i: filter i was skipped.
    pub(crate) mask: u32,
}

/// The chunks of a data set that were written, by their number in the grid.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChunkTable {
    /// Ascending; empty if all were written.
    numbers: Vec<u64>,
    chunks: Vec<Chunk>,
}

impl ChunkTable {
    /// Of a grid of `all` chunks; `Err` says what is wrong with them.
    pub(crate) fn new(mut found: Vec<(u64, Chunk)>, all: u64) -> Result<Self, String> {
        found.sort_unstable_by_key(|(number, _)| *number);
        if let Some(twice) = found.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(format!("has chunk {} twice", twice[0].0));
        }
        if let Some((beyond, _)) = found.last().filter(|(number, _)| *number >= all) {
            return Err(format!("has a chunk {beyond} of {all}"));
        }
        let chunks = found.iter().map(|(_, chunk)| *chunk).collect();
        let numbers = if found.len() as u64 == all { Vec::new() } else { found.iter().map(|(n, _)| *n).collect() };
        Ok(Self { numbers, chunks })
    }

    /// A chunk; `None` if it was never written.
    pub(crate) fn get(&self, number: u64) -> Option<Chunk> {
        let at = if self.numbers.is_empty() { number as usize } else { self.numbers.binary_search(&number).ok()? };
        self.chunks.get(at).copied()
    }

    /// Those that were written.
    pub(crate) fn written(&self) -> &[Chunk] {
        &self.chunks
    }

    /// Those that were written, with their numbers, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, Chunk)> + '_ {
        let number = |at: usize| self.numbers.get(at).copied().unwrap_or(at as u64);
        self.chunks.iter().enumerate().map(move |(at, chunk)| (number(at), *chunk))
    }
}
