// The shape of an .h5ad file, and the highest value in each of its first rows.
use std::{error::Error, path::Path};

use anndata_io::{ArrayStore, H5adStore, RowSelection, RowView, Rows};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: first_rows FILE.h5ad")?;
    let store = H5adStore::open(Path::new(&path), "raw")?; // Or "X", or "layers/NAME".
    println!("{} cells x {} genes", store.len(), store.genes().len());

    let kinds = store.labels("bulk_labels")?; // A column of obs.
    let mut rows = Rows::Sparse(Default::default());
    let mut reader = store.reader()?;
    reader.fetch(&RowSelection::Rows(&[0, 1, 2]), &mut rows)?;
    reader.decode(&mut rows)?;
    for (cell, code) in kinds.codes[..3].iter().enumerate() {
        let RowView::Sparse(genes, values) = rows.view().row(cell) else { return Err("the matrix is dense".into()) };
        let highest = values.iter().zip(genes).max_by(|a, b| a.0.total_cmp(b.0)).ok_or("an empty row")?;
        let (kind, gene) = (&kinds.categories[*code as usize], &store.genes()[*highest.1 as usize]);
        println!("{kind}: {} values, {gene} is {}", values.len(), highest.0);
    }
    Ok(())
}
