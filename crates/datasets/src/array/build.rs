//! `build` draws the rows of an array data set on several threads and writes its base files: .h5ad, CSR, with obs and var.
//! Invariant: the rows are the same with any number of threads, and after any number of builds that were stopped.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anndata_io::CsrRows;
use anndata_io::write::{
    AnnDataSpec, AnnDataWriter, ColumnCells, ColumnKind, ColumnSpec, Compression, Frame, Layout, Matrix,
};
use expctl_settings::Data;

use crate::DatasetError;
use crate::array::count_model::{CountModel, DrawnCell, Scratch};
use crate::array::dataset::{ARRAY_SCHEMA, ArrayFile, ArrayManifest, ObsClass, ObsColumn, base_file, part};
use crate::array::recipe::ArrayRecipe;
use crate::array::rows::RowsSeen;
use crate::build_folder::{BuildFolder, BuildProgress, Report, bytes_of, checksums, existing, report, room};
use crate::manifest::{DataOrigin, Family};
use crate::parallel::in_order;

/// Values that a thread draws at a time, about.
const PIECE: u64 = 1 << 20;

/// Rows whose classes a thread counts at a time.
const COUNTED: u64 = 1 << 16;

/// Build a data set in `folder` with `jobs` threads, or return its manifest at once if it is there.
///
/// A build that was stopped (`Break`, which gives [`DatasetError::Stopped`], or a killed process) leaves
/// `<folder>.partial` with the files that were finished; the next one goes on with it and ends with the same rows. `folder`
/// itself appears only when all is complete.
///
/// # Errors
/// The recipe cannot give what is asked for; there is no room; another process is at it; another thing lies in `folder`.
pub fn build(
    recipe: &ArrayRecipe,
    data: &Data,
    folder: &Path,
    jobs: usize,
    progress: &mut dyn FnMut(BuildProgress) -> std::ops::ControlFlow<()>,
) -> Result<ArrayManifest, DatasetError> {
    let started = Instant::now();
    recipe.check(data)?;
    let digest = recipe.digest(data)?;
    if let Some(manifest) = existing(folder, ArrayManifest::load(folder), |manifest| manifest.recipe_blake3 == digest)?
    {
        return Ok(manifest);
    }
    let partial = BuildFolder::open(folder)?;
    if let Some(manifest) = existing(folder, ArrayManifest::load(folder), |manifest| manifest.recipe_blake3 == digest)?
    {
        partial.discard()?;
        return Ok(manifest);
    }
    partial.prepare(&digest)?;
    let work = BuildRun::new(recipe, data, jobs, partial.path());
    let finished = Finished::open(partial.path())?;
    let files = (0..u64::from(data.files)).map(|file| file_range(data.samples, data.files.into(), file));
    let files: Vec<(Range<u64>, Option<ArrayFile>)> =
        files.zip(0..).map(|(rows, index)| (rows, finished.get(index, &base_file(index)))).collect();
    let missing: u64 = files.iter().filter(|(_, done)| done.is_none()).map(|(rows, _)| rows.end - rows.start).sum();
    room(partial.path(), missing.saturating_mul(row_bytes(recipe, data)))?;
    let sub = partial.path().join(base_file(0));
    let sub = sub.parent().unwrap_or(partial.path());
    std::fs::create_dir_all(sub).map_err(DatasetError::io("create", sub))?;

    let weights = work.weights(progress)?;
    let mut built = Vec::new();
    let resumed_files = files.iter().filter(|(_, done)| done.is_some()).count() as u64;
    let mut rows_done = 0;
    for (index, (rows, done)) in files.into_iter().enumerate() {
        let count = rows.end - rows.start;
        let file = match done {
            Some(file) => file,
            None => {
                let file = work.file(index as u64, rows, &weights, rows_done, progress)?;
                finished.put(index as u64, &file)?;
                file
            }
        };
        rows_done += count;
        report(progress, "rows", rows_done, data.samples)?;
        built.push(file);
    }
    let manifest = ArrayManifest {
        schema: ARRAY_SCHEMA,
        family: Family::Array,
        title: recipe.title.clone(),
        data: data.clone(),
        recipe_blake3: digest,
        rows: built.iter().map(|file| file.rows).sum(),
        genes: work.model.genes() as u64,
        nnz: built.iter().map(|file| file.nnz).sum(),
        sum: built.iter().map(|file| file.sum).sum(),
        obs: work.obs_columns(&weights),
        class: DataOrigin::Generated,
        files: built,
        build_seconds: started.elapsed().as_secs_f64(),
        resumed_files,
    };
    partial.write_manifest(&manifest)?;
    finished.remove()?;
    partial.finish(folder)?;
    Ok(manifest)
}

/// Bytes of a row of a base file on the disk, about: values and their columns, and what obs has of it.
pub fn row_bytes(recipe: &ArrayRecipe, data: &Data) -> u64 {
    (recipe.genes_of(data) as f64 * recipe.density_of(data) * 8.1) as u64 + 100
}

/// Rows of the n-th of `files` files with `rows` rows together: the same number in each, and one more in the first ones if they
/// do not divide evenly.
pub fn file_range(rows: u64, files: u64, file: u64) -> Range<u64> {
    let (each, over) = (rows / files, rows % files);
    let start = file * each + file.min(over);
    start..start + each + u64::from(file < over)
}

/// Classes of rows over the whole data set.
struct ClassCounts {
    of_type: Vec<u64>,
    of_donor: Vec<u64>,
    /// Empty in a recipe without treatments, as the next one.
    of_sample: Vec<u64>,
    of_drug: Vec<u64>,
}

/// A build under way.
struct BuildRun<'a> {
    recipe: &'a ArrayRecipe,
    data: &'a Data,
    jobs: usize,
    folder: &'a Path,
    model: CountModel,
    genes: Vec<String>,
}

/// Rows that were drawn together.
struct DrawnRows {
    rows: CsrRows,
    obs: Frame,
}

impl<'a> BuildRun<'a> {
    fn new(recipe: &'a ArrayRecipe, data: &'a Data, jobs: usize, folder: &'a Path) -> Self {
        let model = CountModel::new(recipe, data);
        let width = model.genes().saturating_sub(1).to_string().len();
        let genes = (0..model.genes()).map(|gene| format!("gene_{gene:0width$}")).collect();
        Self { recipe, data, jobs, folder, model, genes }
    }

    /// Share of the values that are not 0, on average.
    fn density(&self) -> f64 {
        self.recipe.density_of(self.data)
    }

    /// Count the rows of each class: a pass over the annotations, without counts.
    fn weights(&self, to: &mut Report<'_>) -> Result<ClassCounts, DatasetError> {
        let (donors, treatments) = (self.recipe.donors.count, self.recipe.treatments);
        let none = || ClassCounts {
            of_type: vec![0; self.recipe.cell_types.count as usize],
            of_donor: vec![0; donors as usize],
            of_sample: vec![0; treatments.map_or(0, |treatments| (donors * treatments.samples) as usize)],
            of_drug: vec![0; treatments.map_or(0, |treatments| treatments.drugs as usize)],
        };
        let (rows, mut all, mut done) = (self.data.samples, none(), 0);
        in_order(
            self.jobs,
            rows.div_ceil(COUNTED),
            &|_| "counting the rows of each class".to_owned(),
            || Ok(()),
            |(), piece| {
                let mut own = none();
                for row in piece * COUNTED..rows.min((piece + 1) * COUNTED) {
                    let cell = self.model.cell(row);
                    own.of_type[cell.cell_type as usize] += 1;
                    own.of_donor[cell.donor as usize] += 1;
                    if let Some(treatments) = treatments {
                        own.of_sample[cell.sample as usize] += 1;
                        own.of_drug[treatments.drug_of(cell.sample) as usize] += 1;
                    }
                }
                Ok(own)
            },
            |own| {
                let add = |all: &mut [u64], own: &[u64]| all.iter_mut().zip(own).for_each(|(all, own)| *all += own);
                add(&mut all.of_type, &own.of_type);
                add(&mut all.of_donor, &own.of_donor);
                add(&mut all.of_sample, &own.of_sample);
                add(&mut all.of_drug, &own.of_drug);
                done = rows.min(done + COUNTED);
                report(to, "classes", done, rows)
            },
        )?;
        Ok(all)
    }

    fn columns(&self) -> Vec<ColumnSpec> {
        let ArrayRecipe { cell_types, donors, treatments, .. } = self.recipe;
        let column = |name: &str, kind: ColumnKind| ColumnSpec { name: name.to_owned(), kind };
        // `type_00` and so on of the column `cell_type`.
        let classes = |name: &str, count: u32| {
            let first = name.rsplit('_').next().unwrap_or(name);
            let categories = (0..count).map(|n| format!("{first}_{n:02}")).collect();
            column(name, ColumnKind::Categorical { categories, ordered: false })
        };
        let mut columns = vec![classes(&cell_types.column, cell_types.count), classes(&donors.column, donors.count)];
        if let Some(treatments) = treatments {
            columns.push(classes("sample", donors.count * treatments.samples));
            columns.push(classes("drug", treatments.drugs));
        }
        columns.push(column("n_counts", ColumnKind::Float32));
        columns.push(column("n_genes", ColumnKind::Int64));
        columns.push(column("weight", ColumnKind::Float64));
        if treatments.is_none() {
            columns.push(column("age", ColumnKind::NullableInt64));
        }
        columns
    }

    fn obs_columns(&self, weights: &ClassCounts) -> Vec<ObsColumn> {
        let classes = |names: &[String], rows: &[u64]| {
            names.iter().zip(rows).map(|(name, rows)| ObsClass { name: name.clone(), rows: *rows }).collect()
        };
        // Counts of the columns of classes, which come first, in their order.
        let mut counts = [&weights.of_type, &weights.of_donor, &weights.of_sample, &weights.of_drug].into_iter();
        let about = |column: ColumnSpec| {
            let classes = match &column.kind {
                ColumnKind::Categorical { categories, .. } => {
                    counts.next().map_or_else(Vec::new, |rows| classes(categories, rows))
                }
                _ => Vec::new(),
            };
            ObsColumn { kind: column.kind.name().to_owned(), name: column.name, classes }
        };
        self.columns().into_iter().map(about).collect()
    }

    /// Draw and write one file. `before` rows of all are done.
    fn file(
        &self,
        index: u64,
        rows: Range<u64>,
        weights: &ClassCounts,
        before: u64,
        to: &mut Report<'_>,
    ) -> Result<ArrayFile, DatasetError> {
        let name = base_file(index);
        let path = self.folder.join(&name);
        let count = rows.end - rows.start;
        let expected = (count as f64 * self.genes.len() as f64 * self.density()) as u64;
        let spec = AnnDataSpec {
            rows: count,
            columns: self.genes.len() as u64,
            values: expected,
            matrix: Matrix::Csr,
            layout: Layout::Chunked { chunk: None, compression: Compression::None },
            threads: 1,
        };
        let mean = ColumnSpec { name: "mean_count".to_owned(), kind: ColumnKind::Float64 };
        let var = Frame { index: self.genes.clone(), columns: vec![ColumnCells::Float64(self.model.means.clone())] };
        let mut writer = AnnDataWriter::create(&path, &spec)?;
        writer.put_var(&[mean], &var)?;
        writer.begin_obs(count, &self.columns())?;
        let of_piece = (PIECE * count / expected.max(1)).clamp(1, count.max(1));
        let mut seen = RowsSeen::default();
        let pieces = count.div_ceil(of_piece);
        let what = |_| format!("drawing the rows of {}", path.display());
        in_order(
            self.jobs,
            pieces,
            &what,
            || Ok(self.model.scratch()),
            |scratch, piece| {
                let start = rows.start + piece * of_piece;
                Ok(self.piece(start..(start + of_piece).min(rows.end), weights, scratch))
            },
            |piece| {
                seen.add(piece.rows.view());
                writer.push(piece.rows.view())?;
                writer.push_obs(&piece.obs)?;
                report(to, "rows", before + seen.rows, self.data.samples)
            },
        )?;
        writer.finish()?;
        let file = checksums(self.folder, &[name], to)?.swap_remove(0);
        let (rows, nnz, sum) = (seen.rows, seen.nnz, seen.sum);
        Ok(ArrayFile { file, rows, nnz, sum, content_blake3: seen.digest() })
    }

    fn piece(&self, range: Range<u64>, weights: &ClassCounts, scratch: &mut Scratch) -> DrawnRows {
        let n = (range.end - range.start) as usize;
        let mut rows = CsrRows::default();
        let (mut types, mut donors) = (Vec::with_capacity(n), Vec::with_capacity(n));
        let (mut totals, mut expressed) = (Vec::with_capacity(n), Vec::with_capacity(n));
        let (mut weight, mut ages) = (Vec::with_capacity(n), Vec::with_capacity(n));
        let (mut samples, mut drugs) = (Vec::new(), Vec::new());
        let mut index = Vec::with_capacity(n);
        let mean = self.data.samples as f64 / weights.of_type.iter().filter(|rows| **rows > 0).count().max(1) as f64;
        for row in range {
            let before = rows.indices.len();
            let (cell, total) = self.model.draw(row, scratch, &mut rows.indices, &mut rows.data);
            rows.indptr.push(rows.indices.len() as u64);
            let DrawnCell { cell_type, donor, sample, age } = cell;
            index.push(format!("cell_{row}"));
            types.push(cell_type as i32);
            donors.push(donor as i32);
            totals.push(total as f32);
            expressed.push((rows.indices.len() - before) as i64);
            weight.push(mean / weights.of_type[cell_type as usize].max(1) as f64);
            ages.push(age);
            if let Some(treatments) = self.recipe.treatments {
                samples.push(sample as i32);
                drugs.push(treatments.drug_of(sample) as i32);
            }
        }
        let mut columns = vec![ColumnCells::Codes(types), ColumnCells::Codes(donors)];
        if self.recipe.treatments.is_some() {
            columns.extend([ColumnCells::Codes(samples), ColumnCells::Codes(drugs)]);
        }
        columns.extend([ColumnCells::Float32(totals), ColumnCells::Int64(expressed), ColumnCells::Float64(weight)]);
        if self.recipe.treatments.is_none() {
            columns.push(ColumnCells::NullableInt64(ages));
        }
        DrawnRows { rows, obs: Frame { index, columns } }
    }
}

/// Folder with a note for each file that a stopped run has finished.
const FINISHED: &str = ".finished";

/// The files that runs have finished so far, in a folder under construction.
pub struct Finished {
    folder: PathBuf,
}

impl Finished {
    pub fn open(folder: &Path) -> Result<Self, DatasetError> {
        let notes = folder.join(FINISHED);
        std::fs::create_dir_all(&notes).map_err(DatasetError::io("create", &notes))?;
        Ok(Self { folder: folder.to_owned() })
    }

    /// The n-th file with this path, if it is finished and still there.
    pub fn get(&self, index: u64, path: &str) -> Option<ArrayFile> {
        let file: ArrayFile = serde_json::from_slice(&std::fs::read(self.note(index)).ok()?).ok()?;
        let (there, _) = bytes_of(&self.folder.join(path)).ok()?;
        (there == file.file.bytes && file.file.path == path).then_some(file)
    }

    /// Note that a file is finished.
    pub fn put(&self, index: u64, file: &ArrayFile) -> Result<(), DatasetError> {
        let path = self.note(index);
        expctl_ledger::write_json(&path, file).map_err(|e| DatasetError::damaged(&path, e))
    }

    /// Remove the notes: everything is finished.
    pub fn remove(self) -> Result<(), DatasetError> {
        let notes = self.folder.join(FINISHED);
        std::fs::remove_dir_all(&notes).map_err(DatasetError::io("remove", &notes))
    }

    fn note(&self, index: u64) -> PathBuf {
        self.folder.join(FINISHED).join(part(index, "json"))
    }
}
