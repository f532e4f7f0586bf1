//! Graphs with their own numbering, sample after sample, before they are joined.

/// A node that the sample does not have.
pub(super) const ABSENT: u32 = u32::MAX;

/// Edges of one type of all samples of a batch. A sample's nodes are numbered from 0.
///
/// Processors make these, and collation copies them into the batch, as it was in the published runs: the two are timed
/// apart. 8 B per edge and, where there is a mask, 1 B more; buffers keep their length, so nothing is cleared.
#[derive(Debug, Default)]
pub(super) struct OwnEdges {
    sources: Vec<u32>,
    targets: Vec<u32>,
    mask: Vec<u8>,
    used: usize,
    /// Edges of each sample.
    pub(super) counts: Vec<usize>,
}

/// Room for the edges of one sample; the same length in all three.
pub(super) struct Room<'a> {
    pub(super) sources: &'a mut [u32],
    pub(super) targets: &'a mut [u32],
    pub(super) mask: &'a mut [u8],
}

impl OwnEdges {
    /// Forget the samples.
    pub(super) fn clear(&mut self) {
        self.used = 0;
        self.counts.clear();
    }

    /// Room for at most `most` edges of the next sample; what it holds is left over from others.
    pub(super) fn room(&mut self, most: usize) -> Room<'_> {
        let (start, end) = (self.used, self.used + most);
        if self.sources.len() < end {
            self.sources.resize(end, 0);
            self.targets.resize(end, 0);
            self.mask.resize(end, 0);
        }
        Room {
            sources: &mut self.sources[start..end],
            targets: &mut self.targets[start..end],
            mask: &mut self.mask[start..end],
        }
    }

    /// The next sample has the first `edges` of its room.
    pub(super) fn take(&mut self, edges: usize) {
        self.used += edges;
        self.counts.push(edges);
    }

    /// Bytes that are held, used or not.
    pub(super) fn capacity_bytes(&self) -> usize {
        4 * (self.sources.capacity() + self.targets.capacity()) + self.mask.capacity()
    }

    pub(super) fn sources(&self) -> &[u32] {
        &self.sources[..self.used]
    }

    pub(super) fn targets(&self) -> &[u32] {
        &self.targets[..self.used]
    }

    pub(super) fn mask(&self) -> &[u8] {
        &self.mask[..self.used]
    }
}

/// New index of each of `nodes` nodes when `removed` (ascending, each once) are gone.
pub(super) fn number_without(removed: impl Iterator<Item = usize>, nodes: usize, table: &mut Vec<u32>) {
    table.clear();
    let mut next = 0;
    for gone in removed {
        let kept = (gone - table.len()) as u32;
        table.extend(next..next + kept);
        table.push(ABSENT);
        next += kept;
    }
    let kept = (nodes - table.len()) as u32;
    table.extend(next..next + kept);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_behind_a_removed_one_move_up() {
        let mut table = Vec::new();
        number_without([0, 2, 3].into_iter(), 6, &mut table);
        assert_eq!(table, [ABSENT, 0, ABSENT, ABSENT, 1, 2]);
        number_without([5].into_iter(), 6, &mut table);
        assert_eq!(table, [0, 1, 2, 3, 4, ABSENT]);
        number_without([].into_iter(), 2, &mut table);
        assert_eq!(table, [0, 1]);
    }
}
