use expctl_record::Estimator;

use super::kind::Kind;
use super::node::{Node, Value};
use super::problem::Problem;

/// The words that `compare.estimators` takes.
const WORDS: [&str; Estimator::ALL.len()] = {
    let mut words = [""; Estimator::ALL.len()];
    let mut i = 0;
    while i < words.len() {
        words[i] = Estimator::ALL[i].name();
        i += 1;
    }
    words
};

/// `compare.estimators`: an array of known words; a word that stands there twice counts once.
pub(super) fn read_estimators(node: &Node, problems: &mut Vec<Problem>) -> Vec<Estimator> {
    const KEY: &str = "compare.estimators";
    let word = Kind::Choice { words: &WORDS, aliases: &[] };
    let Value::Array(items) = &node.value else {
        let takes = format!("an array of {}", word.describe());
        let problem = Problem::new(node.at, format!("`{KEY}` takes {takes}, not {}", node.describe()), "not an array");
        problems.push(problem.help(format!("write `estimators = [{}]`", word.describe())));
        return Vec::new();
    };
    let mut found = Vec::new();
    for item in items {
        match word.accept(KEY, item) {
            Ok(name) => {
                let meant = Estimator::ALL.into_iter().find(|e| name.as_str() == Some(e.name()));
                found.extend(meant.filter(|e| !found.contains(e)));
            }
            Err(problem) => problems.push(*problem),
        }
    }
    found
}
