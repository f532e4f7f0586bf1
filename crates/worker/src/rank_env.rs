use std::str::FromStr;

/// Which rank this process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankEnv {
    /// Rank over all nodes.
    pub rank: u32,
    /// Rank on this node.
    pub local_rank: u32,
    /// Number of ranks.
    pub world_size: u32,
}

/// Why the environment does not say which rank this is.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RankEnvError {
    /// Neither variable is set.
    #[error("neither {0} nor {1} is set: start ranks with `expctl submit`, srun or torchrun")]
    Missing(&'static str, &'static str),
    /// A variable is not a number.
    #[error("{0}={1} is not a number")]
    NotANumber(&'static str, String),
    /// More ranks or fewer than the trial has.
    #[error("the environment says {found} ranks, the trial has {expected}")]
    WorldSize {
        /// In the environment.
        found: u32,
        /// In the trial.
        expected: u32,
    },
    /// The rank lies outside.
    #[error("rank {rank} does not exist among {world_size}")]
    OutOfRange {
        /// This rank.
        rank: u32,
        /// Number of ranks.
        world_size: u32,
    },
}

impl RankEnv {
    /// From RANK, LOCAL_RANK, WORLD_SIZE or, where those are not set, Slurm's SLURM_PROCID, SLURM_LOCALID, SLURM_NTASKS.
    pub fn read(get: impl Fn(&str) -> Option<String>, expected_ranks: u32) -> Result<Self, RankEnvError> {
        let number = |plain: &'static str, slurm: &'static str| {
            let (name, text) = get(plain)
                .map(|v| (plain, v))
                .or_else(|| get(slurm).map(|v| (slurm, v)))
                .ok_or(RankEnvError::Missing(plain, slurm))?;
            u32::from_str(text.trim()).map_err(|_| RankEnvError::NotANumber(name, text))
        };
        let rank = number("RANK", "SLURM_PROCID")?;
        let world_size = number("WORLD_SIZE", "SLURM_NTASKS")?;
        let local_rank = number("LOCAL_RANK", "SLURM_LOCALID")?;
        if world_size != expected_ranks {
            return Err(RankEnvError::WorldSize { found: world_size, expected: expected_ranks });
        }
        if rank >= world_size {
            return Err(RankEnvError::OutOfRange { rank, world_size });
        }
        Ok(Self { rank, local_rank, world_size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(set: &[(&str, &str)], expected: u32) -> Result<RankEnv, RankEnvError> {
        RankEnv::read(|k| set.iter().find(|(n, _)| *n == k).map(|(_, v)| (*v).to_owned()), expected)
    }

    #[test]
    fn plain_names_come_before_slurms() {
        let slurm = [("SLURM_PROCID", "3"), ("SLURM_LOCALID", "1"), ("SLURM_NTASKS", "4")];
        assert_eq!(read(&slurm, 4), Ok(RankEnv { rank: 3, local_rank: 1, world_size: 4 }));
        let both = [&slurm[..], &[("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "2")]].concat();
        assert_eq!(read(&both, 2), Ok(RankEnv { rank: 0, local_rank: 0, world_size: 2 }));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let message = |set: &[(&str, &str)], expected| read(set, expected).unwrap_err().to_string();
        assert!(message(&[], 1).contains("RANK nor SLURM_PROCID"));
        let set = [("RANK", "1"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "2")];
        assert_eq!(message(&set, 4), "the environment says 2 ranks, the trial has 4");
        assert!(message(&[("RANK", "x")], 1).contains("RANK=x"));
    }
}
