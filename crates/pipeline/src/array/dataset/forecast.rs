use expctl_record::{ArrayFormat, Data};

use super::ArrayRecipe;
use super::build::row_bytes;
use super::convert_file::most_bytes;

/// Bytes that the files of a format of an array data set will take on disk, from its recipe alone: of the base files (`h5ad`) about, of
/// others at most, about, because what compression saves is not known.
pub fn expected_bytes(recipe: &ArrayRecipe, data: &Data, format: ArrayFormat) -> u64 {
    if format == ArrayFormat::H5ad {
        return data.samples.saturating_mul(row_bytes(recipe, data));
    }
    let genes = recipe.genes_of(data);
    let values = data.samples as f64 * genes as f64 * recipe.density_of(data);
    most_bytes(format, data.samples, genes, values as u64)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use expctl_record::{LabelSource, Networks};

    use super::*;

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
