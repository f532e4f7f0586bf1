use expctl_record::{StoreKind, Trial};

use super::plan_type::Plan;
use crate::conf::NO_DATA_SET;
use crate::report::Table;
use crate::report::format::MISSING;

/// The trials as a table, a row each: drawn with lines, or as markdown.
pub fn table(plan: &Plan, markdown: bool) -> String {
    let table = trials(plan);
    if markdown { table.markdown() } else { table.terminal() }
}

/// Without a sweep there is no column for its points, none for the store where all trials read the base store, and none for the model
/// where no step computes one.
fn trials(plan: &Plan) -> Table {
    let swept = plan.trials.iter().any(|trial| !trial.point.is_empty());
    let mut header = vec!["Trial", "Variant"];
    if swept {
        header.push("Point");
    }
    let of_base = |trial: &Trial| {
        let settings = &trial.settings;
        settings.pipeline.store == StoreKind::Json && !settings.reads_array() && settings.data.set != NO_DATA_SET
    };
    let stores = plan.trials.iter().any(|trial| !of_base(trial));
    let repeat = header.len();
    header.push("Repeat");
    header.extend(stores.then_some("Store"));
    header.extend(["Processor", "Mode"]);
    let models = plan.trials.iter().any(|trial| trial.settings.computes_model());
    header.extend(models.then_some("Model"));
    let first_number = header.len();
    header.extend(["Batch", "Workers", "Ranks", "Warm-up", "Steps"]);
    let numbers = std::iter::once(repeat).chain(first_number..header.len());
    let mut table = Table::new(header.clone()).right(numbers);
    for trial in &plan.trials {
        let s = &trial.settings;
        let mut row = vec![trial.id.clone(), trial.variant.clone()];
        if swept {
            let point: Vec<String> = trial.point.iter().map(|(k, v)| format!("{k}={v}")).collect();
            row.push(point.join(", "));
        }
        row.push(trial.repeat.to_string());
        let store = match s.data.set.as_str() {
            NO_DATA_SET => NO_DATA_SET,
            _ if s.reads_array() => s.array.format.name(),
            _ => s.pipeline.store.name(),
        };
        row.extend(stores.then(|| store.to_owned()));
        row.extend([
            if s.runs_command() { "command" } else { s.pipeline.processor.name() }.to_owned(),
            s.train.mode.name().to_owned(),
        ]);
        row.extend(models.then(|| model(trial)));
        row.extend([
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

/// The model that the steps of a trial compute, marked where nothing said which.
fn model(trial: &Trial) -> String {
    match (trial.settings.computes_model(), trial.default_model) {
        (false, _) => MISSING.to_owned(),
        (true, false) => trial.settings.model.words(),
        (true, true) => format!("{} (default)", trial.settings.model.words()),
    }
}
