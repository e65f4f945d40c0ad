//! The records of a session's inbox: a shared log, so a person can send to a session that another process owns.

use serde::{Deserialize, Serialize};

use super::session::Submission;
use crate::ids::SubmissionId;

/// One record of a session's inbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum InboxBody {
    /// A message for the session.
    Post {
        /// The message.
        submission: Submission,
    },
    /// The message is not to be sent, if it is not already.
    Retract {
        /// Which.
        id: SubmissionId,
    },
    /// The session's owner took messages into the session. In one batch with their `submission` records, so a message is either here to be
    /// retracted or there to be sent, never both.
    Taken {
        /// Which.
        ids: Vec<SubmissionId>,
    },
}

impl InboxBody {
    /// Every kind this version writes and reads.
    pub const KINDS: &[&str] = &["post", "retract", "taken"];
}
