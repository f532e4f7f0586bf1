use super::plan_type::Plan;
use crate::report::Table;

/// The trials as a table, a row each: drawn with lines, or as markdown.
pub fn table(plan: &Plan, markdown: bool) -> String {
    let table = trials(plan);
    if markdown { table.markdown() } else { table.terminal() }
}

/// Without a sweep there is no column for its points.
fn trials(plan: &Plan) -> Table {
    let swept = plan.trials.iter().any(|trial| !trial.point.is_empty());
    let mut header = vec!["Trial", "Variant"];
    if swept {
        header.push("Point");
    }
    header.extend(["Repeat", "Processor", "Mode", "Batch", "Workers", "Ranks", "Warm-up", "Steps"]);
    let repeat = header.len() - 8;
    let numbers = std::iter::once(repeat).chain(repeat + 3..header.len());
    let mut table = Table::new(header.clone()).right(numbers);
    for trial in &plan.trials {
        let s = &trial.settings;
        let mut row = vec![trial.id.clone(), trial.variant.clone()];
        if swept {
            let point: Vec<String> = trial.point.iter().map(|(k, v)| format!("{k}={v}")).collect();
            row.push(point.join(", "));
        }
        row.extend([
            trial.repeat.to_string(),
            s.pipeline.processor.name().to_owned(),
            s.train.mode.name().to_owned(),
            s.loader.batch_size.to_string(),
            s.loader.workers.to_string(),
            s.launch.ranks.to_string(),
            s.measure.warmup.to_string(),
            s.measure.steps.to_string(),
        ]);
        table.row(row);
    }
    table
}
