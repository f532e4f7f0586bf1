//! [`fault_point`]: where a test kills a submission, to check that the next one recovers.
//!
//! It is in every build, so that the tests run the program that users have. With it a process can only end itself, and whoever may set its
//! environment may end it anyway.

use nix::sys::signal::{Signal, raise};

/// For tests: with `EXPCTL_DIE_AT=NAME` this process kills itself where it gets to the point NAME.
pub(super) fn fault_point(name: &str) {
    if std::env::var_os("EXPCTL_DIE_AT").is_some_and(|point| point == name) {
        let _ = raise(Signal::SIGKILL);
    }
}
