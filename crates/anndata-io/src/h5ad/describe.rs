use hdf5_metno::dataset::Layout;
use hdf5_metno::sync::sync;
use hdf5_metno::{Dataset, File, Group, LocationType};
use hdf5_metno_sys::h5p::{
    H5Pfill_value_defined, H5Pget_chunk_opts, H5Pget_external_count, H5Pget_fill_value, H5Pget_filter2, H5Pget_nfilters,
};
use hdf5_metno_sys::{h5d, h5i::hid_t};

use super::datatype;
use super::library;
use crate::AnnDataError;
use crate::matrix::chunk_table::{Chunk, ChunkTable};
use crate::matrix::filters::Chain;
use crate::matrix::number::Number;
use crate::matrix::runs;
use crate::matrix::stored::{Chunks, Grid, LARGEST_CHUNK, Place, Run, Stored};
use crate::source::Source;

/// An entry of an index of chunks takes more than so many bytes.
const LEAST_ENTRY: u64 = 8;

/// A file that the library has open, to ask it where things lie.
pub(super) struct Open<'a> {
    pub(super) source: &'a Source,
    file: File,
    /// How the library numbers files.
    number: u64,
}

/// What a name stands for.
pub(super) enum Object {
    Dataset(Dataset),
    Group(Group),
}

impl<'a> Open<'a> {
    /// Open the file that `source` is.
    pub(super) fn new(source: &'a Source) -> Result<Self, AnnDataError> {
        let file = library::open(source.path())?;
        let number = file.loc_info().map_err(|e| source.damaged(format!("has a damaged root group: {e}")))?.fileno;
        Ok(Self { source, file, number })
    }

    /// A group, if there is one of this name.
    pub(super) fn group(&self, name: &str) -> Option<Group> {
        self.file.group(name).ok()
    }

    /// Names of what is in the root group.
    pub(super) fn names(&self) -> Result<Vec<String>, AnnDataError> {
        self.file.member_names().map_err(|e| self.source.damaged(format!("has a damaged root group: {e}")))
    }

    /// There is something of this name, however deep.
    pub(super) fn has(&self, name: &str) -> bool {
        self.file.link_exists(name)
    }

    /// The data set or the group of this name.
    pub(super) fn object(&self, name: &str) -> Result<Object, AnnDataError> {
        let found = match self.file.loc_type_by_name(name) {
            Ok(LocationType::Dataset) => self.file.dataset(name).map(Object::Dataset),
            Ok(LocationType::Group) => self.file.group(name).map(Object::Group),
            Ok(_) => return Err(self.wrong(name, "is neither a group nor a data set")),
            Err(e) => Err(e),
        };
        found.map_err(|e| self.wrong(name, format!("cannot be opened: {e}")))
    }

    /// Rows and columns of a data set, or its length.
    pub(super) fn shape(&self, name: &str, dataset: &Dataset) -> Result<Vec<u64>, AnnDataError> {
        let shape = dataset.get_shape().map_err(|e| self.wrong(name, e))?;
        Ok(shape.into_iter().map(|length| length as u64).collect())
    }

    /// Where the numbers of a data set lie.
    pub(super) fn describe(&self, name: &str, dataset: &Dataset) -> Result<Stored, AnnDataError> {
        // Several calls belong together: the lock is taken once.
        sync(|| self.describe_locked(name, dataset)).map_err(|reason| self.wrong(name, reason))
    }

    /// An error that says what is wrong with a part of the file.
    pub(super) fn wrong(&self, name: &str, reason: impl ToString) -> AnnDataError {
        self.source.damaged(format!("{name}: {}", reason.to_string()))
    }

    fn describe_locked(&self, name: &str, dataset: &Dataset) -> Result<Stored, String> {
        if dataset.loc_info().map_err(text)?.fileno != self.number {
            return Err("lies in another file (an external link): open that file".to_owned());
        }
        let shape: Vec<u64> = dataset.get_shape().map_err(text)?.into_iter().map(|length| length as u64).collect();
        let number = datatype::number(dataset.dtype().map_err(text)?.id())?;
        let size = number.size() as u64;
        let len = shape.iter().try_fold(1u64, |len, length| len.checked_mul(*length));
        let Some((len, bytes)) = len.and_then(|len| Some((len, len.checked_mul(size)?))) else {
            return Err(format!("has a shape of {shape:?}, which no file can hold"));
        };
        if bytes > i64::MAX as u64 {
            return Err(format!("has a shape of {shape:?}, which no file can hold"));
        }
        if shape.is_empty() || shape.len() > 2 {
            return Err(format!("has {} dimensions instead of one or two", shape.len()));
        }
        let plist = dataset.dcpl().map_err(text)?;
        // SAFETY: the list is open, here and below.
        if unsafe { H5Pget_external_count(plist.id()) } != 0 {
            return Err("lies in another file (external storage), which is not supported".to_owned());
        }
        let fill = fill(plist.id(), dataset.dtype().map_err(text)?.id(), number)?;
        let (place, stored_bytes) = match plist.layout() {
            Layout::Compact => (Place::Memory(whole(dataset, len, number)?), bytes),
            Layout::Contiguous => self.contiguous(dataset, len, bytes)?,
            Layout::Chunked => self.chunked(dataset, plist.id(), &shape, number)?,
            Layout::Virtual => return Err("is a virtual data set, which is not supported".to_owned()),
        };
        Ok(Stored { name: name.to_owned(), number, len, fill, fill_counts: false, stored_bytes, place })
    }

    fn contiguous(&self, dataset: &Dataset, len: u64, bytes: u64) -> Result<(Place, u64), String> {
        if bytes == 0 {
            return Ok((Place::Plain(Vec::new()), 0));
        }
        let Some(offset) = dataset.offset() else {
            return Ok((Place::Plain(vec![Run { end: len, zero: None }]), 0));
        };
        self.inside(offset, bytes)?;
        Ok((Place::Plain(vec![Run { end: len, zero: Some(offset as i64) }]), bytes))
    }

    fn inside(&self, offset: u64, bytes: u64) -> Result<(), String> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.source.bytes() => Ok(()),
            _ => Err(format!(
                "reaches beyond the end of the file: {bytes} bytes at {offset} of {} (is it cut short?)",
                self.source.bytes()
            )),
        }
    }

    fn chunked(&self, dataset: &Dataset, plist: hid_t, shape: &[u64], number: Number) -> Result<(Place, u64), String> {
        let lengths = dataset.chunk().ok_or("has chunks without a size")?;
        let lengths: Vec<u64> = lengths.into_iter().map(|length| length as u64).collect();
        let size = number.size() as u64;
        let bytes = lengths.iter().try_fold(size, |bytes, length| bytes.checked_mul(*length));
        let bytes = match bytes {
            Some(bytes) if bytes > 0 && bytes <= LARGEST_CHUNK && lengths.len() == shape.len() => bytes,
            _ => return Err(format!("has chunks of {lengths:?}: more than {LARGEST_CHUNK} bytes are not supported")),
        };
        let grid = Grid::of(shape, &lengths).ok_or("has chunks of other dimensions")?;
        if shape.contains(&0) {
            return Ok((Place::Plain(Vec::new()), 0));
        }
        let all = grid.chunks().ok_or("has more chunks than can be counted")?;
        let chain = chain(plist, number)?;
        let table = self.chunk_table(dataset, &lengths, &grid, all, shape)?;
        let mut options = 0;
        // SAFETY: the list is open; `options` is written to.
        let known = unsafe { H5Pget_chunk_opts(plist, &raw mut options) } >= 0;
        let plain_edge = known && options & h5d::H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS != 0;
        let mut total = 0u64;
        for (number, chunk) in table.iter() {
            let stored = u64::from(chunk.bytes);
            self.inside(chunk.offset, stored).map_err(|reason| format!("chunk {number} {reason}"))?;
            let plain = chain.is_empty() || plain_edge && grid.is_edge(number);
            if plain && stored != bytes || chain.most(stored) < bytes {
                return Err(format!("chunk {number} has {stored} bytes in the file and cannot be of {bytes}"));
            }
            total += stored;
        }
        if total > self.source.bytes() {
            return Err(format!("has chunks of {total} bytes in a file of {}", self.source.bytes()));
        }
        if chain.is_empty() && grid.rows == 1 {
            return Ok((Place::Plain(runs(&table, &grid, size)), total));
        }
        Ok((Place::Chunks(Chunks { grid, table, chain, plain_edge }), total))
    }

    fn chunk_table(
        &self,
        dataset: &Dataset,
        lengths: &[u64],
        grid: &Grid,
        all: u64,
        shape: &[u64],
    ) -> Result<ChunkTable, String> {
        let most = self.source.bytes() / LEAST_ENTRY;
        // Of what is one long row to us, chunks are counted along the first dimension.
        let split = matches!((shape, lengths), (&[_, columns], &[_, chunk_columns]) if columns != chunk_columns);
        let across = grid.across();
        let mut found = Vec::new();
        let mut wrong = None;
        let visited = dataset.chunks_visit(|info| {
            // An index that goes in circles has no end.
            if found.len() as u64 >= most {
                wrong = Some("has more chunks than its file has place for".to_owned());
                return -1;
            }
            let place = |i: usize| info.offset.get(i).copied().unwrap_or(0) / lengths.get(i).copied().unwrap_or(1);
            let number = if split {
                place(0).checked_mul(across).and_then(|first| first.checked_add(place(1)))
            } else {
                Some(place(0))
            };
            let chunk =
                u32::try_from(info.size).map(|bytes| Chunk { offset: info.addr, bytes, mask: info.filter_mask });
            match (number, chunk) {
                (Some(number), Ok(chunk)) => {
                    found.push((number, chunk));
                    0
                }
                _ => {
                    wrong = Some(format!("has a chunk at {:?} of {} bytes", info.offset, info.size));
                    -1
                }
            }
        });
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
        visited.map_err(|e| format!("has a damaged index of chunks: {e}"))?;
        ChunkTable::new(found, all)
    }
}

/// Bytes of the number that stands for what was never written.
fn fill(plist: hid_t, dtype: hid_t, number: Number) -> Result<Vec<u8>, String> {
    let mut value = vec![0; number.size()];
    let mut status = h5d::H5D_fill_value_t::H5D_FILL_VALUE_UNDEFINED;
    // SAFETY: list and type are open; `status` and `value`, which is as long as a number of this type, are written to.
    let read = unsafe {
        H5Pfill_value_defined(plist, &raw mut status) >= 0
            && (status == h5d::H5D_fill_value_t::H5D_FILL_VALUE_UNDEFINED
                || H5Pget_fill_value(plist, dtype, value.as_mut_ptr().cast()) >= 0)
    };
    if read { Ok(value) } else { Err("has a damaged fill value".to_owned()) }
}

/// The filters of a data set.
fn chain(plist: hid_t, number: Number) -> Result<Chain, String> {
    /// More parameters than any known filter has.
    const VALUES: usize = 32;
    // SAFETY: the list is open.
    let count = unsafe { H5Pget_nfilters(plist) };
    let count = u32::try_from(count).map_err(|_| "has a damaged list of filters")?;
    let mut filters = Vec::new();
    for i in 0..count {
        let (mut flags, mut config, mut values, mut len) = (0, 0, [0u32; VALUES], VALUES);
        // SAFETY: the list is open; `values` has place for `len` values; no name is asked for.
        let id = unsafe {
            H5Pget_filter2(
                plist,
                i,
                &raw mut flags,
                &raw mut len,
                values.as_mut_ptr(),
                0,
                std::ptr::null_mut(),
                &raw mut config,
            )
        };
        if id < 0 {
            return Err("has a damaged list of filters".to_owned());
        }
        filters.push((id, values[..len.min(VALUES)].to_vec()));
    }
    Chain::new(&filters, number.size())
}

/// All bytes of a data set that is in its own header, which has no place for more than 64 KiB.
fn whole(dataset: &Dataset, len: u64, number: Number) -> Result<Vec<u8>, String> {
    let bytes = len as usize * number.size();
    if bytes > 1 << 16 {
        return Err("has more bytes than a compact data set can have".to_owned());
    }
    let mut data = vec![0; bytes];
    let dtype = dataset.dtype().map_err(text)?;
    // SAFETY: the data set is open, it has `bytes` bytes in its own type, and all of it is asked for in that type.
    let read = unsafe {
        h5d::H5Dread(
            dataset.id(),
            dtype.id(),
            hdf5_metno_sys::h5s::H5S_ALL,
            hdf5_metno_sys::h5s::H5S_ALL,
            hdf5_metno_sys::h5p::H5P_DEFAULT,
            data.as_mut_ptr().cast(),
        )
    };
    if read < 0 { Err("cannot be read".to_owned()) } else { Ok(data) }
}

fn text(e: hdf5_metno::Error) -> String {
    e.to_string()
}
