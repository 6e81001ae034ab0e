//! Streams: scans that outlive a request. Requests that read a tree in the order of its keys, file after file, piece after
//! piece, or directory after directory, go on with one scan, which reads ahead across them.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::cursor::Scan;
use crate::format::{Bounds, Key};
use crate::ids::TreeId;
use crate::tuning::{STREAM_BEGINS, STREAMS};

/// The streams of a tree, at most [`STREAMS`].
#[derive(Clone)]
pub(crate) struct Streams {
    tree: TreeId,
    known: Arc<Known>,
}

#[derive(Default)]
struct Known {
    /// In the order of their last requests.
    streams: Mutex<VecDeque<Stream>>,
    /// A request has ended.
    ended: Condvar,
}

/// Requests that follow one another.
struct Stream {
    /// `None` while a request uses it.
    scan: Option<Box<Scan>>,
    /// The identity of the stream.
    id: Arc<()>,
    /// The end of the keys of the last request.
    end: Key,
    /// The keys of the leaf that the scan has come to, and of the next one if that is read ahead; `None` during the first request.
    near: Option<Bounds>,
    /// How many requests have begun behind the one before.
    followed: usize,
}

impl Stream {
    fn has(&self, lo: &Key) -> bool {
        *lo == self.end || self.near.as_ref().is_some_and(|near| near.contains(lo))
    }
}

/// The scan of a request. Dropping it ends the request; later ones can go on with the scan.
pub(crate) struct Request {
    scan: Option<Box<Scan>>,
    known: Arc<Known>,
    id: Arc<()>,
}

impl Deref for Request {
    type Target = Scan;

    fn deref(&self) -> &Scan {
        self.scan.as_deref().expect("it is there until the request is dropped")
    }
}

impl DerefMut for Request {
    fn deref_mut(&mut self) -> &mut Scan {
        self.scan.as_deref_mut().expect("it is there until the request is dropped")
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let mut streams = self.known.streams.lock();
        if let Some(own) = streams.iter_mut().find(|stream| Arc::ptr_eq(&stream.id, &self.id))
            && let Some(scan) = self.scan.take()
        {
            own.near = scan.near();
            own.scan = Some(scan);
        }
        drop(streams);
        self.known.ended.notify_all();
    }
}

impl Streams {
    /// No streams yet.
    pub(crate) fn new(tree: TreeId) -> Streams {
        Streams { tree, known: Arc::default() }
    }

    /// A scan of `[lo, hi)`. If the request is near others, the scan goes on with what they read ahead; if several have come in
    /// order, it reads ahead up to `beyond`. If it begins where the one before it ends, it waits for the end of that, so `waits` says that requests are
    /// short.
    pub(crate) fn scan(
        &self,
        lo: Key,
        hi: Key,
        beyond: impl FnOnce() -> Key,
        waits: bool,
    ) -> Request {
        let mut streams = self.known.streams.lock();
        let own = streams.iter().rposition(|stream| stream.has(&lo));
        let Some(mut stream) = own.and_then(|at| streams.remove(at)) else {
            let id = Arc::new(());
            let stream =
                Stream { scan: None, id: id.clone(), end: hi.clone(), near: None, followed: 0 };
            let oldest = if streams.len() == STREAMS { streams.pop_front() } else { None };
            streams.push_back(stream);
            drop(streams);
            // This waits for what it reads ahead.
            drop(oldest);
            let scan = Some(Box::new(Scan::new(self.tree, lo, Some(hi))));
            return Request { scan, known: self.known.clone(), id };
        };
        let is_next = stream.end == lo;
        stream.followed += usize::from(stream.end <= lo);
        stream.end = hi.clone();
        let (id, reads_on) = (stream.id.clone(), stream.followed >= STREAM_BEGINS);
        streams.push_back(stream);
        let scan = loop {
            match streams.iter_mut().find(|stream| Arc::ptr_eq(&stream.id, &id)) {
                Some(Stream { scan: None, .. }) if is_next && waits => {
                    self.known.ended.wait(&mut streams);
                }
                own => break own.and_then(|own| own.scan.take()),
            }
        };
        drop(streams);
        let known = self.known.clone();
        let Some(mut scan) = scan else {
            // Another request uses it.
            let scan = Some(Box::new(Scan::new(self.tree, lo, Some(hi))));
            return Request { scan, known, id: Arc::new(()) };
        };
        scan.go_to(lo, hi, reads_on.then(beyond));
        Request { scan: Some(scan), known, id }
    }
}
