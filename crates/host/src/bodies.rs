//! Memory for the bodies of requests: how much there is in all, and a few buffers that are used again. A body of an agent's usual size is
//! fifty pages; taken from the system for each request and given back, they cost more than reading it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Memory for bodies of requests that are being answered, in KiB. A request that would go over it waits.
const ALL_KIB: usize = 256 << 10;
/// Buffers that are kept for the next requests, and the largest of them.
const KEPT: usize = 4;
const KEPT_BYTES: usize = 512 << 10;
const LEAST_BYTES: usize = 16 << 10;

/// Where bodies are read into.
pub(crate) struct Bodies {
    room: Arc<Semaphore>,
    /// Each may still be read by the request before: then it is not taken.
    kept: Mutex<Vec<BytesMut>>,
}

impl Bodies {
    pub(crate) fn new() -> Self {
        Self { room: Arc::new(Semaphore::new(ALL_KIB)), kept: Mutex::new(Vec::with_capacity(KEPT)) }
    }

    /// Reads a whole body of so many bytes, and says what room it takes until the permit is dropped. Waits for room.
    ///
    /// # Errors
    /// One sentence for the harness.
    pub(crate) async fn read(
        &self,
        mut body: Incoming,
        bytes: u64,
    ) -> Result<(Bytes, OwnedSemaphorePermit), &'static str> {
        let room = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX);
        let room = self.room.clone().acquire_many_owned(room).await.map_err(|_| "the proxy is closing")?;
        let mut into = self.buffer(usize::try_from(bytes).map_err(|_| "the body is too long")?);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| "the body ended early")?;
            into.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
        }
        let read = into.split().freeze();
        if read.len() <= KEPT_BYTES {
            self.keep(into);
        }
        Ok((read, room))
    }

    /// A buffer with room for so many bytes: one that the request before has let go of, if there is one.
    fn buffer(&self, bytes: usize) -> BytesMut {
        let mut kept = self.kept();
        if let Some(place) = kept.iter_mut().position(|buffer| buffer.try_reclaim(bytes)) {
            return kept.swap_remove(place);
        }
        // A conversation grows: the next body is a little longer.
        let room = if bytes <= KEPT_BYTES { bytes.next_power_of_two().max(LEAST_BYTES) } else { bytes };
        BytesMut::with_capacity(room)
    }

    fn keep(&self, buffer: BytesMut) {
        let mut kept = self.kept();
        if kept.len() >= KEPT {
            // The one that waited longest is likely too small for what is asked now.
            kept.remove(0);
        }
        kept.push(buffer);
    }

    fn kept(&self) -> MutexGuard<'_, Vec<BytesMut>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
