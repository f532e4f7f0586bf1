use std::fmt::Write;

use expctl_record::Stage;

use super::modes::ByMode;
use super::parts::{exposed, parts};
use crate::report::figures::Breakdown;
use crate::report::format::{self, MISSING};

/// One line of the tree.
struct Line {
    branch: String,
    name: String,
    ns: f64,
    stage: Option<Stage>,
}

/// The mean step of the mode with the most in it as a tree of measured exposed times.
pub(super) fn tree(variant: &ByMode<'_>) -> String {
    let Some(breakdown) = variant.breakdown() else { return String::new() };
    let whole = variant.whole();
    let lines = lines(&breakdown);
    let most = lines.iter().filter(|line| line.stage.is_some()).max_by(|a, b| a.ns.total_cmp(&b.ns));
    let bottleneck = most.filter(|line| line.ns > 0.0).and_then(|line| line.stage);
    let head = format!("{}, {}, n = {}", variant.label, whole.name(), variant.runs(whole).len());
    let width = lines.iter().map(|line| line.branch.chars().count() + line.name.len()).chain([head.len()]).max();
    let width = width.unwrap_or(0) + 2;
    let shares = shares(&lines, breakdown.wall);
    let mut out = format!("{head:<width$}{:>12} ms/step  (100.0 %)", format::milliseconds_in_column(breakdown.wall));
    for (line, share) in lines.iter().zip(shares) {
        let name = format!("{}{}", line.branch, line.name);
        let _ = write!(out, "\n{name:<width$}{:>12} ms/step  ({})", format::milliseconds_in_column(line.ns), share);
        if line.stage.is_some() && line.stage == bottleneck {
            out.push_str("  ← most exposed time");
        }
    }
    out
}

/// The share of each line: those of the parts add up to the whole, as in the table.
fn shares(lines: &[Line], wall: f64) -> Vec<String> {
    let is_part = |line: &&Line| !line.branch.starts_with('│');
    let parts: Vec<f64> = lines.iter().filter(is_part).map(|line| line.ns).collect();
    let mut of_parts = format::percentages(&parts, wall).into_iter();
    let own = |line: &Line| if wall > 0.0 { format::percent(line.ns / wall) } else { MISSING.to_owned() };
    lines.iter().map(|line| if is_part(&line) { of_parts.next().unwrap_or_default() } else { own(line) }).collect()
}

fn lines(breakdown: &Breakdown) -> Vec<Line> {
    let mut all = Vec::new();
    let mut claimed = 0.0;
    for (part, stages) in parts() {
        let Some(ns) = exposed(breakdown, &stages) else { continue };
        claimed += ns;
        // A part of which one stage happened is that stage; the others show theirs.
        let happened: Vec<(Stage, f64)> = breakdown
            .exposed
            .iter()
            .filter(|(s, _)| stages.contains(s))
            .filter_map(|(s, ns)| Some((*s, (*ns)?)))
            .collect();
        let alone = happened.len() == 1;
        let stage = happened.first().filter(|_| alone).map(|(stage, _)| *stage);
        all.push(Line { branch: "├─ ".to_owned(), name: part.to_owned(), ns, stage });
        if alone {
            continue;
        }
        let last = happened.len();
        for (i, (stage, ns)) in happened.into_iter().enumerate() {
            let branch = if i + 1 == last { "│  └─ " } else { "│  ├─ " };
            all.push(Line { branch: branch.to_owned(), name: stage.name().to_owned(), ns, stage: Some(stage) });
        }
    }
    let rest = breakdown.wall - claimed;
    all.push(Line { branch: "└─ ".to_owned(), name: "other, unattributed".to_owned(), ns: rest, stage: None });
    all
}
