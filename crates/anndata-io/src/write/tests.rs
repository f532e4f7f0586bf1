//! Files of `AnnDataWriter` are read back; wrong input leaves no file, and a damaged chunk leaves the output of a reader as it was.

use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::{
    AnnDataError, ArrayStore, Collection, CsrRows, DenseRows, Form, H5adStore, Resident, RowLocation, RowSelection,
    Rows,
};

fn names(prefix: &str, n: usize) -> Vec<String> {
    (0..n).map(|index| format!("{prefix}{index}")).collect()
}

fn csr(rows: &[Vec<(i32, f32)>]) -> CsrRows {
    let mut all = CsrRows::default();
    for row in rows {
        all.indices.extend(row.iter().map(|(column, _)| *column));
        all.data.extend(row.iter().map(|(_, value)| *value));
        all.indptr.push(all.indices.len() as u64);
    }
    all
}

fn write(path: &Path, spec: &AnnDataSpec, pieces: &[CsrRows]) -> Result<u64, AnnDataError> {
    write_with_genes(path, spec, names("g", spec.columns as usize), pieces)
}

fn write_with_genes(
    path: &Path,
    spec: &AnnDataSpec,
    genes: Vec<String>,
    pieces: &[CsrRows],
) -> Result<u64, AnnDataError> {
    let mut writer = AnnDataWriter::create(path, spec)?;
    writer.put_var(&[], &Frame { index: genes, columns: Vec::new() })?;
    let kind = ColumnKind::Categorical { categories: vec!["a".to_owned(), "b".to_owned()], ordered: true };
    writer.begin_obs(spec.rows, &[ColumnSpec { name: "kind".to_owned(), kind }])?;
    for piece in pieces {
        writer.push(piece.view())?;
    }
    let codes = (0..spec.rows as i32).map(|row| row % 3 - 1).collect();
    let obs = Frame { index: names("c", spec.rows as usize), columns: vec![ColumnCells::Codes(codes)] };
    writer.push_obs(&obs)?;
    writer.finish()
}

fn read(path: &Path) -> (H5adStore, Rows) {
    let store = H5adStore::open(path, "").unwrap();
    let mut rows = match store.form() {
        Form::Sparse => Rows::Sparse(CsrRows::default()),
        Form::Dense => Rows::Dense(DenseRows { columns: store.genes().len(), data: Vec::new() }),
    };
    {
        let mut reader = store.reader().unwrap();
        reader.fetch(&RowSelection::Range(0..store.len()), &mut rows).unwrap();
        reader.decode(&mut rows).unwrap();
    }
    (store, rows)
}

fn any_rows() -> impl Strategy<Value = Vec<Vec<(i32, f32)>>> {
    let row = prop::collection::btree_map(0..23i32, prop::num::f32::NORMAL, 0..23);
    prop::collection::vec(row.prop_map(|row| row.into_iter().collect()), 0..40)
}

fn any_layout() -> impl Strategy<Value = Layout> {
    let compression = prop_oneof![
        Just(Compression::None),
        (0..10u8, any::<bool>()).prop_map(|(level, shuffle)| Compression::Gzip { level, shuffle }),
        Just(Compression::Lzf),
        (1..5u8).prop_map(|level| Compression::Zstd { level }),
    ];
    let chunk = prop_oneof![Just(None), (1..50usize).prop_map(Some)];
    prop_oneof![
        1 => Just(Layout::Contiguous),
        5 => (chunk, compression).prop_map(|(chunk, compression)| Layout::Chunked { chunk, compression }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// What is written is read, however it lies in the file and in whatever pieces it came.
    #[test]
    fn rows_come_back(rows in any_rows(), layout in any_layout(), dense in any::<bool>(), cut in 0..40usize, threads in 1..4usize) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.h5ad");
        let whole = csr(&rows);
        let cut = cut.min(rows.len());
        let pieces = [csr(&rows[..cut]), csr(&rows[cut..])];
        let matrix = if dense { Matrix::Dense } else { Matrix::Csr };
        let values = whole.data.len() as u64;
        let spec = AnnDataSpec { rows: rows.len() as u64, columns: 23, values, matrix, layout, threads };
        let written = write(&path, &spec, &pieces).unwrap();
        prop_assert_eq!(written, if dense { 23 * rows.len() as u64 } else { values });
        let (store, found) = read(&path);
        match found {
            Rows::Sparse(found) => prop_assert_eq!(found, whole),
            Rows::Dense(found) => {
                let mut expected = vec![0.0; 23 * rows.len()];
                for (row, values) in rows.iter().enumerate() {
                    values.iter().for_each(|(column, value)| expected[row * 23 + *column as usize] = *value);
                }
                prop_assert_eq!(found.data, expected);
            }
        }
        let labels = store.labels("kind").unwrap();
        prop_assert_eq!(labels.codes, (0..rows.len() as i32).map(|row| row % 3 - 1).collect::<Vec<_>>());
        prop_assert_eq!(labels.categories, ["a", "b"]);
        prop_assert_eq!(store.row_names().unwrap().unwrap(), names("c", rows.len()));
        prop_assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}

#[test]
fn what_was_not_announced_is_refused_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.h5ad");
    let spec = AnnDataSpec {
        rows: 2,
        columns: 3,
        values: 2,
        matrix: Matrix::Csr,
        layout: Layout::Chunked { chunk: None, compression: Compression::None },
        threads: 1,
    };
    let contiguous = AnnDataSpec { layout: Layout::Contiguous, ..spec };
    let gzip = Layout::Chunked { chunk: None, compression: Compression::Gzip { level: 10, shuffle: false } };
    let two = || csr(&[vec![(0, 1.0)], vec![(2, 1.0)]]);
    for (spec, piece, says) in [
        (spec, csr(&[vec![(0, 1.0)]]), "X was to have 2 rows, but 1 came"),
        (spec, csr(&[vec![(3, 1.0)], vec![]]), "indices that do not ascend within 0..3"),
        (spec, csr(&[vec![(-1, 1.0)], vec![]]), "indices that do not ascend within 0..3"),
        (spec, csr(&[vec![(1, 1.0), (1, 2.0)], vec![]]), "indices that do not ascend within 0..3"),
        (contiguous, csr(&[vec![(0, 1.0)], vec![]]), "2 entries were announced, but 1 came"),
        (contiguous, csr(&[vec![(0, 1.0), (1, 1.0)], vec![(1, 1.0)]]), "2 entries were announced, but 3 came"),
        (AnnDataSpec { layout: gzip, ..spec }, two(), "gzip has levels 0 to 9, not 10"),
    ] {
        let error = write(&path, &spec, &[piece]).unwrap_err().to_string();
        assert!(error.contains(says) && error.contains("a.h5ad"), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
    let mut writer = AnnDataWriter::create(&path, &spec).unwrap();
    writer.push(two().view()).unwrap();
    assert!(writer.finish().unwrap_err().to_string().ends_with("obs was not written"));
    let slash = ColumnSpec { name: "a/b".to_owned(), kind: ColumnKind::Strings };
    let mut writer = AnnDataWriter::create(&path, &spec).unwrap();
    assert!(writer.begin_obs(2, &[slash]).unwrap_err().to_string().contains("cannot be the name of a column"));
}

#[test]
fn categories_stay_ordered() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.h5ad");
    let spec =
        AnnDataSpec { rows: 2, columns: 3, values: 2, matrix: Matrix::Csr, layout: Layout::Contiguous, threads: 1 };
    write(&path, &spec, &[csr(&[vec![(0, 1.0)], vec![(2, 2.0)]])]).unwrap();
    let (columns, _) = H5adStore::open(&path, "").unwrap().table().unwrap();
    assert!(matches!(columns[0].kind, ColumnKind::Categorical { ordered: true, .. }), "{columns:?}");
}

#[test]
fn files_by_columns_share_what_memory_they_may_take() {
    let folder = tempfile::tempdir().unwrap();
    let files = ["a.h5ad", "b.h5ad"].map(|name| folder.path().join(name));
    for path in &files {
        let (rows, columns, values) = (3, 2, 2);
        let spec = AnnDataSpec { rows, columns, values, matrix: Matrix::Csc, layout: Layout::Contiguous, threads: 1 };
        write(path, &spec, &[csr(&[vec![(1, 1.0)], vec![(0, 2.0)]])]).unwrap();
    }
    // Two values and three rows take 48 bytes.
    assert_eq!(H5adStore::open_all_within(&files, "", 96, 0).unwrap().len(), 2);
    let e = H5adStore::open_all_within(&files, "", 95, 0).unwrap_err().to_string();
    assert!(e.contains("b.h5ad") && e.contains("48 bytes") && e.contains("47 are left"), "{e}");
    let store: Box<dyn ArrayStore> = Box::new(H5adStore::open(&files[0], "").unwrap());
    let Resident::Csr(rows) = store.resident().unwrap() else { panic!() };
    assert_eq!((rows.indptr, rows.indices, rows.data), (&[0, 1, 2, 2][..], &[1, 0][..], &[2.0, 1.0][..]));
}

/// Equal lists of genes are in memory once; one other name makes another list, and a name that comes twice is found in any file.
#[test]
fn files_share_their_genes() {
    let folder = tempfile::tempdir().unwrap();
    let spec =
        AnnDataSpec { rows: 1, columns: 300, values: 1, matrix: Matrix::Csr, layout: Layout::Contiguous, threads: 1 };
    // More files than one thread opens.
    let files: Vec<_> = (0..20).map(|file| folder.path().join(format!("{file}.h5ad"))).collect();
    let write = |file: usize, (number, name): (usize, &str)| {
        let mut genes = names("g", 300);
        genes[number] = name.to_owned();
        write_with_genes(&files[file], &spec, genes, &[csr(&[vec![(0, 1.0)]])]).unwrap()
    };
    for file in 0..20 {
        write(file, if file == 13 { (298, "g2-8") } else { (0, "g0") });
    }
    let stores = H5adStore::open_all(&files, "").unwrap();
    for (file, store) in stores.iter().enumerate() {
        assert_eq!(std::ptr::eq(store.genes(), stores[0].genes()), file != 13, "{file}");
    }
    assert_eq!((&stores[0].genes()[298], &stores[13].genes()[298]), (&"g298".to_owned(), &"g2-8".to_owned()));
    let stores = stores.into_iter().map(|store| Box::new(store) as Box<dyn ArrayStore>).collect();
    assert_eq!(Collection::new(stores, crate::GeneJoin::Inner, &[]).unwrap().genes().len(), 299);
    write(5, (7, "g8"));
    let e = H5adStore::open_all(&files, "").unwrap_err().to_string();
    assert!(e.contains("5.h5ad") && e.contains("g8"), "{e}");
}

/// Rows of several files are the same whether their row pointers are in memory or are read with them.
#[test]
fn row_pointers_that_stay_in_the_files_give_the_same_rows() {
    let folder = tempfile::tempdir().unwrap();
    let rows: Vec<Vec<(i32, f32)>> = (0..40)
        .map(|row| (0..row % 7).map(|column| (column * 3, (row * 10 + column) as f32 + 0.5)).collect())
        .collect();
    let gzip = Compression::Gzip { level: 4, shuffle: true };
    for layout in [Layout::Contiguous, Layout::Chunked { chunk: Some(5), compression: gzip }] {
        // More files than one thread opens.
        let files: Vec<_> = (0..20).map(|file| folder.path().join(format!("{file}.h5ad"))).collect();
        for (file, path) in files.iter().enumerate() {
            let rows = &rows[file..];
            let values = rows.iter().map(|row| row.len() as u64).sum();
            let spec =
                AnnDataSpec { rows: rows.len() as u64, columns: 23, values, matrix: Matrix::Csr, layout, threads: 1 };
            write(path, &spec, &[csr(rows)]).unwrap();
        }
        let opened = |row_pointer_bytes| {
            let stores = H5adStore::open_all_within(&files, "", 0, row_pointer_bytes).unwrap();
            assert!(stores[1..].iter().all(|store| std::ptr::eq(store.genes(), stores[0].genes())));
            let stores = stores.into_iter().map(|store| Box::new(store) as Box<dyn ArrayStore>).collect();
            Collection::new(stores, crate::GeneJoin::Inner, &[]).unwrap()
        };
        let all: u64 = (0..20).map(|file| 40 - file).sum();
        let (memory, file) = (opened((all + 20) * 8), opened((all + 20) * 8 - 1));
        let mut located = Vec::new();
        assert_eq!(memory.stores()[0].locate(&[6, 7], &mut located).unwrap(), Some(0));
        assert!(file.stores()[0].locate(&[6, 7], &mut located).unwrap().unwrap() > 0);
        let expected = [RowLocation { first: 15, values: 6 }, RowLocation { first: 21, values: 0 }];
        assert_eq!(located, [expected, expected].concat());
        let (mut of_memory, mut of_file) = (memory.reader().unwrap(), file.reader().unwrap());
        for wanted in [
            RowSelection::Rows(&[0, all - 1, 45, 6, 6, 44, 130]),
            RowSelection::Range(3..all - 2),
            RowSelection::Range(all..all),
            RowSelection::Rows(&[]),
        ] {
            let (mut expected, mut found) = (Rows::Sparse(CsrRows::default()), Rows::Sparse(CsrRows::default()));
            of_memory.fetch(&wanted, &mut expected).unwrap();
            of_memory.decode(&mut expected).unwrap();
            of_file.fetch(&wanted, &mut found).unwrap();
            if let (RowSelection::Rows(rows), Rows::Sparse(found)) = (&wanted, &found) {
                assert_eq!(found.len(), rows.len(), "rows have their positions before they are decoded");
            }
            of_file.decode(&mut found).unwrap();
            assert_eq!(found, expected, "{wanted:?}");
        }
        assert!(of_file.fetch(&RowSelection::Rows(&[all]), &mut Rows::Sparse(CsrRows::default())).is_err());
    }
}

/// Whatever is wrong with a chunk, `out` is what it was before, of one file and of several.
#[test]
fn damaged_chunks_leave_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let (good, bad) = (folder.path().join("good.h5ad"), folder.path().join("bad.h5ad"));
    let rows: Vec<Vec<(i32, f32)>> =
        (0..9).map(|row| (0..23).map(|column| (column, (row * column) as f32 + 0.5)).collect()).collect();
    let mut failed = 0;
    for matrix in [Matrix::Dense, Matrix::Csr] {
        let layout = Layout::Chunked { chunk: Some(3), compression: Compression::Gzip { level: 4, shuffle: true } };
        let spec = AnnDataSpec { rows: 9, columns: 23, values: 9 * 23, matrix, layout, threads: 1 };
        write(&good, &spec, &[csr(&rows)]).unwrap();
        let bytes = std::fs::read(&good).unwrap();
        for at in (0..bytes.len()).step_by(72) {
            let mut changed = bytes.clone();
            changed[at..].iter_mut().take(8).for_each(|byte| *byte ^= 0x55);
            std::fs::write(&bad, changed).unwrap();
            let Ok(one) = H5adStore::open(&bad, "") else { continue };
            let two = H5adStore::open_all(&[good.clone(), bad.clone()], "").unwrap();
            let two = two.into_iter().map(|store| Box::new(store) as Box<dyn ArrayStore>).collect();
            let Ok(two) = Collection::new(two, crate::GeneJoin::Inner, &[]) else { continue };
            if two.genes().len() < 23 {
                continue;
            }
            let (_, before) = read(&good);
            for (store, wanted) in [(&one as &dyn ArrayStore, [0, 8, 4]), (&two, [17, 0, 9])] {
                let (mut out, mut reader) = (before.clone(), store.reader().unwrap());
                let read = reader.fetch(&RowSelection::Rows(&wanted), &mut out);
                if read.and_then(|_| reader.decode(&mut out)).is_err() {
                    assert_eq!(out, before);
                    failed += 1;
                }
            }
        }
    }
    assert!(failed > 8, "{failed}");
}
