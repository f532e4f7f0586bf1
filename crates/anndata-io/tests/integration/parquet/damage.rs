use super::*;

/// Copies of a small file with something changed; none may be a panic, and none other rows than were wanted.
#[test]
fn damaged_files_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.parquet");
    for layout in [ParquetLayout::Dense, ParquetLayout::Sparse] {
        let options =
            ParquetOptions { layout, compression: ParquetCompression::Snappy, row_group_rows: 64, page_rows: 8 };
        written(&path, &options, true);
        let good = std::fs::read(&path).unwrap();
        for cut in [0, 3, 4, 11, good.len() / 2, good.len() - 9, good.len() - 1] {
            std::fs::write(&path, &good[..cut]).unwrap();
            let error = ParquetStore::open(&path).unwrap_err().to_string();
            assert!(error.contains("rows.parquet"), "{error}");
        }
        let mut rng = rand_pcg::Pcg64::seed_from_u64(3);
        for _ in 0..3000 {
            let mut bad = good.clone();
            for _ in 0..rng.random_range(1..4) {
                let at = rng.random_range(0..bad.len());
                bad[at] = if rng.random_bool(0.5) { bad[at] ^ (1 << rng.random_range(0..8)) } else { rng.random() };
            }
            std::fs::write(&path, &bad).unwrap();
            try_all(&path);
        }
    }
}

/// Read whatever can be read.
fn try_all(path: &Path) {
    let Ok(store) = ParquetStore::open(path) else { return };
    let mut reader = store.reader().unwrap();
    for wanted in
        [RowSelection::Range(0..store.len()), RowSelection::Rows(&[3, 140, 64, 3]), RowSelection::Range(10..70)]
    {
        let mut rows = empty(&store);
        if reader.fetch(&wanted, &mut rows).is_err() {
            continue;
        }
        let is_read = reader.decode(&mut rows).is_ok();
        let found = dense(&rows, store.genes().len()).len();
        let wanted = match wanted {
            RowSelection::Rows(rows) => rows.len(),
            RowSelection::Range(range) => (range.end - range.start) as usize,
        };
        assert_eq!(found, if is_read { wanted * store.genes().len() } else { 0 });
    }
    let _ = (store.labels("kind"), store.numbers("score"));
}

#[test]
fn other_numbers_than_were_written_are_errors_where_pages_have_checksums() {
    let folder = edges();
    let path = folder.path().join("checked.parquet");
    let good = std::fs::read(&path).unwrap();
    let store = ParquetStore::open(&path).unwrap();
    let all = read(&mut *store.reader().unwrap(), &store, &RowSelection::Range(0..60));
    assert_eq!(all, edge_rows(0..60, &[0, 1, 2, 3]));
    let pages = chunk(&path, 0, 0);
    let header = 64;
    assert!(pages.end - pages.start > 60 * 4 * 4 + 40);
    for at in (pages.start + header..pages.end).map(|at| at as usize) {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        std::fs::write(&path, &bad).unwrap();
        let store = ParquetStore::open(&path).unwrap();
        let (mut reader, mut rows) = (store.reader().unwrap(), empty(&store));
        let read = reader.fetch(&RowSelection::Rows(&[7, 3]), &mut rows).and_then(|_| reader.decode(&mut rows));
        let error = read.unwrap_err().to_string();
        assert!(error.contains("checked.parquet") && error.contains("checksum"), "byte {at}: {error}");
    }
}

#[test]
fn a_row_group_without_a_dictionary_does_not_take_that_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.parquet");
    let options = ParquetOptions { compression: ParquetCompression::None, row_group_rows: 64, ..Default::default() };
    written(&path, &options, true);
    let good = std::fs::read(&path).unwrap();
    for (column, name) in ["kind", "score", "count"].into_iter().enumerate() {
        let at = chunk(&path, 1, column + 1).start as usize;
        // The kind of the page is the first field of its header: 2 is a dictionary, 1 a page without values.
        assert_eq!(good[at..at + 2], [0x15, 4]);
        let mut bad = good.clone();
        bad[at + 1] = 2;
        let path = folder.path().join("bad.parquet");
        std::fs::write(&path, &bad).unwrap();
        let store = ParquetStore::open(&path).unwrap();
        let error = if name == "score" { store.numbers(name).map(drop) } else { store.labels(name).map(drop) };
        let error = error.unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("row group 1: a page needs a dictionary"), "{error}");
    }
}
