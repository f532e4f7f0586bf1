//! A job as a JUnit suite, which CI systems show: a test case for each trial.
//!
//! ```text
//! completed              passes
//! failed                 <failure> with cause and reason
//! interrupted, running   <error>: it is not known how it would have ended; likewise what cannot be read
//! not started, imported  <skipped>
//! ```

use expctl_ledger::RunState;

use super::trial_facts::{TrialFacts, TrialOutcome};
use crate::report::junit::{JunitCase, JunitOutcome, JunitReason, JunitSuite};

/// The suite of a job. `name`: that of the suite. `submitted`: seconds since 1970; `None` for a published job.
pub fn suite(name: &str, submitted: Option<i64>, trials: &[TrialFacts]) -> String {
    JunitSuite { name: name.to_owned(), begun: submitted, cases: trials.iter().map(case).collect() }.xml()
}

fn case(facts: &TrialFacts) -> JunitCase {
    let class =
        if facts.variant.is_empty() { facts.config.clone() } else { format!("{}.{}", facts.config, facts.variant) };
    JunitCase {
        class,
        name: facts.name(),
        time_s: Some(facts.took_s().unwrap_or(0)),
        properties: properties(facts),
        outcome: outcome(facts),
    }
}

fn outcome(facts: &TrialFacts) -> JunitOutcome {
    let kind = || facts.cause.map_or_else(|| facts.outcome.name(), |cause| cause.name()).to_owned();
    let because = |message: String| JunitReason { kind: kind(), message };
    let reason = |state: &RunState| {
        let reason = facts.outcome.reason();
        because(if reason.is_empty() { state.name().to_owned() } else { reason.to_owned() })
    };
    match &facts.outcome {
        TrialOutcome::Imported => JunitOutcome::Skipped(because("published by others: it never ran here".to_owned())),
        TrialOutcome::Run(RunState::Completed) => JunitOutcome::Passed(String::new()),
        TrialOutcome::Run(state @ RunState::Failed(_)) => JunitOutcome::Failed(reason(state)),
        TrialOutcome::Run(state @ RunState::NotStarted) => JunitOutcome::Skipped(because(state.name().to_owned())),
        TrialOutcome::Run(state) => JunitOutcome::Error(reason(state)),
    }
}

/// Class, node and figures of a trial, which some CI systems show.
fn properties(facts: &TrialFacts) -> Vec<(String, String)> {
    let mut all = vec![("class".to_owned(), facts.outcome.class().to_owned())];
    if !facts.nodes.is_empty() {
        all.push(("host".to_owned(), facts.nodes.join(", ")));
    }
    all.extend(facts.figures().into_iter().map(|(name, value)| (name, value.to_string())));
    all
}
