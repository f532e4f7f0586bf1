//! A file of any format that rows and annotations are taken from.

use std::path::{Path, PathBuf};

use anndata_io::write::{
    AnnDataSpec, AnnDataWriter, ColumnCells, ColumnKind, ColumnSpec, Compression, Frame, Layout, Matrix,
    has_current_annotations,
};
use anndata_io::{
    Annotation, ArrayStore, CsrRows, H5adStore, LabelKind, MatrixFile, MdsStore, ParquetStore, ZarrStore,
};

use crate::DatasetError;
use crate::array::rows::stored;
use crate::build_folder::{Report, report};

/// A source of a conversion.
///
/// `.h5ad` files of AnnData 0.8 or newer hand on all their annotations unchanged. Of other files, obs and the names of the genes are
/// kept: integers, floats, truth values and text stay what they are, and classes keep their order.
pub struct SourceFile {
    path: PathBuf,
    content: Content,
    /// An `.h5ad` file with the annotations, of a source that is none, or an old one.
    annotations: Option<tempfile::TempPath>,
}

enum Content {
    H5ad(H5adStore),
    Zarr(ZarrStore),
    Other(Box<dyn ArrayStore>),
}

fn extension(path: &Path) -> Option<&str> {
    path.extension().and_then(|extension| extension.to_str())
}

/// Whether a file is opened as AnnData in HDF5.
pub fn is_h5ad(path: &Path) -> bool {
    !matches!(extension(path), Some("parquet" | "mds" | "zarr"))
}

impl Content {
    fn open(path: &Path) -> Result<Self, DatasetError> {
        Ok(match extension(path) {
            Some("parquet") => Self::Other(Box::new(ParquetStore::open(path)?)),
            Some("mds") => Self::Other(Box::new(MdsStore::open(path)?)),
            Some("zarr") => Self::Zarr(ZarrStore::open(path, "")?),
            _ => Self::H5ad(H5adStore::open(path, "")?),
        })
    }
}

/// Opens a file of any format; its extension says which.
///
/// # Errors
/// It cannot be read, or has no matrix.
pub fn open_any(path: &Path) -> Result<Box<dyn ArrayStore>, DatasetError> {
    Ok(match Content::open(path)? {
        Content::H5ad(store) => Box::new(store),
        Content::Zarr(store) => Box::new(store),
        Content::Other(store) => store,
    })
}

/// Rows, genes and stored values of a file. AnnData in HDF5 is not opened for it: a matrix that is stored by columns takes memory while
/// it is open.
///
/// # Errors
/// As [`open_any`].
pub fn size(path: &Path) -> Result<(u64, u64, u64), DatasetError> {
    if is_h5ad(path) {
        return Ok(MatrixFile::size(path, "X")?);
    }
    let store = open_any(path)?;
    Ok((store.len(), store.genes().len() as u64, stored(store.as_ref())))
}

impl SourceFile {
    /// Opens a file. Annotations that cannot be copied from it go to a temporary file in `folder`, which takes long where there are
    /// many rows: `to` is told of the columns that are read, and of the rows that are written.
    ///
    /// # Errors
    /// It cannot be read; the temporary file cannot be written.
    pub fn open(path: &Path, folder: &Path, to: &mut Report<'_>) -> Result<Self, DatasetError> {
        let mut source = Self { path: path.to_owned(), content: Content::open(path)?, annotations: None };
        if !(matches!(source.content, Content::H5ad(_)) && has_current_annotations(path)?) {
            let mut stopped = Ok(());
            let table = source.table_by_column(|done, total| {
                if stopped.is_ok() {
                    stopped = report(to, "columns", done as u64, total as u64);
                }
            })?;
            stopped?;
            let rows = source.store().len();
            report(to, "annotations", 0, rows)?;
            source.annotations = Some(write_annotations(source.store(), table, folder)?);
            report(to, "annotations", rows, rows)?;
        }
        Ok(source)
    }

    /// Path of the file or folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its rows.
    pub fn store(&self) -> &dyn ArrayStore {
        match &self.content {
            Content::H5ad(store) => store,
            Content::Zarr(store) => store,
            Content::Other(store) => store.as_ref(),
        }
    }

    /// An `.h5ad` file with its annotations: itself, if they can be copied from it.
    pub fn annotations(&self) -> &Path {
        self.annotations.as_deref().unwrap_or(&self.path)
    }

    /// obs, column by column.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn table(&self) -> Result<(Vec<ColumnSpec>, Frame), DatasetError> {
        self.table_by_column(|_, _| ())
    }

    /// The same, with a call of `read` as of [`H5adStore::table_by_column`].
    fn table_by_column(&self, read: impl FnMut(usize, usize)) -> Result<(Vec<ColumnSpec>, Frame), DatasetError> {
        match &self.content {
            Content::H5ad(store) => Ok(store.table_by_column(read)?),
            Content::Zarr(store) => Ok(store.table_by_column(read)?),
            Content::Other(store) => table(store.as_ref(), read),
        }
    }
}

/// obs of a store. Rows without names are numbered.
fn table(store: &dyn ArrayStore, mut read: impl FnMut(usize, usize)) -> Result<(Vec<ColumnSpec>, Frame), DatasetError> {
    let (mut columns, mut frame) = (Vec::new(), Frame::default());
    let names = store.columns()?;
    let total = names.len() + 1;
    read(0, total);
    for name in names {
        let (kind, cells) = cells(store, &name)?;
        columns.push(ColumnSpec { name, kind });
        frame.columns.push(cells);
        read(columns.len(), total);
    }
    frame.index = match store.row_names()? {
        Some(names) => names,
        None => (0..store.len()).map(|row| row.to_string()).collect(),
    };
    read(total, total);
    Ok((columns, frame))
}

/// Kind and values of a column of obs.
fn cells(store: &dyn ArrayStore, column: &str) -> Result<(ColumnKind, ColumnCells), DatasetError> {
    let labels = match store.annotation(column)? {
        Annotation::Numbers { values, integers: false } => {
            return Ok((ColumnKind::Float64, ColumnCells::Float64(values)));
        }
        // As classes: float64 has no integers beyond 53 bits.
        Annotation::Numbers { integers: true, .. } => store.labels(column)?,
        Annotation::Classes(labels) => labels,
    };
    let is_complete = !labels.codes.contains(&-1);
    if labels.kind == LabelKind::Integer
        && let Ok(numbers) = labels.categories.iter().map(|name| name.parse()).collect::<Result<Vec<i64>, _>>()
    {
        let of_class = |code: &i32| usize::try_from(*code).ok().map(|code| numbers[code]);
        return Ok(if is_complete {
            (ColumnKind::Int64, ColumnCells::Int64(labels.codes.iter().filter_map(of_class).collect()))
        } else {
            (ColumnKind::NullableInt64, ColumnCells::NullableInt64(labels.codes.iter().map(of_class).collect()))
        });
    }
    if labels.kind == LabelKind::Bool && is_complete {
        let is_true: Vec<bool> = labels.categories.iter().map(|name| name.eq_ignore_ascii_case("true")).collect();
        return Ok((
            ColumnKind::Bool,
            ColumnCells::Bool(labels.codes.iter().map(|code| is_true[*code as usize]).collect()),
        ));
    }
    let kind = ColumnKind::Categorical { categories: labels.categories, ordered: false };
    Ok((kind, ColumnCells::Codes(labels.codes)))
}

/// A temporary `.h5ad` file with the annotations of a store, and a matrix without values.
fn write_annotations(
    store: &dyn ArrayStore,
    (columns, frame): (Vec<ColumnSpec>, Frame),
    folder: &Path,
) -> Result<tempfile::TempPath, DatasetError> {
    let file = tempfile::Builder::new().prefix(".annotations-").suffix(".h5ad").tempfile_in(folder);
    let path = file.map_err(DatasetError::io("create a file in", folder))?.into_temp_path();
    let genes = store.genes();
    let spec = AnnDataSpec {
        rows: store.len(),
        columns: genes.len() as u64,
        values: 0,
        matrix: Matrix::Csr,
        layout: Layout::Chunked { chunk: None, compression: Compression::None },
        threads: 1,
    };
    let mut writer = AnnDataWriter::create(&path, &spec)?;
    writer.begin_obs(store.len(), &columns)?;
    writer.push_obs(&frame)?;
    writer.put_var(&[], &Frame { index: genes.to_vec(), columns: Vec::new() })?;
    let empty = CsrRows { indptr: vec![0; frame.index.len() + 1], indices: Vec::new(), data: Vec::new() };
    writer.push(empty.view())?;
    writer.finish()?;
    Ok(path)
}
