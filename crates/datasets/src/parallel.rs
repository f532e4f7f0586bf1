//! `in_order` does work on several threads and takes the results in order. Builds and conversions write files with it.
//! Invariant: what is taken does not depend on the number of threads.

use std::panic::AssertUnwindSafe;
use std::sync::mpsc::sync_channel;
use std::thread;

use crate::DatasetError;

/// Do `work` on `0..count` on `jobs` threads, each every n-th of them and with a `state` of its own, and `take` the results
/// on this thread in their order. No more than three results of each thread are in memory.
///
/// # Errors
/// The first of `state`, `work` or `take`. A panic is one, too, after `what`, which describes the work on an index.
pub fn in_order<S, T: Send>(
    jobs: usize,
    count: u64,
    what: &(impl Fn(u64) -> String + Sync),
    state: impl Fn() -> Result<S, DatasetError> + Sync,
    work: impl Fn(&mut S, u64) -> Result<T, DatasetError> + Sync,
    mut take: impl FnMut(T) -> Result<(), DatasetError>,
) -> Result<(), DatasetError> {
    let jobs = (jobs.max(1) as u64).min(count.max(1));
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for thread in 0..jobs {
            let (send, receive) = sync_channel(1);
            let (state, work) = (&state, &work);
            scope.spawn(move || {
                let mut own = None;
                for index in (thread..count).step_by(jobs as usize) {
                    let done = std::panic::catch_unwind(AssertUnwindSafe(|| {
                        let own = match &mut own {
                            Some(own) => own,
                            none => none.insert(state()?),
                        };
                        work(own, index)
                    }));
                    let done = done.unwrap_or_else(|panic| Err(DatasetError::panicked(what(index), panic.as_ref())));
                    let last = done.is_err();
                    // Nothing is received any more after a failure or a stop.
                    if send.send(done).is_err() || last {
                        return;
                    }
                }
            });
            threads.push(receive);
        }
        for index in 0..count {
            let ended = |_| DatasetError::ThreadEnded { work: what(index) };
            take(threads[(index % jobs) as usize].recv().map_err(ended)??)?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_and_errors_end_it() {
        for jobs in [1, 2, 5] {
            let mut taken = Vec::new();
            let take = |value| {
                taken.push(value);
                Ok(())
            };
            in_order(jobs, 23, &|_| "test".to_owned(), || Ok(7), |seven, index| Ok(index * *seven), take).unwrap();
            assert_eq!(taken, (0..23).map(|index| index * 7).collect::<Vec<_>>());
            let failing = |(): &mut (), index| {
                assert!(index != 9, "nine");
                if index == 11 { Err(DatasetError::Stopped) } else { Ok(index) }
            };
            let error = in_order(jobs, 23, &|_| "test".to_owned(), || Ok(()), failing, |_| Ok(())).unwrap_err();
            assert_eq!(error.to_string(), "test: nine");
        }
    }
}
