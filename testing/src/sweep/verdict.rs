//! What must hold after a case, whatever was cut: the store's records against the parent's own counts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use agentrun_adapter::process::{Epochs, Marker, sweep};
use agentrun_adapter::{NativeHistory as _, RecordedFiles};
use agentrun_cap::{Books, Catalog, Date, price};
use agentrun_kernel::{Body, EffectKind, LedgerBody, OutcomeEnd, Record, Replay, SessionState, Usd, validate};
use agentrun_runner::NodeWord;

use super::Fault;
use super::case::{Backend, Case, Cut, Ended, LAST};
use super::child::SECOND;
use super::scenario::{Answer, GONE, MODEL, PARK, POST, RAISE};
use super::tally::{Came, Counts, Shown, Told};
use crate::faux::FauxHistory;

/// All that a case left.
#[derive(Default)]
pub(super) struct Evidence {
    /// How each process ended, in the order they were waited for.
    pub(super) ended: Vec<Ended>,
    /// Owners that were cut.
    pub(super) cuts: u32,
    /// With a second owner: the crossings before it came, and all that was told when it was done and the first still stood.
    pub(super) taken: Option<(usize, Counts)>,
    pub(super) before_third: Counts,
    pub(super) after_third: Counts,
    pub(super) records: Vec<Record>,
    pub(super) ledger: Vec<Record<LedgerBody>>,
    pub(super) store: String,
    pub(super) said: String,
}

/// How long ending a stray may take; there is none.
const STRAYS: Duration = Duration::from_secs(10);

struct Verdict<'a> {
    case: &'a Case,
    evidence: &'a Evidence,
    state: SessionState,
    broken: Vec<String>,
}

/// What a case broke.
pub(super) fn of(case: &Case, evidence: &Evidence) -> Vec<String> {
    let state = match validate(&evidence.records) {
        Ok(state) => state,
        Err(illegal) => return vec![format!("the log is not valid: {illegal}")],
    };
    let mut verdict = Verdict { case, evidence, state, broken: Vec::new() };
    verdict.processes();
    verdict.results();
    verdict.the_third();
    verdict.tools();
    verdict.requests();
    verdict.prompts();
    verdict.delivery();
    verdict.money();
    verdict.broken
}

/// Processes of the session that are still there. They are ended.
pub(super) fn strays(case: &Case, evidence: &Evidence) -> Vec<String> {
    let marker = Marker { store: evidence.store.clone(), session: case.scenario.name().to_owned(), epoch: u64::MAX };
    let found =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string()).and_then(
            |runtime| runtime.block_on(sweep(&marker, Epochs::UpTo, STRAYS)).map_err(|error| error.to_string()),
        );
    match found {
        Ok(strays) => strays.iter().map(|it| format!("process {} ({}) was left", it.pid, it.name)).collect(),
        Err(error) => vec![error],
    }
}

impl Verdict<'_> {
    fn hold(&mut self, holds: bool, broken: impl FnOnce() -> String) {
        if !holds {
            self.broken.push(broken());
        }
    }

    fn processes(&mut self) {
        use Ended::{Killed, Well};
        let ended = &self.evidence.ended;
        let right = match self.case.cut {
            Cut::Kill => ended[..] == [Killed, Well, Well],
            // The second one may have had fewer crossings left.
            Cut::Twice(_) => ended[..] == [Killed, Killed, Well, Well] || ended[..] == [Killed, Well, Well, Well],
            Cut::Owner => ended[..] == [Well, Well, Well, Well],
        };
        let ended = format!("the processes ended {ended:?}");
        self.hold(right, || ended);
    }

    /// Every owner came to the same, but for the one that was taken over: the op it stood in ends `fenced`, unless it was recorded to its end
    /// before the second one came. What a host asks after that is asked anew.
    fn results(&mut self) {
        let told = self.evidence.before_third.results.clone();
        let (before, taken) = self.evidence.taken.as_ref().map_or((0, None), |(hits, taken)| {
            (taken.results.len(), Some(taken.hits.get(*hits..).unwrap_or_default()))
        });
        let mut standing = taken.is_some();
        let mut ends: BTreeMap<String, (OutcomeEnd, String)> = BTreeMap::new();
        for (place, told) in told.iter().enumerate() {
            if standing && told.owner == "first" && place >= before {
                standing = false;
                if told.result.op == POST {
                    // Takes no session, so it is not taken over.
                    let right = self.right(told);
                    self.hold(right, || format!("the owner `{}` came to {:?}", told.owner, told.result));
                    continue;
                }
                if told.result.error.as_deref() == Some("fenced") {
                    // Nobody is fenced by an owner that took nothing.
                    let opened =
                        taken.unwrap_or_default().iter().any(|(point, _)| point == "take" || point == "opened.before");
                    self.hold(opened, || {
                        format!("nobody took the session, and the first owner came to {:?}", told.result)
                    });
                    continue;
                }
                let ended = taken.unwrap_or_default().iter().any(|(point, _)| ends_it(&told.result, point));
                self.hold(!ended, || format!("the owner that was taken over came to {:?}", told.result));
            }
            let right = self.right(told);
            self.hold(right, || format!("the owner `{}` came to {:?}", told.owner, told.result));
            if let Some(end) = told.result.end {
                let said = (end, told.result.text.clone());
                let first = ends.entry(told.result.op.clone()).or_insert_with(|| said.clone()).clone();
                self.hold(first == said, || format!("a follow-up ended as {first:?} and then as {said:?}"));
            }
        }
        let ended = |owner: &str| told.iter().filter(|told| told.owner == owner).count();
        let (last, ops) = (ended(LAST), self.case.scenario.ops().len());
        self.hold(last == ops, || format!("{last} of {ops} ops came to a result"));
        if taken.is_some() {
            let (second, ops) = (ended(SECOND), self.case.scenario.second().len());
            self.hold(second == ops, || format!("{second} of {ops} ops of the second owner came to a result"));
            self.hold(told.iter().skip(before).any(|told| told.owner == "first"), || {
                "the first owner came to no result".to_owned()
            });
        }
    }

    /// What an owner may come to: the node's answer, always the same; a follow-up that ended, or one that a cut has interrupted.
    fn right(&self, told: &Told) -> bool {
        let result = &told.result;
        match result.op.as_str() {
            "run" => match self.case.scenario.answer() {
                Answer::Value(value) => result.value == value,
                Answer::Failed(word) => result.error.as_deref() == Some(word),
            },
            "settle" | RAISE | POST => result.error.is_none(),
            PARK => match self.case.scenario.answer() {
                Answer::Value(value) => result.value == value || result.text == NodeWord::OverCap.as_str(),
                Answer::Failed(_) => false,
            },
            _ => match result.end {
                Some(OutcomeEnd::Ok) => true,
                Some(OutcomeEnd::Interrupted) => self.evidence.cuts > 0,
                _ => false,
            },
        }
    }

    /// Nothing is run, asked, reviewed, opened or written for a session that has answered.
    fn the_third(&mut self) {
        let (before, after) = (&self.evidence.before_third, &self.evidence.after_third);
        let quiet = before.tools == after.tools && before.requests == after.requests && before.reviews == after.reviews;
        let hits = after.hits.get(before.hits.len()..).unwrap_or_default().to_vec();
        let results = after.results.get(before.results.len()..).unwrap_or_default().to_vec();
        self.hold(quiet, || "the finished session ran something when it was opened once more".to_owned());
        self.hold(hits.is_empty(), || format!("the finished session was worked on once more: {hits:?}"));
        let answered = results.len() == self.case.scenario.ops().len()
            && results.iter().all(|told| {
                let answered = told.result.from_records || told.result.error.is_some();
                answered && self.right(told)
            });
        self.hold(answered, || format!("the finished session answered {results:?}"));
    }

    /// A never tool ran at most once, each recorded end of a tool rests on a run, and no run is without its intent.
    fn tools(&mut self) {
        let runs = self.evidence.before_third.tools.clone();
        for tool in self.case.scenario.tools() {
            let keys = runs.get(tool.name).cloned().unwrap_or_default();
            let most = if tool.replay == Replay::Never { 1 } else { 1 + self.evidence.cuts as usize };
            self.hold(keys.len() <= most, || format!("{} ran {} times", tool.name, keys.len()));
        }
        let mut unrecorded: BTreeSet<String> = runs.values().flatten().cloned().collect();
        let effects: Vec<_> = self
            .state
            .effects()
            .filter(|effect| effect.intent.effect == EffectKind::Tool)
            .map(|effect| {
                (effect.intent.key.clone(), effect.intent.name.clone(), effect.outcome.as_ref().map(|it| it.end))
            })
            .collect();
        for (key, name, end) in effects {
            unrecorded.remove(key.as_str());
            let ran = runs.get(&name).is_some_and(|keys| keys.iter().any(|it| it == key.as_str()));
            match end {
                None => self.broken.push(format!("the call of {name} has no outcome")),
                Some(OutcomeEnd::Ok | OutcomeEnd::Error) => {
                    self.hold(ran, || format!("{name} has a result and never ran"))
                }
                Some(OutcomeEnd::Refused) => self.hold(!ran, || format!("{name} was refused and ran")),
                Some(OutcomeEnd::Interrupted) => {}
            }
        }
        self.hold(unrecorded.is_empty(), || format!("runs that no intent speaks of: {unrecorded:?}"));
    }

    /// What the model has answered is not asked again. Only a request that was in flight at a cut may be asked anew, each once.
    fn requests(&mut self) {
        let mut asked: BTreeMap<(usize, String), usize> = BTreeMap::new();
        for talk in &self.evidence.before_third.requests {
            let place = asked.entry(self.place(talk)).or_default();
            *place = place.saturating_add(1);
        }
        let again: usize = asked.values().map(|count| count.saturating_sub(1)).sum();
        let lost = self
            .state
            .effects()
            .filter(|effect| effect.intent.effect == EffectKind::Request)
            .filter(|effect| effect.outcome.as_ref().is_none_or(|outcome| outcome.end == OutcomeEnd::Interrupted))
            .count();
        self.hold(again <= lost, || {
            format!("{again} requests were paid for again, {lost} were in flight at a cut: {asked:?}")
        });
        self.hold(lost <= self.evidence.cuts as usize, || {
            format!("{lost} requests were lost by {} cuts", self.evidence.cuts)
        });
    }

    /// Where a conversation stands: how often the model has answered, and which prompt it was shown last.
    fn place(&self, talk: &[Shown]) -> (usize, String) {
        let answers = talk.iter().filter(|message| message.model).count();
        let prompt = talk
            .iter()
            .rev()
            .filter(|message| !message.model)
            .find_map(|message| self.case.scenario.tokens().iter().find(|token| message.text.contains(**token)));
        (answers, prompt.map(|token| (*token).to_owned()).unwrap_or_default())
    }

    /// The model is shown each prompt once, and each that was accepted was taken.
    fn prompts(&mut self) {
        for talk in &self.evidence.before_third.requests {
            for token in self.case.scenario.tokens() {
                let shown = talk
                    .iter()
                    .filter(|message| !message.model)
                    .map(|it| it.text.matches(token).count())
                    .sum::<usize>();
                self.hold(shown <= 1, || format!("the model was shown {token} {shown} times"));
            }
            let gone = talk.iter().any(|message| message.text.contains(GONE));
            self.hold(!gone, || format!("the model was shown {GONE}, which was taken back"));
        }
        let survey = match FauxHistory.survey(&RecordedFiles::fold(&self.evidence.records)) {
            Ok(survey) => survey,
            Err(error) => return self.broken.push(format!("the history: {error}")),
        };
        let taken: BTreeSet<_> = survey.taken.iter().collect();
        self.hold(taken.len() == survey.taken.len(), || format!("a message was taken twice: {:?}", survey.taken));
        let lost: Vec<_> = self
            .state
            .submissions()
            .filter(|accepted| !accepted.withdrawn)
            .filter(|accepted| !accepted.message.as_ref().is_some_and(|message| taken.contains(message)))
            .map(|accepted| accepted.submission.id.clone())
            .collect();
        self.hold(lost.is_empty(), || format!("prompts that reached nobody: {lost:?}"));
    }

    fn delivery(&mut self) {
        let delivered: Vec<_> = self
            .evidence
            .records
            .iter()
            .filter_map(
                |record| if let Body::Delivered(delivered) = &record.body { Some(&delivered.value) } else { None },
            )
            .collect();
        let failed = self.evidence.records.iter().filter(|record| matches!(record.body, Body::Failed(_))).count();
        let right = match self.case.scenario.answer() {
            Answer::Value(value) => delivered == [&value] && failed == 0,
            Answer::Failed(_) => delivered.is_empty() && failed == 1,
        };
        let delivered = format!("delivered {delivered:?}, failed {failed} times");
        self.hold(right, || delivered);
    }

    /// No hold is without an end, and the ledger says what the session says.
    fn money(&mut self) {
        let mut books = Books::new();
        if let Err(fault) = books.fold(&self.evidence.ledger) {
            return self.broken.push(format!("the ledger: {fault}"));
        }
        let open = books.open_holds().count();
        self.hold(open == 0, || format!("{open} holds without an end"));
        let spent = self.state.spent;
        let (ledger, session) = ((books.booked(), books.unknown()), (spent.booked, spent.unknown));
        self.hold(ledger == session, || format!("the ledger has {ledger:?}, the session {session:?}"));
        self.hold(spent.booked > Usd::ZERO, || "nothing was booked".to_owned());
        match self.counted() {
            Ok(counted) => {
                let total = books.booked().saturating_add(books.unknown());
                self.hold(books.booked() <= counted, || {
                    format!("${} booked, more than the ${counted} that the parent counted", books.booked())
                });
                self.hold(total >= counted, || {
                    format!("a total of ${total}, lower than the ${counted} that the parent counted")
                });
                let exact = books.unknown_count() > 0 || books.booked() == counted;
                self.hold(exact, || {
                    format!("nothing is unknown, and ${} was booked of ${counted} counted", books.booked())
                });
            }
            Err(Fault(fault)) => self.broken.push(fault),
        }
        if self.case.scenario.cap().is_some() {
            let raises = self.evidence.ledger.iter().filter(|it| matches!(it.body, LedgerBody::Raise { .. })).count();
            let parks = self.evidence.records.iter().filter(|it| matches!(it.body, Body::Parked(_))).count();
            self.hold(raises == 1, || format!("the cap was raised {raises} times"));
            self.hold(parks > 0, || "the run never parked".to_owned());
        }
    }

    /// What was spent by the parent's own count: the requests that the model saw and the runs of priced tools.
    fn counted(&self) -> Result<Usd, Fault> {
        let catalog = Catalog::bundled().map_err(Fault::of)?;
        let usage = self.case.scenario.tokens_used().into();
        let request = price(&catalog, MODEL, &usage, Date::of_unix_ms(u64::MAX)).map_err(Fault::of)?.amount;
        let counts = &self.evidence.after_third;
        let tools = self.case.scenario.tools().iter().filter_map(|tool| {
            let runs = counts.tools.get(tool.name).map_or(0, Vec::len);
            Some((tool.price()?, runs))
        });
        tools.chain([(request, counts.requests.len())]).try_fold(Usd::ZERO, |sum, (price, times)| {
            let cost = u64::try_from(times).ok().and_then(|times| price.checked_mul(times));
            cost.and_then(|cost| sum.checked_add(cost)).ok_or_else(|| Fault("what was spent cannot be told".to_owned()))
        })
    }
}

/// Whether an owner that crosses `point` ends the op of this result.
fn ends_it(result: &Came, point: &str) -> bool {
    match result.op.as_str() {
        "run" => ["delivered.before", "failed.before"].contains(&point),
        PARK if result.value.is_null() => point == "park.before",
        PARK => point == "delivered.before",
        // It takes no session, so nobody ends it: the same raise again is the same raise.
        RAISE => false,
        "settle" => ["settle.before", "withdrawn.before"].contains(&point),
        _ => ["fu_outcome.before", "settle.before", "withdrawn.before"].contains(&point),
    }
}

/// Whether a point can be cut in this way: a group that is made and not committed keeps every other process from writing, so nobody takes
/// a session over there.
pub(super) fn can_be_cut(point: &str, cut: Cut, _backend: Backend) -> bool {
    cut != Cut::Owner || point != "commit"
}
