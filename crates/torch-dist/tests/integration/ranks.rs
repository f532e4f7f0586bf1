//! Real processes over Gloo: collectives, a rank that never comes, a peer that is killed, a store that is gone or serves one rank alone; and
//! everything that is opened is closed again.

use std::ffi::CStr;
use std::io::Read as _;
use std::mem::{size_of, zeroed};
use std::time::{Duration, Instant};

use expctl_rounding::{assert_rounding, distance, floor, values};
use tch::{Device, Kind, Tensor};
use torch_dist::{
    DistError, GradientDtype, ProcessGroup, Reducer, ReducerOptions, Store, rendezvous, rendezvous_until,
};

use crate::rank_processes::{LIMIT, RankEntry, RankProcess, Role, run_alone, serve_store, text};

const RANKS: RankEntry = RankEntry("ranks::rank_entry");

#[test]
#[ignore = "entry of the ranks that the tests start"]
fn rank_entry() {
    let role = Role::from_env();
    let store = Store::connect("127.0.0.1", role.port, LIMIT).unwrap();
    match role.scenario.as_str() {
        "collectives" => collectives(&role, &store),
        "all_reduce_forever" => all_reduce_forever(&role, &store),
        "backward_forever" => backward_forever(&role, &store),
        "average" => average(&role, &store, GradientDtype::Unchanged, None),
        // Each of a handful of roundings is at most half of the last of 11 or 8 bits.
        "average_float16" => average(&role, &store, GradientDtype::Float16, Some(4.0 / 2048.0)),
        "average_bfloat16" => average(&role, &store, GradientDtype::Bfloat16, Some(4.0 / 256.0)),
        "serve" => serve_until_killed(&store),
        other => panic!("no scenario {other}"),
    }
}

fn join(role: &Role, store: &Store) -> ProcessGroup {
    rendezvous(store, role.rank, role.world, LIMIT).unwrap();
    ProcessGroup::gloo(store, role.rank, role.world, LIMIT).unwrap()
}

fn collectives(role: &Role, store: &Store) {
    let group = join(role, store);
    let arrived = store.add("arrived", 1).unwrap();
    assert!(arrived <= i64::from(role.world));
    group.barrier().unwrap();
    assert_eq!(store.add("arrived", 0).unwrap(), i64::from(role.world), "the barrier let a rank through early");

    let mut sum = Tensor::from_slice(&[1.0f32, 10.0]) * f64::from(role.rank + 1);
    group.all_reduce_sum(&mut sum).unwrap();
    let total = (role.world * (role.world + 1) / 2) as f32;
    assert_eq!(Vec::<f32>::try_from(&sum).unwrap(), [total, 10.0 * total]);

    let mut copy = Tensor::from_slice(&[i64::from(role.rank) + 5]);
    group.broadcast(&mut copy, 1).unwrap();
    assert_eq!(Vec::<i64>::try_from(&copy).unwrap(), [6]);

    let all = group.all_gather(&Tensor::from_slice(&[i64::from(role.rank), 7])).unwrap();
    for (rank, part) in all.iter().enumerate() {
        assert_eq!(Vec::<i64>::try_from(part).unwrap(), [rank as i64, 7]);
    }

    let error = group.broadcast(&mut copy, 99).unwrap_err();
    assert!(matches!(&error, DistError::Torch { operation, .. } if operation == "broadcast"), "{error}");
    group.barrier().unwrap();
}

/// All-reduces until one fails, then leaves the error and the time it took to notice.
fn all_reduce_forever(role: &Role, store: &Store) {
    let group = join(role, store);
    store.set(&format!("running/{}", role.rank), b"yes").unwrap();
    let error = loop {
        let mut tensor = Tensor::ones([1000], (Kind::Float, tch::Device::Cpu));
        if let Err(error) = group.all_reduce_sum(&mut tensor) {
            break error;
        }
    };
    store.set(&format!("error/{}", role.rank), error.to_string().as_bytes()).unwrap();
}

fn parameters(seed: i64) -> Vec<(String, Tensor)> {
    tch::manual_seed(seed);
    let shapes: [&[i64]; 4] = [&[300, 400], &[300], &[300, 300], &[1, 300]];
    let leaf = |shape: &&[i64]| Tensor::randn(*shape, (Kind::Float, tch::Device::Cpu)).set_requires_grad(true);
    shapes.iter().enumerate().map(|(i, shape)| (format!("p{i}"), leaf(shape))).collect()
}

fn loss(p: &[(String, Tensor)], x: &Tensor) -> Tensor {
    let hidden = (x.matmul(&p[0].1.tr()) + &p[1].1).tanh().matmul(&p[2].1.tr()).tanh();
    hidden.matmul(&p[3].1.tr()).square().mean(None)
}

fn backward_forever(role: &Role, store: &Store) {
    let group = join(role, store);
    let parameters = parameters(1);
    let options =
        ReducerOptions { first_bucket_mib: 1, bucket_cap_mib: 1, find_unused: false, ..ReducerOptions::default() };
    let mut reducer = Reducer::new(&parameters, &group, options).unwrap();
    store.set(&format!("running/{}", role.rank), b"yes").unwrap();
    let x = Tensor::ones([8, 400], (Kind::Float, tch::Device::Cpu));
    let error = loop {
        let step = || -> Result<(), DistError> {
            reducer.prepare_forward()?;
            let loss = loss(&parameters, &x);
            reducer.prepare_backward(&[&loss])?;
            reducer.backward(&loss)
        };
        let mut step = step;
        if let Err(error) = step() {
            break error;
        }
    };
    store.set(&format!("error/{}", role.rank), error.to_string().as_bytes()).unwrap();
}

/// Ranks start from different parameters and different data; parameters must become rank 0's and gradients the mean. `rounded`
/// is the relative error that gradients may have which are sent in 16 bits; without it they are sent as they are.
fn average(role: &Role, store: &Store, gradient_dtype: GradientDtype, rounded: Option<f64>) {
    let group = join(role, store);
    let parameters = parameters(i64::from(role.rank));
    let inputs: Vec<Tensor> = (0..role.world)
        .map(|r| {
            tch::manual_seed(100 + i64::from(r));
            Tensor::randn([8, 400], (Kind::Float, tch::Device::Cpu))
        })
        .collect();
    let options = ReducerOptions { first_bucket_mib: 0, bucket_cap_mib: 0, gradient_dtype, find_unused: false };
    let mut reducer = Reducer::new(&parameters, &group, options).unwrap();
    for (own, first) in parameters.iter().zip(self::parameters(0)) {
        assert!(own.1.equal(&first.1), "{} was not copied from rank 0", own.0);
    }
    let mut rebuilt = 0;
    for _ in 0..3 {
        for (_, p) in &parameters {
            let mut grad = p.grad();
            if grad.defined() {
                let _ = grad.zero_();
            }
        }
        rebuilt += u32::from(reducer.prepare_forward().unwrap());
        let loss = loss(&parameters, &inputs[role.rank as usize]);
        reducer.prepare_backward(&[&loss]).unwrap();
        let start = Instant::now();
        reducer.backward(&loss).unwrap();
        let wall = start.elapsed().as_nanos() as u64;
        let times = reducer.take_allreduce_times().unwrap();
        assert!(times.busy_ns > 0 && times.busy_ns <= wall, "{times:?} in {wall}");
        assert!(times.exposed_ns > 0 && times.exposed_ns <= times.busy_ns, "{times:?} in {wall}");
        assert_eq!(times.buckets, if rebuilt == 0 { 1 } else { 4 });
        assert_eq!(reducer.take_allreduce_times().unwrap().buckets, 0);
    }
    assert_eq!(rebuilt, 1);
    // The same by hand, without any communication, in float32 and in double precision.
    let by_hand = |kind: Kind| -> Vec<Tensor> {
        let copy =
            |(name, p): &(String, Tensor)| (name.clone(), p.detach().to_kind(kind).copy().set_requires_grad(true));
        let copies: Vec<(String, Tensor)> = parameters.iter().map(copy).collect();
        for x in &inputs {
            loss(&copies, &x.to_kind(kind)).backward();
        }
        copies.iter().map(|(_, copy)| copy.grad() / f64::from(role.world)).collect()
    };
    let (peers, exact) = (by_hand(Kind::Float), by_hand(Kind::Double));
    for (((name, own), peer), exact) in parameters.iter().zip(&peers).zip(&exact) {
        let Some(rounded) = rounded else {
            let [own, peer, exact] = [&own.grad(), peer, exact].map(values);
            // The longest sum of a gradient is that over the 300 channels of a layer.
            assert_rounding(name, distance(&own, &exact), &[distance(&peer, &exact)], floor(&exact, 300));
            continue;
        };
        let difference = (own.grad() - exact).abs().max().double_value(&[]);
        let scale = exact.abs().max().double_value(&[]);
        // Gradients were rounded: float32 alone would leave a hundredth of that.
        assert!(difference <= rounded * scale && difference > 1e-5 * scale, "{name}: {difference} of {scale}");
    }
}

/// Serves a store of its own, tells the test its port, and waits for the end.
fn serve_until_killed(store: &Store) {
    let own = serve_store();
    store.set("port", own.port().to_string().as_bytes()).unwrap();
    std::thread::sleep(LIMIT);
}

#[test]
fn collectives_of_three_ranks() {
    let store = serve_store();
    let ranks: Vec<RankProcess> = (0..3).map(|r| RANKS.start("collectives", r, 3, store.port())).collect();
    ranks.into_iter().for_each(|r| r.finish(LIMIT));
}

#[test]
fn gradients_are_the_mean_over_the_ranks() {
    for scenario in ["average", "average_float16", "average_bfloat16"] {
        let store = serve_store();
        let ranks: Vec<RankProcess> = (0..2).map(|r| RANKS.start(scenario, r, 2, store.port())).collect();
        ranks.into_iter().for_each(|r| r.finish(LIMIT));
    }
}

#[test]
fn ranks_that_never_come_are_named() {
    let store = serve_store();
    let limit = Duration::from_millis(1500);
    let others: Vec<_> = [0, 2]
        .map(|rank| {
            let store = Store::connect("127.0.0.1", store.port(), LIMIT).unwrap();
            std::thread::spawn(move || rendezvous(&store, rank, 4, limit).unwrap_err())
        })
        .into_iter()
        .collect();
    for other in others {
        let error = other.join().unwrap();
        assert_eq!(error, DistError::MissingRanks { missing: vec![1, 3], world: 4, limit });
        assert_eq!(error.to_string(), "ranks 1, 3 of 4 did not appear within 1.5 s");
    }
    // A rank with little of the limit left still reports the limit that was set.
    let limit = Duration::from_secs(120);
    let error = rendezvous_until(&store, 0, 2, Instant::now() + Duration::from_millis(50), limit).unwrap_err();
    assert_eq!(error.to_string(), "rank 1 of 2 did not appear within 120 s");
    // The connection is still good after a wait that ran out.
    assert!(store.check(&["rendezvous/rank-0", "rendezvous/rank-2"]).unwrap());
    assert_eq!(store.try_get("rendezvous/rank-1").unwrap(), None);
}

#[test]
fn a_silent_peer_runs_into_the_time_limit() {
    let store = serve_store();
    let limit = Duration::from_secs(2);
    let port = store.port();
    let silent = std::thread::spawn(move || {
        let store = Store::connect("127.0.0.1", port, LIMIT).unwrap();
        ProcessGroup::gloo(&store, 1, 2, limit).unwrap()
    });
    let group = ProcessGroup::gloo(&store, 0, 2, limit).unwrap();
    let silent = silent.join().unwrap();
    let start = Instant::now();
    let error = group.barrier().unwrap_err();
    let waited = start.elapsed();
    assert!(waited >= limit && waited < 2 * limit, "{waited:?}");
    assert!(error.to_string().starts_with("barrier: "), "{error}");
    drop(silent);
}

fn killed_peer(scenario: &str, operation: &str) {
    let store = serve_store();
    let survivor = RANKS.start(scenario, 0, 2, store.port());
    let victim = RANKS.start(scenario, 1, 2, store.port());
    store.wait(&["running/0", "running/1"], LIMIT).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    drop(victim); // SIGKILL
    let start = Instant::now();
    store.wait(&["error/0"], LIMIT).unwrap();
    let noticed = start.elapsed();
    let message = text(&store, "error/0");
    eprintln!("{scenario}: noticed after {noticed:?}: {message}");
    assert!(noticed < Duration::from_secs(5), "{noticed:?}");
    assert!(message.starts_with(operation), "{message}");
    assert!(!message.contains(".cc") && !message.contains('\n'), "{message}");
    survivor.finish(LIMIT);
}

#[test]
fn a_killed_peer_fails_the_all_reduce() {
    killed_peer("all_reduce_forever", "all-reduce: ");
}

#[test]
fn a_killed_peer_fails_the_backward_pass() {
    killed_peer("backward_forever", "backward pass: ");
}

#[test]
fn a_store_that_is_gone_is_an_error() {
    let store = serve_store();
    let server = RANKS.start("serve", 0, 1, store.port());
    let port = text(&store, "port").parse().unwrap();
    let client = Store::connect("127.0.0.1", port, LIMIT).unwrap();
    client.set("a", b"b").unwrap();
    assert_eq!(client.get("a").unwrap(), b"b");
    drop(server); // SIGKILL
    let start = Instant::now();
    let error = client.get("a").unwrap_err();
    eprintln!("store gone: {error}");
    assert!(start.elapsed() < Duration::from_secs(5));
    assert!(matches!(&error, DistError::Torch { operation, .. } if operation == "get a from the store"), "{error}");
    let error = rendezvous(&client, 0, 2, Duration::from_secs(1)).unwrap_err();
    assert!(matches!(error, DistError::Torch { .. }), "{error}");
}

/// As the documentation of `Store` says: c10d has no limit of its own for a reply. Where this fails, that text can be shorter.
#[test]
fn a_frozen_server_holds_even_a_wait_with_a_limit() {
    let store = serve_store();
    let server = RANKS.start("serve", 0, 1, store.port());
    let client = Store::connect("127.0.0.1", text(&store, "port").parse().unwrap(), LIMIT).unwrap();
    let signal = |name: &str| {
        let done = std::process::Command::new("kill").args([name, &server.0.id().to_string()]).status().unwrap();
        assert!(done.success());
    };
    signal("-STOP");
    let start = Instant::now();
    std::thread::scope(|scope| {
        let wait = scope.spawn(|| client.wait(&["never"], Duration::from_millis(200)).unwrap_err());
        std::thread::sleep(Duration::from_secs(1));
        signal("-CONT");
        let error = wait.join().unwrap();
        assert!(start.elapsed() >= Duration::from_secs(1), "{:?}: {error}", start.elapsed());
        assert!(error.to_string().starts_with("wait for keys in the store: "), "{error}");
    });
}

#[test]
fn nothing_listens() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let start = Instant::now();
    let error = Store::connect("127.0.0.1", free, Duration::from_secs(1)).unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    assert!(error.to_string().starts_with(&format!("no store answered at 127.0.0.1:{free} within 1 s: ")), "{error}");
}

/// Errors arrive as values; libtorch must not print its own account of them beside.
#[test]
fn libtorch_prints_nothing() {
    let store = serve_store();
    let mut ranks = [0, 1].map(|r| RANKS.start_piped("all_reduce_forever", r, 2, store.port()));
    store.wait(&["running/0", "running/1"], LIMIT).unwrap();
    ranks[1].0.kill().unwrap();
    store.wait(&["error/0"], LIMIT).unwrap();
    let mut printed = String::new();
    ranks[0].0.stderr.take().unwrap().read_to_string(&mut printed).unwrap();
    assert_eq!(printed, "");
}

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
    run_alone("ranks::fifty_cycles");
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

#[test]
fn a_rank_alone_has_all_that_a_store_is_for() {
    let store = Store::in_process(LIMIT).unwrap();
    assert_eq!(store.port(), 0);
    rendezvous(&store, 0, 1, LIMIT).unwrap();
    ProcessGroup::gloo(&store, 0, 1, LIMIT).unwrap().barrier().unwrap();
    let other = store.another_handle();
    let waiting = std::thread::spawn(move || {
        assert_eq!(other.try_get("never").unwrap(), None);
        other.add("n", 2).unwrap();
        other.set("soon", b"").unwrap();
        other.get("later").unwrap()
    });
    // The other handle's wait holds none of these calls.
    store.wait(&["soon"], LIMIT).unwrap();
    assert_eq!(store.add("n", 1).unwrap(), 3);
    store.set("later", b"x").unwrap();
    assert_eq!(waiting.join().unwrap(), b"x");
    store.set_timeout(Duration::from_millis(20));
    assert!(store.get("never").is_err());
}

/// libtorch finds the function as this does. A rank that asked for names would wait for the name server.
#[test]
fn libtorch_gets_addresses_as_numbers() {
    type GetNameInfo = unsafe extern "C" fn(
        *const libc::sockaddr,
        libc::socklen_t,
        *mut libc::c_char,
        libc::socklen_t,
        *mut libc::c_char,
        libc::socklen_t,
        libc::c_int,
    ) -> libc::c_int;
    // SAFETY: the symbol, which the C library has in any case, has this type; the address is complete and the buffer as long
    // as is said.
    let host = unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, c"getnameinfo".as_ptr());
        assert!(!found.is_null());
        let getnameinfo: GetNameInfo = std::mem::transmute(found);
        let mut address: libc::sockaddr_in = zeroed();
        address.sin_family = libc::AF_INET as libc::sa_family_t;
        address.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
        let mut host = [0; 256];
        let length = size_of::<libc::sockaddr_in>() as libc::socklen_t;
        let answer =
            getnameinfo((&raw const address).cast(), length, host.as_mut_ptr(), 256, std::ptr::null_mut(), 0, 0);
        assert_eq!(answer, 0);
        CStr::from_ptr(host.as_ptr()).to_owned()
    };
    // /etc/hosts calls it localhost.
    assert_eq!(host.as_c_str(), c"127.0.0.1");
}
