//! What the records ask of the event log: which messages were taken, which calls are open, and the events that make it agree with the
//! records. Pure over the mirrored lines; no program is asked, so a settle works where none is installed.

use std::sync::Arc;

use agentrun_kernel::{NOT_RUN, NativeWrite, Repair, Survey};

use super::mend::Mend;
use super::response::assemble;
use super::timeline::{STREAM, Timeline};
use crate::native::{HistoryError, NativeFiles, NativeHistory};

/// What a settled turn ends with, as the model will read it.
const TURN_ENDED: &str = "[The host ended this turn before an answer was given.]";

/// The event log as records keep it.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenCodeHistory;

impl NativeHistory for OpenCodeHistory {
    fn survey(&self, files: &dyn NativeFiles) -> Result<Survey, HistoryError> {
        let Some(timeline) = read(files)? else { return Ok(Survey::default()) };
        Ok(Survey {
            native_session: timeline.session.clone(),
            resumable: timeline.len() > 0,
            taken: timeline.taken(),
            open_calls: timeline.open_calls(),
            answered: timeline.answered(),
            responses: timeline.responses.iter().map(|(id, _)| id.clone()).collect(),
            ended: timeline.is_over(),
        })
    }

    fn repair(
        &self,
        files: &dyn NativeFiles,
        want: &[Repair],
        response: &dyn Fn(&str) -> Option<Arc<[u8]>>,
    ) -> Result<Vec<NativeWrite>, HistoryError> {
        // A turn nobody took has nothing to end.
        let Some(timeline) = read(files)? else { return Ok(Vec::new()) };
        let mut mend = Mend::new(timeline);
        for wanted in want {
            match wanted {
                Repair::Answer { call, text, is_error } => mend.answer(call.as_str(), text, *is_error),
                Repair::Response { id, .. } => {
                    let bytes = response(id)
                        .ok_or_else(|| HistoryError::Unrepairable(format!("the records hold no response `{id}`")))?;
                    let said = assemble(&bytes).ok_or_else(|| {
                        HistoryError::Unrepairable(format!("the recorded response `{id}` is not a whole message"))
                    })?;
                    mend.response(id, &said);
                }
                Repair::EndTurn => mend.end_turn(NOT_RUN, TURN_ENDED),
            }
        }
        let write = mend.into_write();
        let write =
            write.map(|(offset, bytes)| NativeWrite { stream: STREAM.to_owned(), offset, bytes: Arc::from(bytes) });
        Ok(write.into_iter().collect())
    }

    fn last_words(&self, files: &dyn NativeFiles) -> Result<Option<String>, HistoryError> {
        let Some(timeline) = read(files)? else { return Ok(None) };
        let Some(user) = timeline.last_user() else { return Ok(None) };
        let last = timeline.answers(&user.id, 0).next_back().filter(|row| row.calls().next().is_none());
        // Ours, in the model's place, are no words of the model's.
        Ok(last.map(super::timeline::Row::text).filter(|words| !words.is_empty() && words != TURN_ENDED))
    }
}

/// The session's log among the streams.
fn read(files: &dyn NativeFiles) -> Result<Option<Timeline>, HistoryError> {
    for stream in files.streams() {
        if stream != STREAM {
            return Err(HistoryError::Unreadable { stream, what: "it is no event log of OpenCode's".to_owned() });
        }
    }
    match files.bytes(STREAM) {
        Some(bytes) => Timeline::read(&bytes).map(Some),
        None => Ok(None),
    }
}
