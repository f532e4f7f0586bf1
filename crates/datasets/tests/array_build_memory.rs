//! A build takes no memory for rows that it has written. In a program of its own, because it looks at the memory of the process.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::ops::ControlFlow;
use std::path::Path;

use expctl_datasets::array;
use expctl_datasets::array::ArrayRecipe;
use expctl_settings::{Data, LabelSource, Networks};
use host_metrics::peak_resident;

/// The bytes of the files of a data set of so many rows in one file, and the most memory that the process has had when it is built.
fn built(parent: &Path, rows: u64) -> (u64, u64) {
    let study = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/arrayloader");
    let data = Data {
        set: "arrayloader".to_owned(),
        samples: rows,
        scale: 0.05,
        networks: Networks::None,
        seed: 7,
        labels: LabelSource::Random,
        files: 1,
        genes: 0,
    };
    let recipe = ArrayRecipe::load(&study).unwrap();
    let folder = parent.join(rows.to_string());
    let manifest = array::build(&recipe, &data, &folder, 2, &mut |_| ControlFlow::Continue(())).unwrap();
    (manifest.bytes(), peak_resident().unwrap())
}

#[test]
fn memory_does_not_grow_with_the_rows_of_a_file() {
    let parent = tempfile::tempdir().unwrap();
    // Enough pieces for both threads to have as many in memory as they may.
    let (few_bytes, few_peak) = built(parent.path(), 110_000);
    let (many_bytes, many_peak) = built(parent.path(), 440_000);
    let (more_bytes, more_peak) = (many_bytes - few_bytes, many_peak - few_peak);
    assert!(more_peak < more_bytes / 2, "{more_bytes} more bytes of rows took {more_peak} more bytes of memory");
}
