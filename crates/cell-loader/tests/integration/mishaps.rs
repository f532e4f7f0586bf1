use std::sync::mpsc;
use std::time::Duration;

use anndata_io::Form;
use proptest::prelude::*;

use super::store::{Derived, DrawKind, DrawSettings, alone, drawn, loader, options, settings};

/// Runs it on a thread; a minute without an end is a deadlock.
fn ends<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(Duration::from_secs(60)).unwrap()
}

/// Batches before the first error, and that error.
fn until_error(store: Derived, sampler: DrawSettings, batch_size: u64, workers: u32, first: u64) -> (u64, String) {
    ends(move || {
        let mut loader =
            loader(store, &sampler, alone(batch_size), &settings(Form::Dense), options(workers, first..first + 500));
        let mut batches = 0;
        loop {
            match loader.next_batch().unwrap() {
                Ok(loaded) => loader.recycle(loaded.batch),
                Err(error) => return (batches, error.to_string()),
            }
            batches += 1;
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    /// Wherever it strikes, the error itself arrives, not that another thread has stopped.
    #[test]
    fn an_error_or_panic_of_any_thread_ends_the_loader(
        (chunk_rows, chunks, batch_size) in (1u64..9, 1u64..5, 1u64..20),
        (workers, first, bad, panics) in (0u32..5, 0u64..10, 0u64..60, any::<bool>()),
    ) {
        // Without threads a panic is the caller's.
        let panics = panics && workers > 0;
        let sampler = DrawSettings { draw: DrawKind::Chunked, chunk_rows, chunks, ..DrawSettings::default() };
        let store = Derived { bad: Some(bad), panics, ..Derived::new(60, Form::Sparse) };
        let (_, error) = until_error(store, sampler, batch_size, workers, first);
        let expected = if panics { format!("row {bad} panics") } else { format!("row {bad} is bad") };
        prop_assert!(error.contains(&expected), "{}", error);
    }

    #[test]
    fn a_loader_that_is_dropped_ends(workers in 1u32..5, steps in 0u64..30, chunks in 1u64..5) {
        let sampler = DrawSettings { draw: DrawKind::Chunked, chunk_rows: 3, chunks, ..DrawSettings::default() };
        let store = Derived::new(60, Form::Sparse);
        ends(move || {
            let mut loader = loader(store, &sampler, alone(7), &settings(Form::Dense), options(workers, 0..1000));
            for _ in 0..steps {
                loader.next_batch().unwrap().unwrap();
            }
        });
    }
}

#[test]
fn a_store_that_cannot_be_opened_is_an_error_at_the_first_step() {
    for draw in [DrawKind::Uniform, DrawKind::Chunked] {
        for workers in [0, 1, 4] {
            let store = Derived { unopenable: true, ..Derived::new(60, Form::Sparse) };
            assert_eq!(until_error(store, drawn(draw), 4, workers, 0), (0, "cannot open".into()));
        }
    }
}

#[test]
fn single_rows_that_are_bad_are_an_error_at_their_step() {
    for workers in [0, 1, 4] {
        let store = Derived { bad: Some(30), ..Derived::new(60, Form::Sparse) };
        assert_eq!(until_error(store, drawn(DrawKind::Sequential), 4, workers, 7), (0, "row 30 is bad".into()));
    }
}
