//! Breadth first over a model on one thread, so that a counterexample is a shortest one; the library's own search gives longer traces.
//! States are told apart by 64 bits of hash: among the millions explored here a collision is expected less than once in a million runs.

use std::collections::hash_map::{Entry, HashMap};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::hash::{BuildHasher, Hash};

use foldhash::quality::FixedState;
use stateright::{Expectation, Model};

/// What an exploration found.
#[derive(Debug)]
pub struct Report {
    /// Distinct states reached.
    pub states: usize,
    /// Steps taken between them, those to a state already known included.
    pub transitions: usize,
    /// Steps to the farthest state.
    pub depth: usize,
    /// Properties that some state breaks, each with a shortest way there.
    pub broken: Vec<Broken>,
    /// What should have been reached and was not: a model in which nothing happens breaks nothing.
    pub unreached: Vec<&'static str>,
}

/// A property and a shortest way to a state that breaks it.
#[derive(Debug)]
pub struct Broken {
    /// The property's name.
    pub property: &'static str,
    /// The steps, in order.
    pub trace: Vec<String>,
}

/// Explores `model` until every property of `sought` is broken, or whole where there is none or one of them holds. A property that is broken
/// already is not looked at again.
pub fn explore<M>(model: &M, sought: &[&str]) -> Report
where
    M: Model,
    M::State: Hash,
    M::Action: Clone + Debug,
{
    // Fixed, so that two runs of one build tell the same.
    let hasher = FixedState::default();
    let properties = model.properties();
    let mut came_from: HashMap<u64, Option<(u64, M::Action)>, FixedState> = HashMap::default();
    let mut queue = VecDeque::new();
    let mut found: BTreeMap<&'static str, u64> = BTreeMap::new();
    let (mut transitions, mut depth) = (0, 0);
    for state in model.init_states() {
        let print = hasher.hash_one(&state);
        came_from.insert(print, None);
        queue.push_back((state, print, 0));
    }
    let mut actions = Vec::new();
    while let Some((state, print, steps)) = queue.pop_front() {
        depth = steps;
        for property in &properties {
            let wanted = property.expectation != Expectation::Always;
            if !found.contains_key(property.name) && (property.condition)(model, &state) == wanted {
                found.insert(property.name, print);
            }
        }
        if !sought.is_empty() && sought.iter().all(|name| found.contains_key(name)) {
            break;
        }
        model.actions(&state, &mut actions);
        for action in actions.drain(..) {
            let Some(next) = model.next_state(&state, action.clone()) else { continue };
            transitions += 1;
            let reached = hasher.hash_one(&next);
            if let Entry::Vacant(new) = came_from.entry(reached) {
                new.insert(Some((print, action)));
                queue.push_back((next, reached, steps + 1));
            }
        }
    }
    let (mut broken, mut unreached) = (Vec::new(), Vec::new());
    for property in &properties {
        match (&property.expectation, found.get(property.name)) {
            (Expectation::Always, Some(print)) => {
                broken.push(Broken { property: property.name, trace: trace(&came_from, *print) });
            }
            (Expectation::Always, None) | (_, Some(_)) => {}
            (_, None) => unreached.push(property.name),
        }
    }
    Report { states: came_from.len(), transitions, depth, broken, unreached }
}

fn trace<A: Debug>(came_from: &HashMap<u64, Option<(u64, A)>, FixedState>, mut print: u64) -> Vec<String> {
    let mut steps = Vec::new();
    while let Some(Some((before, action))) = came_from.get(&print) {
        steps.push(format!("{action:?}"));
        print = *before;
    }
    steps.reverse();
    steps
}
