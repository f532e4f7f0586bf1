//! The trials of a job as a table: a row for each, with outcome, rates, intervals, stages and settings.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use expctl_ledger::Stage;
use serde_json::Value;

use super::source::{ExportSource, JobVerdict};
use super::table::{Cell, Column, ColumnType, TableFormat, TableWriter};
use super::trial_facts::TrialFacts;
use super::{ExportError, ExportTo};

/// A column that does not depend on the settings: its name, its type and its cell.
struct FactColumn {
    name: String,
    column_type: ColumnType,
    cell: Box<dyn Fn(&TrialFacts) -> Cell>,
}

impl FactColumn {
    fn new(name: impl Into<String>, column_type: ColumnType, cell: impl Fn(&TrialFacts) -> Cell + 'static) -> Self {
        Self { name: name.into(), column_type, cell: Box::new(cell) }
    }

    fn text(name: &str, of: fn(&TrialFacts) -> &str) -> Self {
        let cell = move |facts: &TrialFacts| match of(facts) {
            "" => Cell::Missing,
            text => Cell::text(text),
        };
        Self::new(name, ColumnType::Text, cell)
    }

    fn integer(name: &str, of: fn(&TrialFacts) -> Option<i64>) -> Self {
        Self::new(name, ColumnType::Integer, move |facts: &TrialFacts| Cell::or_missing(of(facts), Cell::Integer))
    }

    fn real(name: &str, of: fn(&TrialFacts) -> Option<f64>) -> Self {
        Self::new(name, ColumnType::Real, move |facts: &TrialFacts| Cell::or_missing(of(facts), Cell::Real))
    }
}

/// The columns in front of the settings.
fn fact_columns() -> Vec<FactColumn> {
    let mut columns = vec![
        FactColumn::text("job", |facts| &facts.job),
        FactColumn::text("config", |facts| &facts.config),
        FactColumn::text("study", |facts| &facts.study),
        FactColumn::text("class", |facts| facts.outcome.class()),
        FactColumn::text("trial", |facts| &facts.trial),
        FactColumn::text("variant", |facts| &facts.variant),
        FactColumn::text("method", |facts| &facts.method),
        FactColumn::integer("repeat", |facts| facts.repeat.map(i64::from)),
        FactColumn::text("state", |facts| facts.outcome.name()),
        FactColumn::text("reason", |facts| facts.outcome.reason()),
        FactColumn::text("cause", |facts| facts.cause.map_or("", |cause| cause.name())),
        FactColumn::integer("attempts", |facts| i64::try_from(facts.attempts).ok()),
        FactColumn::integer("started", |facts| facts.started),
        FactColumn::integer("ended", |facts| facts.ended),
        FactColumn::new("nodes", ColumnType::Text, |facts| {
            if facts.nodes.is_empty() { Cell::Missing } else { Cell::text(&facts.nodes.join(", ")) }
        }),
        FactColumn::text("origin", |facts| &facts.origin),
        FactColumn::real("it_per_s", |facts| facts.it_per_s.value),
        FactColumn::real("it_per_s_low", |facts| facts.it_per_s.ends.map(|(low, _)| low)),
        FactColumn::real("it_per_s_high", |facts| facts.it_per_s.ends.map(|(_, high)| high)),
        FactColumn::real("samples_per_s", |facts| facts.samples_per_s.value),
        FactColumn::real("samples_per_s_low", |facts| facts.samples_per_s.ends.map(|(low, _)| low)),
        FactColumn::real("samples_per_s_high", |facts| facts.samples_per_s.ends.map(|(_, high)| high)),
        FactColumn::real("measured_s", |facts| facts.measured_s),
        FactColumn::integer("measured_steps", |facts| i64::try_from(facts.breakdown.as_ref()?.steps).ok()),
        FactColumn::real("step_ms", |facts| Some(facts.breakdown.as_ref()?.wall / 1e6)),
    ];
    columns.extend(Stage::ALL.map(|stage| {
        let exposed = move |facts: &TrialFacts| {
            let step = facts.breakdown.as_ref();
            let ns = step.and_then(|step| step.exposed.iter().find(|(of, _)| *of == stage)?.1);
            Cell::or_missing(ns, |ns| Cell::Real(ns / 1e6))
        };
        FactColumn::new(format!("{stage}_exposed_ms"), ColumnType::Real, exposed)
    }));
    columns.push(FactColumn::real("unattributed_ms", |facts| Some(facts.breakdown.as_ref()?.unattributed / 1e6)));
    columns
}

/// Write the trials of a job: a row for each. Gives whether all completed.
///
/// # Errors
/// The job cannot be read, or the table not written.
pub fn write_trials<W: Write + Send>(
    source: &ExportSource,
    format: TableFormat,
    to: ExportTo<W>,
) -> Result<JobVerdict, ExportError> {
    let mut trials: Vec<TrialFacts> = Vec::new();
    let verdict = source.visit(|facts, _| {
        trials.push(facts.clone());
        Ok(())
    })?;
    let facts = fact_columns();
    let settings = value_columns(trials.iter().map(|trial| &trial.settings));
    let taken: BTreeSet<&str> = facts.iter().map(|column| column.name.as_str()).collect();
    let mut columns: Vec<Column> = facts.iter().map(|fact| Column::new(fact.name.clone(), fact.column_type)).collect();
    columns.extend(settings.iter().map(|column| match taken.contains(column.name.as_str()) {
        // Keys of published settings are those of their source.
        true => Column::new(format!("settings.{}", column.name), column.column_type),
        false => column.clone(),
    }));
    let entries = [("job", source.job()), ("table", "trials".to_owned())];
    let (writer, failed) = to.into_parts();
    let mut table = TableWriter::new(format, writer, columns, &entries).map_err(&failed)?;
    for trial in &trials {
        let own = facts.iter().map(|fact| (fact.cell)(trial));
        let set = settings.iter().map(|column| value_cell(column, trial.settings.get(&column.name)));
        table.row(&own.chain(set).collect::<Vec<_>>()).map_err(&failed)?;
    }
    table.finish().map_err(&failed)?;
    Ok(verdict)
}

/// A column for each key of these maps, in order, of the type that all its values have; text where they have several.
pub fn value_columns<'a>(maps: impl Iterator<Item = &'a BTreeMap<String, Value>>) -> Vec<Column> {
    let mut types: BTreeMap<&str, ColumnType> = BTreeMap::new();
    for (key, value) in maps.flatten() {
        let of_value = match value {
            Value::Bool(_) => ColumnType::Boolean,
            Value::Number(number) if number.is_i64() => ColumnType::Integer,
            Value::Number(_) => ColumnType::Real,
            _ => ColumnType::Text,
        };
        let joined = |before: ColumnType| match (before, of_value) {
            (before, now) if before == now => now,
            (ColumnType::Integer, ColumnType::Real) | (ColumnType::Real, ColumnType::Integer) => ColumnType::Real,
            _ => ColumnType::Text,
        };
        types.entry(key).and_modify(|before| *before = joined(*before)).or_insert(of_value);
    }
    types.into_iter().map(|(key, column_type)| Column::new(key, column_type)).collect()
}

/// The cell of a value in a column of [`value_columns`].
pub fn value_cell(column: &Column, value: Option<&Value>) -> Cell {
    let Some(value) = value else { return Cell::Missing };
    match (column.column_type, value) {
        (ColumnType::Integer, _) => Cell::or_missing(value.as_i64(), Cell::Integer),
        (ColumnType::Real, _) => Cell::or_missing(value.as_f64(), Cell::Real),
        (ColumnType::Boolean, _) => Cell::or_missing(value.as_bool(), Cell::Boolean),
        (ColumnType::Text, Value::String(text)) => Cell::text(text),
        (ColumnType::Text, other) => Cell::text(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_have_the_type_of_all_their_values() {
        let map =
            |value: Value| -> BTreeMap<String, Value> { value.as_object().unwrap().clone().into_iter().collect() };
        let maps =
            [map(json!({"a": 1, "b": 2, "c": true, "d": 1})), map(json!({"a": 3, "b": 0.5, "c": "auto", "e": "x"}))];
        let columns = value_columns(maps.iter());
        let types: Vec<(&str, ColumnType)> = columns.iter().map(|c| (c.name.as_str(), c.column_type)).collect();
        let expected = [
            ("a", ColumnType::Integer),
            ("b", ColumnType::Real),
            ("c", ColumnType::Text),
            ("d", ColumnType::Integer),
            ("e", ColumnType::Text),
        ];
        assert_eq!(types, expected);
        let cells: Vec<Cell> = columns.iter().map(|column| value_cell(column, maps[0].get(&column.name))).collect();
        let expected = [Cell::Integer(1), Cell::Real(2.0), Cell::text("true"), Cell::Integer(1), Cell::Missing];
        assert_eq!(cells, expected);
    }
}
