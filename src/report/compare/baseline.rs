use super::Row;

/// For each row, the index of the row that its ratios refer to, itself for a baseline; none where no baseline stands at the
/// row's point of the sweep. Rows with a profiler have none and are none. `rows` come with the index of their job; the baseline is looked for in `job`.
pub fn baselines(rows: &[(usize, &Row)], job: usize) -> Vec<Option<usize>> {
    // A group that holds no row of the baseline's job refers to its first job.
    let job = if rows.iter().any(|(j, _)| *j == job) { job } else { rows.first().map_or(job, |(j, _)| *j) };
    let chosen = chosen(rows, job);
    let find = |index: usize| {
        if chosen.contains(&index) {
            return Some(index);
        }
        let (of, row) = rows[index];
        if row.profiler {
            return None;
        }
        chosen.iter().copied().find(|base| same_point(rows[*base].1, row, of == job))
    };
    (0..rows.len()).map(find).collect()
}

/// The baseline's rows, one for each point of a sweep.
fn chosen(rows: &[(usize, &Row)], job: usize) -> Vec<usize> {
    let of_job: Vec<usize> = (0..rows.len()).filter(|i| rows[*i].0 == job && !rows[*i].1.profiler).collect();
    let Some(first) = of_job.first().map(|i| rows[*i].1) else { return Vec::new() };
    let named = first.job_baseline.as_ref().filter(|name| of_job.iter().any(|i| rows[*i].1.variant == **name));
    let others = of_job.len() < rows.len();
    let one_variant = of_job.iter().all(|i| rows[*i].1.variant == first.variant);
    let variant = match (&first.job_baseline, named) {
        (None, _) => &first.variant,
        (Some(_), Some(name)) => name,
        // Asked for another job's rows against this one, whose only variant leaves no choice.
        (Some(_), None) if others && one_variant => &first.variant,
        // Any other variant in the place of the one that is missing would change what the ratios mean.
        (Some(_), None) => return Vec::new(),
    };
    let mut chosen: Vec<usize> = Vec::new();
    for index in of_job.into_iter().filter(|i| rows[*i].1.variant == *variant) {
        if chosen.iter().all(|i| rows[*i].1.point != rows[index].1.point) {
            chosen.push(index);
        }
    }
    chosen
}

/// Whether a row stands where a baseline stands: in the same job, with the same swept settings; in another job, with the
/// settings that the baseline's job swept. One that was not swept stands for all.
pub(super) fn same_point(base: &Row, row: &Row, same_job: bool) -> bool {
    if same_job {
        return base.point == row.point;
    }
    base.point.iter().all(|(key, value)| row.point.get(key).or_else(|| row.settings.get(key)) == Some(value))
}
