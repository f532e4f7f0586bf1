//! Arrays: files, rows, and how rows are drawn.

use std::path::Path;
use std::sync::Arc;

use expctl_settings::{Array, ArrayFormat, Data, Draw, Fetch, Sampler, Settings, Train, is_url, to_json};

use super::Judge;
use crate::config::Values;
use crate::problem::Problem;
use crate::project_files::{ArrayRefusal, Reason};

/// Keys that say which rows are built. They may not be set with the user's own files, but for `data.samples` where some are remote.
pub const BUILT_ROWS_KEYS: [&str; 6] = [
    Data::SET.name(),
    Data::SAMPLES.name(),
    Data::SCALE.name(),
    Data::SEED.name(),
    Data::FILES.name(),
    Data::GENES.name(),
];

impl Judge<'_> {
    /// Files and sampler of an array.
    pub fn files_and_sampler(&mut self, values: &mut Values, problems: &mut Vec<Problem>) {
        self.file_count(values, problems);
        self.array_files(values, problems);
        self.sampler(values, problems);
    }

    /// Arrays have no split to validate on.
    pub fn array_validation(&self, values: &Values, problems: &mut Vec<Problem>) {
        let is_set = |key| values.get(key).is_some_and(|epochs| epochs > 0);
        if is_set(Train::VALIDATE_EVERY) && is_set(Train::EPOCHS) {
            let at = self.at(values, &Train::VALIDATE_EVERY);
            let message = format!("`{}`: rows of an array have no split to validate on", Train::VALIDATE_EVERY);
            problems.push(Problem::new(at, message, "not possible").help("set it to 0, or leave it out"));
        }
    }

    /// How many rows the data set has, and in how many files and with how many genes they are built.
    pub fn rows_of_array(&mut self, values: &mut Values, problems: &mut Vec<Problem>) {
        if !values.get(Array::FILES).is_some_and(|files| files.is_empty()) {
            return;
        }
        let recipe_rows = self.array_data_set(values, problems);
        values.derive_missing(Data::SAMPLES, recipe_rows);
        if let (Some(rows), Some(files)) = (values.get(Data::SAMPLES), values.number(Data::FILES))
            && files > rows
        {
            let message = format!("{rows} rows cannot be in {files} files");
            let problem = Problem::new(self.at(values, &Data::FILES), message, "too many");
            problems.push(problem.help("set data.files to at most data.samples"));
        }
        let share = values.get(Data::SCALE).filter(|scale| *scale != 1.0);
        if let (Some(genes), Some(share)) = (values.get(Data::GENES).filter(|genes| *genes > 0), share) {
            let message = format!("{genes} genes and a share of {share} of them are asked for");
            let problem = self.conflict(values, &Data::GENES, &Data::SCALE, message, "which of the two?");
            problems.push(problem.help("set data.genes or data.scale"));
        }
    }

    /// A number of files is that of parquet files of the data set.
    fn file_count(&self, values: &Values, problems: &mut Vec<Problem>) {
        const KEY: &str = Array::FILE_COUNT.name();
        let Some(count) = values.number(Array::FILE_COUNT).filter(|count| *count > 0) else { return };
        let Some(format) = values.get(Array::FORMAT) else { return };
        let mut report = |message: String, label: &str, help: &str, with: &str| {
            problems.push(self.conflict(values, KEY, with, message, label).help(help));
        };
        if values.get(Array::FILES).is_some_and(|files| !files.is_empty()) {
            let message = format!("`{KEY}` says how files are made, but own files are read");
            report(message, "would have no effect", "leave it out, or array.files", &Array::FILES);
        } else if format.extension() != "parquet" {
            let message = format!("`{KEY}` is of parquet files, but `{}` is read", format.name());
            let help = "data.files says how many files a data set is built of; other formats have one for each of them";
            report(message, "would have no effect", help, &Array::FORMAT);
        } else if let Some(rows) = values.get(Data::SAMPLES).filter(|rows| count > *rows) {
            let message = format!("{rows} rows cannot be in {count} files");
            report(message, "too many", "set array.file_count to at most data.samples", &Data::SAMPLES);
        }
    }

    /// The user's own files replace those of the data set.
    fn array_files(&mut self, values: &mut Values, problems: &mut Vec<Problem>) {
        const KEY: &str = Array::FILES.name();
        let named = values.get(Array::FILES).unwrap_or_default();
        if named.is_empty() {
            return;
        }
        let remote = named.iter().any(|named| is_url(named));
        for key in BUILT_ROWS_KEYS {
            // How many rows servers have is not asked when a config is checked.
            if remote && key == Data::SAMPLES.name() {
                continue;
            }
            if let Some(at) = values.at(key) {
                let message = format!("`{key}` says what is built, but own files are read");
                let problem = Problem::new(at, message, "would have no effect");
                problems.push(problem.help("leave it out, or array.files"));
            }
        }
        let Some(format) = values.get(Array::FORMAT) else { return };
        if !matches!(format, ArrayFormat::H5ad | ArrayFormat::Parquet | ArrayFormat::Mds | ArrayFormat::Zarr) {
            let message =
                format!("own files are \"h5ad\", \"parquet\", \"mds\" or \"zarr\", not \"{}\"", format.name());
            let problem = Problem::new(self.at(values, &Array::FORMAT), message, "does not fit");
            problems.push(problem.help("how they are compressed is found out from the files"));
            return;
        }
        let layer = values.get(Array::LAYER).unwrap_or_default();
        let mut rows = Some(0u64);
        for (i, named) in named.iter().enumerate() {
            let at = self.item_at(values, KEY, i);
            let files = match self.project.array_files(named) {
                Ok(files) => files,
                Err(reason) => {
                    let problem = Problem::new(at, format!("`{KEY}`: {reason}"), "not there");
                    problems.push(problem.help(self.help_with_file(named)));
                    rows = None;
                    continue;
                }
            };
            for file in files {
                if let Some(mismatch) = self.format_mismatch(&file, format) {
                    let shown = file.strip_prefix(self.root()).unwrap_or(&file).display();
                    let message = format!("`{KEY}`: {shown} {mismatch}, as array.format says");
                    let problem = Problem::new(at, message, "does not fit");
                    problems.push(problem.help("set array.format to what the files are"));
                    rows = None;
                    continue;
                }
                if file.to_str().is_some_and(is_url) {
                    continue;
                }
                match self.rows_of(&file, &layer) {
                    Ok(found) => rows = rows.map(|rows| rows + found),
                    Err(reason) => {
                        problems.push(Problem::new(at, format!("`{KEY}`: {reason}"), "cannot be read"));
                        rows = None;
                    }
                }
            }
        }
        if values.at(&Data::SAMPLES).is_none() {
            if remote {
                let message = format!("`{KEY}` names remote files, which are not opened before the job");
                let problem = Problem::new(self.at(values, KEY), message, "of how many rows?");
                problems.push(problem.help("set data.samples to the rows of all files together"));
            }
            values.derive(Data::SAMPLES, rows.filter(|_| !remote));
        }
    }

    /// Why a file is not of the format, seen from outside.
    fn format_mismatch(&self, file: &Path, format: ArrayFormat) -> Option<String> {
        let remote = file.to_str().is_some_and(is_url);
        let (fits, mismatch) = match format {
            // Folders may have any name: annbatch calls them dataset_0, dataset_1, … Of a URL it is seen when it is read.
            ArrayFormat::Mds => (remote || file.is_dir(), "is no folder with MDS shards".to_owned()),
            ArrayFormat::Zarr => (remote || self.project.is_zarr(file), "is no folder in zarr".to_owned()),
            _ => (
                !file.is_dir() && file.extension() == Some(format.name().as_ref()),
                format!("is not called .{}", format.name()),
            ),
        };
        (!fits).then_some(mismatch)
    }

    /// Rows of one of the user's files, each asked for once.
    fn rows_of(&mut self, file: &Path, layer: &str) -> Result<u64, Arc<Reason>> {
        let project = self.project;
        let known = self.file_rows.entry((file.to_owned(), layer.to_owned()));
        known.or_insert_with(|| project.rows(file, layer).map_err(Arc::new)).clone()
    }

    /// What the files do not have, and ranks would end with.
    pub fn array_content(&mut self, values: &Values, problems: &mut Vec<Problem>) {
        let Some(settings) = values.settings() else { return };
        // What does not change the answer: a sweep asks once.
        let Settings { array, sampler, data, .. } = &settings;
        let key = to_json(&(array, sampler, data)).to_string();
        let project = self.project;
        let refusals = self.array_refusals.entry(key).or_insert_with(|| project.array_refusals(&settings)).clone();
        for ArrayRefusal { key, message } in refusals {
            let message = format!("`{key}`: {message}");
            problems.push(Problem::new(self.at(values, key), message, "every rank would end with this"));
        }
    }

    /// How rows are drawn, and settings that only some ways to draw use.
    fn sampler(&self, values: &Values, problems: &mut Vec<Problem>) {
        let Some(draw) = values.get(Sampler::DRAW) else { return };
        let with_replacement = draw.with_replacement();
        let mut refuse = |keys: &[&str], help: &str| {
            for key in keys.iter().filter(|key| !draw.uses(key)) {
                if values.at(key).is_some() && values.json(key).is_some() {
                    let message = format!("`{key}` is set, but rows are drawn `{}`", draw.name());
                    let problem = self.conflict(values, key, &Sampler::DRAW, message, "would have no effect");
                    problems.push(problem.help(help));
                }
            }
        };
        let help = "set sampler.draw to \"chunked\", or leave it out";
        refuse(&[&Sampler::CHUNKS, &Sampler::PRESET, &Sampler::CHUNK_ROWS], help);
        let help = "set sampler.draw to \"weighted\" or \"balanced\", or leave it out";
        refuse(&[&Sampler::BY, &Sampler::ROWS], help);
        let row_groups =
            values.get(Array::FORMAT).is_none_or(|format| ["parquet", "mds"].contains(&format.extension()));
        if draw == Draw::Chunked && values.get(Sampler::CHUNK_ROWS) == Some(0) && !row_groups {
            let said = [Sampler::CHUNK_ROWS.name(), Sampler::PRESET.name()];
            let key = said.into_iter().find(|key| values.at(key).is_some()).unwrap_or(said[0]);
            let message = "a chunk is to be a row group, which AnnData files do not have";
            let help = "set sampler.chunk_rows, or array.format to \"parquet\"";
            problems.push(Problem::new(self.at(values, key), message, "of how many rows?").help(help));
        }
        if values.get(Array::FETCH) == Some(Fetch::Row) {
            let singly = with_replacement || draw == Draw::Uniform;
            let reason = if values.get(Array::MEMORY) == Some(true) {
                Some(("rows are in memory", Array::MEMORY.name()))
            } else {
                (!singly).then_some(("chunks are read whole", Sampler::DRAW.name()))
            };
            if let Some((reason, with)) = reason {
                let message = format!("`{}` = \"row\", but {reason}", Array::FETCH);
                let problem = self.conflict(values, &Array::FETCH, with, message, "would have no effect");
                problems.push(problem.help("leave it out, or draw single rows of files"));
            }
        }
        if with_replacement && values.get(Sampler::BY).unwrap_or_default().is_empty() {
            let message = format!("`{}` = \"{}\", but no column of obs is named", Sampler::DRAW, draw.name());
            let help = match draw {
                Draw::Weighted => "set sampler.by to the column with the weights",
                _ => "set sampler.by to the column with the classes",
            };
            problems.push(Problem::new(self.at(values, &Sampler::DRAW), message, "by what?").help(help));
        }
    }
}
