//! Everything a session is given: where it writes, where it runs, whom it calls.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use agentrun_kernel::{Drive, Usage};
use async_trait::async_trait;

use crate::journal::{Journal, JournalError, Tail};
use crate::process::Marker;
use crate::tools::ToolHost;

/// What a session sits on.
pub struct Seat {
    /// The session's records.
    pub drive: Drive,
    /// The mirror of its own history.
    pub journal: Journal,
    /// The host's tools.
    pub tools: Arc<dyn ToolHost>,
    /// Where its model requests go.
    pub model: ModelEndpoint,
    /// Its private folders.
    pub dirs: Dirs,
    /// Live text, for eyes.
    pub deltas: Deltas,
    /// What its processes carry in their environment.
    pub marker: Marker,
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat").field("drive", &self.drive).field("dirs", &self.dirs).finish_non_exhaustive()
    }
}

/// A session's folders. `home` and `tmp` are made new for each epoch, restored from the records, and removed by the runner; a program is
/// never started on leftovers.
#[derive(Clone, Debug)]
pub struct Dirs {
    /// The harness's private home.
    pub home: PathBuf,
    /// Its temporary folder.
    pub tmp: PathBuf,
    /// Where it works.
    pub workspace: PathBuf,
}

/// What a model endpoint speaks. An adapter says which of them its harness can be pointed at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelApi {
    /// Anthropic Messages.
    Messages,
    /// OpenAI Responses.
    Responses,
    /// OpenAI chat completions.
    ChatCompletions,
}

impl ModelApi {
    /// Its name in messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Messages => "Anthropic Messages",
            Self::Responses => "OpenAI Responses",
            Self::ChatCompletions => "OpenAI chat completions",
        }
    }
}

/// Where a session's model requests go. Both ways pass the same gate.
#[derive(Clone)]
pub enum ModelEndpoint {
    /// Our loopback proxy, with the key of this epoch.
    Http {
        /// Origin, without a path.
        base_url: String,
        /// The key; dead with the epoch.
        key: Arc<str>,
        /// What is spoken there.
        api: ModelApi,
    },
    /// In-process loops.
    Direct(Arc<dyn ModelPort>),
}

impl fmt::Debug for ModelEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http { base_url, api, .. } => {
                f.debug_struct("Http").field("base_url", base_url).field("api", api).finish_non_exhaustive()
            }
            Self::Direct(_) => f.write_str("Direct"),
        }
    }
}

/// The gate for loops that need no socket.
#[async_trait]
pub trait ModelPort: Send + Sync {
    /// Asks for one paid request; the step is then made by the caller and ended through what this answers.
    ///
    /// # Errors
    /// [`PortRefused`]: nothing may be sent.
    async fn begin(&self, call: PaidCall) -> Result<Box<dyn PaidStep>, PortRefused>;
}

/// A model request of an in-process loop.
#[derive(Clone, Debug)]
pub struct PaidCall {
    /// The model's exact name.
    pub model: String,
    /// The request as the model would get it.
    pub body: Arc<[u8]>,
    /// Most output tokens it may use.
    pub max_output: u64,
}

/// A paid step that was admitted. Dropped without `finish`, its spend is unknown.
#[async_trait]
pub trait PaidStep: Send {
    /// Records what it used and the whole response, and books it.
    ///
    /// # Errors
    /// [`PortRefused`] when the record could not be written: the response must not be acted on.
    async fn finish(self: Box<Self>, usage: Usage, response_id: String, response: Arc<[u8]>)
    -> Result<(), PortRefused>;
}

/// A refused request. The first refusal is sticky for its turn.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PortRefused {
    /// The gate's word.
    pub word: String,
    /// What happened.
    pub message: String,
}

/// Asked by the gate before a paid request is admitted: has the harness's own history what the request says?
#[async_trait]
pub trait RequestBarrier: Send + Sync {
    /// Waits, bounded, until the history holds the request's last message and results; answers what is not mirrored of it.
    ///
    /// # Errors
    /// [`JournalError`]: the request is refused and nothing is sent.
    async fn before_request(&self, body: &[u8]) -> Result<Tail, JournalError>;
}

/// Live text for eyes: lossy, never recorded, never decided on.
#[derive(Clone)]
pub struct Deltas(Option<Show>);

/// What live text is given to.
type Show = Arc<dyn Fn(&str) + Send + Sync>;

impl fmt::Debug for Deltas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Deltas").field(&self.0.is_some()).finish()
    }
}

impl Deltas {
    /// Text is given to `show`, which must not wait: the harness is not heard while it does.
    #[must_use]
    pub fn to(show: Arc<dyn Fn(&str) + Send + Sync>) -> Self {
        Self(Some(show))
    }

    /// Nobody looks.
    #[must_use]
    pub const fn nowhere() -> Self {
        Self(None)
    }

    /// Shows some text to whoever looks.
    pub fn show(&self, text: &str) {
        if let Some(show) = &self.0 {
            show(text);
        }
    }
}
