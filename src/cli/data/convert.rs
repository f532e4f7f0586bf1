//! `expctl data convert`: stores of other kinds.

use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use expctl_datasets::array::{ArrayDataset, ConvertOptions};
use expctl_datasets::graph::{Conversion, Dataset};
use expctl_datasets::{DatasetError, Family, array};
use expctl_settings::{ArrayFormat, StoreKind};
use expctl_text::format;
use indicatif::HumanCount;

use super::build::{BuildProgressBar, RESUME_HINT, failure};
use super::{DataSetArgs, DataSetOptions, described};
use crate::console::{out, say};
use crate::data::StoredForm;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::project::Project;

/// Arguments of `expctl data convert`.
#[derive(Debug, clap::Args)]
pub struct ConvertArgs {
    /// Folder in experiments/ that holds dataset.toml; with --out: files of no data set (.h5ad, .zarr, .parquet, .mds)
    #[arg(value_name = "SET|FILE", required = true)]
    names: Vec<String>,
    #[command(flatten)]
    options: DataSetOptions,
    /// Store to make; may be given more than once
    #[arg(long, value_name = "KIND", value_parser = store_parser(), required = true)]
    to: Vec<StoredForm>,
    /// Folder that converted files go to, one for each file or shard
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Rows of a parquet row group [default: 1024]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    row_group: Option<u64>,
    /// With shuffled rows: rows of a file [default: as many files as there were]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    shard_rows: Option<u64>,
    /// Of parquet: number of files that the rows of the data set are put into, in order [default: one for each base file]
    #[arg(long, value_name = "N", conflicts_with = "out", value_parser = clap::value_parser!(u32).range(1..))]
    file_count: Option<u32>,
    /// With --out: put the rows of all files into random order
    #[arg(long, requires = "out")]
    shuffle: bool,
    /// Threads [default: one for each processor, at most 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
}

impl ConvertArgs {
    /// Whether files are converted that are no data set.
    pub fn is_of_files(&self) -> bool {
        self.out.is_some()
    }
}

/// A value parser for the stores that can be made from others.
fn store_parser() -> impl TypedValueParser<Value = StoredForm> {
    let graphs = StoreKind::ALL.into_iter().filter(|kind| *kind != StoreKind::Json).map(StoredForm::Graph);
    let arrays = ArrayFormat::ALL.into_iter().map(StoredForm::Array);
    let all: Vec<StoredForm> = graphs.chain(arrays).collect();
    let value = |form: &StoredForm| {
        let family = if matches!(form, StoredForm::Graph(_)) { "Of a graph" } else { "Of an array" };
        PossibleValue::new(form.name()).help(family)
    };
    let parser = PossibleValuesParser::new(all.iter().map(value));
    parser.try_map(move |name| all.iter().copied().find(|form| form.name() == name).ok_or("no such store"))
}

/// Run the verb: the folders of the stores on stdout, or the files that were made of files.
pub fn run(project: &Project, args: &ConvertArgs) -> Result<(), Failure> {
    let jobs = args.jobs.map_or_else(parallel_map::threads, usize::from);
    let defaults = ConvertOptions::default();
    let options = ConvertOptions {
        row_group: args.row_group.unwrap_or(defaults.row_group),
        shard_rows: args.shard_rows.unwrap_or(defaults.shard_rows),
        seed: args.options.seed.unwrap_or(defaults.seed),
        file_count: args.file_count.map_or(defaults.file_count, u64::from),
        jobs,
    };
    check_options(args)?;
    if let Some(folder) = &args.out {
        return convert_files(args, folder, &options);
    }
    let set = match args.names.as_slice() {
        [name] if ![".h5ad", ".zarr", ".parquet", ".mds"].iter().any(|extension| name.ends_with(extension)) => {
            DataSetArgs { name: name.clone(), options: args.options }
        }
        _ => {
            let message = "files are converted into the folder that --out names; without it, there is one data set";
            return Err(Failure::new(Exit::Usage, message));
        }
    };
    let (data, family) = described(project, &set)?;
    let interrupt = Interrupt::listen()?;
    let folder = project.data_dir(&data);
    for form in &args.to {
        match (family, *form) {
            (Family::Graph, StoredForm::Graph(kind)) => {
                let dataset = Dataset::open(&folder).map_err(|e| failure(&e))?;
                convert_graph(&dataset, kind, jobs, &interrupt)?;
                out(dataset.store_folder(kind).display());
            }
            (Family::Array, StoredForm::Array(format)) => {
                let dataset = ArrayDataset::open(&folder).map_err(|e| failure(&e.advise(&folder, &data)))?;
                let options = ConvertOptions { seed: data.seed, ..options };
                convert_array(&dataset, format, &options, &interrupt)?;
                out(dataset.store_folder(format).display());
            }
            (_, form) => {
                let message = format_args!("data set `{}` cannot be converted to {}", set.name, form.name());
                let hint = match family {
                    Family::Graph => "its samples are of a graph, that is a format of arrays",
                    Family::Array => "its rows are of an array, that is a store of graphs",
                };
                return Err(Failure::new(Exit::Config, message).hint(hint));
            }
        }
    }
    Ok(())
}

/// Refuse options that would have no effect.
fn check_options(args: &ConvertArgs) -> Result<(), Failure> {
    let to = |form: &[ArrayFormat]| {
        args.to.iter().any(|to| matches!(to, StoredForm::Array(format) if form.contains(format)))
    };
    let none = |option: &str, with: &str| {
        Err(Failure::new(Exit::Usage, format_args!("{option} has no effect without {with}")))
    };
    if args.row_group.is_some() && !to(&[ArrayFormat::Parquet, ArrayFormat::ParquetSparse]) {
        return none("--row-group", "--to parquet or parquet_sparse");
    }
    if args.file_count.is_some() && !to(&[ArrayFormat::Parquet, ArrayFormat::ParquetSparse]) {
        return none("--file-count", "--to parquet or parquet_sparse");
    }
    if args.shard_rows.is_some() && !args.shuffle && !to(&[ArrayFormat::H5adShuffled]) {
        return none("--shard-rows", "--shuffle or --to h5ad_shuffled");
    }
    Ok(())
}

/// Convert files that belong to no data set, as the arguments say.
fn convert_files(args: &ConvertArgs, folder: &Path, options: &ConvertOptions) -> Result<(), Failure> {
    if let Some(option) = args.options.named() {
        return Err(Failure::new(Exit::Usage, format_args!("{option} says which data set; --out converts files")));
    }
    let [form] = args.to.as_slice() else {
        return Err(Failure::new(Exit::Usage, "files of one format go to one folder: give --to once with --out"));
    };
    let StoredForm::Array(format) = *form else {
        let message = format_args!("files cannot be converted to {}, which is a store of graphs", form.name());
        return Err(Failure::new(Exit::Usage, message));
    };
    let shuffle = args.shuffle || format == ArrayFormat::H5adShuffled;
    if args.options.seed.is_some() && !shuffle {
        return Err(Failure::new(Exit::Usage, "--seed has no effect without --shuffle"));
    }
    let sources: Vec<PathBuf> = args.names.iter().map(PathBuf::from).collect();
    make_files(&sources, format, shuffle, options, folder, &Interrupt::listen()?)
}

/// Make a store of a graph data set if it is missing, with an estimate of its size and progress on stderr.
pub fn convert_graph(dataset: &Dataset, kind: StoreKind, jobs: usize, interrupt: &Interrupt) -> Result<(), Failure> {
    if dataset.converted(kind).map_err(|e| failure(&e))?.is_some() {
        return Ok(());
    }
    let conversion = Conversion::new(dataset, kind).map_err(|e| failure(&e))?;
    if conversion.size().missing() == 0 {
        say(format_args!("{}: {}", kind.name(), conversion.size()));
    }
    let mut progress = BuildProgressBar::new(interrupt);
    let manifest = conversion.run(jobs, &mut |p| progress.show(p)).map_err(|e| match e {
        DatasetError::Stopped => {
            Failure::new(Exit::Incomplete, format_args!("stopped before the store was complete: {}", kind.name()))
                .hint(RESUME_HINT)
        }
        e => failure(&e),
    })?;
    progress.finish();
    say(format_args!(
        "{}: {} records, {} in {:.1} s: {}",
        kind.name(),
        HumanCount(manifest.store.records),
        format::bytes(manifest.file.bytes as f64),
        manifest.build_seconds,
        dataset.store_folder(kind).display()
    ));
    Ok(())
}

/// Make the files of a format of an array data set if they are missing, with progress on stderr.
pub fn convert_array(
    dataset: &ArrayDataset,
    format: ArrayFormat,
    options: &ConvertOptions,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let new = !dataset.has(format);
    let mut progress = BuildProgressBar::new(interrupt);
    let manifest = array::convert(dataset, format, options, &mut |p| progress.show(p)).map_err(|e| match e {
        DatasetError::Stopped => {
            let message = format_args!("stopped before all files were made: {}", format.name());
            Failure::new(Exit::Incomplete, message).hint(RESUME_HINT)
        }
        e => failure(&e),
    })?;
    progress.finish();
    if new {
        say(format_args!(
            "{}: {} rows in {}, {} in {:.1} s: {}",
            format.name(),
            HumanCount(manifest.files.iter().map(|file| file.rows).sum()),
            format::count(manifest.files.len() as u64, "file"),
            format::bytes(manifest.bytes() as f64),
            manifest.build_seconds,
            dataset.store_folder(format).display()
        ));
    }
    Ok(())
}

/// Convert files that belong to no data set; prints their paths on stdout.
fn make_files(
    sources: &[PathBuf],
    format: ArrayFormat,
    shuffle: bool,
    options: &ConvertOptions,
    folder: &Path,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let mut progress = BuildProgressBar::new(interrupt);
    let made = array::convert_files(sources, format, shuffle, options, folder, &mut |p| progress.show(p));
    let made = made.map_err(|e| match e {
        DatasetError::Stopped => {
            let message = "stopped before all files were made; those that are there are complete";
            Failure::new(Exit::Incomplete, message)
        }
        e => failure(&e),
    })?;
    progress.finish();
    made.iter().for_each(|path| out(path.display()));
    Ok(())
}
