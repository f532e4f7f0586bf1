use std::net::{Ipv4Addr, SocketAddr};

use socket2::{Domain, Socket, Type};

/// A port that nobody else gets while the returned socket lives, and that a program can listen on all the same.
///
/// The socket is bound and does not listen: the kernel then gives the port to no one who asks for any, and to one who names
/// it if both have set `SO_REUSEADDR`, as c10d's store, gRPC and Python's servers do (ip(7), socket(7)).
///
/// # Errors
/// The system has none.
pub(super) fn keep_port() -> std::io::Result<(Socket, u16)> {
    let kept = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    kept.set_reuse_address(true)?;
    kept.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)).into())?;
    let port = kept.local_addr()?.as_socket().map(|address| address.port());
    Ok((kept, port.ok_or_else(|| std::io::Error::other("the port has no number"))?))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_kept_port_can_be_listened_on_and_is_given_to_no_one_else() {
        let (kept, port) = keep_port().unwrap();
        let others: Vec<(Socket, u16)> = (0..200).map(|_| keep_port().unwrap()).collect();
        assert!(others.iter().all(|(_, other)| *other != port));
        // std sets SO_REUSEADDR.
        let listener = TcpListener::bind(("0.0.0.0", port)).unwrap();
        assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        drop((kept, listener));
    }
}
