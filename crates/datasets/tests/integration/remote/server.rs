//! A server on 127.0.0.1 that speaks S3 (s3s) and plain HTTP, and that answers late, slowly, wrongly or not at all where it is
//! told to.
//!
//! `s3://BUCKET/KEY` is what S3 has, `gs://BUCKET/KEY` the same by Google Cloud Storage's variables; `http://…/plain/BUCKET/KEY` is the
//! same file, read without S3. Faults are those of a bucket.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use tokio::sync::mpsc;

pub const ACCESS_KEY: &str = "AKIATESTTESTTEST";
pub const SECRET_KEY: &str = "aSecretThatMustNotBeShown";

/// What may go wrong with an answer that has a part of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "a measurement uses fewer than a test")]
pub enum Fault {
    /// Another status in place of the answer.
    Status(u16),
    /// No answer, for as long as anybody waits.
    Silence,
    /// Half the bytes, then nothing more comes.
    Stall,
    /// Half the bytes, then the connection ends.
    Reset,
    /// Half the bytes, and the answer says that these are all.
    Short,
    /// The first byte comes late.
    Late(Duration),
}

/// How a bucket's objects are sent.
#[derive(Default)]
pub struct Faults {
    /// For the next answers, in order.
    pub next: Mutex<VecDeque<Fault>>,
    /// For every so many-th answer, in turn.
    pub every: Mutex<(u64, Vec<Fault>)>,
    /// Before each answer.
    pub latency: Mutex<Duration>,
    /// Bytes a second of all answers together; 0 has no bound.
    pub bandwidth: AtomicU64,
    /// Parts of objects come straight from their files: s3s-fs reads a whole file for each part of it, to sum it up.
    pub straight: AtomicBool,
    /// When the line is free again.
    line: Mutex<Option<Instant>>,
    /// Requests for parts so far, and bytes that were sent of them.
    pub requests: AtomicU64,
    pub bytes: AtomicU64,
    under_way: AtomicU64,
    /// Most requests that were under way at a time.
    pub most: AtomicU64,
}

impl Faults {
    fn fault(&self, number: u64) -> Option<Fault> {
        if let Some(fault) = self.next.lock().unwrap().pop_front() {
            return Some(fault);
        }
        let every = self.every.lock().unwrap();
        let (n, faults) = &*every;
        if *n > 0 && number.is_multiple_of(*n) {
            faults.get((number / n) as usize % faults.len()).copied()
        } else {
            None
        }
    }

    /// When bytes that are to be sent now have passed the line.
    fn pass(&self, bytes: usize) -> Option<Instant> {
        let rate = self.bandwidth.load(Ordering::Relaxed);
        if rate == 0 {
            return None;
        }
        let mut line = self.line.lock().unwrap();
        let start = line.unwrap_or_else(Instant::now).max(Instant::now() - Duration::from_millis(5));
        let end = start + Duration::from_secs_f64(bytes as f64 / rate as f64);
        *line = Some(end);
        Some(end)
    }
}

/// The server, which runs until the process ends.
pub struct Server {
    pub address: SocketAddr,
    root: PathBuf,
    buckets: Arc<Mutex<HashMap<String, Arc<Faults>>>>,
    _folder: tempfile::TempDir,
}

/// A bucket and its faults.
pub struct Bucket {
    name: String,
    server: String,
    root: PathBuf,
    pub faults: Arc<Faults>,
}

impl Server {
    /// Start it, in `parent`; S3 of this process is then this server.
    pub fn start(parent: &Path) -> Self {
        let folder = tempfile::tempdir_in(parent).unwrap();
        let root = folder.path().to_owned();
        let buckets: Arc<Mutex<HashMap<String, Arc<Faults>>>> = Arc::default();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let mut builder = S3ServiceBuilder::new(s3s_fs::FileSystem::new(&root).unwrap());
        builder.set_auth(SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY));
        let s3 = builder.build();
        let (known, files) = (Arc::clone(&buckets), root.clone());
        runtime.spawn(async move {
            loop {
                let Ok((socket, _)) = listener.accept().await else { continue };
                let _ = socket.set_nodelay(true);
                let (s3, known, files) = (s3.clone(), Arc::clone(&known), files.clone());
                let answer = service_fn(move |request| answer(request, s3.clone(), Arc::clone(&known), files.clone()));
                tokio::spawn(async move {
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(socket), answer).await;
                });
            }
        });
        std::mem::forget(runtime);
        for (name, value) in [
            ("AWS_ENDPOINT_URL", format!("http://{address}")),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", SECRET_KEY.to_owned()),
            ("GS_ENDPOINT_URL", format!("http://{address}")),
            ("GS_ACCESS_KEY_ID", ACCESS_KEY.to_owned()),
            ("GS_SECRET_ACCESS_KEY", SECRET_KEY.to_owned()),
        ] {
            // SAFETY: done before any other thread of the process asks for a variable: all wait for the server first.
            unsafe { std::env::set_var(name, value) };
        }
        Self { address, root, buckets, _folder: folder }
    }

    /// Make a bucket.
    pub fn bucket(&self, name: &str) -> Bucket {
        std::fs::create_dir_all(self.root.join(name)).unwrap();
        let faults = Arc::clone(self.buckets.lock().unwrap().entry(name.to_owned()).or_default());
        Bucket { name: name.to_owned(), server: format!("http://{}", self.address), root: self.root.clone(), faults }
    }
}

#[allow(dead_code, reason = "a measurement uses fewer than a test")]
impl Bucket {
    /// Put a file's content there, or other content in its place.
    pub fn put(&self, key: &str, content: &[u8]) {
        let path = self.root.join(&self.name).join(key);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let new = path.with_extension("new");
        std::fs::write(&new, content).unwrap();
        std::fs::rename(new, path).unwrap();
    }

    pub fn path(&self, key: &str) -> PathBuf {
        self.root.join(&self.name).join(key)
    }

    pub fn s3(&self, key: &str) -> PathBuf {
        PathBuf::from(format!("s3://{}/{key}", self.name))
    }

    pub fn gs(&self, key: &str) -> PathBuf {
        PathBuf::from(format!("gs://{}/{key}", self.name))
    }

    pub fn http(&self, key: &str) -> PathBuf {
        PathBuf::from(format!("{}/plain/{}/{key}", self.server, self.name))
    }

    pub fn requests(&self) -> u64 {
        self.faults.requests.load(Ordering::SeqCst)
    }
}

async fn answer(
    request: Request<Incoming>,
    s3: S3Service,
    buckets: Arc<Mutex<HashMap<String, Arc<Faults>>>>,
    root: PathBuf,
) -> Result<Response<Answer>, Infallible> {
    let path = request.uri().path().to_owned();
    let plain = path.strip_prefix("/plain/");
    let bucket = plain.unwrap_or(path.trim_start_matches('/')).split('/').next().unwrap_or_default().to_owned();
    let Some(faults) = buckets.lock().unwrap().get(&bucket).cloned() else {
        return Ok(status(StatusCode::NOT_FOUND));
    };
    let (ranged, latency) = (request.headers().contains_key("range"), *faults.latency.lock().unwrap());
    let mut fault = None;
    if ranged {
        let number = faults.requests.fetch_add(1, Ordering::SeqCst);
        fault = faults.fault(number);
        let under_way = faults.under_way.fetch_add(1, Ordering::SeqCst) + 1;
        faults.most.fetch_max(under_way, Ordering::SeqCst);
    }
    let guard = UnderWay(ranged.then(|| Arc::clone(&faults)));
    tokio::time::sleep(latency).await;
    match fault {
        Some(Fault::Status(code)) => return Ok(status(StatusCode::from_u16(code).unwrap())),
        Some(Fault::Silence) => std::future::pending().await,
        Some(Fault::Late(late)) => tokio::time::sleep(late).await,
        _ => {}
    }
    let object = root.join(path.trim_start_matches('/'));
    let straight =
        faults.straight.load(Ordering::Relaxed) && request.method() != hyper::Method::PUT && object.is_file();
    let (mut parts, bytes) = match plain {
        Some(name) => plain_file(&request, &root.join(name), false),
        None if straight => plain_file(&request, &object, true),
        None => match Service::call(&s3, request).await {
            Ok(answer) => {
                let (parts, body) = answer.into_parts();
                (parts, body.collect().await.map(|body| body.to_bytes()).unwrap_or_default())
            }
            Err(_) => return Ok(status(StatusCode::BAD_REQUEST)),
        },
    };
    let half = bytes.len() / 2;
    let (sent, end) = match fault {
        Some(Fault::Stall) => (bytes.slice(..half), End::Never),
        Some(Fault::Reset) => (bytes.slice(..half), End::Broken),
        Some(Fault::Short) => {
            parts.headers.insert("content-length", half.into());
            (bytes.slice(..half), End::Whole)
        }
        _ => (bytes, End::Whole),
    };
    let (sender, receiver) = mpsc::channel(2);
    tokio::spawn(async move {
        let _guard = guard;
        for chunk in 0..sent.len().div_ceil(CHUNK) {
            let chunk = sent.slice(chunk * CHUNK..((chunk + 1) * CHUNK).min(sent.len()));
            if let Some(at) = faults.pass(chunk.len()) {
                tokio::time::sleep_until(at.into()).await;
            }
            faults.bytes.fetch_add(chunk.len() as u64, Ordering::Relaxed);
            if sender.send(Ok(chunk)).await.is_err() {
                return;
            }
        }
        match end {
            End::Whole => {}
            End::Broken => drop(sender.send(Err(io::ErrorKind::ConnectionReset.into())).await),
            End::Never => sender.closed().await,
        }
    });
    Ok(Response::from_parts(parts, Answer(receiver)))
}

/// Bytes that are sent at a time.
const CHUNK: usize = 64 << 10;

enum End {
    Whole,
    Broken,
    Never,
}

struct UnderWay(Option<Arc<Faults>>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some(faults) = &self.0 {
            faults.under_way.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// A body that is sent as it comes.
pub struct Answer(mpsc::Receiver<io::Result<Bytes>>);

impl Body for Answer {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.0.poll_recv(cx).map(|next| next.map(|chunk| chunk.map(Frame::data)))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

fn status(status: StatusCode) -> Response<Answer> {
    let (sender, receiver) = mpsc::channel(1);
    let text = "<Error><Code>Injected</Code><Message>told to fail</Message></Error>";
    sender.try_send(Ok(Bytes::from_static(text.as_bytes()))).unwrap();
    Response::builder().status(status).body(Answer(receiver)).unwrap()
}

/// A file as a plain web server has it: parts, an ETag of its length and time, and what depends on that. With `clamp` a part that goes beyond
/// the end ends there, as of S3.
fn plain_file(request: &Request<Incoming>, path: &Path, clamp: bool) -> (hyper::http::response::Parts, Bytes) {
    let respond =
        |builder: hyper::http::response::Builder, bytes: Bytes| (builder.body(()).unwrap().into_parts().0, bytes);
    let Ok(about) = path.metadata() else { return respond(Response::builder().status(404), Bytes::new()) };
    let tag = format!(
        "\"{:x}-{:x}\"",
        about.len(),
        about.modified().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos()
    );
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    if header("if-match").is_some_and(|wanted| wanted != tag) {
        return respond(Response::builder().status(412), Bytes::new());
    }
    let builder = Response::builder().header("etag", tag).header("accept-ranges", "bytes");
    if request.method() == hyper::Method::HEAD {
        return respond(builder.header("content-length", about.len()), Bytes::new());
    }
    let range = header("range").and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
    let Some((start, end)) =
        range.and_then(|(start, end)| Some((start.parse::<u64>().ok()?, end.parse::<u64>().ok()?)))
    else {
        let bytes = Bytes::from(std::fs::read(path).unwrap());
        return respond(builder.header("content-length", bytes.len()), bytes);
    };
    let end = if clamp && start < about.len() { end.min(about.len() - 1) } else { end };
    let mut bytes = vec![0; (end + 1 - start) as usize];
    let read =
        std::fs::File::open(path).and_then(|file| std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, start));
    if read.is_err() {
        return respond(Response::builder().status(416), Bytes::new());
    }
    let range = format!("bytes {start}-{end}/{}", about.len());
    respond(builder.status(206).header("content-range", range).header("content-length", bytes.len()), bytes.into())
}
