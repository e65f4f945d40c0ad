//! What an author says of an adapter under test: how it is made, and which words of its provider and of its program the cases need.

use std::path::Path;
use std::sync::Arc;

use agentrun_adapter::{AdapterProfile, AgentAdapter};
use agentrun_kernel::Built;
use serde_json::{Map, Value};

use crate::script::{Conversation, Script};

/// An adapter under test. Its profile decides which cases apply; what is said here is only how to reach it.
pub trait Subject: Send + Sync + 'static {
    /// A fresh adapter; a case asks once. One whose model steps are made in process plays `script`; another one is given an endpoint that
    /// does, and leaves it alone.
    fn adapter(&self, script: &Script) -> Arc<dyn AgentAdapter>;

    /// A model of its provider, by its exact name.
    fn model(&self) -> &str;

    /// How its provider's ids of calls begin.
    fn call_prefix(&self) -> &str {
        "call"
    }

    /// One of its built-in tools that runs a line of a shell: its name and the arguments of such a call. Asked of an adapter that records
    /// built-ins.
    fn command(&self, _line: &str) -> Option<(String, Map<String, Value>)> {
        None
    }

    /// The adapter on the program at this path, whatever the environment names. Without it a refusal by version cannot be shown here.
    fn over(&self, _program: &Path) -> Option<Arc<dyn AgentAdapter>> {
        None
    }

    /// A model request of an adapter that makes its steps in process, as a script sees it.
    fn conversation(&self, _body: &[u8]) -> Conversation {
        Conversation::default()
    }
}

/// What a case needs of a subject. The profile says most of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    /// A program of its own is started.
    Program,
    /// Its model is asked over HTTP.
    Http,
    /// It records its built-in tools and can deny them, and the subject names one.
    Gated,
    /// It does not record its built-in tools.
    Unrecorded,
    /// Calls in flight can end while nothing new begins.
    Drain,
    /// It cannot start from another session's context.
    NoFork,
    /// It takes messages under our ids.
    OwnIds,
    /// It takes words while a turn runs.
    Steer,
    /// It can be made on another program: [`Subject::over`].
    Over,
    /// The program that stands between is there: [`Options::between`](super::Options::between).
    Between,
}

impl Ability {
    /// Every ability.
    pub const ALL: [Self; 10] = [
        Self::Program,
        Self::Http,
        Self::Gated,
        Self::Unrecorded,
        Self::Drain,
        Self::NoFork,
        Self::OwnIds,
        Self::Steer,
        Self::Over,
        Self::Between,
    ];

    /// As a report names it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Program => "a program of its own",
            Self::Http => "a model asked over HTTP",
            Self::Gated => "built-in tools it records and can deny, one of them named by the subject",
            Self::Unrecorded => "an adapter that does not record built-in tools",
            Self::Drain => "a drain",
            Self::NoFork => "an adapter that cannot fork",
            Self::OwnIds => "messages under our own ids",
            Self::Steer => "words in a running turn",
            Self::Over => "a subject that can be made over another program",
            Self::Between => "the program that stands between, named in the options",
        }
    }

    pub(super) fn is_of(self, subject: &dyn Subject, profile: &AdapterProfile, between: bool) -> bool {
        let widest = profile.widest;
        match self {
            Self::Program => profile.program.is_some(),
            Self::Http => !profile.speaks.is_empty(),
            Self::Gated => widest.builtins == Built::Gated && subject.command("true").is_some(),
            Self::Unrecorded => widest.builtins == Built::Neither,
            Self::Drain => widest.drain,
            Self::NoFork => !widest.fork,
            Self::OwnIds => widest.own_ids,
            Self::Steer => widest.steer,
            Self::Over => subject.over(Path::new("/bin/sh")).is_some(),
            Self::Between => profile.program.is_some() && between,
        }
    }
}
