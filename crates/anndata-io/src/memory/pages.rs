use memmap2::{Advice, MmapMut, MmapOptions};

/// Bytes of a huge page of x86-64, and of what other processors have that are about as large.
const HUGE: usize = 2 << 20;

/// Memory of zeros, aligned for any number. Much of it is on huge pages, so that rows at random places cost few walks of the
/// page table.
#[derive(Debug)]
pub enum Pages {
    /// Less than a huge page.
    Few(Vec<u64>),
    /// `start` is within the map where a huge page can begin, and `len` bytes from there too.
    Many { map: MmapMut, start: usize, len: usize },
}

impl Default for Pages {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl Pages {
    /// Of `len` bytes or a few more.
    ///
    /// # Errors
    /// There is no memory.
    pub fn new(len: usize) -> std::io::Result<Self> {
        if len < HUGE {
            return Ok(Self::Few(vec![0; len.div_ceil(size_of::<u64>())]));
        }
        let no_memory = || std::io::Error::from(std::io::ErrorKind::OutOfMemory);
        // What lies before and behind is never touched, and so takes no memory.
        let map = MmapOptions::new().len(len.checked_add(HUGE).ok_or_else(no_memory)?).map_anon()?;
        let start = map.as_ptr().align_offset(HUGE);
        // Only advice: without huge pages it works as well, slower. Of those alone that are used as a whole.
        #[cfg(target_os = "linux")]
        let _ = map.advise_range(Advice::HugePage, start, len / HUGE * HUGE);
        Ok(Self::Many { map, start, len })
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Few(words) => bytemuck::cast_slice(words),
            Self::Many { map, start, len } => &map[*start..*start + *len],
        }
    }

    /// The bytes.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Few(words) => bytemuck::cast_slice_mut(words),
            Self::Many { map, start, len } => &mut map[*start..*start + *len],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_that_any_number_can_lie_in() {
        for len in [0, 1, 7, 64, 4096, HUGE - 1, HUGE, HUGE + 1, 5 * HUGE - 3] {
            let mut pages = Pages::new(len).unwrap();
            assert!(pages.bytes().len() >= len && pages.bytes().iter().all(|byte| *byte == 0));
            assert!((pages.bytes().as_ptr() as usize).is_multiple_of(8), "{len}");
            pages.bytes_mut().fill(1);
            assert!(pages.bytes().iter().all(|byte| *byte == 1));
        }
    }
}
