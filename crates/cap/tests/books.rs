//! The ledger's fold and the cap's one rule: holds end once, what may have been spent counts, and no interleaving overspends.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)] // a failed test is a report

use std::collections::BTreeMap;

use agentrun_cap::{
    Books, Decided, Denied, Fault, Park, RaiseError, Scope, TOTALS_EVERY, Word, check_raise, decision_hold,
    follow_up_of, park_of,
};
use agentrun_kernel::{Epoch, HoldId, LedgerBody, Record, Seq, SessionKey, Usd};

#[allow(dead_code)] // each suite draws what it needs
mod dice;
use dice::Dice;

fn usd(text: &str) -> Usd {
    text.parse().unwrap()
}

fn key(name: &str) -> SessionKey {
    SessionKey::new(name).unwrap()
}

fn id(name: &str) -> HoldId {
    HoldId(name.to_owned())
}

fn cap(amount: &str) -> LedgerBody {
    LedgerBody::Cap { cap: Some(usd(amount)) }
}

fn hold(name: &str, quote: &str) -> LedgerBody {
    LedgerBody::Hold {
        id: id(name),
        session: key("s"),
        epoch: Epoch(1),
        what: "m".into(),
        quote: usd(quote),
        catalog: "c 1".into(),
    }
}

fn booking(name: &str, amount: &str) -> LedgerBody {
    LedgerBody::Booking { hold: id(name), usage: None, model: None, catalog: "c 1".into(), amount: usd(amount) }
}

fn release(name: &str) -> LedgerBody {
    LedgerBody::Release { hold: id(name), proof: "never sent".into() }
}

fn unknown(name: &str) -> LedgerBody {
    LedgerBody::Unknown { hold: id(name), why: "cut".into() }
}

fn decision(name: &str, amount: &str) -> LedgerBody {
    LedgerBody::Decision { id: name.into(), session: key("s"), amount: usd(amount) }
}

fn raise(name: &str, to: &str) -> LedgerBody {
    LedgerBody::Raise { id: name.into(), cap: usd(to) }
}

fn records(bodies: Vec<LedgerBody>) -> Vec<Record<LedgerBody>> {
    (1..).zip(bodies).map(|(seq, body)| Record { seq: Seq(seq), epoch: Epoch(0), at: 0, body }).collect()
}

fn books(bodies: Vec<LedgerBody>) -> Books {
    let mut books = Books::new();
    books.fold(&records(bodies)).unwrap();
    books
}

fn fault(bodies: Vec<LedgerBody>) -> Fault {
    let log = records(bodies);
    let (last, before) = log.split_last().unwrap();
    let mut books = Books::new();
    books.fold(before).unwrap();
    let kept = books.clone();
    let error = books.fold([last]).unwrap_err();
    assert_eq!(error.seq, last.seq);
    assert_eq!(books, kept, "a record that does not fit changes nothing");
    error.fault
}

#[test]
fn b77_holds_count_until_they_end_and_each_end_counts_for_what_it_is() {
    let books = books(vec![
        cap("10"),
        hold("a", "1"),
        hold("b", "2"),
        hold("c", "3"),
        hold("d", "0.5"),
        booking("a", "0.25"),
        unknown("b"),
        release("c"),
        decision("d1", "0.125"),
    ]);
    assert_eq!((books.booked(), books.held(), books.unknown()), (usd("0.375"), usd("0.5"), usd("2")));
    assert_eq!((books.counted(), books.left()), (usd("2.875"), Some(usd("7.125"))));
    assert_eq!((books.unknown_count(), books.open_holds().count()), (1, 1));
    assert_eq!(books.open(&id("d")).unwrap().quote, usd("0.5"));
}

#[test]
fn b77_admission_counts_booked_held_and_unknown_and_the_edge_fits() {
    let books =
        books(vec![cap("1"), hold("a", "0.2"), hold("b", "0.3"), booking("a", "0.1"), unknown("b"), hold("c", "0.25")]);
    assert_eq!(books.admit(usd("0.35")), Ok(()));
    assert_eq!(
        books.admit(usd("0.350000000001")),
        Err(Denied {
            word: Word::OverCap,
            needed: Some(usd("0.350000000001")),
            left: Some(usd("0.35")),
            cap: Some(usd("1")),
            scope: Scope::Run,
            what: None
        })
    );
}

#[test]
fn a_run_without_a_cap_admits_and_still_counts() {
    let books = books(vec![LedgerBody::Cap { cap: None }, hold("a", "5")]);
    assert_eq!((books.admit(usd("9000000")), books.left(), books.counted()), (Ok(()), None, usd("5")));
}

#[test]
fn report_2_a_bill_above_its_quote_is_booked_as_it_is_and_shown() {
    let books = books(vec![cap("1"), hold("a", "0.5"), booking("a", "1.5")]);
    assert_eq!((books.booked(), books.above_quote(), books.left()), (usd("1.5"), usd("1"), Some(usd("-0.5"))));
    assert!(books.admit(Usd::ZERO).is_err());
}

#[test]
fn report_5_a_hold_ends_at_most_once_however_it_ends() {
    let ends: [fn(&str) -> LedgerBody; 3] = [|name| booking(name, "0.1"), release, unknown];
    for first in ends {
        for second in ends {
            assert_eq!(fault(vec![cap("1"), hold("a", "0.5"), first("a"), second("a")]), Fault::NotOpen(id("a")));
        }
        assert_eq!(fault(vec![cap("1"), first("a")]), Fault::NotOpen(id("a")));
    }
    assert_eq!(fault(vec![cap("1"), hold("a", "0.5"), hold("a", "0.5")]), Fault::HeldTwice(id("a")));
}

#[test]
fn report_17_an_outcome_ends_its_own_hold_in_whatever_order_they_come() {
    let one = books(vec![cap("9"), hold("a", "1"), hold("b", "2"), booking("b", "1.5"), booking("a", "0.5")]);
    let other = books(vec![cap("9"), hold("a", "1"), hold("b", "2"), booking("a", "0.5"), booking("b", "1.5")]);
    assert_eq!(one, other);
}

#[test]
fn a_ledger_that_cannot_be_ours_is_a_fault_and_changes_nothing() {
    assert_eq!(fault(vec![hold("a", "1")]), Fault::Cap);
    assert_eq!(fault(vec![cap("1"), cap("2")]), Fault::Cap);
    assert_eq!(fault(vec![cap("-1")]), Fault::Negative(usd("-1")));
    assert_eq!(fault(vec![cap("1"), hold("a", "-1")]), Fault::Negative(usd("-1")));
    assert_eq!(fault(vec![cap("1"), hold("a", "1"), booking("a", "-1")]), Fault::Negative(usd("-1")));
    assert_eq!(fault(vec![cap("1"), decision("d", "-1")]), Fault::Negative(usd("-1")));
    assert_eq!(fault(vec![cap("1"), decision("d", "1"), decision("d", "2")]), Fault::Conflict("d".into()));
    assert_eq!(fault(vec![cap("1"), raise("r", "2"), raise("r", "3")]), Fault::Conflict("r".into()));
    assert!(matches!(fault(vec![cap("1"), raise("r", "1")]), Fault::NotARaise { .. }));
    let most = Usd::MAX.to_string();
    assert_eq!(fault(vec![cap("1"), hold("a", &most), hold("b", &most)]), Fault::Overflow);
    assert_eq!(fault(vec![cap("1"), hold("a", "1"), decision("d", &most), booking("a", "1")]), Fault::Overflow);
    let mut gap = Books::new();
    gap.fold(&records(vec![cap("1")])).unwrap();
    let later = Record { seq: Seq(3), epoch: Epoch(0), at: 0, body: hold("a", "1") };
    assert_eq!(gap.fold([&later]).unwrap_err().fault, Fault::Gap(Seq(1)));
}

#[test]
fn a_decision_or_raise_recorded_twice_counts_once() {
    let books = books(vec![cap("1"), decision("d", "0.5"), decision("d", "0.5"), raise("r", "2"), raise("r", "2")]);
    assert_eq!((books.booked(), books.cap()), (usd("0.5"), Some(usd("2"))));
    assert_eq!((books.decision("d"), books.raise("r")), (Some(Decided::Made(usd("0.5"))), Some(usd("2"))));
}

#[test]
fn totals_equal_the_fold_or_are_a_fault_and_a_ledger_opens_at_them() {
    let mut log = vec![cap("9"), hold("a", "1"), hold("b", "2"), booking("a", "0.5"), unknown("b"), hold("c", "1")];
    let totals = books(log.clone()).totals();
    log.push(totals.clone());
    log.push(booking("c", "0.25"));
    let whole = books(log.clone());
    let log = records(log);
    let mut late = Books::from_totals(&log[6]).unwrap();
    late.fold(&log[7..]).unwrap();
    assert_eq!(late, whole);

    let LedgerBody::Totals { cap: _, booked, unknown, unknown_count, open, known } = totals else { panic!() };
    let wrong = LedgerBody::Totals { cap: Some(usd("9")), booked: usd("0.4"), unknown, unknown_count, open, known };
    assert_ne!(booked, usd("0.4"));
    let bad = vec![
        log[0].body.clone(),
        log[1].body.clone(),
        log[2].body.clone(),
        log[3].body.clone(),
        log[4].body.clone(),
        log[5].body.clone(),
        wrong,
    ];
    assert_eq!(fault(bad), Fault::Totals);
    assert!(Books::from_totals(&log[0]).is_err());
}

/// A ledger with one of everything that totals carry, and a bill above its quote.
fn one_of_everything() -> Vec<LedgerBody> {
    vec![
        cap("9"),
        hold("a", "1"),
        booking("a", "1.5"),
        raise("r1", "10"),
        raise("r2", "11"),
        decision("d1", "0.25"),
        decision_held("d2", "0.5"),
        LedgerBody::Unknown { hold: decision_hold("d2"), why: "cut".into() },
        decision_held("d3", "0.5"),
        LedgerBody::Hold {
            id: id("b"),
            session: key("other"),
            epoch: Epoch(7),
            what: "search".into(),
            quote: usd("2"),
            catalog: "c 1".into(),
        },
    ]
}

#[test]
fn b80_books_that_begin_at_totals_are_the_books_of_the_whole_ledger() {
    let mut log = one_of_everything();
    log.push(books(log.clone()).totals());
    let whole = books(log.clone());
    let totals = records(log.clone()).pop().unwrap();
    assert_eq!(Books::from_totals(&totals).unwrap(), whole);
    // What rests on the records before: who pays, which ids are used, and how the hold of a decision ends.
    let mut late = Books::from_totals(&totals).unwrap();
    assert_eq!(late.abandoned(&key("other"), Epoch(8)).map(|(id, _)| id.clone()).collect::<Vec<_>>(), [id("b")]);
    assert_eq!(check_raise(&late, "r1", usd("10"), None), Ok(None));
    assert!(matches!(check_raise(&late, "r2", usd("12"), None), Err(RaiseError::Conflict { .. })));
    assert_eq!(late.decision("d1"), Some(Decided::Made(usd("0.25"))));
    assert_eq!(late.decision("d2"), Some(Decided::Unknown(usd("0.5"))));
    assert_eq!(late.decision("d3"), Some(Decided::Held(usd("0.5"))));
    assert_eq!(late.above_quote(), usd("0.5"));
    let more = Record { seq: late.seq().next(), epoch: Epoch(0), at: 0, body: decision("d3", "0.125") };
    late.fold([&more]).unwrap();
    assert_eq!((late.decision("d3"), late.held()), (Some(Decided::Made(usd("0.125"))), usd("2")));
}

#[test]
fn totals_that_leave_something_out_are_a_fault() {
    let log = one_of_everything();
    let LedgerBody::Totals { cap, booked, unknown, unknown_count, open, known } = books(log.clone()).totals() else {
        panic!()
    };
    let totals = |known| LedgerBody::Totals { cap, booked, unknown, unknown_count, open: open.clone(), known };
    let mut lacks = [known.clone(), known.clone(), known.clone(), known.clone()];
    lacks[0].payers[1].epoch = Epoch(1);
    lacks[1].raises.pop();
    lacks[2].decisions.pop();
    lacks[3].above_quote = Usd::ZERO;
    for less in lacks {
        assert_ne!(less, known);
        let mut log = log.clone();
        log.push(totals(less));
        assert_eq!(fault(log), Fault::Totals);
    }
    let mut unpaid = known;
    unpaid.payers.pop();
    let record = Record { seq: Seq(11), epoch: Epoch(0), at: 0, body: totals(unpaid) };
    assert_eq!(Books::from_totals(&record).unwrap_err().fault, Fault::Totals);
}

#[test]
fn totals_are_due_after_many_records_and_as_many_more_as_they_have_entries() {
    let mut log = vec![cap("9000")];
    let due = |log: &Vec<LedgerBody>| books(log.clone()).totals_due(TOTALS_EVERY);
    for n in 0..255 {
        log.extend([hold(&format!("h{n}"), "1"), booking(&format!("h{n}"), "1")]);
        assert!(!due(&log));
    }
    log.extend([hold("x", "1"), booking("x", "1")]);
    assert!(due(&log));
    log.push(books(log.clone()).totals());
    assert!(!due(&log));
    // A thousand open holds: totals of as many entries, so not before as many records.
    log.extend((0..1_000).map(|n| hold(&format!("o{n}"), "1")));
    assert!(due(&log));
    log.push(books(log.clone()).totals());
    log.extend((0..450).map(|n| decision(&format!("d{n}"), "1")));
    log.extend((0..450).map(|n| release(&format!("o{n}"))));
    assert!(!due(&log), "900 records, 1000 entries");
}

fn decision_held(name: &str, quote: &str) -> LedgerBody {
    LedgerBody::Hold {
        id: decision_hold(name),
        session: key("s"),
        epoch: Epoch(0),
        what: "decision".into(),
        quote: usd(quote),
        catalog: "host".into(),
    }
}

#[test]
fn b75_b80_a_decision_ends_the_hold_taken_for_it_and_is_booked_once() {
    let made = books(vec![cap("1"), decision_held("d", "0.5"), decision("d", "0.125"), decision("d", "0.125")]);
    assert_eq!((made.booked(), made.held(), made.above_quote()), (usd("0.125"), Usd::ZERO, Usd::ZERO));
    let dear = books(vec![cap("1"), decision_held("d", "0.5"), decision("d", "0.75")]);
    assert_eq!((dear.booked(), dear.above_quote()), (usd("0.75"), usd("0.25")));
    let other = LedgerBody::Decision { id: "d".into(), session: key("t"), amount: usd("0.1") };
    assert_eq!(fault(vec![cap("1"), decision_held("d", "0.5"), other.clone()]), Fault::NotItsHold("d".into()));
    assert_eq!(fault(vec![cap("1"), decision("d", "0.1"), other]), Fault::Conflict("d".into()));
    let lost = LedgerBody::Unknown { hold: decision_hold("d"), why: "cut".into() };
    let after = vec![cap("1"), decision_held("d", "0.5"), lost, decision("d", "0.5")];
    assert_eq!(fault(after), Fault::Conflict("d".into()), "given up, so it is not booked beside what counts for it");
    let released = LedgerBody::Release { hold: decision_hold("d"), proof: "not asked".into() };
    let again = books(vec![cap("1"), decision_held("d", "0.5"), released, decision_held("d", "0.25")]);
    assert_eq!(again.decision("d"), Some(Decided::Held(usd("0.25"))));
}

#[test]
fn b77_what_no_fold_takes_is_not_admitted_with_or_without_a_cap() {
    for first in [cap("1"), LedgerBody::Cap { cap: None }] {
        let refused = books(vec![first.clone()]).admit(usd("-0.5")).unwrap_err();
        assert_eq!((refused.word, refused.scope), (Word::Unpriced, Scope::Request));
    }
    let full = books(vec![LedgerBody::Cap { cap: None }, decision("d", "9000000")]);
    assert_eq!(full.admit(usd("900000")).unwrap_err().word, Word::Unbounded);
    assert_eq!(full.admit(usd("1000")), Ok(()));
}

#[test]
fn holds_of_a_gone_owner_are_found_by_session_and_epoch() {
    let of = |name: &str, session: &str, epoch| LedgerBody::Hold {
        id: id(name),
        session: key(session),
        epoch: Epoch(epoch),
        what: "m".into(),
        quote: usd("1"),
        catalog: "c 1".into(),
    };
    let books = books(vec![cap("9"), of("a", "s", 1), of("b", "s", 2), of("c", "t", 1), of("d", "s", 3), release("a")]);
    let (s, t) = (key("s"), key("t"));
    assert_eq!(books.abandoned(&s, Epoch(3)).map(|(id, _)| id).collect::<Vec<_>>(), [&id("b")]);
    assert_eq!(books.abandoned(&t, Epoch(1)).count(), 0);
}

#[test]
fn b78_only_the_cap_parks_and_the_park_says_the_least_cap_that_would_do() {
    let books = books(vec![cap("1"), hold("a", "0.75")]);
    let denied = books.admit(usd("0.5")).unwrap_err();
    let park = park_of(&denied).unwrap();
    assert_eq!(park, Park { needed: usd("0.5"), cap: usd("1"), spent: usd("0.75") });
    assert_eq!(park.minimum(), usd("1.25"));
    for word in Word::ALL.into_iter().filter(|word| *word != Word::OverCap) {
        assert_eq!(park_of(&Denied { word, ..denied.clone() }), None, "{word}");
    }
}

#[test]
fn b81_a_raise_says_the_minimum_is_idempotent_by_id_and_refuses_another_amount() {
    let mut log = vec![cap("1"), hold("a", "0.75")];
    let parked = books(log.clone());
    let below = check_raise(&parked, "r", usd("1.249999999999"), Some(usd("0.5")));
    assert_eq!(below, Err(RaiseError::BelowMinimum { asked: usd("1.249999999999"), minimum: usd("1.25") }));
    let Ok(Some(record)) = check_raise(&parked, "r", usd("1.25"), Some(usd("0.5"))) else { panic!() };
    log.push(record);
    let raised = books(log);
    assert_eq!(raised.admit(usd("0.5")), Ok(()));
    assert_eq!(check_raise(&raised, "r", usd("1.25"), None), Ok(None));
    assert!(matches!(check_raise(&raised, "r", usd("2"), None), Err(RaiseError::Conflict { .. })));
    for lower in ["1.25", "0", "-3"] {
        assert!(
            matches!(check_raise(&raised, "r2", usd(lower), None), Err(RaiseError::BelowMinimum { .. })),
            "{lower}"
        );
    }
    let free = books(vec![LedgerBody::Cap { cap: None }]);
    assert_eq!(check_raise(&free, "r", usd("2"), None), Err(RaiseError::NoCap));
}

#[test]
fn b63_b64_a_follow_up_stays_in_its_reserve_and_spends_nothing_beside_an_unknown() {
    assert_eq!(follow_up_of(0, Some(usd("1")), usd("0.5"), usd("0.5")), Ok(()));
    assert_eq!(follow_up_of(0, None, usd("0.5"), usd("99")), Ok(()));
    assert_eq!(follow_up_of(0, Some(usd("1")), usd("0.5"), usd("0.6")).unwrap_err().word, Word::OverReserve);
    assert_eq!(follow_up_of(1, Some(usd("1")), Usd::ZERO, Usd::ZERO).unwrap_err().word, Word::UnknownSpend);
}

#[test]
fn report_1_sixty_four_that_ask_under_a_cap_that_fits_three_get_exactly_three() {
    let mut log = vec![cap("0.3")];
    // Each asks on the books it last saw; the append lands only at the seq that those books expect, else it folds and asks again.
    let mut seen: Vec<Books> = vec![books(log.clone()); 64];
    let (mut admitted, mut denied) = (0, 0);
    let mut waiting: Vec<usize> = (0..64).collect();
    let mut dice = Dice::new(7);
    while !waiting.is_empty() {
        let asker = waiting[dice.below(waiting.len() as u64) as usize];
        match seen[asker].admit(usd("0.1")) {
            Err(_) => denied += 1,
            Ok(()) if seen[asker].seq() != Seq(log.len() as u64) => {
                let tail = records(log.clone()).split_off(seen[asker].seq().0 as usize);
                seen[asker].fold(&tail).unwrap();
                continue;
            }
            Ok(()) => {
                log.push(hold(&format!("h{asker}"), "0.1"));
                admitted += 1;
            }
        }
        waiting.retain(|other| *other != asker);
    }
    assert_eq!((admitted, denied), (3, 61));
}

/// Two processes with their own books on one ledger; admits, ends, crashes, reopenings and raises in any order. A model that keeps
/// every hold and its end in a map says what the sums must be.
#[test]
fn b77_b80_no_interleaving_of_two_processes_overspends_or_loses_a_pico() {
    const RUNS: u64 = 400;
    const STEPS: u64 = 120;
    let (mut admits, mut refusals) = (0_u64, 0_u64);
    for seed in 0..RUNS {
        let mut dice = Dice::new(seed);
        let mut log = vec![LedgerBody::Cap { cap: Some(Usd::from_pico(1_000)) }];
        let mut process = [Books::new(), Books::new()];
        let mut truth: BTreeMap<HoldId, (Usd, Option<Usd>)> = BTreeMap::new();
        let (mut cap, mut decided) = (1_000_i64, 0_i64);
        for step in 0..STEPS {
            let which = dice.below(2) as usize;
            let all = records(log.clone());
            if dice.below(15) == 0 {
                // A crash: what it knew is gone. It opens at the last totals, if there are any.
                let totals = all.iter().rfind(|record| matches!(record.body, LedgerBody::Totals { .. }));
                process[which] = totals.map_or_else(Books::new, |totals| Books::from_totals(totals).unwrap());
            }
            if dice.below(3) > 0 || process[which].seq() == Seq::START {
                let tail = &all[process[which].seq().0 as usize..];
                process[which].fold(tail).unwrap();
            }
            let me = &process[which];
            let fresh = me.seq() == Seq(log.len() as u64);
            let mut open: Vec<HoldId> = me.open_holds().map(|(id, _)| id.clone()).collect();
            open.sort();
            let body = match dice.below(8) {
                0..=3 => {
                    let quote = Usd::from_pico(dice.below(300) as i64);
                    match me.admit(quote) {
                        Err(denied) => {
                            refusals += 1;
                            assert_eq!(park_of(&denied).unwrap().cap.pico(), me.cap().unwrap().pico());
                            continue;
                        }
                        Ok(()) if !fresh => continue, // conflict: the append does not land
                        Ok(()) => {
                            admits += 1;
                            let id = HoldId(format!("{seed}-{step}"));
                            truth.insert(id.clone(), (quote, None));
                            let counted: i64 = truth.values().map(|(quote, end)| end.unwrap_or(*quote).pico()).sum();
                            assert!(counted + decided <= cap, "seed {seed} step {step}");
                            LedgerBody::Hold {
                                id,
                                session: key("s"),
                                epoch: Epoch(1),
                                what: "m".into(),
                                quote,
                                catalog: "c".into(),
                            }
                        }
                    }
                }
                // Only a release or a booking at or below the quote: what a bill above it does has a test of its own.
                pick @ 4..=6 if fresh && !open.is_empty() => {
                    let id = open[dice.below(open.len() as u64) as usize].clone();
                    let entry = truth.get_mut(&id).unwrap();
                    assert_eq!(entry.1, None, "ended twice");
                    match pick {
                        4 => {
                            let amount = Usd::from_pico(dice.below(entry.0.pico() as u64 + 1) as i64);
                            entry.1 = Some(amount);
                            LedgerBody::Booking { hold: id, usage: None, model: None, catalog: "c".into(), amount }
                        }
                        5 => {
                            entry.1 = Some(entry.0);
                            LedgerBody::Unknown { hold: id, why: "cut".into() }
                        }
                        _ => {
                            entry.1 = Some(Usd::ZERO);
                            LedgerBody::Release { hold: id, proof: "never sent".into() }
                        }
                    }
                }
                7 if fresh && dice.below(3) == 0 => {
                    cap += dice.below(200) as i64 + 1;
                    check_raise(me, &format!("r{step}"), Usd::from_pico(cap), None).unwrap().unwrap()
                }
                7 if fresh => me.totals(),
                7 if me.admit(Usd::from_pico(1)).is_ok() && fresh => {
                    decided += 1;
                    decision(&format!("d{step}"), "0.000000000001")
                }
                _ => continue,
            };
            log.push(body);
        }
        let whole = books(log);
        let ended = |end: fn(&(Usd, Option<Usd>)) -> i64| truth.values().map(end).sum::<i64>();
        let counted = ended(|(quote, end)| end.unwrap_or(*quote).pico()) + decided;
        assert_eq!(whole.counted().pico(), counted, "seed {seed}");
        assert_eq!(
            whole.held().pico(),
            ended(|(quote, end)| if end.is_none() { quote.pico() } else { 0 }),
            "seed {seed}"
        );
        assert!(counted <= cap && whole.above_quote() == Usd::ZERO);
    }
    println!("{RUNS} ledgers of {STEPS} steps: {admits} admitted, {refusals} refused");
    assert!(admits > 5_000 && refusals > 2_000, "{admits} {refusals}");
}
