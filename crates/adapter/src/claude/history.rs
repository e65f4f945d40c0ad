//! What the records ask of the transcript: which messages were taken, which calls are open, and the writes that make it agree with the
//! records. Pure over the mirrored files; no program is asked, so a settle works where none is installed.

use std::sync::Arc;

use agentrun_kernel::{CallId, MessageId, NOT_RUN, NativeCall, NativeWrite, Repair, Survey};

use super::launch::CONFIG_FOLDER;
use super::transcript::{Mend, Transcript, last_words};
use super::wire::TOOL_PREFIX;
use crate::messages;
use crate::native::{HistoryError, NativeFiles, NativeHistory};

/// What a settled turn ends with, as the model will read it.
const TURN_ENDED: &str = "[The host ended this turn before an answer was given.]";

/// The transcript as records keep it.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClaudeHistory;

impl NativeHistory for ClaudeHistory {
    fn survey(&self, files: &dyn NativeFiles) -> Result<Survey, HistoryError> {
        let Some((stream, session)) = transcript_stream(files)? else { return Ok(Survey::default()) };
        let transcript = Transcript::read(&files.bytes(&stream).unwrap_or_default());
        let answered = transcript
            .results()
            .into_iter()
            .flat_map(|(id, count)| (0..count).map(move |_| CallId(id.to_owned())))
            .collect();
        Ok(Survey {
            native_session: Some(session),
            resumable: transcript.resumable(),
            taken: transcript.taken().into_iter().map(|id| MessageId(id.to_owned())).collect(),
            open_calls: transcript
                .open_calls()
                .map(|call| NativeCall {
                    call: CallId(call.id.clone()),
                    tool: tool_name(&call.name).to_owned(),
                    arguments: call.arguments.clone(),
                })
                .collect(),
            answered,
            responses: transcript.responses(),
            ended: transcript.ended(),
        })
    }

    fn repair(
        &self,
        files: &dyn NativeFiles,
        want: &[Repair],
        response: &dyn Fn(&str) -> Option<Arc<[u8]>>,
    ) -> Result<Vec<NativeWrite>, HistoryError> {
        let Some((stream, _)) = transcript_stream(files)? else {
            // A turn nobody took has nothing to end.
            return Ok(Vec::new());
        };
        let mut mend = Mend::new(Transcript::read(&files.bytes(&stream).unwrap_or_default()));
        for wanted in want {
            match wanted {
                Repair::Answer { call, text, is_error } => {
                    mend.answer(call.as_str(), text, *is_error);
                }
                Repair::Response { id, .. } => {
                    let bytes = response(id)
                        .ok_or_else(|| HistoryError::Unrepairable(format!("the records hold no response `{id}`")))?;
                    let message = messages::assemble(&bytes).ok_or_else(|| {
                        HistoryError::Unrepairable(format!("the recorded response `{id}` is not a whole message"))
                    })?;
                    mend.response(&message);
                }
                Repair::EndTurn => {
                    mend.end_turn(NOT_RUN, TURN_ENDED);
                }
            }
        }
        let write = mend.into_write().map(|(offset, bytes)| NativeWrite { stream, offset, bytes: Arc::from(bytes) });
        Ok(write.into_iter().collect())
    }

    fn last_words(&self, files: &dyn NativeFiles) -> Result<Option<String>, HistoryError> {
        let Some((stream, _)) = transcript_stream(files)? else { return Ok(None) };
        Ok(last_words(&files.bytes(&stream).unwrap_or_default()))
    }
}

/// The tool as we name it: host tools without the program's prefix.
pub(super) fn tool_name(name: &str) -> &str {
    name.strip_prefix(TOOL_PREFIX).unwrap_or(name)
}

/// The session's transcript among the streams, and the session's id in its name.
pub(super) fn transcript_stream(files: &dyn NativeFiles) -> Result<Option<(String, String)>, HistoryError> {
    let mut found = None;
    for stream in files.streams() {
        let Some(session) = session_of(&stream) else {
            return Err(HistoryError::Unreadable { stream, what: "it is no transcript of Claude Code's".to_owned() });
        };
        let session = session.to_owned();
        if found.replace((stream.clone(), session)).is_some() {
            return Err(HistoryError::Unreadable { stream, what: "one session has two transcripts".to_owned() });
        }
    }
    Ok(found)
}

/// `claude/projects/<folder>/<session>.jsonl`
pub(super) fn session_of(stream: &str) -> Option<&str> {
    let (folder, file) = stream.strip_prefix(CONFIG_FOLDER)?.strip_prefix("/projects/")?.split_once('/')?;
    let session = file.strip_suffix(".jsonl")?;
    (!folder.is_empty() && !session.is_empty() && !session.contains('/')).then_some(session)
}
