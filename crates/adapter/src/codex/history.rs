//! What the records ask of the rollout: which messages were taken, which calls are open, and the writes that make it agree with the
//! records. Pure over the mirrored files; no program is asked, so a settle works where none is installed.

use std::sync::Arc;

use agentrun_kernel::{CallId, MessageId, NOT_RUN, NativeCall, NativeWrite, Repair, Survey};

use super::launch::HOME_FOLDER;
use super::response;
use super::rollout::{Mend, Rollout};
use crate::native::{HistoryError, NativeFiles, NativeHistory};

/// What a settled turn ends with, as the model will read it.
const TURN_ENDED: &str = "[The host ended this turn before an answer was given.]";

/// The rollout as records keep it.
#[derive(Clone, Copy, Debug, Default)]
pub struct CodexHistory;

impl NativeHistory for CodexHistory {
    fn survey(&self, files: &dyn NativeFiles) -> Result<Survey, HistoryError> {
        let Some((_, rollout)) = rollout(files)? else { return Ok(Survey::default()) };
        Ok(Survey {
            native_session: rollout.thread().map(str::to_owned),
            resumable: rollout.spoken(),
            taken: rollout.taken().map(|id| MessageId(id.to_owned())).collect(),
            open_calls: rollout
                .open_calls()
                .into_iter()
                .map(|call| NativeCall {
                    call: CallId(call.id.clone()),
                    tool: call.name.clone(),
                    arguments: call.arguments.clone(),
                })
                .collect(),
            answered: rollout.answered().map(|call| CallId(call.to_owned())).collect(),
            responses: rollout.responses().map(str::to_owned).collect(),
            ended: rollout.ended(),
        })
    }

    fn repair(
        &self,
        files: &dyn NativeFiles,
        want: &[Repair],
        response: &dyn Fn(&str) -> Option<Arc<[u8]>>,
    ) -> Result<Vec<NativeWrite>, HistoryError> {
        // A turn nobody took has nothing to end.
        let Some((stream, rollout)) = rollout(files)? else { return Ok(Vec::new()) };
        let mut mend = Mend::new(rollout);
        for wanted in want {
            match wanted {
                Repair::Answer { call, text, .. } => {
                    mend.answer(call.as_str(), text);
                }
                Repair::Response { id, .. } => {
                    let unrepairable =
                        |what: &str| HistoryError::Unrepairable(format!("the recorded response `{id}` {what}"));
                    let bytes = response(id).ok_or_else(|| unrepairable("is not in the records"))?;
                    let items = response::items(&bytes).ok_or_else(|| unrepairable("is not a whole response"))?;
                    mend.response(id, items);
                }
                Repair::EndTurn => mend.end_turn(NOT_RUN, Some(TURN_ENDED)),
            }
        }
        let write = mend.into_write().map(|(offset, bytes)| NativeWrite { stream, offset, bytes: Arc::from(bytes) });
        Ok(write.into_iter().collect())
    }

    fn last_words(&self, files: &dyn NativeFiles) -> Result<Option<String>, HistoryError> {
        let Some((_, rollout)) = rollout(files)? else { return Ok(None) };
        // Ours, in the model's place, are no words of the model's.
        Ok(rollout.last_words().filter(|words| *words != TURN_ENDED).map(str::to_owned))
    }
}

/// The session's rollout among the streams. One that was emptied, because nobody had spoken in it, is none.
fn rollout(files: &dyn NativeFiles) -> Result<Option<(String, Rollout)>, HistoryError> {
    let mut found = None;
    for stream in files.streams() {
        if !is_rollout(&stream) {
            return Err(HistoryError::Unreadable { stream, what: "it is no rollout of Codex's".to_owned() });
        }
        let Some(bytes) = files.bytes(&stream).filter(|bytes| !bytes.is_empty()) else { continue };
        if found.replace((stream.clone(), Rollout::read(&bytes))).is_some() {
            return Err(HistoryError::Unreadable { stream, what: "one session has two rollouts".to_owned() });
        }
    }
    Ok(found)
}

/// `codex/sessions/YYYY/MM/DD/rollout-<time>-<thread>.jsonl`
pub(super) fn is_rollout(stream: &str) -> bool {
    let below = stream.strip_prefix(HOME_FOLDER).and_then(|rest| rest.strip_prefix("/sessions/"));
    below
        .and_then(|path| path.rsplit('/').next())
        .is_some_and(|file| file.starts_with("rollout-") && file.ends_with(".jsonl"))
}
