//! Whether a history is linearizable (Wing and Gong's search, remembering what was tried): is there one order of its calls that explains
//! every answer? Small histories only: the set of calls done is one word.

use std::collections::HashSet;

use super::spec::{Event, Value};

/// Most events of a history.
pub(super) const MOST: usize = 60;

/// Whether some order explains `history`. `false` as well for one with more than [`MOST`] events, which this cannot judge.
pub(super) fn is_linearizable(history: &[Event]) -> bool {
    if history.len() > MOST {
        return false;
    }
    let mut tried = HashSet::new();
    let mut stack = vec![(0_u64, Value::default())];
    while let Some((done, value)) = stack.pop() {
        let mut open = history.iter().enumerate().filter(|(at, _)| done & (1 << at) == 0);
        // The first return of a call not yet placed: whatever was called after it must come after it.
        let first = open.clone().map(|(_, event)| event.returned).min().unwrap_or(u64::MAX);
        // Calls nobody waited for may be left out at the end.
        if first == u64::MAX {
            return true;
        }
        open.by_ref().filter(|(_, event)| event.called < first).for_each(|(at, event)| {
            if let Some(next) = value.after(at, event) {
                let step = (done | (1 << at), next);
                if !tried.contains(&step) {
                    tried.insert(step.clone());
                    stack.push(step);
                }
            }
        });
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::spec::{Answer, Call};
    use super::*;

    fn event(client: usize, call: Call, answer: Answer, span: (u64, u64)) -> Event {
        Event { client, call, answer, called: span.0, returned: span.1 }
    }

    fn open(span: (u64, u64), epoch: u64, last: u64) -> Event {
        event(0, Call::Open { session: 0, expected: None }, Answer::Opened { epoch, last }, span)
    }

    fn append(open: usize, value: u32, answer: Answer, span: (u64, u64)) -> Event {
        event(0, Call::Append { session: 0, open, values: vec![value], also: None }, answer, span)
    }

    fn read(records: &[(u64, u32)], epoch: u64, span: (u64, u64)) -> Event {
        let seq = records.len() as u64;
        let answer = Answer::Session { epoch, seq, records: records.to_vec() };
        event(1, Call::ReadSession { session: 0 }, answer, span)
    }

    #[test]
    fn what_one_after_the_other_explains_is_right() {
        let history = [open((0, 1), 1, 0), append(0, 7, Answer::Landed { seq: 1 }, (2, 3)), read(&[(1, 7)], 1, (4, 5))];
        assert!(is_linearizable(&history));
    }

    #[test]
    fn a_read_after_an_append_that_does_not_see_it_is_wrong_and_beside_it_right() {
        let with = |span| [open((0, 1), 1, 0), append(0, 7, Answer::Landed { seq: 1 }, (2, 6)), read(&[], 1, span)];
        assert!(is_linearizable(&with((3, 5))));
        assert!(!is_linearizable(&with((7, 8))));
    }

    #[test]
    fn an_append_after_a_newer_open_is_wrong_and_beside_it_right() {
        let with = |span| {
            [
                open((0, 1), 1, 0),
                open((2, 5), 2, 1),
                append(0, 7, Answer::Landed { seq: 1 }, span),
                read(&[(1, 7)], 2, (20, 21)),
            ]
        };
        assert!(is_linearizable(&with((3, 4))));
        assert!(!is_linearizable(&with((6, 7))));
    }

    #[test]
    fn a_call_nobody_waited_for_may_have_happened_or_not_but_not_twice() {
        let lost = append(0, 7, Answer::Unheard, (2, u64::MAX));
        for (seen, right) in [(&[][..], true), (&[(1, 7)], true), (&[(1, 7), (1, 7)], false)] {
            let history = [open((0, 1), 1, 0), lost.clone(), read(seen, 1, (4, 5))];
            assert_eq!(is_linearizable(&history), right, "{seen:?}");
        }
    }

    #[test]
    fn both_of_two_that_saw_one_place_is_wrong() {
        let at = |value, seq, span| event(0, Call::AppendAt { expected: 0, value }, Answer::Landed { seq }, span);
        assert!(!is_linearizable(&[at(1, 1, (0, 3)), at(2, 1, (1, 2))]));
        let refused = event(1, Call::AppendAt { expected: 0, value: 2 }, Answer::Conflict { found: 1 }, (1, 2));
        assert!(is_linearizable(&[at(1, 1, (0, 3)), refused]));
    }
}
