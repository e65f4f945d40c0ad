//! Manual mode, for tests: the session task stands still before every append, and before it lets an effect run, until it is told to go on. So
//! a test stands between any two steps of a session, and can let its owner die there.

use tokio::sync::{mpsc, oneshot};

use crate::ids::EffectKey;

/// What a paused task is about to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Append records of these kinds, in one batch. Nothing of it is written.
    Append(Vec<&'static str>),
    /// Let who asked for this effect run it. Its intent is durable.
    Run(EffectKey),
}

/// A task that stands still. Dropped, its owner dies there: nothing more is written, and every handle gets a
/// [`Restart`](super::Restart).
#[derive(Debug)]
#[must_use]
pub struct Paused {
    step: Step,
    go: oneshot::Sender<()>,
}

impl Paused {
    /// What it is about to do.
    #[must_use]
    pub const fn step(&self) -> &Step {
        &self.step
    }

    /// Lets it do that.
    pub fn go(self) {
        // A task that is gone has nothing left to do.
        let _ = self.go.send(());
    }
}

/// Follows a task in manual mode. Dropped while the task runs on its own, it lets it: nothing pauses any more.
#[derive(Debug)]
pub struct Manual {
    paused: mpsc::UnboundedReceiver<Paused>,
}

impl Manual {
    /// The next pause; `None` once the task is gone. Cancel safe.
    pub async fn paused(&mut self) -> Option<Paused> {
        self.paused.recv().await
    }
}

/// The task's end of it.
#[derive(Debug)]
pub(crate) struct Pauses(mpsc::UnboundedSender<Paused>);

impl Pauses {
    pub(crate) fn new() -> (Self, Manual) {
        let (to, paused) = mpsc::unbounded_channel();
        (Self(to), Manual { paused })
    }

    /// Stands still before `step`. Whether it may go on.
    pub(crate) async fn before(&self, step: Step) -> bool {
        let (go, told) = oneshot::channel();
        match self.0.send(Paused { step, go }) {
            Ok(()) => told.await.is_ok(),
            Err(_nobody_follows) => true,
        }
    }
}
