use std::time::Duration;

use expctl_dist::{DistError, Store};
use expctl_record::{RankEnv, RendezvousAddress, rendezvous_address};

/// Serve the store on a port that the kernel chooses; returns it with the host to publish.
///
/// # Errors
/// The address cannot be served on.
pub(crate) fn serve(env: RankEnv, timeout: Duration) -> Result<(Store, String), DistError> {
    match rendezvous_address(env) {
        RendezvousAddress::Only(address) => Ok((Store::serve_on(address, 0, timeout)?, address.to_string())),
        RendezvousAddress::All(host) => Ok((Store::serve(&host, 0, timeout)?, host)),
    }
}
