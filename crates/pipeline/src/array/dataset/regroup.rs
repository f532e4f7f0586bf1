use std::path::Path;

use expctl_record::ArrayFormat;

use super::ArrayFile;
use super::build::file_range;
use super::built::part;
use super::convert::{as_announced, described};
use super::convert_file::{ParquetObs, open, parquet_options};
use super::finished::Finished;
use super::rows::RowsSeen;
use super::transfer::{each_row_of, seen};
use crate::PipelineError;
use crate::array::{ArrayStore, H5adStore, ParquetObsColumn, ParquetWriter, RowsView};
use crate::dataset::files::{Report, report};

/// Puts the rows of the base files, in order, into another number of parquet files.
pub(super) struct Regroup<'a> {
    pub(super) sources: &'a [H5adStore],
    /// What was built of each.
    pub(super) base: &'a [ArrayFile],
    /// Parquet.
    pub(super) format: ArrayFormat,
    /// Rows of a row group; not 0.
    pub(super) row_group: u64,
    /// Number of files, at most as many as there are rows; not 0.
    pub(super) file_count: u64,
    pub(super) jobs: usize,
}

/// The base file that rows are read from.
struct Reading {
    source: usize,
    obs: ParquetObs,
    /// Its rows so far; none of a file that was not read from its first row on.
    seen: Option<RowsSeen>,
}

impl Regroup<'_> {
    /// Write the files into `folder`, but for those that are finished, and read each of them back.
    ///
    /// # Errors
    /// A base file cannot be read, has other rows than were built, or other columns of obs than the first one; a file cannot be
    /// written, or reads back as other rows.
    pub(super) fn run(
        &self,
        folder: &Path,
        finished: &Finished,
        to: &mut Report<'_>,
    ) -> Result<Vec<ArrayFile>, PipelineError> {
        let Some(first) = self.sources.first() else {
            return Err(PipelineError::Invalid("there are no files to convert".to_owned()));
        };
        let columns = ParquetObs::of(first)?.columns;
        let options = parquet_options(self.format, self.row_group);
        let total: u64 = self.sources.iter().map(|source| source.len()).sum();
        let mut reading: Option<Reading> = None;
        let mut files = Vec::new();
        for index in 0..self.file_count {
            let (name, rows) = (part(index, self.format.extension()), file_range(total, self.file_count, index));
            if let Some(file) = finished.get(index, &name) {
                // Of the file that is read now some rows are passed over: whether they are those that were built is not seen.
                reading = None;
                files.push(file);
                continue;
            }
            let path = folder.join(format!(".unchecked-{name}"));
            let mut writer = ParquetWriter::create(&path, first.genes(), &columns, &options)?;
            let (mut written, mut start) = (RowsSeen::default(), 0);
            for (number, source) in self.sources.iter().enumerate() {
                let end = start + source.len();
                let own = rows.start.max(start)..rows.end.min(end);
                if own.start < own.end {
                    let local = own.start - start..own.end - start;
                    let reading = self.reading(&mut reading, number, local.start, &columns)?;
                    let mut row = local.start as usize;
                    each_row_of(source, local, self.jobs, |piece| {
                        let values = reading.obs.of_rows(row..row + piece.len());
                        writer.write_rows(&RowsView::Sparse(piece.view()), &values)?;
                        written.add(piece.view());
                        if let Some(seen) = &mut reading.seen {
                            seen.add(piece.view());
                        }
                        row += piece.len();
                        report(to, "rows", rows.start + written.rows, total)
                    })?;
                    if own.end == end
                        && let Some(seen) = &reading.seen
                    {
                        as_announced(&self.base[number], seen, source.path())?;
                    }
                }
                start = end;
            }
            writer.finish()?;
            let back = open(&path)?;
            let found = seen(back.as_ref(), self.jobs, |n| report(to, "check", rows.start + n, total))?;
            if found.digest() != written.digest() {
                return Err(PipelineError::damaged(&path, "reads back as other rows than were written"));
            }
            let target = folder.join(&name);
            std::fs::rename(&path, &target).map_err(PipelineError::io("rename to", &target))?;
            let file = described(folder, name, &written, to)?;
            finished.put(index, &file)?;
            files.push(file);
        }
        Ok(files)
    }

    /// The base file of this number, from row `row` on, with the columns of obs that all have to have.
    fn reading<'r>(
        &self,
        open: &'r mut Option<Reading>,
        source: usize,
        row: u64,
        columns: &[ParquetObsColumn],
    ) -> Result<&'r mut Reading, PipelineError> {
        let known = open.take().filter(|known| known.source == source);
        let reading = match known {
            Some(known) => known,
            None => {
                let store = &self.sources[source];
                let obs = ParquetObs::of(store)?;
                if obs.columns != columns {
                    let reason = format!("its columns of obs are not those of {}", self.sources[0].path().display());
                    return Err(PipelineError::damaged(store.path(), reason));
                }
                Reading { source, obs, seen: (row == 0).then(RowsSeen::default) }
            }
        };
        Ok(open.insert(reading))
    }
}
