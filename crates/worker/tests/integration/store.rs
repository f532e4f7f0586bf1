//! How ranks reach their store: alone without a network, and among others without a name server.

use std::ffi::CStr;
use std::mem::{size_of, zeroed};
use std::time::Duration;

use torch_dist::{ProcessGroup, Store, rendezvous};

const LIMIT: Duration = Duration::from_secs(60);

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
