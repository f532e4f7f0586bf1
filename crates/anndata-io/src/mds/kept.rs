/// Shards that are kept decompressed, at most, and their bytes together, but for the last one, which always is.
const MAX_SHARDS: usize = 4;
const MAX_BYTES: usize = 256 << 20;

/// Shards that a reader has decompressed last.
#[derive(Debug, Default)]
pub(crate) struct ShardCache {
    /// By number, the one used last at the end.
    shards: Vec<(usize, Vec<u8>)>,
}

impl ShardCache {
    pub fn has(&self, shard: usize) -> bool {
        self.shards.iter().any(|(number, _)| *number == shard)
    }

    /// A shard that is kept; it is used last now.
    pub fn get(&mut self, shard: usize) -> Option<&[u8]> {
        let at = self.shards.iter().position(|(number, _)| *number == shard)?;
        self.shards[at..].rotate_left(1);
        self.shards.last().map(|(_, data)| &data[..])
    }

    /// Room for a shard of so many bytes: others may go, one of which leaves its memory.
    pub fn make_room(&mut self, bytes: usize) -> Vec<u8> {
        let mut spare = Vec::new();
        while self.shards.len() >= MAX_SHARDS || (!self.shards.is_empty() && self.bytes() + bytes > MAX_BYTES) {
            spare = self.shards.remove(0).1;
        }
        spare
    }

    pub fn add(&mut self, shard: usize, data: Vec<u8>) {
        self.shards.push((shard, data));
    }

    /// Bytes of memory held.
    pub fn bytes(&self) -> usize {
        self.shards.iter().map(|(_, data)| data.capacity()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_that_was_used_longest_ago_goes() {
        let mut kept = ShardCache::default();
        for shard in 0..4 {
            assert!(kept.make_room(10).is_empty());
            kept.add(shard, vec![shard as u8; 10]);
        }
        assert_eq!(kept.get(0), Some(&[0; 10][..]));
        assert_eq!(kept.make_room(10), [1; 10]);
        kept.add(4, vec![4; 10]);
        assert_eq!([0, 1, 2, 3, 4].map(|shard| kept.has(shard)), [true, false, true, true, true]);
        kept.make_room(MAX_BYTES);
        assert_eq!(kept.bytes(), 0);
    }
}
