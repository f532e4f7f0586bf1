/// Words that make a name that of a secret, wherever they stand in it.
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
/// Words that do so at its end: `WANDB_API_KEY`, but not `SSH_KEY_PATH`.
const AT_THE_END: [&str; 6] = ["KEY", "PASS", "PWD", "AUTH", "COOKIE", "PAT"];

/// Whether a variable or key of this name may hold a secret. Its value then has no place in the ledger: one left out too
/// many can be looked up, one written down cannot be taken back.
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
