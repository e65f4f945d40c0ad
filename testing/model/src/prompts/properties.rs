//! What must hold of every state of the prompts, and what must be reached for the rest to mean anything.

use stateright::Property;

use super::table::Decision;
use super::{ALL, Doing, From, Job, Native, Prompts, Record, State};

/// Every property, by the name that the verdict table uses.
pub(super) fn all() -> Vec<Property<Prompts>> {
    vec![
        Property::always("words reach the model by one message", |_, state: &State| !state.world.told_twice),
        Property::always("words stand once in the history", |_, state: &State| {
            ALL.into_iter().all(|from| {
                let held = |message: u8| state.recorded(message) >= Native::Took;
                state.placed().filter(|placed| placed.carries.has(from) && held(placed.message)).count() <= 1
            })
        }),
        Property::always("no accepted words are lost", |model: &Prompts, state: &State| {
            let idle = state.doing == Doing::Deciding && state.job == Job::Run && model.decide(state) == Decision::Idle;
            let told = |from: From| {
                state.placed().any(|placed| placed.carries.has(from) && state.recorded(placed.message) >= Native::Took)
            };
            !idle || [From::Node, From::Person].into_iter().all(|from| !state.accepted(from) || told(from))
        }),
        Property::always("no request goes without its words", |_, state: &State| !state.world.asked_without_its_words),
        Property::always("a cut follow-up does not go on", |_, state: &State| {
            !state.world.went_on_with_a_cut_follow_up
        }),
        Property::always("a follow-up is begun once", |_, state: &State| {
            state.log.iter().filter(|record| matches!(record, Record::FollowUpIntent { .. })).count() <= 1
        }),
        Property::always("a settle withdraws no person's words", |_, state: &State| {
            !state.holds(Record::Withdrawn(From::Person))
        }),
        Property::always("an ended turn is not taken up again", |_, state: &State| !state.world.took_up_an_ended_turn),
        Property::always("one turn is open at a time", |_, state: &State| {
            let mut open = false;
            state.log.iter().all(|record| match record {
                Record::Placed { .. } => !std::mem::replace(&mut open, true),
                Record::TurnEnd | Record::Settled { .. } => std::mem::replace(&mut open, false),
                _ => true,
            })
        }),
        Property::sometimes("two prompts in one message", |_, state: &State| {
            state.placed().any(|placed| placed.carries.node && placed.carries.person)
        }),
        Property::sometimes("a follow-up carries a person's words", |_, state: &State| {
            state.placed().any(|placed| placed.carries.follow_up && placed.carries.person)
        }),
        Property::sometimes("a follow-up ends by itself", |_, state: &State| {
            state.holds(Record::FollowUpOutcome) && !state.holds(Record::Withdrawn(From::FollowUp))
        }),
        Property::sometimes("a follow-up is cut and the words beside it go on", |_, state: &State| {
            let carried =
                |both: bool| state.placed().any(|placed| placed.carries.person && placed.carries.follow_up == both);
            state.holds(Record::Withdrawn(From::FollowUp)) && carried(true) && carried(false)
        }),
        Property::sometimes("words are placed again", |model: &Prompts, state: &State| {
            let carried = state.placed().filter(|placed| placed.carries.node).count();
            carried > 1 || (model.own_ids && state.epoch > 1 && matches!(state.doing, Doing::Giving(_)))
        }),
    ]
}
