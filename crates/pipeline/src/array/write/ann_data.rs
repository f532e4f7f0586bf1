use std::ffi::CString;
use std::path::{Path, PathBuf};

use hdf5_metno::types::VarLenUnicode;
use hdf5_metno::{File, Group};
use hdf5_metno_sys::h5o::H5Ocopy;
use hdf5_metno_sys::h5p::H5P_DEFAULT;

use super::attributes::{dict, encoding, list, refused};
use super::frame::{Column, Frame, FrameWriter};
use super::series::{Layout, Series};
use crate::PipelineError;
use crate::array::CsrView;
use crate::array::h5ad::filters::register;

/// How the matrix of a file is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matrix {
    /// Row by row, what is not 0.
    Csr,
    /// Column by column, what is not 0: [`AnnDataWriter::push`] is given columns in place of rows.
    Csc,
    /// float32 `[rows, columns]`.
    Dense,
}

/// What a file will hold.
#[derive(Clone, Copy, Debug)]
pub struct AnnDataSpec {
    /// Rows, exactly.
    pub rows: u64,
    /// Columns of the matrix.
    pub columns: u64,
    /// Values that are not 0: exactly with [`Layout::Contiguous`], otherwise a guess that the size of chunks follows from.
    pub values: u64,
    /// How the matrix is laid out.
    pub matrix: Matrix,
    /// How its data sets lie in the file.
    pub layout: Layout,
    /// Threads that compress.
    pub threads: usize,
}

/// Writes an AnnData file (on-disk format 0.1.0, as AnnData writes it from 0.8 on) from its beginning to its end.
///
/// The file grows under a temporary name and gets its own with [`AnnDataWriter::finish`]; a writer that is dropped before
/// leaves nothing.
pub struct AnnDataWriter {
    temporary: Temporary,
    file: File,
    columns: u64,
    major: u64,
    minor: u64,
    matrix: Values,
    obs: Option<FrameWriter>,
}

enum Values {
    Sparse { group: Group, data: Series<f32>, indices: Series<i32>, indptr: Vec<u64> },
    Dense { data: Series<f32>, row: Vec<f32>, rows: u64 },
}

/// Ends the name of a file that is being written.
const TEMPORARY: &str = ".tmp";

impl AnnDataWriter {
    /// Begin a file. obs and var are to follow, by [`AnnDataWriter::begin_obs`] and [`AnnDataWriter::put_var`] or
    /// [`AnnDataWriter::copy_annotations`].
    ///
    /// # Errors
    /// It cannot be written there; the spec says what cannot be.
    pub fn create(path: &Path, spec: &AnnDataSpec) -> Result<Self, PipelineError> {
        let temporary = Temporary::of(path);
        let at = temporary.path.clone();
        let (rows, columns) = (spec.rows, spec.columns);
        let file = File::create(&at).map_err(refused(path))?;
        encoding(path, &file, "anndata", "0.1.0")?;
        let (major, minor) = if spec.matrix == Matrix::Csc { (columns, rows) } else { (rows, columns) };
        let matrix = match spec.matrix {
            Matrix::Dense => {
                let shape = (rows, Some(columns as usize));
                let data = Series::create(path, &file, "X", shape, spec.layout, spec.threads)?;
                encoding(path, data.dataset(), "array", "0.2.0")?;
                Values::Dense { data, row: vec![0.0; columns as usize], rows: 0 }
            }
            Matrix::Csr | Matrix::Csc => {
                let group = file.create_group("X").map_err(refused(path))?;
                let kind = if spec.matrix == Matrix::Csr { "csr_matrix" } else { "csc_matrix" };
                encoding(path, &group, kind, "0.1.0")?;
                list(path, &group, "shape", &[rows as i64, columns as i64])?;
                let len = (spec.values, None);
                let data = Series::create(path, &group, "data", len, spec.layout, spec.threads)?;
                let indices = Series::create(path, &group, "indices", len, spec.layout, spec.threads)?;
                Values::Sparse { group, data, indices, indptr: vec![0] }
            }
        };
        Ok(Self { temporary, file, columns, major, minor, matrix, obs: None })
    }

    /// Begin obs, which [`AnnDataWriter::push_obs`] fills.
    pub fn begin_obs(&mut self, rows: u64, columns: &[Column]) -> Result<(), PipelineError> {
        self.obs = Some(FrameWriter::create(self.target(), &self.file, "obs", rows, columns)?);
        Ok(())
    }

    /// Append rows of obs.
    ///
    /// # Errors
    /// They are not what was announced.
    pub fn push_obs(&mut self, rows: &Frame) -> Result<(), PipelineError> {
        match &mut self.obs {
            Some(obs) => obs.push(rows),
            None => Err(PipelineError::Invalid("obs was not begun".to_owned())),
        }
    }

    /// Write var: the names of the columns of the matrix, and what is known of each.
    ///
    /// # Errors
    /// There are not as many as the matrix has columns.
    pub fn put_var(&mut self, columns: &[Column], var: &Frame) -> Result<(), PipelineError> {
        let mut writer = FrameWriter::create(self.target(), &self.file, "var", self.columns, columns)?;
        writer.push(var)?;
        writer.finish()
    }

    /// Copy what belongs to rows and columns from another AnnData file with the same ones in the same order: obs and var, and
    /// what is in obsm, obsp, uns, varm and varp. The library copies it as it is.
    ///
    /// # Errors
    /// The other file is of a format before AnnData 0.8, where these parts depend on each other, or cannot be read.
    pub fn copy_annotations(&mut self, other: &Path) -> Result<(), PipelineError> {
        self.copy_parts(other, &["obs", "var", "obsm", "obsp", "uns", "varm", "varp"])
    }

    /// Copy what belongs to columns alone: var, varm and varp.
    ///
    /// # Errors
    /// As [`AnnDataWriter::copy_annotations`].
    pub fn copy_var(&mut self, other: &Path) -> Result<(), PipelineError> {
        self.copy_parts(other, &["var", "varm", "varp"])
    }

    fn copy_parts(&mut self, other: &Path, parts: &[&str]) -> Result<(), PipelineError> {
        register()?;
        let source = File::open(other).map_err(|e| PipelineError::damaged(other, e))?;
        for name in parts.iter().copied().filter(|name| source.link_exists(name)) {
            if ["obs", "var"].contains(&name) && !is_frame(&source, name) {
                let reason =
                    format!("{name} is not as AnnData 0.8 and later write it; read and write it with one of these");
                return Err(PipelineError::damaged(other, reason));
            }
            copy(&source, &self.file, name).map_err(|e| PipelineError::damaged(other, format!("{name}: {e}")))?;
        }
        Ok(())
    }

    /// Where it will be.
    pub fn target(&self) -> &Path {
        &self.temporary.target
    }

    /// Append rows of the matrix; of a [`Matrix::Csc`] columns.
    ///
    /// # Errors
    /// An index is beyond the end, or indices do not ascend.
    pub fn push(&mut self, view: CsrView<'_>) -> Result<(), PipelineError> {
        self.check(view)?;
        match &mut self.matrix {
            Values::Sparse { data, indices, indptr, .. } => {
                let (Some(&first), Some(&last)) = (view.indptr.first(), view.indptr.last()) else { return Ok(()) };
                let from = indptr.last().copied().unwrap_or_default();
                indptr.extend(view.indptr[1..].iter().map(|at| at - first + from));
                let range = first as usize..last as usize;
                data.push(&view.data[range.clone()])?;
                indices.push(&view.indices[range])
            }
            Values::Dense { data, row, rows } => {
                for index in 0..view.indptr.len().saturating_sub(1) {
                    row.fill(0.0);
                    let (columns, values) = view.row(index);
                    for (column, value) in columns.iter().zip(values) {
                        row[*column as usize] = *value;
                    }
                    data.push(row)?;
                    *rows += 1;
                }
                Ok(())
            }
        }
    }

    fn check(&self, view: CsrView<'_>) -> Result<(), PipelineError> {
        for row in 0..view.indptr.len().saturating_sub(1) {
            let (indices, _) = view.row(row);
            let bound = indices.first().is_none_or(|first| *first >= 0)
                && indices.last().is_none_or(|last| (*last as u64) < self.minor);
            if !bound || !indices.is_sorted_by(|a, b| a < b) {
                let reason = format!("indices that do not ascend within 0 to {} were to be written", self.minor);
                return Err(PipelineError::damaged(self.target(), reason));
            }
        }
        Ok(())
    }

    /// Write what is left and give the file its name. Returns how many values it stores.
    ///
    /// # Errors
    /// Rows are missing, of the matrix or of obs; it cannot be written.
    pub fn finish(self) -> Result<u64, PipelineError> {
        let Self { temporary, file, major, minor, matrix, obs, .. } = self;
        let path = temporary.target.clone();
        if let Some(obs) = obs {
            obs.finish()?;
        }
        let (came, values) = match matrix {
            Values::Dense { data, rows, .. } => {
                data.finish()?;
                (rows, rows * minor)
            }
            Values::Sparse { group, data, indices, indptr } => {
                let (_, values) = data.finish()?;
                indices.finish()?;
                write_indptr(&path, &group, &indptr)?;
                (indptr.len() as u64 - 1, values)
            }
        };
        if came != major {
            return Err(PipelineError::damaged(&path, format!("X was to have {major} rows, but {came} came")));
        }
        for name in ["obs", "var"] {
            if !file.link_exists(name) {
                return Err(PipelineError::damaged(&path, format!("{name} was not written")));
            }
        }
        for name in ["layers", "obsm", "obsp", "uns", "varm", "varp"] {
            if !file.link_exists(name) {
                dict(&path, &file, name)?;
            }
        }
        file.flush().map_err(refused(&path))?;
        file.close().map_err(refused(&path))?;
        temporary.publish()?;
        Ok(values)
    }
}

/// Whether a part of a file is a group `dataframe` 0.2.0.
fn is_frame(file: &File, name: &str) -> bool {
    let version = |group: Group| group.attr("encoding-version")?.read_scalar::<VarLenUnicode>();
    file.group(name).and_then(version).is_ok_and(|version| version.as_str() == "0.2.0")
}

/// Copy an object with all below it.
fn copy(from: &File, to: &File, name: &str) -> hdf5_metno::Result<()> {
    let name = CString::new(name).map_err(|e| hdf5_metno::Error::from(e.to_string()))?;
    hdf5_metno::sync::sync(|| {
        let (from, to, name) = (from.id(), to.id(), name.as_ptr());
        // SAFETY: both files are open, the name ends in NUL; all outlive the call.
        hdf5_metno::h5check(unsafe { H5Ocopy(from, name, to, name, H5P_DEFAULT, H5P_DEFAULT) })
    })?;
    Ok(())
}

/// int32 as scipy has it while that is enough, otherwise int64.
fn write_indptr(path: &Path, group: &Group, indptr: &[u64]) -> Result<(), PipelineError> {
    let builder = |group: &Group| group.new_dataset_builder().obj_track_times(false);
    let written = if indptr.last().is_some_and(|last| i32::try_from(*last).is_ok()) {
        let indptr: Vec<i32> = indptr.iter().map(|at| *at as i32).collect();
        builder(group).with_data(&indptr[..]).no_chunk().create("indptr")
    } else {
        let indptr: Vec<i64> = indptr.iter().map(|at| *at as i64).collect();
        builder(group).with_data(&indptr[..]).no_chunk().create("indptr")
    };
    written.map(drop).map_err(refused(path))
}

/// A file under its temporary name, which is removed unless it is published.
struct Temporary {
    target: PathBuf,
    path: PathBuf,
    published: bool,
}

impl Temporary {
    fn of(target: &Path) -> Self {
        let mut path = target.as_os_str().to_owned();
        path.push(TEMPORARY);
        Self { target: target.to_owned(), path: path.into(), published: false }
    }

    fn publish(mut self) -> Result<(), PipelineError> {
        let flushed = std::fs::File::open(&self.path).and_then(|file| file.sync_all());
        flushed.map_err(PipelineError::io("flush", &self.target))?;
        std::fs::rename(&self.path, &self.target).map_err(PipelineError::io("rename to", &self.target))?;
        self.published = true;
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.published {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::array::write::{Cells, ColumnKind, Compression};
    use crate::array::{ArrayStore, Collection, CsrRows, DenseRows, Form, H5adStore, Rows, Wanted};

    fn names(prefix: &str, n: usize) -> Vec<String> {
        (0..n).map(|index| format!("{prefix}{index}")).collect()
    }

    fn csr(rows: &[Vec<(i32, f32)>]) -> CsrRows {
        let mut all = CsrRows::default();
        for row in rows {
            all.indices.extend(row.iter().map(|(column, _)| *column));
            all.data.extend(row.iter().map(|(_, value)| *value));
            all.indptr.push(all.indices.len() as u64);
        }
        all
    }

    fn write(path: &Path, spec: &AnnDataSpec, pieces: &[CsrRows]) -> Result<u64, PipelineError> {
        let mut writer = AnnDataWriter::create(path, spec)?;
        writer.put_var(&[], &Frame { index: names("g", spec.columns as usize), columns: Vec::new() })?;
        let kind = ColumnKind::Categorical { categories: vec!["a".to_owned(), "b".to_owned()], ordered: true };
        writer.begin_obs(spec.rows, &[Column { name: "kind".to_owned(), kind }])?;
        for piece in pieces {
            writer.push(piece.view())?;
        }
        let codes = (0..spec.rows as i32).map(|row| row % 3 - 1).collect();
        let obs = Frame { index: names("c", spec.rows as usize), columns: vec![Cells::Codes(codes)] };
        writer.push_obs(&obs)?;
        writer.finish()
    }

    fn read(path: &Path) -> (H5adStore, Rows) {
        let store = H5adStore::open(path, "").unwrap();
        let mut rows = match store.form() {
            Form::Sparse => Rows::Sparse(CsrRows::default()),
            Form::Dense => Rows::Dense(DenseRows { columns: store.genes().len(), data: Vec::new() }),
        };
        {
            let mut reader = store.reader().unwrap();
            reader.fetch(&Wanted::Range(0..store.len()), &mut rows).unwrap();
            reader.decode(&mut rows).unwrap();
        }
        (store, rows)
    }

    fn any_rows() -> impl Strategy<Value = Vec<Vec<(i32, f32)>>> {
        let row = prop::collection::btree_map(0..23i32, prop::num::f32::NORMAL, 0..23);
        prop::collection::vec(row.prop_map(|row| row.into_iter().collect()), 0..40)
    }

    fn any_layout() -> impl Strategy<Value = Layout> {
        let compression = prop_oneof![
            Just(Compression::None),
            (0..10u8, any::<bool>()).prop_map(|(level, shuffle)| Compression::Gzip { level, shuffle }),
            Just(Compression::Lzf),
            (1..5u8).prop_map(|level| Compression::Zstd { level }),
        ];
        let chunk = prop_oneof![Just(None), (1..50usize).prop_map(Some)];
        prop_oneof![
            1 => Just(Layout::Contiguous),
            5 => (chunk, compression).prop_map(|(chunk, compression)| Layout::Chunked { chunk, compression }),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        /// What is written is read, however it lies in the file and in whatever pieces it came.
        #[test]
        fn rows_come_back(rows in any_rows(), layout in any_layout(), dense in any::<bool>(), cut in 0..40usize, threads in 1..4usize) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("a.h5ad");
            let whole = csr(&rows);
            let cut = cut.min(rows.len());
            let pieces = [csr(&rows[..cut]), csr(&rows[cut..])];
            let matrix = if dense { Matrix::Dense } else { Matrix::Csr };
            let values = whole.data.len() as u64;
            let spec = AnnDataSpec { rows: rows.len() as u64, columns: 23, values, matrix, layout, threads };
            let written = write(&path, &spec, &pieces).unwrap();
            prop_assert_eq!(written, if dense { 23 * rows.len() as u64 } else { values });
            let (store, found) = read(&path);
            match found {
                Rows::Sparse(found) => prop_assert_eq!(found, whole),
                Rows::Dense(found) => {
                    let mut expected = vec![0.0; 23 * rows.len()];
                    for (row, values) in rows.iter().enumerate() {
                        values.iter().for_each(|(column, value)| expected[row * 23 + *column as usize] = *value);
                    }
                    prop_assert_eq!(found.data, expected);
                }
            }
            let labels = store.labels("kind").unwrap();
            prop_assert_eq!(labels.codes, (0..rows.len() as i32).map(|row| row % 3 - 1).collect::<Vec<_>>());
            prop_assert_eq!(labels.categories, ["a", "b"]);
            prop_assert_eq!(store.row_names().unwrap(), names("c", rows.len()));
            prop_assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        }
    }

    #[test]
    fn what_was_not_announced_is_refused_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.h5ad");
        let spec = AnnDataSpec {
            rows: 2,
            columns: 3,
            values: 2,
            matrix: Matrix::Csr,
            layout: Layout::Chunked { chunk: None, compression: Compression::None },
            threads: 1,
        };
        let contiguous = AnnDataSpec { layout: Layout::Contiguous, ..spec };
        let gzip = Layout::Chunked { chunk: None, compression: Compression::Gzip { level: 10, shuffle: false } };
        let two = || csr(&[vec![(0, 1.0)], vec![(2, 1.0)]]);
        for (spec, piece, says) in [
            (spec, csr(&[vec![(0, 1.0)]]), "X was to have 2 rows, but 1 came"),
            (spec, csr(&[vec![(3, 1.0)], vec![]]), "indices that do not ascend within 0 to 3"),
            (spec, csr(&[vec![(-1, 1.0)], vec![]]), "indices that do not ascend within 0 to 3"),
            (spec, csr(&[vec![(1, 1.0), (1, 2.0)], vec![]]), "indices that do not ascend within 0 to 3"),
            (contiguous, csr(&[vec![(0, 1.0)], vec![]]), "2 entries were announced, but 1 came"),
            (contiguous, csr(&[vec![(0, 1.0), (1, 1.0)], vec![(1, 1.0)]]), "2 entries were announced, but more came"),
            (AnnDataSpec { layout: gzip, ..spec }, two(), "gzip has levels 0 to 9, not 10"),
        ] {
            let error = write(&path, &spec, &[piece]).unwrap_err().to_string();
            assert!(error.contains(says) && error.contains("a.h5ad"), "{error}");
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        }
        let mut writer = AnnDataWriter::create(&path, &spec).unwrap();
        writer.push(two().view()).unwrap();
        assert!(writer.finish().unwrap_err().to_string().ends_with("obs was not written"));
        let slash = Column { name: "a/b".to_owned(), kind: ColumnKind::Strings };
        let mut writer = AnnDataWriter::create(&path, &spec).unwrap();
        assert!(writer.begin_obs(2, &[slash]).unwrap_err().to_string().contains("cannot be the name of a column"));
    }

    #[test]
    fn categories_stay_ordered() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.h5ad");
        let spec =
            AnnDataSpec { rows: 2, columns: 3, values: 2, matrix: Matrix::Csr, layout: Layout::Contiguous, threads: 1 };
        write(&path, &spec, &[csr(&[vec![(0, 1.0)], vec![(2, 2.0)]])]).unwrap();
        let (columns, _) = H5adStore::open(&path, "").unwrap().table().unwrap();
        assert!(matches!(columns[0].kind, ColumnKind::Categorical { ordered: true, .. }), "{columns:?}");
    }

    #[test]
    fn files_by_columns_share_what_memory_they_may_take() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["a.h5ad", "b.h5ad"].map(|name| folder.path().join(name));
        for path in &files {
            let (rows, columns, values) = (3, 2, 2);
            let spec =
                AnnDataSpec { rows, columns, values, matrix: Matrix::Csc, layout: Layout::Contiguous, threads: 1 };
            write(path, &spec, &[csr(&[vec![(1, 1.0)], vec![(0, 2.0)]])]).unwrap();
        }
        // Two values and three rows take 48 bytes.
        assert_eq!(H5adStore::open_all_within(&files, "", 96).unwrap().len(), 2);
        let e = H5adStore::open_all_within(&files, "", 95).unwrap_err().to_string();
        assert!(e.contains("b.h5ad") && e.contains("48 bytes") && e.contains("47 are left"), "{e}");
        let store: Box<dyn ArrayStore> = Box::new(H5adStore::open(&files[0], "").unwrap());
        let rows = store.resident().unwrap();
        assert_eq!((rows.indptr, rows.indices, rows.data), (&[0, 1, 2, 2][..], &[1, 0][..], &[2.0, 1.0][..]));
    }

    /// Whatever is wrong with a chunk, `out` is what it was before, of one file and of several.
    #[test]
    fn damaged_chunks_leave_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let (good, bad) = (folder.path().join("good.h5ad"), folder.path().join("bad.h5ad"));
        let rows: Vec<Vec<(i32, f32)>> =
            (0..9).map(|row| (0..23).map(|column| (column, (row * column) as f32 + 0.5)).collect()).collect();
        let mut failed = 0;
        for matrix in [Matrix::Dense, Matrix::Csr] {
            let layout = Layout::Chunked { chunk: Some(3), compression: Compression::Gzip { level: 4, shuffle: true } };
            let spec = AnnDataSpec { rows: 9, columns: 23, values: 9 * 23, matrix, layout, threads: 1 };
            write(&good, &spec, &[csr(&rows)]).unwrap();
            let bytes = std::fs::read(&good).unwrap();
            for at in (0..bytes.len()).step_by(72) {
                let mut changed = bytes.clone();
                changed[at..].iter_mut().take(8).for_each(|byte| *byte ^= 0x55);
                std::fs::write(&bad, changed).unwrap();
                let Ok(one) = H5adStore::open(&bad, "") else { continue };
                let two = H5adStore::open_all(&[good.clone(), bad.clone()], "").unwrap();
                let two = two.into_iter().map(|store| Box::new(store) as Box<dyn ArrayStore>).collect();
                let Ok(two) = Collection::new(two, expctl_record::Join::Inner, &[]) else { continue };
                if two.genes().len() < 23 {
                    continue;
                }
                let (_, before) = read(&good);
                for (store, wanted) in [(&one as &dyn ArrayStore, [0, 8, 4]), (&two, [17, 0, 9])] {
                    let (mut out, mut reader) = (before.clone(), store.reader().unwrap());
                    let read = reader.fetch(&Wanted::Rows(&wanted), &mut out);
                    if read.and_then(|_| reader.decode(&mut out)).is_err() {
                        assert_eq!(out, before);
                        failed += 1;
                    }
                }
            }
        }
        assert!(failed > 8, "{failed}");
    }
}
