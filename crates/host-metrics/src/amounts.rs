use crate::network::Network;
use crate::process::Io;

/// A sum over processes that only grows: a process that ends between two looks is missing from one of them, until its parent,
/// which waited for it, has what it took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Growing(Option<u64>);

impl Growing {
    /// What came to it since the last look; none at the first one, and where there is no sum.
    pub fn more(&mut self, sum: Option<u64>) -> Option<u64> {
        let sum = sum?;
        let before = self.0.replace(self.0.map_or(sum, |before| before.max(sum)))?;
        Some(sum.saturating_sub(before))
    }
}

/// Bytes in and out, since the last look.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IoAmounts([Growing; 4]);

impl IoAmounts {
    /// From disks, to disks, by calls that read, by calls that write.
    pub fn more(&mut self, sum: Option<Io>) -> [Option<u64>; 4] {
        let parts = [
            sum.map(|s| s.disk_read),
            sum.map(|s| s.disk_written),
            sum.map(|s| s.call_read),
            sum.map(|s| s.call_written),
        ];
        std::array::from_fn(|i| self.0[i].more(parts[i]))
    }
}

/// Bytes over networks, since the last look.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NetworkAmounts([Growing; 3]);

impl NetworkAmounts {
    /// Received, sent, and through loopback.
    pub fn more(&mut self, sum: Option<Network>) -> [Option<u64>; 3] {
        let parts = [sum.map(|s| s.received), sum.map(|s| s.sent), sum.map(|s| s.loopback)];
        std::array::from_fn(|i| self.0[i].more(parts[i]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_for_a_moment_counts_once() {
        let mut sum = Growing::default();
        assert_eq!(sum.more(None), None);
        let seen = [100, 150, 90, 160, 160].map(|now| sum.more(Some(now)));
        assert_eq!(seen, [None, Some(50), Some(0), Some(10), Some(0)]);
    }
}
