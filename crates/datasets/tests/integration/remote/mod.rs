//! Files of a server: the same rows as those of the local files bit for bit, or one clear error, whatever the server does.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a helper of a test fails the test")]

mod cache;
mod reads;
mod server;
mod tls;

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anndata_io::remote::{CacheOptions, RemoteOptions, RetryPolicy};
use anndata_io::{ArrayStore, Form, RowSelection, Rows, remote};
use expctl_datasets::array::{ArrayDataset, ArrayRecipe, ConvertOptions};
use expctl_datasets::{DatasetError, array};
use expctl_settings::{Array, ArrayFormat, Data, LabelSource, Networks};
use server::{Bucket, Server};

use crate::converted::quiet;

const ROWS: u64 = 1500;

const FORMATS: [ArrayFormat; 9] = [
    ArrayFormat::H5ad,
    ArrayFormat::H5adGzip,
    ArrayFormat::H5adContiguous,
    ArrayFormat::H5adDense,
    ArrayFormat::Parquet,
    ArrayFormat::ParquetSparse,
    ArrayFormat::Zarr,
    ArrayFormat::Mds,
    ArrayFormat::MdsZstd,
];

/// What all tests of the process share. Each has it alone: how objects are read is said for the whole process.
struct World {
    server: Server,
    set: PathBuf,
    _folder: tempfile::TempDir,
}

fn world() -> MutexGuard<'static, World> {
    static WORLD: LazyLock<Mutex<World>> = LazyLock::new(|| {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(folder.path());
        let set = folder.path().join("set");
        let study = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/arrayloader");
        let data = Data {
            set: "arrayloader".to_owned(),
            samples: ROWS,
            scale: 0.05,
            networks: Networks::None,
            seed: 7,
            labels: LabelSource::Random,
            files: 2,
            genes: 0,
        };
        array::build(&ArrayRecipe::load(&study).unwrap(), &data, &set, 2, &mut quiet).unwrap();
        let built = ArrayDataset::open(&set).unwrap();
        for format in &FORMATS[1..] {
            let options = ConvertOptions { jobs: 2, ..ConvertOptions::default() };
            array::convert(&built, *format, &options, &mut quiet).unwrap();
        }
        Mutex::new(World { server, set, _folder: folder })
    });
    WORLD.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    /// The files of a format.
    pub fn files(&self, format: ArrayFormat) -> Vec<PathBuf> {
        ArrayDataset::open(&self.set).unwrap().store_files(format).unwrap()
    }

    /// A new bucket with the files of a format.
    pub fn bucket(&self, name: &str, format: ArrayFormat) -> Bucket {
        let bucket = self.server.bucket(name);
        for file in self.files(format) {
            put(&bucket, file.file_name().unwrap().to_str().unwrap(), &file);
        }
        bucket
    }

    /// URLs of a format's files in a bucket.
    pub fn urls(&self, format: ArrayFormat, url: impl Fn(&str) -> PathBuf) -> Vec<PathBuf> {
        self.files(format).iter().map(|file| url(file.file_name().unwrap().to_str().unwrap())).collect()
    }
}

/// Put a file, or all files of a folder, into a bucket.
fn put(bucket: &Bucket, key: &str, path: &Path) {
    if path.is_file() {
        return bucket.put(key, &std::fs::read(path).unwrap());
    }
    for entry in std::fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        put(bucket, &format!("{key}/{}", entry.file_name().to_str().unwrap()), &entry.path());
    }
}

/// A server that is given little time: pauses of a ms, answers within 0.5 s.
fn impatient(requests: usize, cache: Option<CacheOptions>) -> RemoteOptions {
    let retry = RetryPolicy {
        answer: Duration::from_millis(500),
        attempts: 6,
        pause: Duration::from_millis(2),
        longest_pause: Duration::from_millis(20),
    };
    RemoteOptions { requests, cache, retry }
}

/// As [`expctl_datasets::array::open`], read as `options` have it.
fn open(format: ArrayFormat, files: &[PathBuf], options: RemoteOptions) -> Result<Arc<dyn ArrayStore>, DatasetError> {
    remote::configure(options)?;
    expctl_datasets::array::open_as_configured(&Array { format, ..Array::default() }, files, 1, u64::MAX)
}

/// Some rows, as bits of a value for every column.
fn read(store: &dyn ArrayStore, wanted: &RowSelection<'_>) -> Result<Vec<u32>, DatasetError> {
    let mut reader = store.reader()?;
    let mut rows = match store.form() {
        Form::Sparse => Rows::Sparse(Default::default()),
        Form::Dense => Rows::Dense(Default::default()),
    };
    reader.fetch(wanted, &mut rows)?;
    reader.decode(&mut rows)?;
    reader.unchanged()?;
    Ok(match rows {
        Rows::Dense(rows) => rows.data.iter().map(|value| value.to_bits()).collect(),
        Rows::Sparse(rows) => {
            let genes = store.genes().len();
            let mut all = vec![0; rows.len() * genes];
            for row in 0..rows.len() {
                let (columns, values) = rows.view().row(row);
                for (column, value) in columns.iter().zip(values) {
                    all[row * genes + *column as usize] = value.to_bits();
                }
            }
            all
        }
    })
}

/// Genes, classes, and bits of rows.
type Everything = (Vec<String>, Vec<i32>, Vec<u32>);

/// All rows, by ranges and by number, with labels and genes: what tells whether two stores are the same.
fn everything(store: &dyn ArrayStore) -> Result<Everything, DatasetError> {
    let mut all = Vec::new();
    for start in (0..store.len()).step_by(400) {
        all.extend(read(store, &RowSelection::Range(start..(start + 400).min(store.len())))?);
    }
    let some: Vec<u64> = (0..200).map(|i| i * 7919 % store.len()).collect();
    all.extend(read(store, &RowSelection::Rows(&some))?);
    Ok((store.genes().to_vec(), store.labels("cell_type")?.codes, all))
}
