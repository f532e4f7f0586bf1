use std::io::Write;
use std::path::Path;

use super::triples::GENES_PER_SAMPLE;
use crate::PipelineError;

/// The JSON of a record with places to fill in.
///
/// The file is a JSON list with one `{experiment, experiment_reference}`. Strings in it stand for what differs between
/// samples: `$gene0` to `$gene2` inside any string are systematic names, the whole strings `"$index"`, `"$label"` and
/// `"$p_value"` become numbers. Invariant: every record is valid JSON if the template is, because gene names need no
/// escaping.
pub(crate) struct RecordTemplate {
    parts: Vec<Part>,
}

#[derive(Clone)]
enum Part {
    Text(String),
    Gene(usize),
    Index,
    Label,
    PValue,
}

impl RecordTemplate {
    pub(crate) fn load(path: &Path) -> Result<Self, PipelineError> {
        let text = std::fs::read_to_string(path).map_err(PipelineError::io("read", path))?;
        Self::parse(&text).map_err(|reason| PipelineError::damaged(path, reason))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let compact: serde_json::Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
        let mut rest = compact.to_string();
        let genes = (0..GENES_PER_SAMPLE).map(|k| (format!("$gene{k}"), Part::Gene(k)));
        let numbers = [("index", Part::Index), ("label", Part::Label), ("p_value", Part::PValue)];
        let numbers = numbers.map(|(name, part)| (format!("\"${name}\""), part));
        let marks: Vec<(String, Part)> = genes.chain(numbers).collect();
        let mut parts = Vec::new();
        let mut met = vec![false; marks.len()];
        while let Some((start, k)) =
            marks.iter().enumerate().filter_map(|(k, (mark, _))| Some((rest.find(mark.as_str())?, k))).min()
        {
            let tail = rest.split_off(start + marks[k].0.len());
            rest.truncate(start);
            parts.extend([Part::Text(rest), marks[k].1.clone()]);
            met[k] = true;
            rest = tail;
        }
        if let Some(k) = met.iter().position(|met| !met) {
            return Err(format!("{} does not occur in it", marks[k].0));
        }
        parts.push(Part::Text(rest));
        Ok(Self { parts })
    }

    /// Append the record of sample `index`.
    pub(crate) fn render(&self, index: u64, genes: [&str; GENES_PER_SAMPLE], label: f64, p: f64, out: &mut Vec<u8>) {
        for part in &self.parts {
            // Writing to a Vec cannot fail. `{:?}` is the shortest text that gives the same number back.
            let _ = match part {
                Part::Text(text) => out.write_all(text.as_bytes()),
                Part::Gene(k) => out.write_all(genes[*k].as_bytes()),
                Part::Index => write!(out, "{index}"),
                Part::Label => write!(out, "{label:?}"),
                Part::PValue => write!(out, "{p:?}"),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_filled_in_and_missing_ones_refused() {
        let text = r#"[{"a": ["$gene2", "x$gene0-$gene1"], "b": "$label", "c": "$p_value", "d": "$index"}]"#;
        let template = RecordTemplate::parse(text).unwrap();
        let mut out = Vec::new();
        template.render(12, ["A", "B", "C"], -0.5, 1e-9, &mut out);
        assert_eq!(out, br#"[{"a":["C","xA-B"],"b":-0.5,"c":1e-9,"d":12}]"#);
        for (left_out, instead) in [("$gene2", "g"), ("$label", "l")] {
            assert!(RecordTemplate::parse(&text.replace(left_out, instead)).is_err());
        }
        assert!(RecordTemplate::parse("[").is_err());
    }
}
