//! `looks_secret` guesses from a name whether its value is a secret. Whoever writes environment variables or settings to a file asks it first.

/// A name that contains one of these words is the name of a secret.
const ANYWHERE: [&str; 12] = [
    "TOKEN",
    "SECRET",
    "SECRETS",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "JWT",
    "CREDENTIAL",
    "CREDENTIALS",
    "APIKEY",
    "BEARER",
    "AUTHORIZATION",
];
/// So is a name that ends with one of these after another word: `WANDB_API_KEY`, but neither `SSH_KEY_PATH` nor `PWD`.
const AT_THE_END: [&str; 6] = ["KEY", "PASS", "PWD", "AUTH", "COOKIE", "PAT"];

/// Whether a variable or key of this name may hold a secret. Such a value is not written to the ledger: a value that was left
/// out without need can be looked up elsewhere, one that was written cannot be taken back.
pub fn looks_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let words: Vec<&str> = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    // A word alone, such as PWD or KEY, means something else.
    let ends = words.len() > 1 && words.last().is_some_and(|last| AT_THE_END.contains(last));
    ends || words.iter().any(|word| ANYWHERE.contains(word))
}

#[cfg(test)]
mod tests {
    use super::looks_secret;

    #[test]
    fn secrets_are_known_by_their_names() {
        for name in ["SLURM_JWT", "HF_TOKEN", "db_password", "WANDB_API_KEY", "aws.secret-access", "token", "X_PAT"] {
            assert!(looks_secret(name), "{name}");
        }
        for name in ["PWD", "SLURM_CONF", "TOKENIZERS_PARALLELISM", "SSH_KEY_PATH", "PYTORCH_CUDA_ALLOC_CONF", "PATH"] {
            assert!(!looks_secret(name), "{name}");
        }
    }
}
