use expctl_record::looks_secret;

/// What stands where a secret was.
pub(super) const LEFT_OUT: &str = "[left out: looks like a secret]";
/// Shorter values occur by chance.
const SHORTEST: usize = 8;

/// The values of the secrets that this process knows, to take them out of texts that are kept.
pub(super) struct Secrets(Vec<String>);

impl Secrets {
    /// Those of the environment, by the names of their variables.
    pub fn of_environment() -> Self {
        let values =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        Self::new(values.filter(|(name, _)| looks_secret(name)).map(|(_, value)| value))
    }

    fn new(values: impl Iterator<Item = String>) -> Self {
        let mut values: Vec<String> = values.map(|v| v.trim().to_owned()).filter(|v| v.len() >= SHORTEST).collect();
        // One may be part of another.
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        Self(values)
    }

    /// The text without any of them.
    pub fn cleaned(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| text.replace(secret, LEFT_OUT))
    }

    /// The same for a diff, where lines that write a secret down lose it too.
    pub fn cleaned_diff(&self, diff: &str) -> String {
        let lines = diff.split_inclusive('\n').map(|line| match secret_value(line) {
            Some(value) => line.replacen(value, LEFT_OUT, 1),
            None => line.to_owned(),
        });
        self.cleaned(&lines.collect::<String>())
    }
}

/// The value in a line `NAME=value`, `name: "value"` or `"name" = 'value'`, if the name is a secret's. A bare value
/// behind a name that is not in capitals counts only if it is one plain word: in code, what follows `token =` is an expression,
/// and the diff should stay one.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values_go_and_short_ones_stay() {
        let secrets = Secrets::new(["hunter2hunter2".to_owned(), "short".to_owned()].into_iter());
        assert_eq!(secrets.cleaned("a hunter2hunter2 short"), format!("a {LEFT_OUT} short"));
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
