use std::path::Path;

use super::columns::{batch_in_range, seconds};
use super::source::described;
use super::{Class, Columns, Source, Store, TimingsError};

/// Read the times of a CSV file with a header, a line at a time.
///
/// # Errors
/// A file that cannot be read, a column that is missing, a value that is no time or batch number; with the line.
pub fn read_csv(path: &Path, columns: &Columns) -> Result<(Source, Store), TimingsError> {
    let fail = |e: csv::Error| {
        let line = e.position().map(|p| format!("line {}: ", p.line())).unwrap_or_default();
        let reason = match e.kind() {
            csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
                format!("{line}{len} fields where the header has {expected_len}")
            }
            csv::ErrorKind::Utf8 { .. } => format!("{line}neither parquet nor text"),
            _ => e.to_string(),
        };
        TimingsError::Read { path: path.to_owned(), reason }
    };
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_path(path).map_err(fail)?;
    let names: Vec<String> = reader.headers().map_err(fail)?.iter().map(str::to_owned).collect();
    let places = columns.find(path, &names)?;
    let mut store = Store::new(path);
    let mut record = csv::StringRecord::new();
    let mut last: Option<(String, String, u32, u32)> = None;
    while reader.read_record(&mut record).map_err(fail)? {
        let text = |place: usize| record.get(place).unwrap_or_default();
        let wrong = |place: usize, problem: String, hint| TimingsError::Cell {
            path: path.to_owned(),
            place: format!("line {}", record.position().map_or(0, csv::Position::line)),
            column: names[place].clone(),
            problem,
            hint,
        };
        let method = places.method.map_or(super::words::ALL, text);
        let epoch = places.epoch.map_or(super::words::ALL, text);
        let (method, epoch) = match &last {
            Some((m, e, m_id, e_id)) if m == method && e == epoch => (*m_id, *e_id),
            _ => {
                let ids = (store.method_id(method), store.epoch_id(epoch));
                last = Some((method.to_owned(), epoch.to_owned(), ids.0, ids.1));
                ids
            }
        };
        let batch = match places.batch {
            None => None,
            Some(place) => {
                let number = text(place).parse::<u64>().map_err(|_| format!("'{}' is no batch number", text(place)));
                let hint = "--batch NAME says which column counts the batches, from 0";
                Some(number.and_then(batch_in_range).map_err(|problem| wrong(place, problem, hint))?)
            }
        };
        let value = text(places.time);
        let value = match value.parse::<f64>() {
            Ok(value) => seconds(value, columns.unit),
            Err(_) => Err(format!("'{value}' is no number")),
        };
        let value = value.map_err(|problem| wrong(places.time, problem, "times are finite and not negative"))?;
        store.push(method, epoch, batch, value)?;
    }
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    Ok((Source { name, class: Class::Imported, columns: described(&names, &places, columns.unit) }, store))
}
