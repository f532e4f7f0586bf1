//! An emulated accelerator: how long its steps take.

use expctl_settings_derive::Words;
use serde::{Deserialize, Serialize};

use crate::{Mode, SettingValue, Trial, ValueType};

/// A published workload whose step time an emulated accelerator has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Words)]
pub enum AcceleratorPreset {
    /// None.
    #[default]
    #[word(not_listed)]
    None,
    /// 3D U-Net on an NVIDIA H100, in batches of 7.
    Unet3dH100,
    /// 3D U-Net on an NVIDIA A100, in batches of 7.
    Unet3dA100,
    /// ResNet-50 on an NVIDIA H100, in batches of 400.
    Resnet50H100,
    /// ResNet-50 on an NVIDIA A100, in batches of 400.
    Resnet50A100,
    /// CosmoFlow on an NVIDIA H100, one sample at a time.
    CosmoflowH100,
    /// CosmoFlow on an NVIDIA A100, one sample at a time.
    CosmoflowA100,
}

/// The step of a published workload on one accelerator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublishedStep {
    /// Time of a step, ms.
    pub ms: f64,
    /// Samples of a step.
    pub batch_size: u64,
    /// Where both stand.
    pub source: &'static str,
}

impl AcceleratorPreset {
    /// The published step; `None` without a preset.
    pub const fn published(self) -> Option<PublishedStep> {
        let (ms, batch_size, source) = match self {
            Self::None => return None,
            Self::Unet3dH100 => (323.0, 7, "MLPerf Storage, dlio_benchmark/configs/workload/unet3d_h100.yaml"),
            Self::Unet3dA100 => (636.0, 7, "MLPerf Storage, configs/dlio/workload/unet3d_a100.yaml"),
            Self::Resnet50H100 => (224.0, 400, "MLPerf Storage, configs/dlio/workload/resnet50_h100.yaml"),
            Self::Resnet50A100 => (435.0, 400, "MLPerf Storage, configs/dlio/workload/resnet50_a100.yaml"),
            Self::CosmoflowH100 => (3.5, 1, "MLPerf Storage, configs/dlio/workload/cosmoflow_h100.yaml"),
            Self::CosmoflowA100 => (5.51, 1, "MLPerf Storage, configs/dlio/workload/cosmoflow_a100.yaml"),
        };
        Some(PublishedStep { ms, batch_size, source })
    }
}

/// Times of steps in milliseconds: one for all steps, or several in turn. One time is a number in configs and records, several are an array.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "OneOrMore", into = "OneOrMore")]
pub struct StepMs(pub Vec<f64>);

impl StepMs {
    /// No time.
    pub const NONE: Self = Self(Vec::new());
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(f64),
    More(Vec<f64>),
}

impl From<OneOrMore> for StepMs {
    fn from(times: OneOrMore) -> Self {
        match times {
            OneOrMore::One(ms) => Self(vec![ms]),
            OneOrMore::More(all) => Self(all),
        }
    }
}

impl From<StepMs> for OneOrMore {
    fn from(StepMs(all): StepMs) -> Self {
        match all.as_slice() {
            [ms] => Self::One(*ms),
            _ => Self::More(all),
        }
    }
}

impl SettingValue for StepMs {
    const TYPE: ValueType = ValueType::Numbers { min: f64::MIN, max: f64::MAX };
}

/// Times of the steps of an emulated accelerator.
#[derive(Clone, Debug, PartialEq)]
pub enum EmulatedStepTimes {
    /// These times in turn, ms, on every rank; step 0 has the first.
    InTurn(Vec<f64>),
    /// One of these times, ms, for each step of each rank: drawn with replacement.
    Drawn {
        /// The times.
        ms: Vec<f64>,
        /// Seed of the draw.
        seed: u64,
    },
}

impl EmulatedStepTimes {
    /// The times that a trial asks for; `None` where its steps are not emulated.
    pub fn from_trial(trial: &Trial) -> Option<Self> {
        let settings = &trial.settings;
        (settings.train.mode == Mode::Emulate).then(|| match trial.recorded_step_ms.as_slice() {
            [] => Self::InTurn(settings.train.step_ms.0.clone()),
            recorded => Self::Drawn { ms: recorded.to_vec(), seed: settings.loader.seed },
        })
    }

    /// The time of a step of a rank, ns. It depends on nothing but these times, the seed, the rank and the step. 0 without any time.
    pub fn ns(&self, rank: u32, step: u64) -> u64 {
        let (ms, index) = match self {
            Self::InTurn(ms) => (ms, step.checked_rem(ms.len() as u64)),
            Self::Drawn { ms, seed } => (ms, Some(below(random_word(*seed, rank, step), ms.len() as u64))),
        };
        let ms = index.and_then(|index| ms.get(index as usize)).copied().unwrap_or(0.0);
        (ms * 1e6).round() as u64
    }

    /// Mean of the times, ms; 0 without any.
    pub fn mean_ms(&self) -> f64 {
        let (Self::InTurn(ms) | Self::Drawn { ms, .. }) = self;
        if ms.is_empty() { 0.0 } else { ms.iter().sum::<f64>() / ms.len() as f64 }
    }
}

/// Uniform in `0..n`, from a random word.
fn below(word: u64, n: u64) -> u64 {
    ((u128::from(word) * u128::from(n)) >> 64) as u64
}

/// A random word for a step of a rank.
fn random_word(seed: u64, rank: u32, step: u64) -> u64 {
    mixed(mixed(mixed(seed).wrapping_add(u64::from(rank))).wrapping_add(step))
}

/// SplitMix64 (Steele, Lea and Flood, *Fast splittable pseudorandom number generators*, OOPSLA 2014): one step of the generator from `state`.
fn mixed(state: u64) -> u64 {
    let mut word = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_in_turn_on_every_rank() {
        let times = EmulatedStepTimes::InTurn(vec![50.0, 0.5]);
        assert_eq!([0, 1, 2, 3].map(|step| times.ns(7, step)), [50_000_000, 500_000, 50_000_000, 500_000]);
        assert_eq!(
            (EmulatedStepTimes::InTurn(Vec::new()).ns(0, 3), EmulatedStepTimes::InTurn(Vec::new()).mean_ms()),
            (0, 0.0)
        );
    }

    #[test]
    fn drawn_times_repeat_and_have_the_frequencies_of_the_record() {
        let times = |seed| EmulatedStepTimes::Drawn { ms: vec![10.0, 10.0, 10.0, 30.0], seed };
        let drawn = |seed, rank| (0..4000).map(|step| times(seed).ns(rank, step)).collect::<Vec<_>>();
        assert_eq!(drawn(1, 0), drawn(1, 0));
        assert!(drawn(1, 0) != drawn(1, 1) && drawn(1, 0) != drawn(2, 0));
        for rank in 0..8 {
            // A quarter of 4000 with a standard deviation of 27; 160 is six of them.
            let long = drawn(1, rank).into_iter().filter(|ns| *ns == 30_000_000).count();
            assert!(long.abs_diff(1000) < 160, "{rank}: {long}");
        }
        assert_eq!(times(1).mean_ms(), 15.0);
        // The generator of the publication, from state 0.
        assert_eq!(mixed(0), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn one_time_is_a_number() {
        for (times, text) in [(vec![60.0], "60.0"), (vec![50.0, 70.0], "[50.0,70.0]"), (vec![], "[]")] {
            assert_eq!(serde_json::to_string(&StepMs(times.clone())).unwrap(), text);
            assert_eq!(serde_json::from_str::<StepMs>(text).unwrap(), StepMs(times));
        }
    }
}
