//! Our readers of rows, as the loader uses them: `fetch` and `decode` into buffers that are used again.

use anndata_io::{ArrayStore, CsrRows, DenseRows, Form, Rows};

use crate::harness::{Check, Clock, Hash, Outcome, Pass, RunPass};
use crate::work::Draw;

/// Passes over a store of ours.
pub fn passes(store: impl ArrayStore, draw: Draw) -> Outcome<RunPass> {
    // Lives as long as the process.
    let store: &'static dyn ArrayStore = Box::leak(Box::new(store));
    let mut reader = store.reader()?;
    let mut out = match store.form() {
        Form::Sparse => Rows::Sparse(CsrRows::default()),
        Form::Dense => Rows::Dense(DenseRows::default()),
    };
    let requests = draw.requests(store.len());
    Ok(Box::new(move |check| {
        let (mut clock, mut hash, mut units) = (Clock::default(), Hash::default(), 0);
        for request in &requests {
            out.clear();
            clock.time(|| {
                reader.fetch(&request.selection(), &mut out)?;
                reader.decode(&mut out)
            })?;
            units += request.len();
            if check {
                match &out {
                    Rows::Sparse(rows) => hash.csr(&rows.indptr, &rows.indices, &rows.data),
                    Rows::Dense(rows) => hash.floats(&rows.data),
                }
            }
        }
        Ok(Pass { units, time: clock.0, check: Check::Same(hash.0) })
    }))
}
