use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use super::plan_type::Plan;

/// The trials as a table: drawn with lines, or as markdown.
pub fn table(plan: &Plan, markdown: bool) -> String {
    let mut table = Table::new();
    table.load_style(if markdown { presets::ASCII_MARKDOWN } else { presets::UTF8_FULL_CONDENSED });
    // A terminal that does not tell its width says 0 or so: nothing is wrapped then.
    let wrap = !markdown && table.width().is_some_and(|width| width >= 40);
    let arrangement = if wrap { ContentArrangement::Dynamic } else { ContentArrangement::Disabled };
    table.set_content_arrangement(arrangement);
    let mut header = vec![
        "Trial",
        "Variant",
        "Point",
        "Repeat",
        "Processor",
        "Mode",
        "Batch",
        "Workers",
        "Ranks",
        "Warm-up",
        "Steps",
    ];
    let swept = plan.trials.iter().any(|trial| !trial.point.is_empty());
    if !swept {
        header.retain(|name| *name != "Point");
    }
    table.set_header(header);
    for trial in &plan.trials {
        let s = &trial.settings;
        let point: Vec<String> = trial.point.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let mut row = vec![trial.id.clone(), trial.variant.clone()];
        if swept {
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
        table.add_row(row);
    }
    let texts = ["Trial", "Variant", "Point", "Processor", "Mode"].len() - usize::from(!swept);
    let numbers = (texts - 2, texts + 1);
    for (i, column) in table.column_iter_mut().enumerate() {
        if i == numbers.0 || i >= numbers.1 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}
