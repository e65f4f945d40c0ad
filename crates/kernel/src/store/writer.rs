//! The writer of one session. It is not `Clone`: one writer an open, one open an attempt, and the type keeps it so (B42, B45).

use std::sync::Arc;

use super::{
    AppendError, Batch, Durability, FencedAppend, SharedAppend, SharedFrames, StoreError, WriterBackend, encode_all,
    now_ms,
};
use crate::ids::{Epoch, LogKey, Nonce, Seq, SessionKey};
use crate::record::{Body, Record};
use crate::store::End;

/// The one way to write a session. Made by [`SessionStore::open`](super::SessionStore::open); dead once an append said
/// [`AppendError::Fenced`] or [`AppendError::Unknown`].
#[derive(Debug)]
pub struct SessionWriter {
    key: SessionKey,
    epoch: Epoch,
    nonce: Nonce,
    last: Seq,
    backend: Arc<dyn WriterBackend>,
    dead: Option<AppendError>,
}

impl SessionWriter {
    /// A store's own step: the writer of the open that raised `epoch` and drew `nonce`, with the log at `last`.
    #[must_use]
    pub fn new(key: SessionKey, epoch: Epoch, nonce: Nonce, last: Seq, backend: Arc<dyn WriterBackend>) -> Self {
        Self { key, epoch, nonce, last, backend, dead: None }
    }

    /// The session.
    #[must_use]
    pub const fn key(&self) -> &SessionKey {
        &self.key
    }

    /// The epoch this writer holds.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The seq of the last record this writer knows of.
    #[must_use]
    pub const fn last(&self) -> Seq {
        self.last
    }

    /// Appends `batch`, and `also` to one shared log: all of it lands, or none, with the fence and both places checked in the same
    /// atomic step. Resolves when it is as durable as the batch asks, with the new last seq.
    ///
    /// Not cancel safe: a dropped future leaves the writer not knowing its place, and its next append is refused as fenced or lands
    /// nowhere. The session task is the one caller, and never drops it.
    ///
    /// # Errors
    /// [`AppendError`]; after `Fenced` and `Unknown` every later append answers the same.
    pub async fn append(&mut self, batch: Batch, also: Option<SharedAppend>) -> Result<Seq, AppendError> {
        self.write(&batch.bodies.iter().collect::<Vec<_>>(), now_ms(), batch.durability, also).await
    }

    /// The same with records that were made for this writer's place: its seqs, its epoch, and one time.
    pub(crate) async fn append_records(
        &mut self,
        records: &[Record],
        durability: Durability,
        also: Option<SharedAppend>,
    ) -> Result<Seq, AppendError> {
        let at = records.first().map_or_else(now_ms, |record| record.at);
        self.write(&records.iter().map(|record| &record.body).collect::<Vec<_>>(), at, durability, also).await
    }

    async fn write(
        &mut self,
        bodies: &[&Body],
        at: u64,
        durability: Durability,
        also: Option<SharedAppend>,
    ) -> Result<Seq, AppendError> {
        if let Some(error) = &self.dead {
            return Err(error.clone());
        }
        let log = LogKey::Session(self.key.clone());
        let frames = encode_all(&log, self.last, self.epoch, at, bodies.iter().copied())?;
        let also = also.map(|append| SharedFrames::encode(append, at)).transpose()?;
        let append = FencedAppend {
            key: self.key.clone(),
            epoch: self.epoch,
            nonce: self.nonce,
            last: self.last,
            frames,
            durability,
            begins: bodies.iter().any(|body| matches!(body, Body::Intent(_))),
            run: bodies
                .iter()
                .find_map(|body| if let Body::Bound(bound) = body { Some(bound.run.clone()) } else { None }),
            end: end_of(bodies),
            moved: bodies.iter().find_map(|body| if let Body::Moved { to } = body { Some(to.clone()) } else { None }),
            also,
        };
        let answer = match self.backend.append(append).await {
            Ok(answer) => answer,
            // The committer broke with the batch in its hands: it may have been written.
            Err(_gone) => Err(AppendError::Unknown(StoreError::Io("the store's committer stopped".to_owned()))),
        };
        match &answer {
            Ok(seq) => self.last = *seq,
            Err(error @ (AppendError::Fenced { .. } | AppendError::Unknown(_))) => self.dead = Some(error.clone()),
            Err(AppendError::Conflict { .. } | AppendError::Refused(_)) => {}
        }
        answer
    }
}

/// What a batch makes of the session's end: `Some(None)` takes a park back, since the session goes on. The store keeps an answer that is
/// already there.
fn end_of(bodies: &[&Body]) -> Option<Option<End>> {
    bodies.iter().rev().find_map(|body| match body {
        Body::Delivered(_) => Some(Some(End::Delivered)),
        Body::Failed(_) => Some(Some(End::Failed)),
        Body::Parked(_) => Some(Some(End::Parked)),
        Body::Moved { .. } => Some(Some(End::Moved)),
        Body::Placed(_) | Body::Intent(_) => Some(None),
        _ => None,
    })
}
