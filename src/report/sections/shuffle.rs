use expctl_record::{Draw, MeasuredJob, Sampler, ShuffleQuality};

use crate::report::Table;
use crate::report::format::{self, MISSING};

/// How well each variant that draws rows of an array shuffles them: speed alone says nothing. None without such a variant.
pub fn shuffle(job: &MeasuredJob) -> Option<Table> {
    let mut table = Table::new([
        "Variant",
        "Draw",
        "Label entropy of a batch (bits)",
        "Of the ideal",
        "Neighbours' correlation",
        "Distance of the expected",
        "Repeated rows",
        "Rows looked at",
    ])
    .right(2..8);
    let mut any = false;
    for (label, runs) in job.by_label() {
        let Some(sampler) = runs.first().map(|run| &run.trial.settings).filter(|s| s.reads_array()).map(|s| &s.sampler)
        else {
            continue;
        };
        any = true;
        let found = runs.iter().find_map(|run| run.shuffle.as_ref());
        let mut cells = vec![label, words(sampler)];
        cells.extend(found.map_or_else(|| std::array::from_fn(|_| MISSING.to_owned()), figures));
        table.row(cells);
    }
    any.then_some(table)
}

/// `weighted by weight`, `chunked 512 × 32`.
fn words(sampler: &Sampler) -> String {
    let draw = sampler.draw.name();
    match sampler.draw {
        Draw::Weighted | Draw::Balanced => format!("{draw} by {}", sampler.by),
        Draw::Chunked => {
            format!("{draw} {} × {}", format::thousands(sampler.chunk_rows), format::thousands(sampler.chunks))
        }
        Draw::Sequential | Draw::Uniform => draw.to_owned(),
    }
}

fn figures(quality: &ShuffleQuality) -> [String; 6] {
    let missing = || MISSING.to_owned();
    let labels = quality.labels.as_ref();
    let share = |part: f64, whole: f64| if whole > 0.0 { format::percent(part / whole) } else { missing() };
    [
        labels.map_or_else(missing, |l| format!("{:.3} ({})", l.entropy, l.column)),
        labels.map_or_else(missing, |l| share(l.entropy, l.ideal_entropy)),
        quality.neighbour_correlation.map_or_else(missing, |r| format!("{r:.3}")),
        share(quality.mean_distance, quality.expected_distance),
        share(quality.duplicates as f64, quality.metered_rows as f64),
        format!("{} of {}", format::thousands(quality.metered_rows), format::thousands(quality.epoch_rows)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use expctl_record::LabelMixing;

    #[test]
    fn what_is_not_known_is_a_dash() {
        let labels = LabelMixing { column: "cell_type".to_owned(), classes: 3, entropy: 1.2, ideal_entropy: 1.5 };
        let quality = ShuffleQuality {
            epoch_rows: 20_000,
            metered_rows: 12_800,
            metered_batches: 100,
            duplicates: 128,
            neighbour_correlation: Some(0.0123),
            mean_distance: 0.3,
            expected_distance: 0.4,
            labels: Some(labels),
        };
        let expected = ["1.200 (cell_type)", "80.0 %", "0.012", "75.0 %", "1.0 %", "12,800 of 20,000"];
        assert_eq!(figures(&quality), expected);
        let blank = ShuffleQuality {
            metered_rows: 0,
            duplicates: 0,
            neighbour_correlation: None,
            expected_distance: 0.0,
            labels: None,
            ..quality
        };
        assert_eq!(figures(&blank), [MISSING, MISSING, MISSING, MISSING, MISSING, "0 of 20,000"]);
        let chunked = Sampler { draw: Draw::Chunked, chunks: 1024, ..Sampler::default() };
        assert_eq!(words(&chunked), "chunked 512 × 1,024");
    }
}
