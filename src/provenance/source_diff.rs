use std::fmt::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::programs::file_hash;
use super::secrets::Secrets;

/// Longest diff that is kept, bytes: a generated file that is tracked must not fill the ledger.
const LONGEST: usize = 1 << 20;
/// Most untracked files that are listed one by one.
const MOST: usize = 500;
/// Larger untracked files are listed by size alone: data that was left beside the code is not code.
const LARGEST: u64 = 16 << 20;

/// Of all untracked files together so much is hashed, bytes: the others are known by size and date. Results that nobody told
/// git to ignore must not make every look at a job slow.
const MOST_HASHED: u64 = 64 << 20;

/// What differs from a commit: content of `source.diff`.
pub(super) struct SourceDiff {
    /// As it is written, without secrets, perhaps cut off.
    pub text: String,
    /// Over all of it.
    pub hash: String,
}

impl SourceDiff {
    /// From what git says of tracked files, and the untracked files below `top`. None if there is neither.
    pub fn new(top: &Path, changed: &str, untracked: &[PathBuf]) -> Option<Self> {
        if changed.is_empty() && untracked.is_empty() {
            return None;
        }
        let mut list = String::new();
        let mut hashed = 0;
        for name in untracked.iter().take(MOST) {
            let path = top.join(name);
            let what = match std::fs::symlink_metadata(&path) {
                Ok(meta) if meta.is_file() && meta.len() <= LARGEST && hashed + meta.len() <= MOST_HASHED => {
                    hashed += meta.len();
                    file_hash(&path).unwrap_or_else(|| "cannot be read".to_owned())
                }
                Ok(meta) if meta.is_file() => format!("{} bytes of {}, not hashed", meta.len(), meta.mtime()),
                Ok(_) => "no regular file".to_owned(),
                Err(_) => "gone".to_owned(),
            };
            // A name may hold anything, a line break too.
            let _ = writeln!(list, "# untracked: {name:?} {what}");
        }
        if untracked.len() > MOST {
            let _ = writeln!(list, "# untracked: {} more files, not listed", untracked.len() - MOST);
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(changed.as_bytes()).update(list.as_bytes());
        let changed = Secrets::of_environment().cleaned_diff(changed);
        let (kept, cut) = cut(&changed);
        let mut text = list;
        if cut > 0 {
            let _ = writeln!(text, "# the diff is cut off: {cut} bytes more");
        }
        text.push_str(kept);
        Some(Self { text, hash: hasher.finalize().to_hex().to_string() })
    }
}

/// The whole lines of a diff that are kept, and the bytes that are not.
fn cut(diff: &str) -> (&str, usize) {
    let Some(head) = diff.as_bytes().get(..LONGEST) else { return (diff, 0) };
    let end = head.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let kept = diff.get(..end).unwrap_or_default();
    (kept, diff.len() - kept.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_diff_is_cut_at_a_line_and_hashed_whole() {
        let line = format!("+{}\n", "x".repeat(99));
        let long = line.repeat(LONGEST / line.len() + 100);
        let of = |diff: &str| SourceDiff::new(Path::new("/"), diff, &[]).unwrap();
        let kept = of(&long);
        assert!(kept.text.len() <= LONGEST + 100 && kept.text.ends_with(&line));
        assert!(kept.text.starts_with("# the diff is cut off: "), "{}", &kept.text[..60]);
        assert_ne!(kept.hash, of(&format!("{long}+y\n")).hash);
        assert!(SourceDiff::new(Path::new("/"), "", &[]).is_none());
    }

    #[test]
    fn untracked_files_are_listed_by_their_content() {
        let folder = tempfile::tempdir().unwrap();
        let name = PathBuf::from("a\nb");
        let of = |content: &str| {
            std::fs::write(folder.path().join(&name), content).unwrap();
            SourceDiff::new(folder.path(), "", std::slice::from_ref(&name)).unwrap()
        };
        let first = of("1");
        assert_eq!(first.text.lines().count(), 1, "{}", first.text);
        assert!(first.text.starts_with("# untracked: \"a\\nb\" "), "{}", first.text);
        assert_ne!(first.hash, of("2").hash);
    }
}
