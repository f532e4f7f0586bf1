use super::modes::ByMode;
use crate::report::Table;
use crate::report::format::{self, MISSING};
use expctl_record::Run;

/// The model behind each variant, and its trained parameters as rank 0 counted them.
pub(super) fn models(variants: &[ByMode<'_>]) -> Table {
    let mut table = Table::new(["Variant", "Model", "Parameters", "Named by"]).right([2]);
    for variant in variants {
        let runs = variant.runs(variant.whole());
        let Some(trial) = runs.first().map(|run| &run.trial) else { continue };
        let count = runs.iter().find_map(|run| parameters(run));
        table.row([
            variant.label.clone(),
            trial.settings.model.words(),
            count.map_or_else(|| MISSING.to_owned(), format::thousands),
            if trial.default_model { "nobody: the default" } else { "the config" }.to_owned(),
        ]);
    }
    table
}

/// Trained parameters of the model of a run; none of one that is older than the record, or did not reach its last step.
fn parameters(run: &Run) -> Option<u64> {
    run.parts.last()?.usage.first()?.parameters
}
