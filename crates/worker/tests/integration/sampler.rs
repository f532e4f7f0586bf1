//! The sampler's order is PyTorch's, bit for bit: compared with libtorch's own `randperm`.

use graph_loader::DistributedSampler;
use tch::{Device, Kind, Tensor};

use crate::support::generator;

#[test]
fn the_shuffle_is_libtorchs_randperm() {
    let _alone = generator();
    for (len, seed, epoch) in
        [(1, 0, 0), (2, 1, 3), (1000, 42, 0), (10_000, 42, 7), (332_313, 42, 1), (7, (1 << 32) + 5, 0)]
    {
        tch::manual_seed(seed as i64 + epoch as i64);
        let expected: Vec<i64> = Tensor::randperm(len as i64, (Kind::Int64, Device::Cpu)).try_into().unwrap();
        let sampler = DistributedSampler { len, world_size: 1, rank: 0, shuffle: true, seed, drop_last: false };
        let order: Vec<i64> = sampler.epoch(epoch).into_iter().map(|i| i as i64).collect();
        assert!(
            order == expected,
            "len {len}, seed {seed}, epoch {epoch}: {:?}… {:?}…",
            &order[..order.len().min(5)],
            &expected[..order.len().min(5)]
        );
    }
}
