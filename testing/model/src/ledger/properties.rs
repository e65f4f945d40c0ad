//! What must hold of every state of the ledger, and what must be reached for the rest to mean anything.

use stateright::Property;

use super::{BILL, Ledger, Note, RAISED, Record, State, WANTED, Which};

/// Every property, by the name that the verdict table uses.
pub(super) fn all() -> Vec<Property<Ledger>> {
    vec![
        Property::always("booked and held are within the cap at admission", |_, state: &State| !state.world.over_cap),
        Property::always("the bills are within the cap", |model: &Ledger, state: &State| {
            state.world.sent * BILL <= model.cap(&state.ledger)
        }),
        Property::always("the cap is what a person set", |model: &Ledger, state: &State| {
            model.cap(&state.ledger) <= RAISED
        }),
        Property::always("a hold ends at most once", |_, state: &State| {
            (0..state.length()).all(|id| state.ends(id) <= 1)
        }),
        Property::always("every request has its hold", |_, state: &State| !state.world.sent_without_hold),
        Property::always("what was sent is never released", |_, state: &State| {
            let ended = |kind: fn(&Record) -> bool| state.ledger.iter().filter(|record| kind(record)).count();
            let holds = ended(|record| matches!(record, Record::Hold { .. }));
            let released = ended(|record| matches!(record, Record::Release { .. }));
            usize::from(state.world.sent) <= holds.saturating_sub(released)
        }),
        Property::always("a fenced owner does nothing new after its next write", |_, state: &State| {
            !state.world.acted_after_refusal
        }),
        Property::sometimes("a session has all it wants", |_, state: &State| state.booked(Which::A) == WANTED),
        Property::sometimes("the cap refuses", |_, state: &State| state.parked_a),
        Property::sometimes("a conflict is folded and tried again", |_, state: &State| {
            state.world.noted == Some(Note::Conflict)
        }),
        Property::sometimes("a cut request stays unknown", |_, state: &State| {
            state.ledger.iter().any(|record| matches!(record, Record::Unknown { .. }))
        }),
        Property::sometimes("a hold is released with proof", |_, state: &State| {
            state.ledger.iter().any(|record| matches!(record, Record::Release { .. }))
        }),
        Property::sometimes("a parked session goes on after a raise", |_, state: &State| {
            state.world.noted == Some(Note::WentOn)
        }),
        Property::sometimes("a process books after another one of the run was opened", |_, state: &State| {
            state.world.noted == Some(Note::BookedBeside)
        }),
    ]
}
