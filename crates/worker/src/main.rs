//! expctl, the launcher.
fn main() {}
