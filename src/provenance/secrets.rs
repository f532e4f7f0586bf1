//! Secrets stay out of the ledger: values that this process knows as secrets, and texts that write one down.

use std::collections::BTreeMap;

use expctl_settings::looks_secret;

use crate::project::SENT_SOURCE;

/// Replaces a secret.
pub(crate) const LEFT_OUT: &str = "[left out: looks like a secret]";
/// Shorter values are not replaced: they also occur by chance.
const MIN_LENGTH: usize = 8;

/// The values of secrets that this process knows, which are removed from texts that are written.
pub(crate) struct Secrets(Vec<String>);

impl Secrets {
    /// Values of environment variables whose names are those of secrets.
    pub fn from_environment() -> Self {
        let values =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        Self::new(values.filter(|(name, _)| looks_secret(name)).map(|(_, value)| value))
    }

    fn new(values: impl Iterator<Item = String>) -> Self {
        let mut values: Vec<String> = values.map(|v| v.trim().to_owned()).filter(|v| v.len() >= MIN_LENGTH).collect();
        // One may be part of another.
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        Self(values)
    }

    /// The text without any of them.
    pub fn cleaned(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| text.replace(secret, LEFT_OUT))
    }

    /// Whether a content has one of them.
    pub fn are_in(&self, content: &[u8]) -> bool {
        self.0.iter().any(|secret| contains(content, secret.as_bytes()))
    }

    /// The diff without any of them, and without secrets that its lines write down.
    pub fn cleaned_diff(&self, diff: &str) -> String {
        let lines = diff.split_inclusive('\n').map(|line| match secret_value(line) {
            Some(value) => line.replacen(value, LEFT_OUT, 1),
            None => line.to_owned(),
        });
        self.cleaned(&lines.collect::<String>())
    }
}

/// Whether `content` has the bytes `words`, which are not empty.
fn contains(content: &[u8], words: &[u8]) -> bool {
    let Some(first) = words.first() else { return false };
    let mut rest = content;
    while let Some(at) = rest.iter().position(|byte| byte == first) {
        if rest[at..].starts_with(words) {
            return true;
        }
        rest = &rest[at + 1..];
    }
    false
}

/// The value in a line `NAME=value`, `name: "value"` or `"name" = 'value'`, if the name is that of a secret. A value without quotes behind a
/// name that is not in capitals counts only if it is one plain word: in code, an expression follows `token =`, and the diff should keep it.
fn secret_value(line: &str) -> Option<&str> {
    let text = line.strip_prefix(['+', '-', ' ']).unwrap_or(line).trim();
    let text =
        ["export ", "set ", "let ", "const ", "ENV "].iter().find_map(|word| text.strip_prefix(word)).unwrap_or(text);
    let (name, value) = text.split_once(['=', ':'])?;
    let name = name.trim().trim_matches(['"', '\'']);
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if name.is_empty() || !name.chars().all(plain) || !looks_secret(name) {
        return None;
    }
    let value = value.trim().trim_end_matches([',', ';']);
    let quoted = value.len() > 2 && ['"', '\''].iter().any(|q| value.starts_with(*q) && value.ends_with(*q));
    if quoted {
        return value.get(1..value.len() - 1);
    }
    let word = !value.contains(|c: char| c.is_whitespace() || "()[]{}.<>".contains(c));
    let bare = !value.is_empty() && (word || !name.chars().any(|c| c.is_ascii_lowercase()));
    bare.then_some(value)
}

/// Prefixes of variables that change what a job does. Values of other variables stay private.
const RECORDED_VARIABLES: [&str; 16] = [
    "EXPCTL_",
    "SLURM_CONF",
    "LIBTORCH",
    "LD_LIBRARY_PATH",
    "LOADEDMODULES",
    "XDG_CONFIG_HOME",
    "CONDA_DEFAULT_ENV",
    "VIRTUAL_ENV",
    "OMP_",
    "MKL_",
    "KMP_",
    "GLOO_",
    "NCCL_",
    "CUDA_VISIBLE_DEVICES",
    "PYTORCH_",
    "SLURM_CLUSTERS",
];

/// The variables of this process that change what a job does, and the names of those that are left out because they look like secrets.
pub(crate) fn variables(secrets: &Secrets) -> (BTreeMap<String, String>, Vec<String>) {
    let all =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let (mut recorded, mut left_out) = (BTreeMap::new(), Vec::new());
    // The source is recorded separately.
    let is_recorded =
        |name: &str| name != SENT_SOURCE && RECORDED_VARIABLES.iter().any(|prefix| name.starts_with(prefix));
    for (name, value) in all.filter(|(name, _)| is_recorded(name)) {
        if looks_secret(&name) {
            left_out.push(name);
        } else {
            recorded.insert(name, secrets.cleaned(&value));
        }
    }
    left_out.sort();
    (recorded, left_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values_go_and_short_ones_stay() {
        let secrets = Secrets::new(["hunter2hunter2".to_owned(), "short".to_owned()].into_iter());
        assert_eq!(secrets.cleaned("a hunter2hunter2 short"), format!("a {LEFT_OUT} short"));
        assert!(secrets.are_in(b"\xffhunter2 hunter2hunter2") && !secrets.are_in(b"hunter2 hunter2hunter short"));
    }

    #[test]
    fn bare_words_behind_a_secrets_name_go_whatever_its_case() {
        let secrets = Secrets::new(std::iter::empty());
        let cleaned = secrets.cleaned_diff("+hf_token=hf_abc\n+api_key: sk-1\n+let token = parts.next();\n");
        assert_eq!(cleaned, format!("+hf_token={LEFT_OUT}\n+api_key: {LEFT_OUT}\n+let token = parts.next();\n"));
    }

    #[test]
    fn a_diff_loses_the_secrets_it_writes_down_and_stays_a_diff() {
        let secrets = Secrets::new(std::iter::empty());
        let cleaned =
            secrets.cleaned_diff("+API_TOKEN=abc\n-password: \"x y\",\n+let token = next();\n context\n+key = 3\n");
        let expected =
            format!("+API_TOKEN={LEFT_OUT}\n-password: \"{LEFT_OUT}\",\n+let token = next();\n context\n+key = 3\n");
        assert_eq!(cleaned, expected);
    }
}
