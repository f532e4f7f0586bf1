use crate::launch::status::Attempt;
use crate::report::Table;
use crate::report::format::{MISSING, moment};

const COLUMNS: [&str; 13] = [
    "trial",
    "attempt",
    "task",
    "state",
    "cause",
    "steps",
    "from step",
    "started",
    "ended",
    "nodes",
    "memory",
    "time limit",
    "reason",
];

/// A row for each attempt; with its job where they are of `several`.
pub fn attempts(rows: &[Attempt], several: bool) -> Table {
    let shift = usize::from(several);
    let header = several.then_some("job").into_iter().chain(COLUMNS);
    let mut table = Table::new(header).right([1, 5, 6, 10, 11].map(|column| column + shift));
    let or_missing = |text: Option<String>| text.unwrap_or_else(|| MISSING.to_owned());
    for row in rows {
        let cells = [
            row.trial.clone(),
            row.attempt.to_string(),
            or_missing(row.slurm_task.clone()),
            row.state.name().to_owned(),
            or_missing(row.cause.map(|cause| cause.name().to_owned())),
            format!("{}/{}", row.steps, row.steps_total),
            or_missing(row.resumed_from.map(|step| step.to_string())),
            moment(row.started),
            or_missing(row.ended.map(moment)),
            or_missing(Some(row.nodes.join(", ")).filter(|nodes| !nodes.is_empty())),
            or_missing(row.memory_mib.map(|memory| format!("{memory} MiB"))),
            or_missing(row.time_min.map(|time| format!("{time} min"))),
            row.reason.clone(),
        ];
        table.row(several.then(|| row.job.to_string()).into_iter().chain(cells));
    }
    table
}
