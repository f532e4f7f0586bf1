//! Array data sets: the same rows however they are built, stopped or converted.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anndata_io::{
    ArrayStore, Collection, CsrRows, DenseRows, Form, GeneJoin, H5adStore, RowSelection, Rows, RowsView, ZarrStore,
};
use expctl_datasets::array::{ArrayDataset, ArrayManifest, ArrayRecipe, ConvertOptions};
use expctl_datasets::graph::{Dataset, Recipe};
use expctl_datasets::{BuildProgress, DatasetError, array};
use expctl_settings::{Array, ArrayFormat, Data, LabelSource, Networks};

use crate::converted::quiet;

fn study(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments").join(name)
}

fn data(samples: u64, files: u32) -> Data {
    Data {
        set: "arrayloader".to_owned(),
        samples,
        scale: 0.05,
        networks: Networks::None,
        seed: 7,
        labels: LabelSource::Random,
        files,
        genes: 0,
    }
}

fn build(folder: &Path, data: &Data, jobs: usize) -> ArrayManifest {
    let recipe = ArrayRecipe::load(&study("arrayloader")).unwrap();
    array::build(&recipe, data, folder, jobs, &mut quiet).unwrap()
}

/// All rows of a data set's files, and their names.
fn rows(folder: &Path, format: ArrayFormat) -> (CsrRows, Vec<String>) {
    let mut all = Rows::Sparse(CsrRows::default());
    let mut names = Vec::new();
    for path in ArrayDataset::open(folder).unwrap().store_files(format).unwrap() {
        let (store, of_file): (Box<dyn ArrayStore>, _) = match format {
            ArrayFormat::Zarr => {
                let store = ZarrStore::open(&path, "").unwrap();
                let names = store.row_names().unwrap().unwrap();
                (Box::new(store), names)
            }
            _ => {
                let store = H5adStore::open(&path, "").unwrap();
                let names = store.row_names().unwrap().unwrap();
                (Box::new(store), names)
            }
        };
        let mut reader = store.reader().unwrap();
        reader.fetch(&RowSelection::Range(0..store.len()), &mut all).unwrap();
        reader.decode(&mut all).unwrap();
        names.extend(of_file);
    }
    let Rows::Sparse(rows) = all else { unreachable!("the rows are sparse") };
    (rows, names)
}

#[test]
fn rows_do_not_depend_on_files_threads_and_how_many_there_are() {
    let parent = tempfile::tempdir().unwrap();
    let folder = |name: &str| parent.path().join(name);
    build(&folder("one"), &data(1500, 1), 1);
    let three = build(&folder("three"), &data(1500, 3), 3);
    assert_eq!(three.files.iter().map(|file| file.rows).collect::<Vec<_>>(), [500, 500, 500]);
    build(&folder("fewer"), &data(700, 2), 2);
    let (one, names) = rows(&folder("one"), ArrayFormat::H5ad);
    assert_eq!((one.clone(), names), rows(&folder("three"), ArrayFormat::H5ad));
    let (fewer, _) = rows(&folder("fewer"), ArrayFormat::H5ad);
    for row in 0..700 {
        assert_eq!(one.view().row(row), fewer.view().row(row));
    }
}

/// What users have built stays theirs: settings that came later have no part in the digest of a data set that leaves them alone.
#[test]
fn a_data_set_of_default_settings_is_the_one_that_was_built_before() {
    let recipe = ArrayRecipe::load(&study("arrayloader")).unwrap();
    let data = Data { scale: 1.0, seed: 42, ..data(200_000, 8) };
    // The digest in the manifest of a data set that was built before there was `genes`.
    assert_eq!(recipe.digest(&data).unwrap(), "0acd728136a0b1ee27ea3d720526dec47d81ea7fcb95c20596c17abd28601b2f");
    assert_ne!(recipe.digest(&Data { genes: 60_000, ..data.clone() }).unwrap(), recipe.digest(&data).unwrap());
}

#[test]
fn more_genes_than_the_recipe_has_can_be_asked_for() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("set");
    let data = Data { scale: 1.0, genes: 60_000, ..data(400, 2) };
    let manifest = build(&folder, &data, 2);
    assert_eq!((manifest.genes, manifest.rows), (60_000, 400));
    let (rows, _) = rows(&folder, ArrayFormat::H5ad);
    let largest = rows.indices.iter().max().unwrap();
    assert!((40_000..60_000).contains(largest), "{largest}");
    // As many values a row as 20,000 genes have, whose share is the recipe's; so few rows are of one donor.
    let (found, expected) = (manifest.nnz as f64 / 400.0, 0.0616 * 20_000.0);
    assert!((found / expected - 1.0).abs() < 0.5, "{found}, not {expected}");
    assert_eq!(array::verify(&folder, 2, &mut quiet).unwrap(), Vec::<String>::new());
    let recipe = ArrayRecipe::load(&study("arrayloader")).unwrap();
    let both = recipe.check(&Data { scale: 0.5, ..data }).unwrap_err().to_string();
    assert!(both.contains("exclude each other"), "{both}");
}

#[test]
fn a_stopped_build_goes_on_with_the_files_that_are_finished() {
    let parent = tempfile::tempdir().unwrap();
    let (folder, whole) = (parent.path().join("set"), parent.path().join("whole"));
    let recipe = ArrayRecipe::load(&study("arrayloader")).unwrap();
    let data = data(2000, 4);
    let mut stop = |progress: BuildProgress| match progress {
        // In the middle of the third file.
        BuildProgress { phase: "rows", done: 1001.., .. } => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let stopped = array::build(&recipe, &data, &folder, 2, &mut stop).unwrap_err();
    assert!(matches!(stopped, DatasetError::Stopped), "{stopped}");
    assert!(!folder.exists());
    let partial = parent.path().join("set.partial/files");
    let mut left: Vec<_> = std::fs::read_dir(&partial).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["part-0000.h5ad", "part-0001.h5ad"]);
    let before = partial.join("part-0000.h5ad").metadata().unwrap().modified().unwrap();

    let manifest = build(&folder, &data, 2);
    assert_eq!(manifest.resumed_files, 2);
    assert_eq!(folder.join("files/part-0000.h5ad").metadata().unwrap().modified().unwrap(), before);
    let other = build(&whole, &data, 1);
    assert_eq!(rows(&folder, ArrayFormat::H5ad), rows(&whole, ArrayFormat::H5ad));
    let contents =
        |manifest: &ArrayManifest| manifest.files.iter().map(|file| file.content_blake3.clone()).collect::<Vec<_>>();
    assert_eq!(contents(&manifest), contents(&other));
    assert_eq!(array::verify(&folder, 2, &mut quiet).unwrap(), Vec::<String>::new());
    let left: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn a_stopped_conversion_goes_on() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("set");
    build(&folder, &data(1200, 3), 2);
    let set = ArrayDataset::open(&folder).unwrap();
    let options = ConvertOptions { jobs: 2, ..ConvertOptions::default() };
    for format in [ArrayFormat::H5adGzip, ArrayFormat::H5adShuffled, ArrayFormat::Zarr] {
        let mut stop = |progress: BuildProgress| match progress {
            BuildProgress { phase: "check", done: 500.., .. } => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        };
        let stopped = array::convert(&set, format, &options, &mut stop).unwrap_err();
        assert!(matches!(stopped, DatasetError::Stopped), "{stopped}");
        assert!(!set.has(format) && !set.store_folder(format).exists());
        let missing = set.store_files(format).unwrap_err();
        let command = format!("expctl data convert arrayloader --to {} --samples 1200", format.name());
        assert!(missing.to_string().contains(&command), "{missing}");
        let manifest = array::convert(&set, format, &options, &mut quiet).unwrap();
        assert_eq!(manifest.files.iter().map(|file| file.rows).collect::<Vec<_>>(), [400, 400, 400]);
        assert_eq!(set.stored_bytes(format).unwrap(), manifest.bytes());
    }
    assert_eq!(rows(&folder, ArrayFormat::H5adGzip), rows(&folder, ArrayFormat::H5ad));
    assert_eq!(rows(&folder, ArrayFormat::Zarr), rows(&folder, ArrayFormat::H5ad));
    assert_eq!(array::verify(&folder, 1, &mut quiet).unwrap(), Vec::<String>::new());
    // A folder is as whole as the files in it.
    let shard = set.store_folder(ArrayFormat::Zarr).join("part-0001.zarr/X/data/c/0");
    let mut bytes = std::fs::read(&shard).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&shard, &bytes).unwrap();
    let wrong = array::verify(&folder, 1, &mut quiet).unwrap();
    assert!(matches!(&wrong[..], [wrong] if wrong.contains("stores/zarr/part-0001.zarr: checksum")), "{wrong:?}");
    std::fs::write(&shard, &bytes[1..]).unwrap();
    let shorter = set.store_files(ArrayFormat::Zarr).unwrap_err().to_string();
    assert!(shorter.contains("part-0001.zarr") && shorter.contains("bytes, but the manifest says"), "{shorter}");
    let (shuffled, names) = rows(&folder, ArrayFormat::H5adShuffled);
    let (base, _) = rows(&folder, ArrayFormat::H5ad);
    let position: Vec<usize> = names.iter().map(|name| name.strip_prefix("cell_").unwrap().parse().unwrap()).collect();
    let mut sorted = position.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..1200).collect::<Vec<_>>());
    for (row, position) in position.iter().enumerate() {
        assert_eq!(shuffled.view().row(row), base.view().row(*position));
    }
    // No more rows stay in their file than chance keeps there: a third, give or take.
    let stayed = position.iter().enumerate().filter(|(row, position)| row / 400 == *position / 400).count();
    assert!((320..480).contains(&stayed), "{stayed}");
}

/// The rows of the base files come in their order whatever the number of parquet files, also where one begins inside a base file.
#[test]
fn parquet_files_are_as_many_as_are_asked_for() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("set");
    build(&folder, &data(1000, 3), 2);
    let set = ArrayDataset::open(&folder).unwrap();
    let read = |format: ArrayFormat| -> (Rows, Vec<i32>, Vec<f64>) {
        let settings = Array { format, ..Array::default() };
        let store = array::open(&settings, &set.store_files(format).unwrap(), 1, u64::MAX).unwrap();
        assert_eq!((store.len(), store.form()), (1000, Form::Sparse));
        let mut out = Rows::Sparse(CsrRows::default());
        let mut reader = store.reader().unwrap();
        reader.fetch(&RowSelection::Range(0..1000), &mut out).unwrap();
        reader.decode(&mut out).unwrap();
        (out, store.labels("cell_type").unwrap().codes, store.numbers("n_counts").unwrap())
    };
    let expected = read(ArrayFormat::H5ad);
    for (file_count, rows) in [(7, vec![143, 143, 143, 143, 143, 143, 142]), (2, vec![500, 500])] {
        let options = ConvertOptions { jobs: 2, row_group: 64, file_count, ..ConvertOptions::default() };
        let format = ArrayFormat::ParquetSparse;
        let mut stop = |progress: BuildProgress| match progress {
            // With the first half of the files finished.
            BuildProgress { phase: "rows", done: 501.., .. } => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        };
        let stopped = array::convert(&set, format, &options, &mut stop).unwrap_err();
        assert!(matches!(stopped, DatasetError::Stopped), "{stopped}");
        let manifest = array::convert(&set, format, &options, &mut quiet).unwrap();
        assert_eq!(manifest.files.iter().map(|file| file.rows).collect::<Vec<_>>(), rows);
        assert_eq!(manifest.file_count, file_count);
        assert!(read(format) == expected, "{file_count} files");
        assert_eq!(array::verify(&folder, 2, &mut quiet).unwrap(), Vec::<String>::new());
        // They serve who asks for any number, or for this one.
        assert_eq!(set.store_files_of(format, 0).unwrap().len(), rows.len());
        assert_eq!(set.store_files_of(format, file_count as u32).unwrap().len(), rows.len());
        let other = set.store_files_of(format, 5).unwrap_err().to_string();
        assert!(other.contains("and 5 are asked for") && other.contains("--file-count 5"), "{other}");
        let again = ConvertOptions { file_count: 5, ..options };
        let refused = array::convert(&set, format, &again, &mut quiet).unwrap_err().to_string();
        assert!(refused.contains(&format!("was made with {} files", rows.len())), "{refused}");
        std::fs::remove_dir_all(set.store_folder(format)).unwrap();
    }
    // Values that were changed behind the manifest's back are found before their file gets a name.
    let path = folder.join("files/part-0001.h5ad");
    let mut bytes = std::fs::read(&path).unwrap();
    let ones = [1f32.to_le_bytes(); 4].concat();
    let at = bytes.windows(ones.len()).position(|window| window == ones).unwrap();
    bytes[at..at + 4].copy_from_slice(&2f32.to_le_bytes());
    std::fs::write(&path, bytes).unwrap();
    let options = ConvertOptions { jobs: 2, file_count: 2, ..ConvertOptions::default() };
    let refused = array::convert(&set, ArrayFormat::Parquet, &options, &mut quiet).unwrap_err().to_string();
    assert!(refused.contains("part-0001.h5ad: holds other rows than were built"), "{refused}");
}

/// Rows of several files in any order, behind others, from stores that are asked through the trait.
#[test]
fn rows_of_several_files_get_to_their_places() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("set");
    build(&folder, &data(900, 3), 2);
    let set = ArrayDataset::open(&folder).unwrap();
    let (expected, _) = rows(&folder, ArrayFormat::H5ad);
    let options = ConvertOptions { jobs: 2, ..ConvertOptions::default() };
    let formats = [ArrayFormat::H5ad, ArrayFormat::H5adGzip, ArrayFormat::H5adContiguous, ArrayFormat::H5adDense];
    for format in formats {
        if format != ArrayFormat::H5ad {
            array::convert(&set, format, &options, &mut quiet).unwrap();
        }
        let files = set.store_files(format).unwrap();
        let store: Box<dyn ArrayStore> = Box::new(Collection::open_h5ad(&files, "", GeneJoin::Inner, &[]).unwrap());
        let single: Box<dyn ArrayStore> = Box::new(H5adStore::open(&files[0], "").unwrap());
        assert_eq!(store.run_rows() > 1, format == ArrayFormat::H5adGzip, "{format:?}");
        assert_eq!(single.run_rows() > 1, format == ArrayFormat::H5adGzip, "{format:?}");
        let mut out = match store.form() {
            Form::Sparse => Rows::Sparse(CsrRows::default()),
            Form::Dense => Rows::Dense(DenseRows { columns: store.genes().len(), data: Vec::new() }),
        };
        let mut reader = store.reader().unwrap();
        let wanted: Vec<u64> = (0..300).map(|i| i * 7919 % 900).collect();
        let sorted: Vec<u64> = (100..800).step_by(3).collect();
        for wanted in [&wanted, &sorted] {
            let bytes = reader.fetch(&RowSelection::Rows(wanted), &mut out).unwrap();
            reader.decode(&mut out).unwrap();
            reader.unchanged().unwrap();
            let values: usize = wanted.iter().map(|row| expected.view().row(*row as usize).0.len()).sum();
            match format {
                ArrayFormat::H5ad | ArrayFormat::H5adContiguous => assert_eq!(bytes, 8 * values as u64, "{format:?}"),
                ArrayFormat::H5adDense => assert_eq!(bytes, (wanted.len() * store.genes().len() * 4) as u64),
                _ => {}
            }
        }
        for (i, row) in wanted.iter().chain(&sorted).enumerate() {
            let (indices, data) = expected.view().row(*row as usize);
            match out.view() {
                RowsView::Sparse(out) => assert_eq!(out.row(i), (indices, data), "{format:?} {row}"),
                RowsView::Dense { columns, data: out } => {
                    let mut dense = vec![0.0; columns];
                    indices.iter().zip(data).for_each(|(index, value)| dense[*index as usize] = *value);
                    assert_eq!(out[i * columns..(i + 1) * columns], dense, "{row}");
                }
            }
        }
    }
}

#[test]
fn a_file_has_its_name_only_when_it_is_checked() {
    let parent = tempfile::tempdir().unwrap();
    let (folder, out) = (parent.path().join("set"), parent.path().join("out"));
    build(&folder, &data(600, 2), 2);
    let sources = ArrayDataset::open(&folder).unwrap().store_files(ArrayFormat::H5ad).unwrap();
    let names = || -> Vec<String> {
        let mut names: Vec<_> =
            std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let options = ConvertOptions { jobs: 2, ..ConvertOptions::default() };
    for format in [ArrayFormat::H5adGzip, ArrayFormat::Parquet, ArrayFormat::Zarr] {
        let mut stop = |progress: BuildProgress| match progress {
            BuildProgress { phase: "check", .. } => {
                assert!(names().iter().all(|name| name.starts_with('.')), "{:?}", names());
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        };
        let stopped = array::convert_files(&sources, format, false, &options, &out, &mut stop).unwrap_err();
        assert!(matches!(stopped, DatasetError::Stopped), "{stopped}");
        assert_eq!(names(), Vec::<String>::new());
    }
    // What is in the way is said before anything is shuffled.
    std::fs::write(out.join("part-0001.parquet"), "mine").unwrap();
    let mut none = |progress: BuildProgress| panic!("{progress:?}");
    let refused = array::convert_files(&sources, ArrayFormat::Parquet, true, &options, &out, &mut none).unwrap_err();
    assert!(refused.to_string().contains("part-0001.parquet: is there; it is not replaced"), "{refused}");
    assert_eq!(names(), ["part-0001.parquet"]);
}

#[test]
fn a_base_file_with_other_rows_is_not_converted() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("set");
    build(&folder, &data(300, 2), 1);
    let set = ArrayDataset::open(&folder).unwrap();
    // As long as the first, but with other rows.
    let (first, second) = (folder.join("files/part-0000.h5ad"), folder.join("files/part-0001.h5ad"));
    let mut bytes = std::fs::read(&second).unwrap();
    bytes.resize(first.metadata().unwrap().len() as usize, 0);
    std::fs::write(&first, bytes).unwrap();
    let refused = array::convert(&set, ArrayFormat::H5adLzf, &ConvertOptions::default(), &mut quiet).unwrap_err();
    assert!(refused.to_string().contains("part-0000.h5ad"), "{refused}");
    assert!(!set.has(ArrayFormat::H5adLzf));
    assert_eq!(array::verify(&folder, 1, &mut quiet).unwrap().len(), 1);
}

#[test]
fn families_are_not_mistaken_for_each_other() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("set");
    build(&folder, &data(10, 1), 1);
    let graph = Dataset::open(&folder).unwrap_err().to_string();
    assert!(graph.ends_with("of rows of an array, not of samples of a graph"), "{graph}");
    let recipe = Recipe::load(&study("arrayloader")).unwrap_err().to_string();
    assert!(recipe.ends_with("of rows of an array, not of samples of a graph"), "{recipe}");
    let recipe = ArrayRecipe::load(&study("006-kuzmin-tmi")).unwrap_err().to_string();
    assert!(recipe.ends_with("of samples of a graph, not of rows of an array"), "{recipe}");
}

#[test]
fn a_recipe_that_cannot_be_is_refused() {
    let text = std::fs::read_to_string(study("arrayloader").join("dataset.toml")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for (from, to, says) in [
        ("density = 0.0616", "density = 0", "density is a share in (0, 0.9], not 0"),
        ("density = 0.0616", "density = nan", "density is a share in (0, 0.9], not NaN"),
        ("gene_log_sd = 2.0", "gene_log_sd = -1", "gene_log_sd is between 0 and 5, not -1"),
        ("count = 16", "count = 0", "cell_types.count is between 1 and 127, not 0"),
        (
            "[donors]",
            "[treatments]\nsamples = 96\ndrugs = 0\n[donors]",
            "treatments.drugs is between 1 and 10000, not 0",
        ),
        ("markers = 0.05", "markers = 1.5", "cell_types.markers is a share"),
        ("rows = 200_000", "row = 200_000", "row"),
        ("family = \"array\"", "family = \"list\"", "list"),
    ] {
        assert!(text.contains(from), "{from}");
        std::fs::write(folder.path().join("dataset.toml"), text.replacen(from, to, 1)).unwrap();
        let refused = ArrayRecipe::load(folder.path()).unwrap_err().to_string();
        assert!(refused.contains("dataset.toml") && refused.contains(says), "{refused}");
    }
}

/// The study of Tahoe-100M has a screen's columns of obs: in the sizes of its configs a file is a plate, whose samples come in turn, each with a
/// drug. The seed and the number of values are those of the recipe.
#[test]
fn a_screen_has_plates_samples_and_drugs() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("set");
    let recipe = ArrayRecipe::load(&study("tahoe-shape")).unwrap();
    // 627 genes.
    let data = Data { set: "tahoe-shape".to_owned(), scale: 0.01, ..data(140_000, 14) };
    let manifest = array::build(&recipe, &data, &folder, 2, &mut quiet).unwrap();
    let columns: Vec<(&str, usize)> =
        manifest.obs.iter().map(|column| (column.name.as_str(), column.classes.len())).collect();
    let classes = [("cell_line", 50), ("plate", 14), ("sample", 1344), ("drug", 379)];
    assert_eq!(columns[..4], classes);
    assert_eq!(columns[4..], [("n_counts", 0), ("n_genes", 0), ("weight", 0)]);
    for column in &manifest.obs[..4] {
        assert_eq!(column.classes.iter().map(|class| class.rows).sum::<u64>(), 140_000, "{}", column.name);
    }
    assert_eq!(
        (manifest.obs[0].classes[7].name.as_str(), manifest.obs[2].classes[1343].name.as_str()),
        ("line_07", "sample_1343")
    );
    let (found, expected) = (manifest.nnz as f64 / 140_000.0, recipe.density * 627.0);
    assert!((found / expected - 1.0).abs() < 0.03, "{found}, not {expected}");

    let files = ArrayDataset::open(&folder).unwrap().store_files(ArrayFormat::H5ad).unwrap();
    let store = H5adStore::open(&files[3], "").unwrap();
    let codes = |column: &str| store.labels(column).unwrap().codes;
    assert_eq!(codes("plate"), [3; 10_000]);
    let (samples, drugs) = (codes("sample"), codes("drug"));
    assert!(samples.is_sorted());
    assert_eq!((samples[0], samples[9_999]), (3 * 96, 4 * 96 - 1));
    assert!(samples.iter().zip(&drugs).all(|(sample, drug)| sample % 379 == *drug));
}

/// MDS shards of a file are a folder, of which everything counts.
#[test]
fn a_folder_of_shards_stands_for_a_file() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("set");
    build(&folder, &data(600, 2), 2);
    let set = ArrayDataset::open(&folder).unwrap();
    let (expected, _) = rows(&folder, ArrayFormat::H5ad);
    let options = ConvertOptions { jobs: 2, ..ConvertOptions::default() };
    for format in [ArrayFormat::Mds, ArrayFormat::MdsZstd] {
        // What a process that was killed while it wrote has left.
        let partial = folder.join("stores").join(format!("{}.partial", format.name()));
        std::fs::create_dir_all(partial.join(".unchecked-part-0000.mds/shard")).unwrap();
        let manifest = array::convert(&set, format, &options, &mut quiet).unwrap();
        let files = set.store_files(format).unwrap();
        let inside = files[1].read_dir().unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum::<u64>();
        assert_eq!((files.len(), inside), (2, manifest.files[1].file.bytes));
        assert_eq!(set.stored_bytes(format).unwrap(), manifest.bytes());
        let settings = Array { format, ..Array::default() };
        let store = array::open(&settings, &files, 1, u64::MAX).unwrap();
        assert_eq!(
            (store.starts(), store.run_rows()),
            (vec![0, 300], if format == ArrayFormat::Mds { 1 } else { 300 })
        );
        let mut out = Rows::Sparse(CsrRows::default());
        let mut reader = store.reader().unwrap();
        reader.fetch(&RowSelection::Range(0..600), &mut out).unwrap();
        reader.decode(&mut out).unwrap();
        assert!(out == Rows::Sparse(expected.clone()), "{format:?}");
        let base = array::open(
            &Array { format: ArrayFormat::H5ad, ..settings },
            &set.store_files(ArrayFormat::H5ad).unwrap(),
            1,
            u64::MAX,
        );
        let base = base.unwrap();
        assert_eq!(store.labels("cell_type").unwrap(), base.labels("cell_type").unwrap());
        assert_eq!(store.numbers("weight").unwrap(), base.numbers("weight").unwrap());

        assert_eq!(array::verify(&folder, 1, &mut quiet).unwrap(), Vec::<String>::new());
        let genes = files[1].join("genes.txt");
        let text = std::fs::read_to_string(&genes).unwrap();
        std::fs::write(&genes, text.replacen('0', "1", 1)).unwrap();
        let wrong = array::verify(&folder, 1, &mut quiet).unwrap();
        assert!(wrong.len() == 1 && wrong[0].contains("part-0001.mds: checksum "), "{wrong:?}");
        std::fs::remove_file(&genes).unwrap();
        let cut = set.store_files(format).unwrap_err().to_string();
        assert!(cut.contains("part-0001.mds") && cut.contains("but the manifest says"), "{cut}");
        std::fs::write(&genes, text).unwrap();
    }
}
