use super::Titled;
use crate::ledger::MeasuredJob;
use crate::report::Table;
use crate::report::figures::{Breakdown, completed_steps};
use crate::report::format::{self, MISSING};

/// Where the mean step goes, for each variant with a completed run.
pub fn breakdowns(job: &MeasuredJob) -> Vec<Titled> {
    job.by_label()
        .into_iter()
        .filter_map(|(label, runs)| {
            let breakdown = Breakdown::of(completed_steps(&runs))?;
            Some(Titled { label, table: table(&breakdown).markdown(), sentence: sentence(&breakdown) })
        })
        .collect()
}

fn table(breakdown: &Breakdown) -> Table {
    let mut table = Table::new(["Stage", "Exposed (ms/step)", "Exposed (%)", "Busy (ms/step)"]);
    let mut parts: Vec<f64> = breakdown.exposed.iter().map(|(_, ns)| ns.unwrap_or(0.0)).collect();
    parts.push(breakdown.unattributed);
    let shares = format::percentages(&parts, breakdown.wall);
    let time = |ns: Option<f64>| ns.map_or_else(|| MISSING.to_owned(), format::milliseconds_in_column);
    for (((stage, exposed), (_, busy)), share) in breakdown.exposed.iter().zip(&breakdown.busy).zip(&shares) {
        let share = if exposed.is_some() { share.clone() } else { MISSING.to_owned() };
        table.row([stage.name().to_owned(), time(*exposed), share, time(*busy)]);
    }
    let open = shares.last().cloned().unwrap_or_default();
    table.row([
        "unattributed".to_owned(),
        format::milliseconds_in_column(breakdown.unattributed),
        open,
        MISSING.to_owned(),
    ]);
    let busy = breakdown.busy.iter().filter_map(|(_, ns)| *ns).sum();
    table.bold_row([
        "step".to_owned(),
        format::milliseconds_in_column(breakdown.wall),
        "100.0 %".to_owned(),
        format::milliseconds_in_column(busy),
    ]);
    table
}

fn sentence(breakdown: &Breakdown) -> String {
    format!("Mean of {}.", format::count(breakdown.steps, "step"))
}
