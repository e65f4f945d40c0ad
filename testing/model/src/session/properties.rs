//! What must hold of every state, and what must be reached for the rest to mean anything.

use stateright::Property;

use super::{Record, Session, State};

/// Every property, by the name that the verdict table uses.
pub(super) fn all() -> Vec<Property<Session>> {
    vec![
        Property::always("epochs never fall", |_, state: &State| {
            let ledger = |record: &Record| {
                matches!(record, Record::Hold { .. } | Record::Booking { .. } | Record::Unknown { .. })
            };
            state.log.iter().filter(|(_, record)| !ledger(record)).is_sorted_by_key(|(epoch, _)| *epoch)
        }),
        Property::always("a never effect runs at most once", |_, state: &State| state.world.never_runs <= 1),
        Property::always("at most one outcome", |_, state: &State| {
            at_most_once(state, |record| match record {
                Record::Outcome(call, _) => Some(Record::Intent(call)),
                _ => None,
            })
        }),
        Property::always("delivered at most once", |_, state: &State| {
            at_most_once(state, |record| (record == Record::Delivered).then_some(record))
        }),
        Property::always("a placement is written once", |_, state: &State| {
            at_most_once(state, |record| (record == Record::Placed).then_some(record))
        }),
        Property::always("a hold ends at most once", |_, state: &State| {
            at_most_once(state, |record| match record {
                Record::Booking { key, .. } | Record::Unknown { key } => Some(Record::Hold { key }),
                _ => None,
            })
        }),
        Property::always("a prompt reaches the model at most once", |_, state: &State| {
            !state.world.saw_two_takes && !state.world.saw_two_copies
        }),
        Property::always("no request goes without the prompt", |_, state: &State| !state.world.saw_no_prompt),
        Property::always("a booked response is not paid again", |_, state: &State| {
            state.log.iter().enumerate().all(|(at, (_, record))| match record {
                Record::Booking { place, .. } => !state
                    .log
                    .iter()
                    .skip(at)
                    .any(|(_, later)| matches!(later, Record::Request { place: again, .. } if again == place)),
                _ => true,
            })
        }),
        Property::always("an intent is explained by the history before it", |_, state: &State| {
            let mut known = super::History::default();
            state.log.iter().all(|(_, record)| match record {
                Record::Native(history) => {
                    known = *history;
                    true
                }
                Record::Intent(call) => known.reply == call.reply,
                _ => true,
            })
        }),
        Property::always("intent and hold are on disk before the act", |_, state: &State| {
            !state.world.acted_before_disk
        }),
        Property::always("a fenced owner does nothing new after its next write", |_, state: &State| {
            !state.world.acted_after_refusal
        }),
        Property::sometimes("an act begins after the fence, and nobody can close that", |_, state: &State| {
            state.world.acted_after_fence
        }),
        Property::sometimes("delivered", |_, state: &State| state.view(u8::MAX).holds(Record::Delivered)),
        Property::sometimes("delivered after an interrupted call", |_, state: &State| {
            let view = state.view(u8::MAX);
            view.holds(Record::Delivered) && view.records().any(|record| matches!(record, Record::Outcome(_, false)))
        }),
        Property::sometimes("delivered after a lost request", |_, state: &State| {
            let view = state.view(u8::MAX);
            view.holds(Record::Delivered) && view.records().any(|record| matches!(record, Record::Lost { .. }))
        }),
        Property::sometimes("a safe tool runs again", |_, state: &State| state.world.safe_runs > 1),
    ]
}

/// Whether no two records of the log have the same `name`.
fn at_most_once(state: &State, name: impl Fn(Record) -> Option<Record>) -> bool {
    let named = || state.view(u8::MAX).records().filter_map(&name);
    named().enumerate().all(|(at, one)| !named().skip(at + 1).any(|other| other == one))
}
