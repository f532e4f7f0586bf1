use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use expctl_datasets::BuildProgress;
use indicatif::{HumanCount, ProgressBar, ProgressStyle};

use super::say;
use crate::interrupt::Interrupt;

/// Progress on stderr: a bar on a terminal, otherwise a line at the start of a phase and every ten seconds; phases that come
/// again, for each of many files, start without one. Ctrl-C stops the work at the next step.
pub(super) struct BuildBar {
    bar: Option<ProgressBar>,
    phase: &'static str,
    phases: Vec<&'static str>,
    last_line: Instant,
    interrupt: Interrupt,
}

impl BuildBar {
    pub(super) fn new(interrupt: &Interrupt) -> Self {
        let bar = std::io::stderr().is_terminal().then(ProgressBar::no_length);
        Self { bar, phase: "", phases: Vec::new(), last_line: Instant::now(), interrupt: interrupt.clone() }
    }

    pub(super) fn show(&mut self, p: BuildProgress) -> ControlFlow<()> {
        let changed = std::mem::replace(&mut self.phase, p.phase) != p.phase;
        let new = !self.phases.contains(&p.phase);
        if new {
            self.phases.push(p.phase);
        }
        match &self.bar {
            Some(bar) => {
                if changed {
                    bar.reset();
                    bar.set_style(style(p.phase));
                    bar.set_message(p.phase);
                }
                bar.set_length(p.total);
                bar.set_position(p.done);
            }
            None if new || self.last_line.elapsed() >= Duration::from_secs(10) => {
                self.last_line = Instant::now();
                say(format_args!("{}: {} of {}", p.phase, HumanCount(p.done), HumanCount(p.total)));
            }
            None => {}
        }
        if self.interrupt.is_set() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn style(phase: &str) -> ProgressStyle {
    let counts = match phase {
        "checksum" => "{decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec}",
        _ => "{human_pos}/{human_len} {per_sec}",
    };
    ProgressStyle::with_template(&format!("{{msg:9}} [{{bar:40}}] {counts} eta {{eta}}"))
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}
