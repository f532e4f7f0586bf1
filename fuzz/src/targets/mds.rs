//! Damage to MDS shards: the index as bytes or as JSON, a shard, or what is in a compressed shard, which is then compressed once more
//! with the index made to fit.

use std::fs;
use std::path::Path;

use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use serde_json::Value;

use crate::Outcome;
use crate::damage::{copy, damaged};

/// Name of the index.
const INDEX: &str = "index.json";

/// One file of a folder of shards is damaged, or one shard and its entry in the index.
pub fn damage(seed: &Path, case: &Path, rng: &mut Pcg64Mcg) -> Outcome<()> {
    copy(seed, case)?;
    let text = fs::read(seed.join(INDEX))?;
    let mut index: Value = serde_json::from_slice(&text)?;
    let shards = index["shards"].as_array().map_or(0, Vec::len);
    let shard = rng.random_range(0..shards.max(1));
    let entry = &mut index["shards"][shard];
    let zip = entry["zip_data"]["basename"].as_str().map(str::to_owned);
    let raw = entry["raw_data"]["basename"].as_str().map(str::to_owned);
    let name = zip.clone().or(raw).ok_or("a shard without a name")?;
    let bytes = fs::read(seed.join(&name))?;
    match rng.random_range(0..10) {
        0..2 => fs::write(case.join(INDEX), damaged(&text, rng))?,
        2..5 => {
            for _ in 0..rng.random_range(1..=3) {
                change(&mut index, rng);
            }
            fs::write(case.join(INDEX), index.to_string())?;
        }
        5..8 if zip.is_some() && entry["compression"].as_str().is_some_and(|name| name.starts_with("zstd")) => {
            let raw = damaged(&zstd::decode_all(&bytes[..])?, rng);
            let packed = zstd::bulk::compress(&raw, 1)?;
            for (key, len) in [("raw_data", raw.len()), ("zip_data", packed.len())] {
                entry[key]["bytes"] = len.into();
                entry[key]["hashes"] = serde_json::json!({});
            }
            fs::write(case.join(INDEX), index.to_string())?;
            fs::write(case.join(name), packed)?;
        }
        _ => fs::write(case.join(name), damaged(&bytes, rng))?,
    }
    Ok(())
}

/// Changes one value somewhere in JSON.
fn change(value: &mut Value, rng: &mut Pcg64Mcg) {
    const NUMBERS: [u64; 12] = [0, 1, 2, 3, 7, 255, 65_536, 0x7fff_ffff, 0xffff_ffff, 1 << 32, 1 << 40, u64::MAX];
    const TEXTS: [&str; 16] = [
        "zstd",
        "gz",
        "snappy",
        "br",
        "mds",
        "x",
        "indices",
        "values",
        "ndarray",
        "ndarray:int8",
        "ndarray:float64",
        "ndarray:uint16:3",
        "bytes",
        "str",
        "int",
        "../x",
    ];
    let deeper = rng.random_range(0..12) > 0;
    match value {
        Value::Object(map) if deeper && !map.is_empty() => {
            let at = rng.random_range(0..map.len());
            if rng.random_range(0..30) == 0 {
                let key = map.keys().nth(at).cloned().unwrap_or_default();
                map.remove(&key);
            } else if let Some(inner) = map.values_mut().nth(at) {
                change(inner, rng);
            }
        }
        Value::Array(list) if deeper && !list.is_empty() => {
            let at = rng.random_range(0..list.len());
            match rng.random_range(0..20) {
                0 => drop(list.remove(at)),
                1 => list.push(list[at].clone()),
                _ => change(&mut list[at], rng),
            }
        }
        Value::Number(number) if rng.random_range(0..3) > 0 => {
            let near = number.as_u64().unwrap_or(0).wrapping_add_signed(rng.random_range(-9..=9));
            *value = near.into();
        }
        other => {
            *other = match rng.random_range(0..6) {
                0 => Value::Null,
                1 => (-1).into(),
                2 | 3 => TEXTS[rng.random_range(0..TEXTS.len())].into(),
                _ => NUMBERS[rng.random_range(0..NUMBERS.len())].into(),
            }
        }
    }
}
