use memmap2::{Advice, MmapMut, MmapOptions};

/// Bytes of a huge page of x86-64, and of what other processors have that are about as large.
const HUGE: usize = 2 << 20;

/// Memory of its own that starts where a huge page can, so that rows at random places cost few walks of the page table.
///
/// Invariant: `start + len` is within `map`, and `start` is a multiple of [`HUGE`] in memory, so aligned for any number.
#[derive(Debug)]
pub struct Pages {
    map: MmapMut,
    start: usize,
    len: usize,
}

impl Pages {
    /// Zeros.
    ///
    /// # Errors
    /// There is no memory.
    pub fn new(len: usize) -> std::io::Result<Self> {
        let no_memory = || std::io::Error::from(std::io::ErrorKind::OutOfMemory);
        // What lies before and behind is never touched, and so takes no memory.
        let map = MmapOptions::new().len(len.checked_add(HUGE).ok_or_else(no_memory)?).map_anon()?;
        // Only advice: without huge pages it works as well, slower.
        #[cfg(target_os = "linux")]
        let _ = map.advise(Advice::HugePage);
        let start = map.as_ptr().align_offset(HUGE);
        Ok(Self { map, start, len })
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.map[self.start..self.start + self.len]
    }

    /// The bytes.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.map[self.start..self.start + self.len]
    }
}
