//! `expctl data convert`: stores of other kinds.

use std::path::{Path, PathBuf};

use expctl_datasets::array::{ArrayDataset, ConvertOptions};
use expctl_datasets::graph::{Conversion, Dataset};
use expctl_datasets::{DatasetError, Family};
use expctl_record::{ArrayFormat, StoreKind};
use indicatif::HumanCount;

use super::build_bar::BuildBar;
use super::data::{GOES_ON, failure};
use super::data_set::{Set, SetOptions, known};
use super::{data_convert_array, out, say};
use crate::data_state::Wanted;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::parallel;
use crate::project::Project;
use crate::report::format;

/// Arguments of `expctl data convert`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder in experiments/ that holds dataset.toml; with --out: .h5ad files, of no data set
    #[arg(value_name = "SET|FILE", required = true)]
    names: Vec<String>,
    #[command(flatten)]
    options: SetOptions,
    /// Store to make; may be given more than once
    #[arg(long, value_name = "KIND", value_enum, required = true)]
    to: Vec<Kind>,
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
    /// Threads [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
}

/// [`StoreKind`] and [`ArrayFormat`] on the command line, without those that others are made from.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
enum Kind {
    /// Of a graph: positions of the False entries of every mask
    Compressed,
    /// Of a graph: every mask, a byte per entry
    FullMasks,
    /// Of a graph: every mask, a bit per entry
    PackedMasks,
    /// Of a graph: gene ids and labels alone
    Ids,
    /// AnnData, compressed with gzip
    H5adGzip,
    /// AnnData, compressed with LZF
    H5adLzf,
    /// AnnData, compressed with Zstandard
    H5adZstd,
    /// AnnData without chunks
    H5adContiguous,
    /// AnnData with a dense matrix
    H5adDense,
    /// AnnData by columns (CSC)
    H5adCsc,
    /// AnnData with the rows of all files in random order
    H5adShuffled,
    /// Parquet with a list of all genes' values for each row
    Parquet,
    /// Parquet with a list of gene numbers and one of values for each row
    ParquetSparse,
    /// MDS shards, as MosaicML's streaming reads them
    Mds,
    /// MDS shards, compressed with Zstandard
    MdsZstd,
    /// AnnData in zarr, sharded
    Zarr,
}

impl Kind {
    const fn wanted(self) -> Wanted {
        match self {
            Self::Compressed => Wanted::Graph(StoreKind::Compressed),
            Self::FullMasks => Wanted::Graph(StoreKind::FullMasks),
            Self::PackedMasks => Wanted::Graph(StoreKind::PackedMasks),
            Self::Ids => Wanted::Graph(StoreKind::Ids),
            Self::H5adGzip => Wanted::Array(ArrayFormat::H5adGzip),
            Self::H5adLzf => Wanted::Array(ArrayFormat::H5adLzf),
            Self::H5adZstd => Wanted::Array(ArrayFormat::H5adZstd),
            Self::H5adContiguous => Wanted::Array(ArrayFormat::H5adContiguous),
            Self::H5adDense => Wanted::Array(ArrayFormat::H5adDense),
            Self::H5adCsc => Wanted::Array(ArrayFormat::H5adCsc),
            Self::H5adShuffled => Wanted::Array(ArrayFormat::H5adShuffled),
            Self::Parquet => Wanted::Array(ArrayFormat::Parquet),
            Self::ParquetSparse => Wanted::Array(ArrayFormat::ParquetSparse),
            Self::Mds => Wanted::Array(ArrayFormat::Mds),
            Self::MdsZstd => Wanted::Array(ArrayFormat::MdsZstd),
            Self::Zarr => Wanted::Array(ArrayFormat::Zarr),
        }
    }
}

/// Run the verb: the folders of the stores on stdout, or the files that were made of files.
pub(super) fn run(project: &Project, args: &Args) -> Result<(), Failure> {
    let jobs = args.jobs.map_or_else(parallel::threads, usize::from);
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
        return files(args, folder, &options);
    }
    let set = match args.names.as_slice() {
        [name] if !name.ends_with(".h5ad") => Set { name: name.clone(), options: args.options },
        _ => {
            let message = "files are converted into the folder that --out names; without it, there is one data set";
            return Err(Failure::new(Exit::Usage, message));
        }
    };
    let (data, family) = known(project, &set)?;
    let interrupt = Interrupt::listen()?;
    let folder = project.data_dir(&data);
    for kind in &args.to {
        match (family, kind.wanted()) {
            (Family::Graph, Wanted::Graph(kind)) => {
                let dataset = Dataset::open(&folder).map_err(|e| failure(&e))?;
                convert(&dataset, kind, jobs, &interrupt)?;
                out(dataset.store_folder(kind).display());
            }
            (Family::Array, Wanted::Array(format)) => {
                let dataset = ArrayDataset::open(&folder).map_err(|e| failure(&e.advise(&folder, &data)))?;
                let options = ConvertOptions { seed: data.seed, ..options };
                data_convert_array::convert(&dataset, format, &options, &interrupt)?;
                out(dataset.store_folder(format).display());
            }
            (_, wanted) => {
                let message = format_args!("data set `{}` cannot be converted to {}", set.name, wanted.name());
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
fn check_options(args: &Args) -> Result<(), Failure> {
    let to = |wanted: &[ArrayFormat]| {
        args.to.iter().any(|kind| matches!(kind.wanted(), Wanted::Array(format) if wanted.contains(&format)))
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

/// Convert files that belong to no data set.
fn files(args: &Args, folder: &Path, options: &ConvertOptions) -> Result<(), Failure> {
    if let Some(option) = args.options.named() {
        return Err(Failure::new(Exit::Usage, format_args!("{option} says which data set; --out converts files")));
    }
    let [kind] = args.to.as_slice() else {
        return Err(Failure::new(Exit::Usage, "files of one format go to one folder: give --to once with --out"));
    };
    let Wanted::Array(format) = kind.wanted() else {
        let message = format_args!("files cannot be converted to {}, which is a store of graphs", kind.wanted().name());
        return Err(Failure::new(Exit::Usage, message));
    };
    let shuffle = args.shuffle || format == ArrayFormat::H5adShuffled;
    if args.options.seed.is_some() && !shuffle {
        return Err(Failure::new(Exit::Usage, "--seed has no effect without --shuffle"));
    }
    let sources: Vec<PathBuf> = args.names.iter().map(PathBuf::from).collect();
    data_convert_array::files(&sources, format, shuffle, options, folder, &Interrupt::listen()?)
}

/// Make a store if it is not there, with an estimate of its size and progress on stderr.
pub(super) fn convert(dataset: &Dataset, kind: StoreKind, jobs: usize, interrupt: &Interrupt) -> Result<(), Failure> {
    if dataset.converted(kind).map_err(|e| failure(&e))?.is_some() {
        return Ok(());
    }
    let conversion = Conversion::new(dataset, kind).map_err(|e| failure(&e))?;
    if conversion.size().missing() == 0 {
        say(format_args!("{}: {}", kind.name(), conversion.size()));
    }
    let mut progress = BuildBar::new(interrupt);
    let manifest = conversion.run(jobs, &mut |p| progress.show(p)).map_err(|e| match e {
        DatasetError::Stopped => {
            Failure::new(Exit::Incomplete, format_args!("stopped before the store was complete: {}", kind.name()))
                .hint(GOES_ON)
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
