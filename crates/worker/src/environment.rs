use expctl_dist::{DistError, Store};
use expctl_record::{Environment, Hardware, RankEnv, hardware, share_gpus, variables};

/// Put this rank's hardware into the store; rank 0 returns the environment of all.
pub fn gather(store: &Store, env: RankEnv, threads: u32) -> Result<Option<Environment>, DistError> {
    let text = serde_json::to_vec(&hardware(env.local_rank == 0)).unwrap_or_default();
    store.set(&key(env.rank), &text)?;
    if env.rank != 0 {
        return Ok(None);
    }
    let mut ranks = (0..env.world_size)
        .map(|rank| store.get(&key(rank)).map(|text| serde_json::from_slice(&text).unwrap_or_default()))
        .collect::<Result<Vec<Hardware>, _>>()?;
    share_gpus(&mut ranks);
    Ok(Some(Environment {
        worker_version: env!("CARGO_PKG_VERSION").to_owned(),
        libtorch_version: expctl_dist::libtorch_version(),
        libtorch_file: expctl_dist::libtorch_file(),
        device: "cpu".to_owned(),
        backend: "gloo".to_owned(),
        threads,
        ranks,
        variables: variables(),
        program: None,
    }))
}

fn key(rank: u32) -> String {
    format!("hardware/{rank}")
}
