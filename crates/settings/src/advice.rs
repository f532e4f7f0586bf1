//! What a user can do about a problem, in the words of the command line and of configs.

use std::fmt::{self, Display};
use std::path::PathBuf;

use crate::{Array, ArrayFormat, Data, Draw, LabelSource, Launch, Networks, Pipeline, Sampler, StoreKind};

/// What a user can do about a problem. Libraries say which; the words are here alone, where keys and their values have theirs.
#[derive(Clone, Debug, PartialEq)]
pub enum Advice {
    /// Build the data set.
    Build(Data),
    /// Make a store, or files of another format, from the base of the data set.
    Convert(Data, Converted),
    /// Remove a store, or the files of a format, and make it again.
    ConvertAgain {
        /// Its folder.
        remove: PathBuf,
        /// Its data set.
        data: Data,
        /// What it is.
        to: Converted,
        /// Number of files to make; `None` makes as many as the data set has.
        file_count: Option<u32>,
    },
    /// Check the whole data set.
    Verify(Data),
    /// Remove a folder and build it again.
    BuildAgain(PathBuf),
    /// Remove the file or folder.
    Remove,
    /// Start again: what was damaged has been removed.
    StartAgain,
    /// Keep the cache of remote files in a folder of one's own.
    OwnCache,
    /// Take less memory for rows.
    ReadLess,
    /// Draw by the classes of a column, and not by its values.
    DrawBalanced,
    /// Take less memory for masks of single genes, or allow more.
    SmallerGeneMasks,
}

/// What a data set can be converted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Converted {
    /// A store of the records of a graph.
    Store(StoreKind),
    /// Files of the rows of an array.
    Files(ArrayFormat),
}

impl Converted {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Store(kind) => kind.name(),
            Self::Files(format) => format.name(),
        }
    }
}

impl Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let command = |verb, data, to: Option<Converted>| data_command(verb, data, to.map(Converted::name));
        match self {
            Self::Build(data) => write!(f, "`{}` builds it", command("build", data, None)),
            Self::Convert(data, to) => write!(f, "`{}` makes it", command("convert", data, Some(*to))),
            Self::ConvertAgain { remove, data, to, file_count } => {
                write!(f, "remove {} and run `{}", remove.display(), command("convert", data, Some(*to)))?;
                match file_count {
                    Some(count) => write!(f, " --file-count {count}`"),
                    None => f.write_str("`"),
                }
            }
            Self::Verify(data) => write!(f, "`{}` checks the whole data set", command("verify", data, None)),
            Self::BuildAgain(folder) => write!(f, "remove {} and build it again", folder.display()),
            Self::Remove => f.write_str("remove it"),
            Self::StartAgain => f.write_str("it was removed, and the next run makes it anew"),
            Self::OwnCache => write!(f, "set {} to an own folder", Array::CACHE_DIR),
            Self::ReadLess => write!(
                f,
                "leave `{}` out, or read fewer files; all genes are read, whatever `{}` chooses",
                Array::MEMORY,
                Array::GENES
            ),
            Self::DrawBalanced => write!(
                f,
                "it has classes: with {} = \"{}\" each of them comes alike often",
                Sampler::DRAW,
                Draw::Balanced.name()
            ),
            Self::SmallerGeneMasks => write!(
                f,
                "set {} higher where there is memory, or {} lower, take fewer edge types, or leave {} out",
                Pipeline::GENE_MASKS_MIB,
                Launch::RANKS,
                Pipeline::MASK_SOURCE
            ),
        }
    }
}

/// `expctl data VERB` for a data set, as a user types it; `to` is what it is converted to.
fn data_command(verb: &str, data: &Data, to: Option<&str>) -> String {
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

    fn data() -> Data {
        Data {
            set: "study".to_owned(),
            samples: 9,
            scale: 0.5,
            networks: Networks::Real,
            seed: 3,
            labels: LabelSource::Random,
            files: 1,
            genes: 0,
        }
    }

    #[test]
    fn a_command_has_the_options_of_the_data_set() {
        let options = "--samples 9 --scale 0.5 --networks real --seed 3";
        assert_eq!(Advice::Build(data()).to_string(), format!("`expctl data build study {options}` builds it"));
        let verify = Advice::Verify(Data { labels: LabelSource::Planted, ..data() }).to_string();
        assert_eq!(verify, format!("`expctl data verify study {options} --labels planted` checks the whole data set"));
        let to = Converted::Files(ArrayFormat::Parquet);
        let data = Data { networks: Networks::None, scale: 1.0, genes: 60_000, files: 2, ..data() };
        let again = Advice::ConvertAgain { remove: "/data/x".into(), data, to, file_count: Some(5) };
        let options = "--samples 9 --genes 60000 --seed 3 --files 2";
        assert_eq!(
            again.to_string(),
            format!("remove /data/x and run `expctl data convert study --to parquet {options} --file-count 5`")
        );
    }

    #[test]
    fn settings_are_named_by_their_keys() {
        assert_eq!(
            Advice::DrawBalanced.to_string(),
            "it has classes: with sampler.draw = \"balanced\" each of them comes alike often"
        );
        let memory = Advice::ReadLess.to_string();
        assert!(memory.starts_with("leave `array.memory` out") && memory.contains("`array.genes` chooses"), "{memory}");
    }
}
