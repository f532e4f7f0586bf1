//! What can be done about a problem of a data set, said in one way.

use std::path::Path;

use anndata_io::AnnDataError;
use expctl_record::{ArrayFormat, Data, LabelSource, Networks, StoreKind};

use super::Dataset;
use super::files::STORES_FOLDER;
use super::partial::PARTIAL;
use crate::PipelineError;

impl PipelineError {
    /// This problem with what can be done about it, if it is one of the data set in `folder`, which `data` describes.
    #[must_use]
    pub fn advise(self, folder: &Path, data: &Data) -> Self {
        let advice = match &self {
            Self::NotBuilt { path } if path == folder => format!("`{}` builds it", command("build", data, None)),
            Self::NotBuilt { path }
            | Self::Lmdb { path, .. }
            | Self::Damaged { path, .. }
            | Self::AnnData(AnnDataError::Damaged { path, .. })
            | Self::Record { store: path, .. } => {
                let Ok(inside) = path.strip_prefix(folder) else { return self };
                match made_store(inside) {
                    Some((name, kind)) => {
                        let store = folder.join(STORES_FOLDER).join(name);
                        let convert = command("convert", data, Some(kind));
                        format!("remove {} and run `{convert}`", store.display())
                    }
                    None => format!("`{}` checks the whole data set", command("verify", data, None)),
                }
            }
            _ => return self,
        };
        self.and(advice)
    }

    /// This problem, and what can be done about it.
    pub(crate) fn and(self, advice: String) -> Self {
        Self::Advised { problem: Box::new(self), advice }
    }
}

impl Dataset {
    /// A problem of this data set with what can be done about it.
    pub(crate) fn advise(&self, problem: PipelineError) -> PipelineError {
        problem.advise(self.folder(), &self.manifest().data)
    }
}

/// Folder name and kind of the store, finished or under construction, that a path inside a data set belongs to, if that was
/// made from the base store.
fn made_store(inside: &Path) -> Option<(&str, &'static str)> {
    let mut parts = inside.strip_prefix(STORES_FOLDER).ok()?.components();
    let name = parts.next()?.as_os_str().to_str()?;
    let finished = name.strip_suffix(PARTIAL).unwrap_or(name);
    let graphs = StoreKind::ALL.iter().map(|kind| kind.name());
    let mut known = graphs.chain(ArrayFormat::ALL.iter().map(|format| format.name()));
    Some((name, known.find(|known| *known == finished)?))
}

/// `expctl data VERB` for a data set, as a user types it; `to` is what it is converted to.
pub(crate) fn command(verb: &str, data: &Data, to: Option<&str>) -> String {
    let to = to.map(|to| format!(" --to {to}")).unwrap_or_default();
    let networks = match data.networks {
        Networks::Real => " --networks real",
        Networks::Completed => " --networks completed",
        Networks::None => "",
    };
    let labels = match data.labels {
        LabelSource::Random => "",
        LabelSource::Planted => " --labels planted",
    };
    let files = if data.files == 1 { String::new() } else { format!(" --files {}", data.files) };
    let genes = match data.genes {
        0 => format!("--scale {}", data.scale),
        genes => format!("--genes {genes}"),
    };
    let Data { set, samples, seed, .. } = data;
    format!("expctl data {verb} {set}{to} --samples {samples} {genes}{networks} --seed {seed}{labels}{files}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_problem_says_the_command_that_helps() {
        let data = Data {
            set: "study".to_owned(),
            samples: 9,
            scale: 0.5,
            networks: Networks::Real,
            seed: 3,
            labels: LabelSource::Random,
            files: 1,
            genes: 0,
        };
        let folder = Path::new("/data/set");
        let advised = |problem: PipelineError| problem.advise(folder, &data).to_string();
        let options = "--samples 9 --scale 0.5 --networks real --seed 3";
        assert_eq!(
            advised(PipelineError::NotBuilt { path: folder.to_owned() }),
            format!("data set /data/set has not been built; `expctl data build study {options}` builds it")
        );
        assert_eq!(
            advised(PipelineError::damaged(&folder.join("genes.txt"), "short")),
            format!("/data/set/genes.txt: short; `expctl data verify study {options}` checks the whole data set")
        );
        for name in ["ids", "ids.partial"] {
            let store = folder.join(STORES_FOLDER).join(name).join("lmdb");
            assert_eq!(
                advised(PipelineError::Record { store, index: 7, reason: "bad".to_owned() }),
                format!(
                    "record 7 of /data/set/stores/{name}/lmdb: bad; remove /data/set/stores/{name} and run `expctl data \
                     convert study --to ids {options}`"
                )
            );
        }
        let array = Data { networks: Networks::None, scale: 1.0, genes: 60_000, files: 2, ..data.clone() };
        assert_eq!(
            command("build", &array, None),
            "expctl data build study --samples 9 --genes 60000 --seed 3 --files 2"
        );
        let elsewhere = PipelineError::damaged(Path::new("/other"), "short").advise(folder, &data);
        assert_eq!((elsewhere.to_string(), elsewhere.advice()), ("/other: short".to_owned(), None));
    }
}
