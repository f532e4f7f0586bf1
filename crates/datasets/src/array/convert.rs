//! `convert` makes files of another format from the base files of a data set; `convert_files` converts files that belong to no data set.
//! Invariant: a file gets its name only after it was read back and has the rows of its source; an existing file is never replaced.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anndata_io::write::has_current_annotations;
use anndata_io::{ArrayStore, H5adStore};
use expctl_settings::ArrayFormat;

use crate::array::build::Finished;
use crate::array::convert_file::{FileConversion, Regroup, max_bytes};
use crate::array::dataset::{ARRAY_SCHEMA, ArrayDataset, ArrayFile, ArrayStoreManifest, part};
use crate::array::rows::{RowsSeen, seen, stored};
use crate::array::shuffle::{Shards, Shuffle};
use crate::array::source_file::{SourceFile, is_h5ad, open_any, size};
use crate::build_folder::{BuildFolder, BuildProgress, Report, checksums, room, tidy};
use crate::manifest::FileInfo;
use crate::{Damage, DatasetError, RequestError};

/// Options of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvertOptions {
    /// Rows of a parquet row group.
    pub row_group: u64,
    /// Rows of a shard of shuffled files; 0 takes as many files as there were.
    pub shard_rows: u64,
    /// Seed of the order of shuffled files.
    pub seed: u64,
    /// Number of parquet files that the rows of a data set are put into, in order; 0 makes one of each base file.
    pub file_count: u64,
    /// Threads.
    pub jobs: usize,
}

impl Default for ConvertOptions {
    fn default() -> Self {
        Self { row_group: 1024, shard_rows: 0, seed: 42, file_count: 0, jobs: 1 }
    }
}

/// Make the files of a format from the base files of a data set and read them back, or return their manifest at once if they
/// are there.
///
/// A conversion that was stopped leaves `<folder>.partial` with the files that were finished; the next one goes on with it.
/// `folder` itself appears only when all is complete and checked.
///
/// # Errors
/// The format is that of the base files; there is no room; another process is at it; the files that are there were made from
/// other base files or with other options; what was written reads back as something else.
pub fn convert(
    dataset: &ArrayDataset,
    format: ArrayFormat,
    options: &ConvertOptions,
    progress: &mut dyn FnMut(BuildProgress) -> std::ops::ControlFlow<()>,
) -> Result<ArrayStoreManifest, DatasetError> {
    make(dataset, format, options, progress).map_err(|e| dataset.advise(e))
}

fn make(
    dataset: &ArrayDataset,
    format: ArrayFormat,
    options: &ConvertOptions,
    to: &mut Report<'_>,
) -> Result<ArrayStoreManifest, DatasetError> {
    let started = Instant::now();
    if matches!(format, ArrayFormat::H5ad | ArrayFormat::None) {
        return Err(RequestError::IsBase { format: ArrayFormat::H5ad.name() }.into());
    }
    let folder = dataset.store_folder(format);
    let base = dataset.manifest();
    let shard_rows = match options.shard_rows {
        0 => base.rows.div_ceil(base.files.len().max(1) as u64),
        rows => rows,
    };
    let asked = StoredOptions::new(format, &ConvertOptions { shard_rows, ..*options });
    let StoredOptions { row_group, shard_rows, seed, file_count } = asked;
    if let Some(manifest) = existing_files(dataset, format, asked)? {
        tidy(&folder);
        return Ok(manifest);
    }
    if folder.exists() {
        return Err(DatasetError::damaged(&folder, Damage::NoManifest { contents: "holds no converted files" }));
    }
    if row_group == 0 && is_parquet(format) {
        return Err(RequestError::EmptyRowGroup.into());
    }
    if file_count > base.rows {
        return Err(RequestError::FileCount { rows: base.rows, files: file_count }.into());
    }
    let partial = BuildFolder::open(&folder)?;
    if let Some(manifest) = existing_files(dataset, format, asked)? {
        partial.discard()?;
        return Ok(manifest);
    }
    let base_blake3 = base.base_blake3();
    let files = if file_count == 0 { String::new() } else { format!(" {file_count} files") };
    partial
        .prepare(&format!("{base_blake3} {} {row_group} {shard_rows} {seed} {ARRAY_SCHEMA}{files}", format.name()))?;
    let sources = dataset.store_files(ArrayFormat::H5ad)?;
    let finished = Finished::open(partial.path())?;
    let files = if format == ArrayFormat::H5adShuffled {
        let shards = Shards { folder: partial.path(), rows: shard_rows, seed, jobs: options.jobs };
        shuffled(&sources, &shards, &finished, to)?
    } else if file_count > 0 {
        let bytes = base.files.iter().map(|file| max_bytes(format, file.rows, base.genes, file.nnz)).sum();
        room(partial.path(), bytes)?;
        let sources = H5adStore::open_all(&sources, "")?;
        let regroup =
            Regroup { sources: &sources, base: &base.files, format, row_group, file_count, jobs: options.jobs };
        regroup.run(partial.path(), &finished, to)?
    } else {
        let expected = |index: usize| part(index as u64, format.extension());
        let known: Vec<_> = (0..sources.len()).map(|index| finished.get(index as u64, &expected(index))).collect();
        let missing = base.files.iter().zip(&known).filter(|(_, known)| known.is_none());
        let bytes = missing.map(|(file, _)| max_bytes(format, file.rows, base.genes, file.nnz)).sum();
        room(partial.path(), bytes)?;
        let (mut files, mut done) = (Vec::new(), 0);
        for ((index, source), known) in sources.iter().enumerate().zip(known) {
            let file = match known {
                Some(file) => file,
                None => {
                    let source = SourceFile::open(source, partial.path(), to)?;
                    let one = FileConversion { format, row_group, jobs: options.jobs, source: &source };
                    let written = one.run(&partial.path().join(expected(index)), done, base.rows, to)?;
                    check_base(&base.files[index], &written, source.path())?;
                    let file = describe(partial.path(), expected(index), &written, to)?;
                    finished.put(index as u64, &file)?;
                    file
                }
            };
            done += file.rows;
            files.push(file);
        }
        files
    };
    let manifest = ArrayStoreManifest {
        schema: ARRAY_SCHEMA,
        format,
        base_blake3,
        row_group,
        shard_rows,
        seed,
        file_count,
        files,
        build_seconds: started.elapsed().as_secs_f64(),
    };
    partial.write_manifest(&manifest)?;
    finished.remove()?;
    partial.finish(&folder)?;
    Ok(manifest)
}

const fn is_parquet(format: ArrayFormat) -> bool {
    matches!(format, ArrayFormat::Parquet | ArrayFormat::ParquetSparse)
}

/// Options that a manifest holds; those that a format does not have are 0.
#[derive(Clone, Copy, PartialEq, Eq)]
struct StoredOptions {
    row_group: u64,
    shard_rows: u64,
    seed: u64,
    file_count: u64,
}

impl StoredOptions {
    fn new(format: ArrayFormat, options: &ConvertOptions) -> Self {
        let none = Self { row_group: 0, shard_rows: 0, seed: 0, file_count: 0 };
        let ConvertOptions { row_group, shard_rows, seed, file_count, .. } = *options;
        match format {
            ArrayFormat::H5adShuffled => Self { shard_rows, seed, ..none },
            _ if is_parquet(format) => Self { row_group, file_count, ..none },
            _ => none,
        }
    }
}

/// The files of a format that exist, if they were made with these options.
fn existing_files(
    dataset: &ArrayDataset,
    format: ArrayFormat,
    asked: StoredOptions,
) -> Result<Option<ArrayStoreManifest>, DatasetError> {
    let Some(found) = dataset.converted(format)? else { return Ok(None) };
    let ArrayStoreManifest { row_group, shard_rows, seed, file_count, .. } = found;
    if (StoredOptions { row_group, shard_rows, seed, file_count }) == asked {
        return Ok(Some(found));
    }
    let damage = match format {
        ArrayFormat::H5adShuffled => Damage::OtherShuffle { rows: shard_rows, seed },
        _ if file_count != asked.file_count => Damage::OtherFiles(found.files.len()),
        _ => Damage::OtherRowGroups(row_group),
    };
    Err(DatasetError::damaged(&dataset.store_folder(format), damage))
}

/// Check that the rows of a base file are those that were built.
pub fn check_base(file: &ArrayFile, written: &RowsSeen, path: &Path) -> Result<(), DatasetError> {
    if file.content_blake3 == written.digest() {
        return Ok(());
    }
    Err(DatasetError::damaged(path, Damage::OtherRows))
}

/// The manifest's entry of a file with these rows.
pub fn describe(
    folder: &Path,
    name: String,
    written: &RowsSeen,
    to: &mut Report<'_>,
) -> Result<ArrayFile, DatasetError> {
    let file: FileInfo = checksums(folder, &[name], to)?.swap_remove(0);
    let (rows, nnz, sum) = (written.rows, written.nnz, written.sum);
    Ok(ArrayFile { file, rows, nnz, sum, content_blake3: written.digest() })
}

/// Shuffle, and describe the shards.
fn shuffled(
    sources: &[PathBuf],
    shards: &Shards<'_>,
    finished: &Finished,
    to: &mut Report<'_>,
) -> Result<Vec<ArrayFile>, DatasetError> {
    let sources = H5adStore::open_all(sources, "")?;
    let rows: u64 = sources.iter().map(|source| source.len()).sum();
    let names: Vec<String> = (0..rows.div_ceil(shards.rows.max(1))).map(|index| part(index, "h5ad")).collect();
    let known: Option<Vec<ArrayFile>> = names.iter().zip(0..).map(|(name, index)| finished.get(index, name)).collect();
    if let Some(known) = known {
        return Ok(known);
    }
    let values: u64 = sources.iter().map(|source| stored(source)).sum();
    let columns = sources.first().map_or(0, |source| source.genes().len() as u64);
    room(shards.folder, 2 * max_bytes(ArrayFormat::H5adShuffled, rows, columns, values))?;
    let written = Shuffle::new(&sources, shards)?.run(&names, to)?;
    names
        .into_iter()
        .zip(written)
        .zip(0..)
        .map(|((name, written), index)| {
            let file = describe(shards.folder, name, &written, to)?;
            finished.put(index, &file)?;
            Ok(file)
        })
        .collect()
}

/// Convert files that belong to no data set into `folder`: a file each, of the same name with the format's extension; with
/// `shuffle` shards `part-0000…` of all rows in random order. They are AnnData in HDF5 (of any version) or zarr, parquet or MDS; obs and
/// the genes are kept, of AnnData 0.8 and newer in HDF5 all annotations. Each file appears only when it is complete
/// and checked; what is there already is never replaced.
///
/// # Errors
/// A file cannot be read, or one is in the way; there is no room; with `shuffle`, files differ in their genes or in the kinds
/// of their columns of obs.
pub fn convert_files(
    sources: &[PathBuf],
    format: ArrayFormat,
    shuffle: bool,
    options: &ConvertOptions,
    folder: &Path,
    progress: &mut dyn FnMut(BuildProgress) -> std::ops::ControlFlow<()>,
) -> Result<Vec<PathBuf>, DatasetError> {
    if options.row_group == 0 {
        return Err(RequestError::EmptyRowGroup.into());
    }
    std::fs::create_dir_all(folder).map_err(DatasetError::io("create", folder))?;
    if !shuffle {
        let targets = targets(sources.iter().map(PathBuf::as_path), format, folder)?;
        return each_file(sources, targets, format, options, progress);
    }
    // Hidden, and removed whatever happens.
    let between = tempfile::Builder::new().prefix(".shuffle-").tempdir_in(folder);
    let between = between.map_err(DatasetError::io("create a folder in", folder))?;
    let sources = as_h5ad(sources, options, between.path(), progress)?;
    let stores = H5adStore::open_all(&sources, "")?;
    let rows: u64 = stores.iter().map(|store| store.len()).sum();
    let shard_rows = match options.shard_rows {
        0 => rows.div_ceil(stores.len().max(1) as u64),
        rows => rows,
    };
    let shards = Shards { folder: between.path(), rows: shard_rows, seed: options.seed, jobs: options.jobs };
    let names: Vec<String> = (0..rows.div_ceil(shard_rows.max(1))).map(|index| part(index, "h5ad")).collect();
    let targets = targets(names.iter().map(Path::new), format, folder)?;
    let values: u64 = stores.iter().map(|store| stored(store)).sum();
    let columns = stores.first().map_or(0, |store| store.genes().len() as u64);
    room(folder, 3 * max_bytes(ArrayFormat::H5adShuffled, rows, columns, values))?;
    let written: Vec<PathBuf> = names.iter().map(|name| between.path().join(name)).collect();
    Shuffle::new(&stores, &shards)?.run(&names, progress)?;
    if matches!(format, ArrayFormat::H5ad | ArrayFormat::H5adShuffled) {
        return moved(&written, targets);
    }
    each_file(&written, targets, format, options, progress)
}

/// The sources as AnnData files whose annotations can be copied: those that are none, or old ones, are converted into `folder`.
fn as_h5ad(
    sources: &[PathBuf],
    options: &ConvertOptions,
    folder: &Path,
    to: &mut Report<'_>,
) -> Result<Vec<PathBuf>, DatasetError> {
    let mut files = Vec::new();
    for (source, index) in sources.iter().zip(0..) {
        if is_h5ad(source) && has_current_annotations(source)? {
            files.push(source.clone());
            continue;
        }
        let target = folder.join(format!("source-{}", part(index, "h5ad")));
        files.extend(each_file(std::slice::from_ref(source), vec![target], ArrayFormat::H5ad, options, to)?);
    }
    Ok(files)
}

/// Paths of converted files in a folder. None of them may exist, and no two may be the same.
fn targets<'a>(
    sources: impl Iterator<Item = &'a Path>,
    format: ArrayFormat,
    folder: &Path,
) -> Result<Vec<PathBuf>, DatasetError> {
    let target = |source: &Path| {
        let name = Path::new(source.file_name().unwrap_or_default()).with_extension(format.extension());
        folder.join(name)
    };
    let targets: Vec<PathBuf> = sources.map(target).collect();
    let mut seen = std::collections::HashSet::new();
    for target in &targets {
        if target.exists() {
            return Err(DatasetError::damaged(target, Damage::Exists));
        }
        if !seen.insert(target) {
            return Err(RequestError::SameTarget { target: target.clone() }.into());
        }
    }
    Ok(targets)
}

/// Rename finished files.
fn moved(from: &[PathBuf], targets: Vec<PathBuf>) -> Result<Vec<PathBuf>, DatasetError> {
    for (from, target) in from.iter().zip(&targets) {
        std::fs::rename(from, target).map_err(DatasetError::io("rename to", target))?;
    }
    Ok(targets)
}

fn each_file(
    sources: &[PathBuf],
    targets: Vec<PathBuf>,
    format: ArrayFormat,
    options: &ConvertOptions,
    to: &mut Report<'_>,
) -> Result<Vec<PathBuf>, DatasetError> {
    let (mut rows, mut bytes) = (0, 0);
    for source in sources {
        // Not opened yet: one that is stored by columns takes memory while it is.
        let (own, columns, values) = size(source)?;
        bytes += max_bytes(format, own, columns, values);
        rows += own;
    }
    if let Some(folder) = targets.first().and_then(|target| target.parent()) {
        room(folder, bytes)?;
    }
    let mut done = 0;
    for (source, target) in sources.iter().zip(&targets) {
        let folder = target.parent().unwrap_or(Path::new("."));
        let source = SourceFile::open(source, folder, to)?;
        let one = FileConversion { format, row_group: options.row_group, jobs: options.jobs, source: &source };
        done += one.run(target, done, rows, to)?.rows;
    }
    Ok(targets)
}

/// Read all rows of a file once more and compare them with what is known of it.
pub fn check_content(
    path: &Path,
    file: &ArrayFile,
    jobs: usize,
    mut passed: impl FnMut(u64) -> Result<(), DatasetError>,
) -> Result<Option<String>, DatasetError> {
    let store = open_any(path)?;
    let found = seen(store.as_ref(), jobs, &mut passed)?;
    let same = found.digest() == file.content_blake3 && (found.rows, found.nnz) == (file.rows, file.nnz);
    Ok((!same).then(|| format!("{} rows with {} values, or other ones than were written", found.rows, found.nnz)))
}
