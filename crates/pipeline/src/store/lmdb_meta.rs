use std::io;

/// Bytes of a page's header.
pub(super) const PAGE_HEADER: usize = 16;
/// Page number that stands for none.
pub(super) const NO_PAGE: u64 = u64::MAX;
/// Flag of a meta page.
const META: u16 = 0x08;
const MAGIC: u32 = 0xBEEF_C0DE;
const VERSION: u32 = 1;
/// Where in a meta page its transaction number stands.
pub(super) const TXN_OFFSET: u64 = (PAGE_HEADER + 128) as u64;
/// Pages that liblmdb can make.
const PAGE_SIZES: std::ops::RangeInclusive<u32> = 512..=32768;

/// What a meta page says: where one state of the store begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meta {
    /// Bytes of a page.
    pub page_size: u32,
    /// Levels of the tree, leaves included; 0 when it is empty.
    pub depth: u16,
    /// Records.
    pub entries: u64,
    /// Root page, or [`NO_PAGE`].
    pub root: u64,
    /// Last page in use.
    pub last_page: u64,
    /// Transaction that wrote this page.
    pub transaction: u64,
}

impl Meta {
    /// The newer of the two meta pages of a file. `read` fills a buffer from an offset on.
    ///
    /// # Errors
    /// What makes it no LMDB file, or one of a kind that stores are not.
    pub(super) fn newest(mut read: impl FnMut(u64, &mut [u8]) -> io::Result<()>) -> Result<Self, String> {
        let mut page = [0; PAGE_HEADER + 136];
        let mut meta = |number: u64, offset: u64| {
            read(offset, &mut page).map_err(|e| format!("meta page {number}: {e}"))?;
            Self::parse(&page).map_err(|reason| format!("meta page {number}: {reason}"))
        };
        let first = meta(0, 0)?;
        let second = meta(1, u64::from(first.page_size))?;
        if first.page_size != second.page_size {
            return Err(format!("the meta pages speak of pages of {} and {} bytes", first.page_size, second.page_size));
        }
        Ok(if second.transaction > first.transaction { second } else { first })
    }

    fn parse(page: &[u8; PAGE_HEADER + 136]) -> Result<Self, String> {
        let u16_at = |at: usize| u16::from_le_bytes([page[at], page[at + 1]]);
        let u32_at = |at: usize| u32::from(u16_at(at)) | u32::from(u16_at(at + 2)) << 16;
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        if u16_at(10) & META == 0 || u32_at(PAGE_HEADER) != MAGIC {
            return Err("this is no LMDB file".to_owned());
        }
        if u32_at(PAGE_HEADER + 4) != VERSION {
            return Err(format!("LMDB format {}, but only {VERSION} can be read", u32_at(PAGE_HEADER + 4)));
        }
        // Behind magic, version, address and map size: the tree of free pages, then the main one, 48 bytes each.
        let (free, main) = (PAGE_HEADER + 24, PAGE_HEADER + 24 + 48);
        let page_size = u32_at(free);
        if !page_size.is_power_of_two() || !PAGE_SIZES.contains(&page_size) {
            return Err(format!("{page_size} is no size of a page"));
        }
        let flags = u16_at(main + 4);
        if flags & 0x7f != 0 {
            return Err(format!(
                "a database with flags {flags:#x} (sorted duplicates, integer or reverse keys) is no store"
            ));
        }
        Ok(Self {
            page_size,
            depth: u16_at(main + 6),
            entries: u64_at(main + 32),
            root: u64_at(main + 40),
            last_page: u64_at(PAGE_HEADER + 120),
            transaction: u64_at(PAGE_HEADER + 128),
        })
    }
}
