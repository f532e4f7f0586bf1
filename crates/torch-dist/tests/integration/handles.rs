//! Everything that is opened is closed again. The test runs in a process of its own, whose open files it counts.

use std::time::Duration;

use tch::{Device, Kind, Tensor};
use torch_dist::{ProcessGroup, Reducer, ReducerOptions, Store, rendezvous};

use crate::rank_processes::run_alone;

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

fn cycle(one_address: bool) {
    let limit = Duration::from_secs(30);
    let store = if one_address {
        Store::serve_on(std::net::Ipv4Addr::LOCALHOST.into(), 0, limit).unwrap()
    } else {
        Store::serve("127.0.0.1", 0, limit).unwrap()
    };
    let second = Store::connect("127.0.0.1", store.port(), limit).unwrap();
    rendezvous(&store, 0, 1, limit).unwrap();
    let group = ProcessGroup::gloo(&store, 0, 1, limit).unwrap();
    group.barrier().unwrap();
    let parameter = Tensor::ones([4], (Kind::Float, Device::Cpu)).set_requires_grad(true);
    let mut reducer =
        Reducer::new(&[("p".to_owned(), parameter.shallow_clone())], &group, ReducerOptions::default()).unwrap();
    reducer.prepare_forward().unwrap();
    let loss = (&parameter * 3.0).sum(Kind::Float);
    reducer.prepare_backward(&[]).unwrap();
    reducer.backward(&loss).unwrap();
    assert_eq!(Vec::<f32>::try_from(parameter.grad()).unwrap(), [3.0; 4]);
    assert!(!reducer.watch().in_flight());
    assert_eq!(second.add("n", 2).unwrap(), 2);
}

#[test]
fn fifty_cycles_leave_nothing_open() {
    run_alone("handles::fifty_cycles");
}

#[test]
#[ignore = "entry of the process that fifty_cycles_leave_nothing_open starts"]
fn fifty_cycles() {
    for round in 0..4 {
        cycle(round % 2 == 0);
    }
    let (files, running) = (open_files(), threads());
    for round in 0..50 {
        cycle(round % 2 == 0);
    }
    // A server's thread may still be closing its last connections.
    let until = std::time::Instant::now() + Duration::from_secs(5);
    while open_files() > files + 2 && std::time::Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    eprintln!("open files {files} then {}, threads {running} then {}", open_files(), threads());
    assert!(open_files() <= files + 2, "{} open files, {files} before", open_files());
    assert!(threads() <= running + 2, "{} threads, {running} before", threads());
}
