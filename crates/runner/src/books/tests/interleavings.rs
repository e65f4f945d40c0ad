//! Any order of admits, ends, crashes, take-overs, raises and decisions, in two processes over one store. After each case the whole ledger
//! is read by a reckoner that shares no code with the fold, and both logs are held against each other.

use std::collections::BTreeMap;
use std::sync::Arc;

use agentrun_cap::Books;
use agentrun_kernel::{
    Begun, Body, DriveError, HoldId, LedgerBody, LogKey, OpenEffect, Record, RunId, SessionKey, SessionState, Store,
    Usd, read_all,
};

use super::super::{Decide, LedgerError, RunLedger, read_books};
use super::{Session, begin, booking, memory, outcome, records, session};

const CASES: u64 = 2_000;
const STEPS: u64 = 14;
/// Totals this often, so that they fall between any two steps.
const EVERY: u64 = 4;

/// SplitMix64: the same seed is the same case everywhere.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    fn amount(&mut self, most: u64) -> Usd {
        Usd::from_pico(i64::try_from(self.below(most)).unwrap())
    }
}

struct Process {
    store: Store,
    ledger: Arc<RunLedger>,
    session: Session,
    live: Vec<(OpenEffect, HoldId, Usd)>,
}

impl Process {
    /// Opens as an attempt does: the session's fence first, then what earlier owners left.
    async fn open(store: &Store, name: &SessionKey, run: &RunId) -> Self {
        let session = session(store, name, run).await;
        let mut ledger = RunLedger::open(store.clone(), run, Some(Usd::from_pico(1_000))).await.unwrap();
        ledger.every = EVERY;
        ledger.reconcile(&session.drive).await.unwrap();
        let open: Vec<_> = session.drive.with_state(|state| {
            state.open_effects().map(|effect| (effect.intent.key.clone(), effect.intent.hold.clone())).collect()
        });
        for (key, hold) in open {
            if let Begun::Open(effect) = session.drive.reopen(&key).await.unwrap() {
                ledger.interrupt(effect, hold, "cut", "cut in flight").await.unwrap();
            }
        }
        Self { store: store.clone(), ledger: Arc::new(ledger), session, live: Vec::new() }
    }

    /// One admit; whether it was let through.
    async fn admit(&mut self, quote: Usd) -> Option<bool> {
        match begin(&self.ledger, &self.session.drive, quote).await {
            Ok((effect, hold)) => {
                self.live.push((effect, hold, quote));
                Some(true)
            }
            Err(LedgerError::Denied(_)) => Some(false),
            // Another owner took the session; this process learns it here.
            Err(LedgerError::Drive(DriveError::Restart(_))) => None,
            Err(error) => panic!("{error}"),
        }
    }

    async fn end(&mut self, dice: &mut Dice) {
        if self.live.is_empty() {
            return;
        }
        let at = usize::try_from(dice.below(self.live.len() as u64)).unwrap();
        let (effect, hold, quote) = self.live.swap_remove(at);
        // Now and then a bill comes out above its quote.
        let amount = dice.amount(quote.pico().unsigned_abs() * 5 / 4 + 1);
        let (cost, end) = match dice.below(4) {
            0 => (Some(Usd::ZERO), LedgerBody::Release { hold: hold.clone(), proof: "never sent".into() }),
            1 => (None, LedgerBody::Unknown { hold: hold.clone(), why: "cut".into() }),
            _ => (Some(amount), booking(&hold, amount)),
        };
        let outcome = outcome(&effect, cost);
        match self.ledger.finish(effect, outcome, &hold, end).await {
            Ok(_) | Err(LedgerError::Drive(DriveError::Restart(_))) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// What the ledger says, reckoned from its records alone.
#[derive(Default)]
struct Reckoned {
    holds: BTreeMap<HoldId, (Usd, Option<Usd>, bool)>,
    cap: Usd,
    decided: Usd,
    admits: u64,
}

impl Reckoned {
    fn of(log: &[Record<LedgerBody>]) -> Self {
        let mut all = Self::default();
        for record in log {
            match &record.body {
                LedgerBody::Cap { cap } => all.cap = cap.unwrap(),
                LedgerBody::Raise { cap, .. } => {
                    assert!(*cap > all.cap);
                    all.cap = *cap;
                }
                LedgerBody::Hold { id, quote, .. } => {
                    let before = all.holds.insert(id.clone(), (*quote, None, false));
                    assert!(before.is_none(), "held twice");
                    assert!(all.counted() <= all.cap, "over the cap at an admit, seq {}", record.seq);
                    all.admits += 1;
                }
                LedgerBody::Booking { hold, amount, .. } => all.end(hold, *amount, false),
                LedgerBody::Release { hold, .. } => all.end(hold, Usd::ZERO, false),
                LedgerBody::Unknown { hold, .. } => {
                    let quote = all.holds[hold].0;
                    all.end(hold, quote, true);
                }
                LedgerBody::Decision { id, amount, .. } => {
                    all.decided = all.decided.checked_add(*amount).unwrap();
                    all.end(&agentrun_cap::decision_hold(id), *amount, false);
                }
                LedgerBody::Totals { .. } => {}
            }
        }
        all
    }

    fn end(&mut self, hold: &HoldId, amount: Usd, unknown: bool) {
        let entry = self.holds.get_mut(hold).expect("an end without a hold");
        assert_eq!(entry.1, None, "a hold ended twice");
        *entry = (entry.0, Some(amount), unknown);
    }

    fn sum(&self, of: impl Fn(&(Usd, Option<Usd>, bool)) -> Option<Usd>) -> Usd {
        self.holds.values().filter_map(of).fold(Usd::ZERO, Usd::saturating_add)
    }

    fn counted(&self) -> Usd {
        self.sum(|(quote, end, _)| Some(end.unwrap_or(*quote)))
    }
}

/// Plays one case; answers how many were admitted and how many refused.
async fn case(seed: u64, stores: &[Store; 2]) -> (u64, u64) {
    let mut dice = Dice(seed);
    let run = RunId::new(format!("r{seed}")).unwrap();
    let names = [0, 1].map(|n| SessionKey::new(format!("r{seed}-{n}")).unwrap());
    let mut at = [Process::open(&stores[0], &names[0], &run).await, Process::open(&stores[1], &names[1], &run).await];
    let (mut refused, mut cap) = (0, Usd::from_pico(1_000));
    for step in 0..STEPS {
        let one = usize::try_from(dice.below(2)).unwrap();
        match dice.below(12) {
            0..=3 => {
                let quote = dice.amount(400);
                refused += u64::from(at[one].admit(quote).await == Some(false));
            }
            // Both at the same moment: their appends meet at one seq.
            4 | 5 => {
                let (first, second) = (dice.amount(500), dice.amount(500));
                let [a, b] = &mut at;
                let answers = tokio::join!(a.admit(first), b.admit(second));
                refused += u64::from(answers.0 == Some(false)) + u64::from(answers.1 == Some(false));
            }
            6 | 7 => at[one].end(&mut dice).await,
            // The process is gone, perhaps with an admit on its way: that one may land unseen.
            8 => {
                if dice.below(2) == 0 {
                    let admit = at[one].admit(dice.amount(400));
                    let _cut = tokio::time::timeout(std::time::Duration::ZERO, admit).await;
                }
                let store = at[one].store.clone();
                at[one] = Process::open(&store, &names[one], &run).await;
            }
            // Another process takes the session while its owner lives and has steps in flight.
            9 => {
                let taken = Process::open(&stores[1 - one], &names[one], &run).await;
                let mut old = std::mem::replace(&mut at[one], taken);
                old.end(&mut dice).await;
                assert_ne!(old.admit(dice.amount(300)).await, Some(true), "a fenced owner begins nothing");
            }
            10 => {
                cap = cap.saturating_add(dice.amount(200)).saturating_add(Usd::from_pico(1));
                at[one].ledger.raise(&format!("{step}"), cap, None).await.unwrap();
            }
            _ => {
                let id = format!("d{}", dice.below(3));
                let decided = at[one].ledger.clone().decide(&id, &names[0], dice.amount(200)).await;
                match decided {
                    Ok(Decide::Open(decision)) if dice.below(3) > 0 => {
                        decision.made(dice.amount(200)).await.unwrap();
                    }
                    Err(LedgerError::Deciding { .. }) => at[one].ledger.give_up_decision(&id).await.unwrap(),
                    Err(LedgerError::Denied(_)) => refused += 1,
                    Ok(_) | Err(LedgerError::DecisionLost { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }
    let log = records(&stores[0], &run).await;
    let reckoned = Reckoned::of(&log);
    let mut whole = Books::new();
    // Every totals record on the way is held against the fold here.
    whole.fold(&log).unwrap();
    assert_eq!(whole.counted(), reckoned.counted());
    assert_eq!(whole.held(), reckoned.sum(|(quote, end, _)| end.is_none().then_some(*quote)));
    assert_eq!(whole.unknown(), reckoned.sum(|(quote, _, unknown)| unknown.then_some(*quote)));
    assert_eq!(whole.booked(), reckoned.sum(|(_, end, unknown)| end.filter(|_| !*unknown)));
    assert_eq!(read_books(&*stores[1], &run).await.unwrap(), whole);
    for process in &at {
        assert_eq!(process.ledger.books().await.unwrap(), whole);
    }
    // The sessions' own sums, with the decisions that no session has, are the ledger's.
    let (mut booked, mut open, mut unknown) = (reckoned.decided, Usd::ZERO, Usd::ZERO);
    for name in &names {
        let session = read_all::<Body>(&*stores[0], &LogKey::from(name)).await.unwrap();
        agentrun_kernel::validate(&session).unwrap();
        let spent = SessionState::fold(&session).spent;
        booked = booked.saturating_add(spent.booked);
        open = open.saturating_add(spent.held);
        unknown = unknown.saturating_add(spent.unknown);
    }
    let decisions = |ended: bool| {
        let of = |(id, (quote, end, lost)): (&HoldId, &(Usd, Option<Usd>, bool))| {
            (id.as_str().starts_with("decision:") && if ended { *lost } else { end.is_none() }).then_some(*quote)
        };
        reckoned.holds.iter().filter_map(of).fold(Usd::ZERO, Usd::saturating_add)
    };
    assert_eq!(whole.booked(), booked);
    assert_eq!(whole.held(), open.saturating_add(decisions(false)));
    assert_eq!(whole.unknown(), unknown.saturating_add(decisions(true)));
    (reckoned.admits, refused)
}

#[tokio::test]
async fn f01_f02_b77_b80_no_interleaving_of_two_processes_overspends_loses_or_counts_twice() {
    let (one, two) = memory();
    let stores = [one, two];
    let (mut admits, mut refusals) = (0, 0);
    for seed in 0..CASES {
        let (admitted, refused) = case(seed, &stores).await;
        admits += admitted;
        refusals += refused;
    }
    eprintln!("{CASES} cases of {STEPS} steps: {admits} admitted, {refusals} refused");
    assert!(admits > 3 * CASES && refusals > CASES / 2, "{admits} {refusals}");
}
