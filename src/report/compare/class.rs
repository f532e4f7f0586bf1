use std::collections::BTreeMap;

use super::Row;

/// Settings that tables are split by, with how many of what a heading says; the data set itself is what rows are compared in at all.
const SPLIT: [(&str, &str); 15] = [
    ("launch.ranks", "ranks"),
    ("data.samples", "samples"),
    ("data.scale", "scale"),
    ("data.networks", "networks"),
    ("data.files", "files"),
    ("data.genes", "genes of the data set"),
    ("array.files", "own files"),
    ("array.genes", "genes of a batch"),
    ("select.samples", "samples taken"),
    ("select.subset", "subset"),
    ("select.split", "split"),
    ("measure.cold_cache", "cold page cache"),
    ("device", "device"),
    ("gpu", "GPU"),
    ("cpu", "processor"),
];

/// What all rows of a class have in common, as far as it is known.
type Shared = BTreeMap<&'static str, String>;

/// Rows of one comparability class: world size, data and device are the same in all jobs that it holds.
pub(super) struct RowClass {
    /// What they share.
    shared: Shared,
    /// Their places among all rows, in order.
    pub rows: Vec<usize>,
}

impl RowClass {
    /// What sets this class apart from `others`: `ranks 1, samples 10000`; empty for the only one.
    pub fn name(&self, others: &[Self]) -> String {
        let apart = |key: &str| others.iter().any(|other| other.shared.get(key) != self.shared.get(key));
        let said = SPLIT.iter().filter(|(key, _)| apart(key));
        let said = said.filter_map(|(key, name)| {
            // What is not so is no name: a cold page cache is said, a warm one is not.
            let value = self.shared.get(key).filter(|value| !matches!(value.as_str(), "" | "false"))?;
            Some(format!("{name} {value}"))
        });
        said.collect::<Vec<_>>().join(", ")
    }
}

/// Split the rows of several jobs by class, that of the job at `first` in front.
///
/// A setting that a job varies itself, by a sweep or between its variants, is what this job studies: it does not tear the job apart, but
/// ratios across it are marked.
pub(super) fn classes(rows: &[(usize, &Row)], first: usize) -> Vec<RowClass> {
    let mut jobs: Vec<usize> = Vec::new();
    for job in std::iter::once(first).chain(rows.iter().map(|(job, _)| *job)) {
        if !jobs.contains(&job) && rows.iter().any(|(of, _)| *of == job) {
            jobs.push(job);
        }
    }
    let mut found: Vec<RowClass> = Vec::new();
    for job in jobs {
        let mine: Vec<usize> = (0..rows.len()).filter(|i| rows[*i].0 == job).collect();
        let shared = shared(&mine.iter().map(|i| rows[*i].1).collect::<Vec<_>>());
        let agrees = |class: &&mut RowClass| {
            SPLIT.iter().all(|(key, _)| class.shared.get(key).zip(shared.get(key)).is_none_or(|(a, b)| a == b))
        };
        match found.iter_mut().find(agrees) {
            Some(class) => class.rows.extend(mine),
            None => found.push(RowClass { shared, rows: mine }),
        }
    }
    found.iter_mut().for_each(|class| class.rows.sort_unstable());
    found
}

fn shared(rows: &[&Row]) -> Shared {
    let value = |key: &str| {
        let first = rows.first()?.settings.get(key)?;
        let same = rows.iter().all(|row| row.settings.get(key) == Some(first) && !row.point.contains_key(key));
        same.then(|| first.clone())
    };
    SPLIT.iter().filter_map(|(key, _)| Some((*key, value(key)?))).collect()
}
