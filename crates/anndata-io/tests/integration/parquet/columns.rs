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
        let found = read(&mut *store.reader().unwrap(), &store, &RowSelection::Range(2..9));
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
    let fetch = |reader: &mut dyn ReadRows, store: &ParquetStore, wanted: RowSelection<'_>| {
        let mut rows = empty(store);
        let bytes = reader.fetch(&wanted, &mut rows).unwrap();
        reader.decode(&mut rows).unwrap();
        let expected = match wanted {
            RowSelection::Range(range) => edge_rows(range, &[0, 1, 2, 3]),
            RowSelection::Rows(rows) => rows.iter().flat_map(|row| edge_rows(*row..*row + 1, &[0, 1, 2, 3])).collect(),
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
            assert_eq!(fetch(&mut *store.reader().unwrap(), &store, RowSelection::Range(0..40)), all);
        }
        let (store, all) = open("True");
        let mut reader = store.reader().unwrap();
        let some = fetch(&mut *reader, &store, RowSelection::Rows(&[5]));
        assert!(some > 0 && some < all, "{some} of {all}");
        assert_eq!(fetch(&mut *reader, &store, RowSelection::Rows(&[5])), some);
        // Without an index, pages are looked for first: the headers of all, and all of a sparse file. Once for all
        // readers.
        let (store, all) = open("False");
        let first = fetch(&mut *store.reader().unwrap(), &store, RowSelection::Rows(&[5]));
        let second = fetch(&mut *store.reader().unwrap(), &store, RowSelection::Rows(&[5]));
        assert!(second > 0 && second < all && first >= second + all, "{first}, then {second} of {all}");
    }
}
