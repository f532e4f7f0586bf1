//! A small DANGO is trained by two and three ranks: averaged gradients, gathered predictions, restored states.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use expctl_ledger::Stage;
use expctl_rounding::{assert_rounding, distance, floor};
use expctl_settings::{Implementation, LocalHead, Model};
use expctl_worker::Activity;
use expctl_worker::metrics::gather_predictions;
use expctl_worker::models::StepContext;
use expctl_worker::trainer::Trainer;
use graph_loader::Batch;
use serde_json::{Value, json};
use tch::Tensor;
use torch_dist::{ProcessGroup, Store};

use crate::rank_processes::{LIMIT, RankEntry, RankProcess, Role, serve_store};
use crate::support::{self, batch, doubles, nudge, order_buckets, parameters, step, trainer};

const RANKS: RankEntry = RankEntry("trainer_ranks::rank_entry");

/// Samples of a whole step.
const BATCH: i64 = 8;

#[test]
#[ignore = "entry of the ranks that the tests start"]
fn rank_entry() {
    let role = Role::from_env();
    let (store, group) = role.connect();
    let trainer = match role.scenario.as_str() {
        "gather" => return gather_uneven(&role, &group),
        "waits" => return waits_for_predictions(&role, &group),
        "accumulated" => steps(&role, &group, json!({"accumulation": ["0:3"]}), 6),
        "clipped" => steps(&role, &group, json!({"clip_norm": 0.1}), 6),
        "mse" => steps(&role, &group, json!({}), 4),
        "off" => steps(&role, &group, sinkhorn("off"), 4),
        "joined" => steps(&role, &group, sinkhorn("joined"), 4),
        "detached" => steps(&role, &group, sinkhorn("detached"), 4),
        "lazy_replicated" => lazy(&role, &group, Implementation::Replicated),
        "lazy_shared" => lazy(&role, &group, Implementation::Shared),
        "lazy_operations" => lazy(&role, &group, Implementation::Operations),
        "whole" => cut(&role, &group, None),
        "cut" => cut(&role, &group, Some(7)),
        other => panic!("no scenario {other}"),
    };
    role.report(&store, &group, &parameters(&trainer), &trainer.parameters_digest().unwrap());
}

/// The buffer holds one whole step, and in epoch 0 nothing is drawn from it for so few samples.
fn sinkhorn(gather: &str) -> Value {
    json!({"loss": "mse_sinkhorn", "sinkhorn_weight": 2.0, "sinkhorn_buffer": BATCH, "sinkhorn_gather": gather})
}

/// This rank's share of a step, as a distributed sampler deals it.
fn share(role: &Role, number: i64) -> Batch {
    let world = i64::from(role.world);
    batch((0..BATCH).filter(|s| s % world == i64::from(role.rank)).map(|s| number * BATCH + s))
}

fn steps(role: &Role, group: &ProcessGroup, train: Value, count: i64) -> Trainer {
    let mut trainer = trainer(train, group);
    nudge(&mut trainer, role.neighbour);
    trainer.set_start(0, 0, count as u64);
    for number in 0..count {
        let told = step(&mut trainer, &share(role, number), 0, group).unwrap();
        if role.scenario == "accumulated" && role.world > 1 {
            let reduced = told.busy[Stage::Allreduce] > 0;
            assert_eq!(reduced, number % 3 == 2, "only the last batch of a group is reduced: {number}");
        }
    }
    trainer
}

/// Two steps of a lazy model whose local head gets no gradient: the reducer has to look for that.
fn lazy(role: &Role, group: &ProcessGroup, implementation: Implementation) -> Trainer {
    let change = |model: &mut Model| (model.implementation, model.local_head) = (implementation, LocalHead::Zero);
    let mut trainer = support::lazy_trainer_of(json!({"clip_norm": 1.0}), change, group);
    nudge(&mut trainer, role.neighbour);
    trainer.set_start(0, 0, 2);
    let world = i64::from(role.world);
    for number in 0..2 {
        let ids = (0..BATCH).filter(|s| s % world == i64::from(role.rank)).map(|s| number * BATCH + s);
        let samples = match implementation {
            Implementation::Replicated => support::with_graphs(ids),
            Implementation::Shared | Implementation::Operations => batch(ids),
        };
        let told = step(&mut trainer, &samples, 0, group).unwrap();
        assert_eq!(told.busy[Stage::Allreduce] > 0, role.world > 1, "one rank averages nothing");
    }
    trainer
}

/// Fifteen steps with all that a state holds, put back in front of a step.
fn cut(role: &Role, group: &ProcessGroup, at: Option<u64>) -> Trainer {
    let train = json!({"optimizer": "adamw", "learning_rate": 1e-3, "clip_norm": 1.0, "loss": "mse_sinkhorn",
                       "sinkhorn_buffer": 9, "sinkhorn_weight": 3.0, "accumulation": ["0:2"], "schedule": "plateau",
                       "schedule_patience": 0});
    let mut trainer = trainer(train.clone(), group);
    trainer.set_start(0, 0, 5);
    for number in 0..15u64 {
        // Epoch 600 draws the whole buffer, in another order each time; 300 a part of it.
        let epoch = [0, 300, 600][(number / 5) as usize];
        let samples = share(role, number as i64);
        if at == Some(number) {
            assert_eq!(trainer.next_boundary(number), number);
            trainer.share_state(group).unwrap();
            let mut state: BTreeMap<String, Tensor> = trainer.state().into_iter().map(|(n, t)| (n, t.copy())).collect();
            // All ranks get the state that rank 0 would have written.
            let names: Vec<String> = (0..role.world).map(|rank| format!("sinkhorn/{rank}/labels")).collect();
            assert!(names.iter().all(|name| state.contains_key(name)), "{:?}", state.keys());
            for tensor in state.values_mut() {
                group.broadcast(tensor, 0).unwrap();
            }
            trainer = support::trainer(train.clone(), group);
            trainer.restore(&state).unwrap();
            trainer.set_start(number, 0, 5);
            order_buckets(&mut trainer, &samples, epoch, group);
        }
        step(&mut trainer, &samples, epoch, group).unwrap();
        if number % 5 == 4 {
            trainer.report_validation(1.0);
        }
    }
    trainer
}

/// Rank r has r + 1 samples, the last one none.
fn gather_uneven(role: &Role, group: &ProcessGroup) {
    let count = |rank: u32| if rank + 1 == role.world { 0 } else { rank as usize + 1 };
    let predictions = |rank: u32| (0..count(rank)).map(move |i| rank as f32 + i as f32 / 10.0);
    let own: Vec<f32> = predictions(role.rank).collect();
    let labels: Vec<f32> = own.iter().map(|p| -p).collect();
    let (all, all_labels) = gather_predictions(group, &own, &labels).unwrap();
    assert_eq!(all, (0..role.world).flat_map(predictions).collect::<Vec<_>>());
    assert_eq!(all_labels, all.iter().map(|p| -p).collect::<Vec<_>>());
    assert!(gather_predictions(group, &[], &[]).unwrap().0.is_empty());
}

/// Rank 0 is at the divergence while the other has not begun: whoever watches sees that it waits, and for what.
fn waits_for_predictions(role: &Role, group: &ProcessGroup) {
    let mut trainer = trainer(sinkhorn("joined"), group);
    trainer.set_start(0, 0, 1);
    let store = Store::connect("127.0.0.1", role.port, LIMIT).unwrap();
    let activity = Activity::default();
    activity.begin_step(0);
    let samples = share(role, 0);
    let context = StepContext { batch: &samples, masks: &[], epoch: 0, group, activity: &activity };
    if role.rank == 1 {
        store.wait(&["seen".to_owned()], LIMIT).unwrap();
        trainer.step(&context).unwrap();
        return;
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let end = Instant::now() + LIMIT;
            loop {
                let snapshot = activity.snapshot().unwrap();
                if snapshot.description.starts_with("at step 0 (gathering)") {
                    assert!(snapshot.is_waiting, "{snapshot:?}");
                    break;
                }
                assert!(Instant::now() < end, "{snapshot:?}");
                std::thread::sleep(Duration::from_millis(2));
            }
            store.set("seen", b"1").unwrap();
        });
        trainer.step(&context).unwrap();
    });
}

/// Parameters and digest that all ranks ended with.
fn run(scenario: &str, world: u32) -> (Vec<f32>, String) {
    let (mut parameters, digests) = RANKS.train(scenario, world);
    assert!(digests.iter().all(|d| *d == digests[0]), "{scenario}: ranks differ from each other");
    (parameters.swap_remove(0), digests[0].clone())
}

/// But for rounding both are what one rank ends with in `scenario`, after so many steps.
fn assert_alike(scenario: &str, steps: usize, a: &[f32], b: &[f32]) {
    let [a, b] = [a, b].map(doubles);
    let one = RANKS.final_parameters(scenario, 1);
    // A step rounds each parameter once.
    assert_rounding(scenario, distance(&a, &b), &RANKS.neighbour_distances(scenario, &one), floor(&one, steps));
}

#[test]
fn predictions_are_gathered_from_uneven_ranks() {
    for world in [1, 2, 3] {
        let store = serve_store();
        let ranks: Vec<RankProcess> = (0..world).map(|r| RANKS.start("gather", r, world, store.port())).collect();
        ranks.into_iter().for_each(|r| r.finish(LIMIT));
    }
}

#[test]
fn a_rank_that_waits_for_the_others_predictions_says_so() {
    let store = serve_store();
    let ranks: Vec<RankProcess> = (0..2).map(|r| RANKS.start("waits", r, 2, store.port())).collect();
    ranks.into_iter().for_each(|r| r.finish(LIMIT));
}

#[test]
fn accumulated_and_clipped_gradients_are_those_of_one_rank() {
    for scenario in ["accumulated", "clipped"] {
        assert_alike(scenario, 6, &run(scenario, 1).0, &run(scenario, 2).0);
    }
    assert_ne!(run("clipped", 1).1, run("accumulated", 1).1);
}

#[test]
fn the_joined_divergence_is_that_of_one_rank_with_the_whole_batch() {
    let (one, _) = run("off", 1);
    let joined = run("joined", 2).0;
    assert_alike("off", 4, &one, &joined);
    let [one, joined, without] = [one, joined, run("mse", 1).0].map(|parameters| doubles(&parameters));
    let (with, without) = (distance(&one, &joined), distance(&one, &without));
    assert!(without > 20.0 * with.max(floor(&one, 4)), "the divergence changed little: {without:e}");
}

#[test]
fn the_detached_divergence_trains_nothing_as_published() {
    assert_eq!(run("detached", 2).1, run("mse", 2).1);
    assert_eq!(run("detached", 1).1, run("off", 1).1, "a single rank gathers nothing");
}

#[test]
fn ranks_that_were_cut_end_with_the_same_bits() {
    assert_eq!(run("whole", 2).1, run("cut", 2).1);
}

#[test]
fn all_lazy_models_step_alike_where_a_head_gets_no_gradient() {
    for world in [1, 2] {
        let replicated = run("lazy_replicated", world).0;
        for other in ["lazy_shared", "lazy_operations"] {
            assert_alike("lazy_replicated", 2, &replicated, &run(other, world).0);
        }
    }
}
