//! `ArrayRecipe`: the `dataset.toml` of an array, which has the parameters of `CountModel`.
//! Invariant: parameters are checked when the recipe is read; its digest covers all that the rows of a data set depend on.

use std::path::{Path, PathBuf};

use expctl_settings::{ArrayFormat, Data};
use serde::Deserialize;

use crate::array::build::row_bytes;
use crate::array::convert_file::max_bytes;
use crate::array::dataset::ARRAY_SCHEMA;
use crate::manifest::{Family, recipe_text};
use crate::{Damage, DatasetError, RequestError};

/// `experiments/<set>/dataset.toml` of an array: how its counts are drawn.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrayRecipe {
    /// `array`.
    pub family: Family,
    /// One line.
    pub title: String,
    /// Rows where none are asked for.
    pub rows: u64,
    /// Genes at scale 1.
    pub genes: u64,
    /// Share of the values that are not 0, on average.
    pub density: f64,
    /// Shape of the gamma distribution behind each gene's counts in a cell of average size; smaller is more spread.
    pub dispersion_shape: f64,
    /// Standard deviation of the logarithm of a gene's mean count.
    pub gene_log_sd: f64,
    /// Standard deviation of the logarithm of a cell's size.
    pub cell_log_sd: f64,
    /// The cell types.
    pub cell_types: CellTypes,
    /// The donors.
    pub donors: Donors,
    /// What the donors' samples were treated with, in a recipe of a screen.
    pub treatments: Option<Treatments>,
    /// Folder of the recipe.
    #[serde(skip)]
    pub folder: PathBuf,
}

/// Types of cells, which differ in some genes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellTypes {
    /// Column of obs that has them. The last word of its name is the first of theirs: `cell_line` has `line_00` and so on.
    #[serde(default = "CellTypes::default_column")]
    pub column: String,
    /// Number of them.
    pub count: u32,
    /// The n-th of them is drawn in proportion to n to the power of minus this.
    pub skew: f64,
    /// Share of the genes that are another in a type than in all others.
    pub markers: f64,
    /// Standard deviation of the logarithm of the factor by which a marker gene differs.
    pub marker_log_sd: f64,
}

/// Donors, each of whom was sequenced to a depth of its own and has cells of other types than the others.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Donors {
    /// Column of obs that has them, as in [`CellTypes::column`].
    #[serde(default = "Donors::default_column")]
    pub column: String,
    /// Number of them.
    pub count: u32,
    /// Rows of a donor that come one after the other; then the next donor has as many, and after the last one the first again.
    pub run_rows: u64,
    /// Standard deviation of the logarithm of the factor by which a type is more frequent in a donor than in all.
    pub type_log_sd: f64,
    /// Standard deviation of the logarithm of a donor's depth.
    pub log_sd: f64,
    /// Share of the cells whose donor's age is not known.
    pub age_missing: f64,
}

/// Samples of a donor, each treated with a drug: columns `sample` and `drug` of obs, in place of `age`.
///
/// They are names alone. The counts of a row do not depend on them.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Treatments {
    /// Samples of each donor. The rows of a donor that come one after the other are of its samples in turn, as many rows of each.
    pub samples: u32,
    /// Drugs. The samples of all donors get them in turn, the first one again after the last.
    pub drugs: u32,
}

impl CellTypes {
    fn default_column() -> String {
        "cell_type".to_owned()
    }
}

impl Donors {
    fn default_column() -> String {
        "donor".to_owned()
    }
}

impl Treatments {
    /// The sample of the row that is the `n`-th of `run_rows` rows of a donor, counted over the samples of all donors.
    pub fn sample_of(&self, donor: u32, n: u64, run_rows: u64) -> u32 {
        let of_donor = u128::from(n) * u128::from(self.samples) / u128::from(run_rows.max(1));
        donor * self.samples + of_donor as u32
    }

    /// The drug of a sample.
    pub const fn drug_of(&self, sample: u32) -> u32 {
        sample % self.drugs
    }
}

impl ArrayRecipe {
    /// Read the recipe in `folder`.
    ///
    /// # Errors
    /// The recipe cannot be read, or is of another family.
    pub fn load(folder: &Path) -> Result<Self, DatasetError> {
        let (path, text) = recipe_text(folder, Family::Array)?;
        let mut recipe: Self = toml::from_str(&text).map_err(|e| DatasetError::damaged(&path, e))?;
        recipe.folder = folder.to_owned();
        recipe.check_values(&path)?;
        Ok(recipe)
    }

    /// Check that rows can be drawn with these numbers, which are of the file `path`.
    fn check_values(&self, path: &Path) -> Result<(), DatasetError> {
        let CellTypes { count, skew, markers, marker_log_sd, .. } = self.cell_types;
        let donors = &self.donors;
        let treatments = self.treatments.unwrap_or(Treatments { samples: 1, drugs: 1 });
        let is_count = |count: u32| (1..=127).contains(&count);
        let is_class = |count: u32| (1..=10_000).contains(&count);
        let is_share = |value: f64| (0.0..=1.0).contains(&value);
        let is_spread = |value: f64| (0.0..=5.0).contains(&value);
        let (share, spread) = ("a share in [0, 1]", "between 0 and 5");
        let shape = self.dispersion_shape;
        let values = [
            ("cell_types.count", "between 1 and 127", f64::from(count), is_count(count)),
            ("donors.count", "between 1 and 127", f64::from(donors.count), is_count(donors.count)),
            ("treatments.samples", "between 1 and 10000", f64::from(treatments.samples), is_class(treatments.samples)),
            ("treatments.drugs", "between 1 and 10000", f64::from(treatments.drugs), is_class(treatments.drugs)),
            ("genes", "between 1 and 2147483647", self.genes as f64, (1..=i32::MAX as u64).contains(&self.genes)),
            ("density", "a share in (0, 0.9]", self.density, self.density > 0.0 && self.density <= 0.9),
            ("dispersion_shape", "between 0.01 and 1000", shape, (0.01..=1000.0).contains(&shape)),
            ("donors.run_rows", "at least 1", donors.run_rows as f64, donors.run_rows > 0),
            ("cell_types.markers", share, markers, is_share(markers)),
            ("donors.age_missing", share, donors.age_missing, is_share(donors.age_missing)),
            ("gene_log_sd", spread, self.gene_log_sd, is_spread(self.gene_log_sd)),
            ("cell_log_sd", spread, self.cell_log_sd, is_spread(self.cell_log_sd)),
            ("cell_types.skew", spread, skew, is_spread(skew)),
            ("cell_types.marker_log_sd", spread, marker_log_sd, is_spread(marker_log_sd)),
            ("donors.type_log_sd", spread, donors.type_log_sd, is_spread(donors.type_log_sd)),
            ("donors.log_sd", spread, donors.log_sd, is_spread(donors.log_sd)),
        ];
        match values.into_iter().find(|(.., is_possible)| !is_possible) {
            None => Ok(()),
            Some((field, range, value, _)) => {
                Err(DatasetError::damaged(path, Damage::RecipeValue { field, range, value }))
            }
        }
    }

    /// Name of the data set: that of its folder.
    pub fn name(&self) -> String {
        self.folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Genes of a data set: as many as `data` names, or its share of the recipe's.
    pub fn genes_of(&self, data: &Data) -> u64 {
        match data.genes {
            0 => ((self.genes as f64 * data.scale).round() as u64).max(1),
            genes => genes,
        }
    }

    /// Share of the values of a data set that are not 0, on average. Genes beyond those of the recipe are rare ones: a row has as many
    /// values as with the recipe's genes, and their share falls.
    pub fn density_of(&self, data: &Data) -> f64 {
        self.density * (self.genes as f64 / self.genes_of(data) as f64).min(1.0)
    }

    /// Check that `data` can be built from this recipe.
    ///
    /// # Errors
    /// The first thing that cannot be made.
    pub fn check(&self, data: &Data) -> Result<(), RequestError> {
        let Data { samples: rows, genes, scale, .. } = *data;
        if rows == 0 {
            return Err(RequestError::NoRows { set: self.name() });
        }
        if !(scale > 0.0 && scale <= 1.0) {
            return Err(RequestError::Scale { scale });
        }
        if genes > i32::MAX as u64 {
            return Err(RequestError::GeneCount { genes });
        }
        if genes > 0 && scale != 1.0 {
            return Err(RequestError::GenesAndScale { genes, scale });
        }
        let files = u64::from(data.files);
        if files == 0 || files > rows { Err(RequestError::FileCount { rows, files }) } else { Ok(()) }
    }

    /// blake3 over the recipe and over `data`: all that a built data set depends on.
    ///
    /// # Errors
    /// The recipe cannot be read.
    pub fn digest(&self, data: &Data) -> Result<String, DatasetError> {
        let (_, text) = recipe_text(&self.folder, Family::Array)?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
        hasher.update(&ARRAY_SCHEMA.to_le_bytes()).update(data.folder_name().as_bytes());
        Ok(hasher.finalize().to_hex().to_string())
    }
}

/// Bytes that the files of a format of an array data set will take on disk, from its recipe alone: of the base files (`h5ad`) about, of
/// others at most, about, because what compression saves is not known.
pub fn expected_bytes(recipe: &ArrayRecipe, data: &Data, format: ArrayFormat) -> u64 {
    if format == ArrayFormat::H5ad {
        return data.samples.saturating_mul(row_bytes(recipe, data));
    }
    let genes = recipe.genes_of(data);
    let values = data.samples as f64 * genes as f64 * recipe.density_of(data);
    max_bytes(format, data.samples, genes, values as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expctl_settings::{LabelSource, Networks};

    #[test]
    fn sizes_follow_from_counts() {
        let recipe = ArrayRecipe::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/arrayloader"));
        let recipe = recipe.unwrap();
        let data = |samples: u64| Data {
            set: "arrayloader".to_owned(),
            samples,
            scale: 1.0,
            networks: Networks::None,
            seed: 7,
            labels: LabelSource::Random,
            files: 1,
            genes: 0,
        };
        let of = |format: ArrayFormat, rows: u64| expected_bytes(&recipe, &data(rows), format) as f64;
        // A float32 of every gene; a float32 and an int32 of every value.
        let dense = of(ArrayFormat::H5adDense, 1_000_000) / (1e6 * recipe.genes as f64 * 4.0);
        let sparse = of(ArrayFormat::H5ad, 1_000_000) / (1e6 * recipe.genes as f64 * recipe.density * 8.0);
        assert!((1.0..1.05).contains(&dense) && (1.0..1.05).contains(&sparse), "{dense} {sparse}");
        assert_eq!(expected_bytes(&recipe, &data(u64::MAX), ArrayFormat::H5adDense), u64::MAX);
    }
}
