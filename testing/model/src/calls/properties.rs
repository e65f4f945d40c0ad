//! What must hold of every state of the calls, and what must be reached for the rest to mean anything.

use stateright::Property;

use super::{Calls, Doing, End, State, Tool};

/// Every property, by the name that the verdict table uses.
pub(super) fn all() -> Vec<Property<Calls>> {
    vec![
        Property::always("a never tool runs at most once", |_, state: &State| state.world.never_runs <= 1),
        Property::always("a call runs once at a time", |_, state: &State| !state.world.one_ran_twice_at_once),
        Property::always("nothing runs beside submit or is open at delivery", |_, state: &State| {
            !state.world.ran_beside_submit
        }),
        Property::always("no call is called interrupted that never had its permit", |_, state: &State| {
            !state.calls.iter().any(|call| call.end == Some(End::Interrupted) && !call.permit)
        }),
        Property::always("nothing begins after a stop", |_, state: &State| !state.world.began_after_stop),
        Property::always("a call that ran to its end is not called interrupted", |_, state: &State| {
            !state.calls.iter().any(|call| call.ran && call.end == Some(End::Interrupted))
        }),
        Property::always("nothing runs on that is called interrupted", |_, state: &State| {
            !state.world.told_interrupted_while_it_ran
        }),
        Property::always("a new call is not answered with an old result", |_, state: &State| {
            !state.world.told_of_another_call
        }),
        Property::always("a safe call runs three times at most", |_, state: &State| !state.world.safe_ran_too_often),
        Property::sometimes("delivered", |_, state: &State| state.delivered),
        Property::sometimes("two calls run at once", |_, state: &State| {
            state.calls.iter().filter(|call| call.doing == Doing::Running).count() == 2
        }),
        Property::sometimes("delivered after a refused repeat", |_, state: &State| {
            state.delivered && state.calls.iter().any(|call| call.end == Some(End::Refused))
        }),
        Property::sometimes("a later attempt answers from a receipt", |_, state: &State| {
            state.world.answered_from_a_receipt
        }),
        Property::sometimes("a call is joined", |_, state: &State| state.world.joined),
        Property::sometimes("a drained call keeps its outcome", |_, state: &State| {
            state.draining && state.calls.iter().any(|call| call.end == Some(End::Ok))
        }),
        Property::sometimes("a safe call runs again", |_, state: &State| {
            state.calls.iter().any(|call| call.tool == Tool::Safe && call.opens > 0 && call.end == Some(End::Ok))
        }),
    ]
}
