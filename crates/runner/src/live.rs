//! Live text of the models, for eyes: beside the events, lossy, never recorded, never decided on. Who is too slow loses some and is told how
//! much; nobody waits for it.

use std::sync::Arc;

use agentrun_adapter::Deltas;
use agentrun_kernel::SessionKey;
use tokio::sync::broadcast;

use crate::runner::HarnessRunner;

/// Pieces of text that are kept for a slow reader.
const KEPT: usize = 256;

/// What a reader of live text gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Live {
    /// Some text, as the model streams it.
    Text {
        /// In which session.
        session: SessionKey,
        /// The text.
        text: Arc<str>,
    },
    /// The reader was too slow: this many pieces are gone.
    Lost(u64),
}

/// A reader of live text. Made by [`HarnessRunner::live_text`].
#[derive(Debug)]
pub struct LiveText(broadcast::Receiver<(SessionKey, Arc<str>)>);

impl LiveText {
    /// The next piece; waits for it. `None`: the runner is gone. Cancel safe.
    pub async fn next(&mut self) -> Option<Live> {
        match self.0.recv().await {
            Ok((session, text)) => Some(Live::Text { session, text }),
            Err(broadcast::error::RecvError::Lagged(lost)) => Some(Live::Lost(lost)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

/// The runner's end of it.
#[derive(Clone, Debug)]
pub(crate) struct LiveSender(broadcast::Sender<(SessionKey, Arc<str>)>);

impl LiveSender {
    pub(crate) fn new() -> Self {
        Self(broadcast::Sender::new(KEPT))
    }

    /// Where the harness of a session shows its text.
    pub(crate) fn of(&self, session: &SessionKey) -> Deltas {
        let (to, session) = (self.0.clone(), session.clone());
        Deltas::to(Arc::new(move |text| {
            if to.receiver_count() > 0 {
                // Nobody looks any more.
                let _ = to.send((session.clone(), Arc::from(text)));
            }
        }))
    }
}

impl HarnessRunner {
    /// The models' words in every session of this runner, from now on.
    #[must_use]
    pub fn live_text(&self) -> LiveText {
        LiveText(self.live.0.subscribe())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_slow_reader_is_waited_for_by_nobody_and_told_how_much_it_lost() {
        let live = LiveSender::new();
        let session = SessionKey::new("s").unwrap();
        let deltas = live.of(&session);
        deltas.show("before anybody looked");
        let mut slow = LiveText(live.0.subscribe());
        for nth in 0..KEPT + 44 {
            deltas.show(&nth.to_string());
        }
        assert_eq!(slow.next().await, Some(Live::Lost(44)));
        for nth in 44..KEPT + 44 {
            assert_eq!(slow.next().await, Some(Live::Text { session: session.clone(), text: nth.to_string().into() }));
        }
        drop((live, deltas));
        assert_eq!(slow.next().await, None);
    }
}
