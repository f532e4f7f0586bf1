use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::AnnDataError;
use crate::names::all_different;

/// Names of the genes, one a line, in the order of their numbers: beside the index.
pub(super) const GENES_FILE: &str = "genes.txt";

/// More genes without names are taken for damage.
const MAX_UNNAMED: u64 = 1 << 22;

/// The names beside the index of `folder`; `None` where there is no such file.
pub(super) fn read(folder: &Path) -> Result<Option<Vec<String>>, AnnDataError> {
    let path = folder.join(GENES_FILE);
    let text = match std::fs::read_to_string(&path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) if e.kind() == std::io::ErrorKind::InvalidData => {
            return Err(AnnDataError::damaged(&path, "is not UTF-8"));
        }
        other => other.map_err(AnnDataError::io("read", &path))?,
    };
    let genes: Vec<String> = text.lines().map(str::to_owned).collect();
    let wrong = match genes.iter().position(String::is_empty) {
        Some(line) => Err(format!("line {} has no name", line + 1)),
        None => all_different(&genes).and_then(|()| count(genes.len() as u64).map(drop)),
    };
    wrong.map_err(|reason| AnnDataError::damaged(&path, reason))?;
    Ok(Some(genes))
}

/// Names of genes that have none.
pub(super) fn numbered(genes: u64) -> Result<Vec<String>, String> {
    if genes > MAX_UNNAMED {
        return Err(format!("rows of {genes} genes, which have no names, are more than {MAX_UNNAMED}"));
    }
    Ok((0..genes).map(|gene| format!("gene_{gene}")).collect())
}

/// Number of genes that int32 counts.
fn count(genes: u64) -> Result<i32, String> {
    i32::try_from(genes).map_err(|_| format!("{genes} genes are more than there can be"))
}

/// Write the names beside the index.
pub(super) fn write(folder: &Path, genes: &[String]) -> Result<PathBuf, AnnDataError> {
    let path = folder.join(GENES_FILE);
    let mut text = String::new();
    for gene in genes {
        let _ = writeln!(text, "{gene}");
    }
    std::fs::write(&path, text).map_err(AnnDataError::io("write", &path))?;
    Ok(path)
}

/// An error where names cannot stand in a file of lines.
pub(super) fn check(genes: &[String]) -> Result<(), String> {
    if genes.is_empty() {
        return Err("there are no genes".to_owned());
    }
    count(genes.len() as u64)?;
    all_different(genes)?;
    match genes.iter().find(|gene| gene.is_empty() || gene.contains(['\n', '\r'])) {
        Some(gene) => Err(format!("the name of a gene is {gene:?}, which is no line of {GENES_FILE}")),
        None => Ok(()),
    }
}
