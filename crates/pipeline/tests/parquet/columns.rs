use super::*;

/// Keeps what is said.
#[derive(Clone, Default)]
struct Said(std::sync::Arc<std::sync::Mutex<Vec<String>>>);

impl tracing::field::Visit for Said {
    fn record_debug(&mut self, _: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0.lock().unwrap().push(format!("{value:?}"));
    }
}

impl tracing::Subscriber for Said {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn columns_that_may_be_no_genes_are_told() {
    let folder = edges();
    let open = |name: &str| {
        let said = Said::default();
        let store = tracing::subscriber::with_default(said.clone(), || ParquetStore::open(&folder.path().join(name)));
        let said = said.0.lock().unwrap().join("\n");
        (store.unwrap(), said)
    };
    let (store, said) = open("wide_unsaid.parquet");
    assert_eq!(store.genes(), ["g0", "g1", "g2", "g3", "n_counts"]);
    for part in ["wide_unsaid.parquet", "the 5 columns", "'g0' to 'n_counts'", "expctl.genes", "expctl.obs"] {
        assert!(said.contains(part), "{said}");
    }
    let error = store.numbers("n_counts").unwrap_err().to_string();
    assert!(error.contains("column 'n_counts' is one of the genes") && error.contains("expctl.obs"), "{error}");

    for (name, genes) in [("wide_obs_said.parquet", [0, 1, 2, 3]), ("wide_genes_said.parquet", [3, 2, 1, 0])] {
        let (store, said) = open(name);
        assert_eq!(said, "");
        assert_eq!(store.genes(), genes.map(|gene| format!("g{gene}")));
        let found = read(&mut *store.reader().unwrap(), &store, &Wanted::Range(2..9));
        assert_eq!(found, edge_rows(2..9, &genes));
        assert_eq!(store.numbers("n_counts").unwrap()[1], 5.0 + 6.0 + 7.0 + 8.0);
    }
}

#[test]
fn names_that_come_twice_are_refused() {
    let folder = edges();
    for (name, reason) in [
        ("twins.parquet", "gene names that come more than once: a"),
        ("columns_twice.parquet", "two columns have the name 'depth'"),
    ] {
        let error = ParquetStore::open(&folder.path().join(name)).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains(reason), "{error}");
    }
    let genes = ["a", "b", "a"].map(str::to_owned);
    let error = ParquetWriter::create(&folder.path().join("new.parquet"), &genes, &[], &ParquetOptions::default());
    let error = error.err().unwrap().to_string();
    assert!(error.contains("new.parquet") && error.contains("more than once: a"), "{error}");
    assert!(!folder.path().join("new.parquet").exists());
}

#[test]
fn bytes_are_counted_that_were_read() {
    let folder = edges();
    let fetch = |reader: &mut dyn ReadRows, store: &ParquetStore, wanted: Wanted<'_>| {
        let mut rows = empty(store);
        let bytes = reader.fetch(&wanted, &mut rows).unwrap();
        reader.decode(&mut rows).unwrap();
        let expected = match wanted {
            Wanted::Range(range) => edge_rows(range, &[0, 1, 2, 3]),
            Wanted::Rows(rows) => rows.iter().flat_map(|row| edge_rows(*row..*row + 1, &[0, 1, 2, 3])).collect(),
        };
        assert_eq!(dense(&rows, 4), expected);
        bytes
    };
    for (form, columns) in [("dense", 1), ("sparse", 2)] {
        let open = |index: &str| {
            let path = folder.path().join(format!("{form}_{index}.parquet"));
            let group = chunk(&path, 0, 0).start..chunk(&path, 0, columns - 1).end;
            (ParquetStore::open(&path).unwrap(), group.end - group.start)
        };
        // Whole row groups: all of their columns, and nothing else.
        for index in ["True", "False"] {
            let (store, all) = open(index);
            assert_eq!(fetch(&mut *store.reader().unwrap(), &store, Wanted::Range(0..40)), all);
        }
        let (store, all) = open("True");
        let mut reader = store.reader().unwrap();
        let some = fetch(&mut *reader, &store, Wanted::Rows(&[5]));
        assert!(some > 0 && some < all, "{some} of {all}");
        assert_eq!(fetch(&mut *reader, &store, Wanted::Rows(&[5])), some);
        // Without an index, pages are looked for first: the headers of all, and all of a sparse file. Once for all
        // readers.
        let (store, all) = open("False");
        let first = fetch(&mut *store.reader().unwrap(), &store, Wanted::Rows(&[5]));
        let second = fetch(&mut *store.reader().unwrap(), &store, Wanted::Rows(&[5]));
        assert!(second > 0 && second < all && first >= second + all, "{first}, then {second} of {all}");
    }
}

/// Labels and numbers do not depend on whether a file was converted.
#[test]
fn columns_of_obs_keep_their_types_when_they_are_converted() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("cells.h5ad");
    let plate = ColumnKind::Categorical { categories: vec!["zebra".to_owned(), "ant".to_owned()], ordered: false };
    let (columns, cells): (Vec<Column>, Vec<Cells>) = [
        ("count", ColumnKind::Int64, Cells::Int64(vec![10, 2, -3, (1 << 60) + 1])),
        ("rank", ColumnKind::NullableInt64, Cells::NullableInt64(vec![Some(7), None, Some(-1), Some(7)])),
        ("good", ColumnKind::Bool, Cells::Bool(vec![true, false, true, true])),
        ("share", ColumnKind::Float32, Cells::Float32(vec![0.1, f32::NAN, -2.0, 3.5])),
        ("score", ColumnKind::Float64, Cells::Float64(vec![0.1, f64::NAN, -2.0, 3.5])),
        ("plate", plate, Cells::Codes(vec![1, 0, -1, 1])),
    ]
    .into_iter()
    .map(|(name, kind, cells)| (Column { name: name.to_owned(), kind }, cells))
    .unzip();
    let layout = Layout::Contiguous;
    let spec = AnnDataSpec { rows: 4, columns: 2, values: 1, matrix: Matrix::Csr, layout, threads: 1 };
    let mut writer = AnnDataWriter::create(&source, &spec).unwrap();
    writer.begin_obs(4, &columns).unwrap();
    let index = |names: [&str; 4]| names.map(str::to_owned).to_vec();
    writer.push_obs(&Frame { index: index(["a", "b", "c", "d"]), columns: cells }).unwrap();
    writer.put_var(&[], &Frame { index: vec!["g0".to_owned(), "g1".to_owned()], columns: Vec::new() }).unwrap();
    let rows = CsrRows { indptr: vec![0, 0, 1, 1, 1], indices: vec![1], data: vec![2.0] };
    writer.push(rows.view()).unwrap();
    writer.finish().unwrap();

    let made = dataset::convert_files(
        std::slice::from_ref(&source),
        ArrayFormat::ParquetSparse,
        false,
        &dataset::ConvertOptions::default(),
        &folder.path().join("converted"),
        &mut |_| ControlFlow::Continue(()),
    );
    let before = H5adStore::open(&source, "").unwrap();
    let after = ParquetStore::open(&made.unwrap()[0]).unwrap();
    for Column { name, kind } in &columns {
        match kind {
            // float32 would have other names of classes as the float64 that it becomes.
            ColumnKind::Float32 | ColumnKind::Float64 => assert!(after.labels(name).is_err(), "{name}"),
            _ => assert_eq!(after.labels(name).unwrap(), before.labels(name).unwrap(), "{name}"),
        }
        match before.numbers(name) {
            Ok(numbers) => {
                let bits = |numbers: Vec<f64>| numbers.into_iter().map(f64::to_bits).collect::<Vec<_>>();
                assert_eq!(bits(after.numbers(name).unwrap()), bits(numbers), "{name}");
            }
            Err(_) => assert!(after.numbers(name).is_err(), "{name}"),
        }
    }
    assert_eq!(after.labels("count").unwrap().categories, ["-3", "2", "10", "1152921504606846977"]);
    assert_eq!(after.labels("good").unwrap().categories, ["False", "True"]);
}
