//! Where programs are heard.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use super::protocol::{MAX_LINE, Record, parse, quoted};
use super::supervisor::Event;

/// The longest path that a socket may have on Linux, bytes.
const MAX_PATH: usize = 107;
/// Connections that are heard at the same time; more are a program that has lost its way.
const MAX_CONNECTIONS: usize = 4096;

/// The shortest time between two looks at a connection. A look that blocks makes the program's next write wake this process up,
/// which costs the program tens of microseconds; lines that come faster than this are read together. The kernel's buffer takes
/// what comes meanwhile, also of a program that is killed.
const REST: Duration = Duration::from_millis(5);

/// A socket in a folder that only this user can enter; both vanish with the value.
#[derive(Debug)]
pub(super) struct Socket {
    folder: tempfile::TempDir,
}

/// What came over a connection.
#[derive(Debug)]
pub(super) enum Heard {
    /// A line, with its number from 1.
    Line(u64, Record),
    /// The first line that is no record, quoted, with its number and what is wrong with it. Nothing is heard after it.
    Bad(u64, String),
    /// The other side is gone.
    Closed,
}

impl Socket {
    /// Listen, and send `events` what is heard.
    ///
    /// # Errors
    /// There is no folder to put it into.
    pub fn listen(events: SyncSender<Event>) -> std::io::Result<Self> {
        let mut folder = tempfile::Builder::new().prefix("expctl-").tempdir();
        if folder.as_ref().is_ok_and(|f| f.path().as_os_str().len() + "/socket".len() > MAX_PATH) {
            folder = tempfile::Builder::new().prefix("expctl-").tempdir_in("/tmp");
        }
        let socket = Self { folder: folder? };
        let listener = UnixListener::bind(socket.path())?;
        std::thread::Builder::new().name("socket".to_owned()).spawn(move || accept(&listener, &events))?;
        Ok(socket)
    }

    /// Path of the socket.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// The folder that it lies in, for other things that only the program is to see.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

fn accept(listener: &UnixListener, events: &SyncSender<Event>) {
    for (connection, stream) in listener.incoming().flatten().take(MAX_CONNECTIONS).enumerate() {
        let events = events.clone();
        // Without a thread it is not heard, and the program's time to say who it is runs out.
        let _ =
            std::thread::Builder::new().name("connection".to_owned()).spawn(move || hear(connection, stream, &events));
    }
}

/// Read the lines of a connection. One that the other side did not end is not read: its writer was killed in it.
fn hear(connection: usize, stream: UnixStream, events: &SyncSender<Event>) {
    let mut reader = BufReader::with_capacity(MAX_LINE, stream);
    let mut line = Vec::new();
    let mut number = 0;
    let mut looked: Option<Instant> = None;
    loop {
        line.clear();
        number += 1;
        let empty = reader.buffer().is_empty();
        if let Some(rest) = looked.filter(|_| empty).and_then(|looked| REST.checked_sub(looked.elapsed())) {
            std::thread::sleep(rest);
        }
        let read = reader.by_ref().take(MAX_LINE as u64 + 1).read_until(b'\n', &mut line);
        let at = Instant::now();
        if empty {
            looked = Some(at);
        }
        let heard = match read {
            Ok(_) if line.ends_with(b"\n") => {
                line.pop();
                match parse(&line) {
                    Ok(record) => Heard::Line(number, record),
                    Err(why) => Heard::Bad(number, format!("{why}: {}", quoted(&line))),
                }
            }
            Ok(n) if n > MAX_LINE => Heard::Bad(number, format!("longer than {MAX_LINE} bytes: {}", quoted(&line))),
            _ => Heard::Closed,
        };
        let over = !matches!(heard, Heard::Line(..));
        if events.send(Event::Heard { connection, at, heard }).is_err() {
            return;
        }
        if over {
            // What follows a bad line is taken off the program's hands, so that it does not wait for us.
            let _ = std::io::copy(&mut reader, &mut std::io::sink());
            return;
        }
    }
}
