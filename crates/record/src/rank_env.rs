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
    /// No variables are set.
    #[error("neither RANK and WORLD_SIZE nor SLURM_PROCID and SLURM_NTASKS are set: start ranks with `expctl submit`")]
    Missing,
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
    /// From RANK and WORLD_SIZE, if both are set, else from Slurm's SLURM_PROCID and SLURM_NTASKS: one that was left over in
    /// the user's shell must not mix with the other kind. LOCAL_RANK or SLURM_LOCALID is 0 where it is not set.
    pub fn read(get: impl Fn(&str) -> Option<String>, expected_ranks: u32) -> Result<Self, RankEnvError> {
        let number = |name: &'static str| {
            get(name)
                .map(|text| u32::from_str(text.trim()).map_err(|_| RankEnvError::NotANumber(name, text)))
                .transpose()
        };
        let kind = |rank, world, local| -> Result<Option<(u32, u32, u32)>, RankEnvError> {
            match (number(rank)?, number(world)?) {
                (Some(r), Some(w)) => Ok(Some((r, w, number(local)?.unwrap_or(0)))),
                _ => Ok(None),
            }
        };
        let (rank, world_size, local_rank) = match kind("RANK", "WORLD_SIZE", "LOCAL_RANK")? {
            Some(plain) => plain,
            None => kind("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID")?.ok_or(RankEnvError::Missing)?,
        };
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
        // A RANK alone is left over from something else.
        let stale = [&slurm[..], &[("RANK", "0")]].concat();
        assert_eq!(read(&stale, 4), Ok(RankEnv { rank: 3, local_rank: 1, world_size: 4 }));
        let both = [&slurm[..], &[("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "2")]].concat();
        assert_eq!(read(&both, 2), Ok(RankEnv { rank: 0, local_rank: 0, world_size: 2 }));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let message = |set: &[(&str, &str)], expected| read(set, expected).unwrap_err().to_string();
        assert!(message(&[], 1).contains("neither RANK and WORLD_SIZE nor"));
        let set = [("RANK", "1"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "2")];
        assert_eq!(message(&set, 4), "the environment says 2 ranks, the trial has 4");
        assert!(message(&[("RANK", "x"), ("WORLD_SIZE", "1")], 1).contains("RANK=x"));
    }
}
