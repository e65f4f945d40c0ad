//! Opens, appends and reads at random, from several clients on two handles at once, against a linearizability checker. Many schedules run
//! beside each other on one store, each on logs of its own, so that a store with group commit pays one sync for many.

mod check;
mod client;
mod plan;
mod spec;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tokio::task::JoinSet;

use self::client::Client;
use self::plan::{Dice, Plan};
use self::spec::{Answer as Said, Call, Event};
use super::data::Rig;
use super::words::{Answer, Failure, ensure};

/// Sessions of one schedule.
const SESSIONS: usize = 2;
/// Schedules that run beside each other. A tenth of all run with few beside them: in a crowd a call waits in line, and two calls of one
/// schedule hardly ever meet inside the store.
const BESIDE: usize = 128;
const FEW: usize = 2;

pub(super) async fn b43_b44_racing_opens_and_appends_are_linearizable(rig: Rig) -> Answer {
    let options = rig.options;
    let (mut running, mut counts) = (JoinSet::new(), Counts::default());
    let rig = Arc::new(rig);
    for number in 0..options.schedules {
        let beside = if number < options.schedules / 10 { FEW } else { BESIDE };
        if running.len() >= beside {
            counts.add(running.join_next().await)?;
        }
        // Each schedule's seed is its own, so that a failed one can be played again alone.
        let seed = options.seed ^ (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        running.spawn(schedule(Arc::clone(&rig), number, seed));
    }
    while let Some(done) = running.join_next().await {
        counts.add(Some(done))?;
    }
    // Schedules that never meet prove nothing.
    let met = options.schedules < 100 || (counts.fenced > 0 && counts.conflicts > 0 && counts.changed > 0);
    ensure!(met, "hardly anything met: {counts}");
    Ok(counts.to_string())
}

async fn schedule(rig: Arc<Rig>, number: usize, seed: u64) -> Result<Vec<Event>, Failure> {
    let mut dice = Dice::new(seed);
    let clock = Arc::new(AtomicU64::new(0));
    let mut clients = JoinSet::new();
    let plan = Plan::draw(&mut dice);
    for (client, steps) in plan.clients.into_iter().enumerate() {
        let store = Arc::clone(if client % 2 == 0 { &rig.store } else { &rig.again });
        let mut client = Client::new(store, number, client, Arc::clone(&clock))?;
        clients.spawn(async move {
            for step in steps {
                client.take(step).await?;
            }
            Ok::<_, Failure>(client.events)
        });
    }
    // An append names the event of its open by client and place; events get their numbers when all are there.
    let mut by_client: Vec<Vec<(Event, Option<usize>)>> = Vec::new();
    while let Some(ended) = clients.join_next().await {
        by_client.push(ended??);
    }
    let mut last = Client::new(Arc::clone(&rig.again), number, by_client.len(), clock)?;
    last.look_at_all().await?;
    by_client.push(last.events);
    let history = number_events(by_client);
    ensure!(
        check::is_linearizable(&history),
        "no order of these calls explains their answers (schedule {number}, seed {seed}):\n{}",
        shown(&history)
    );
    Ok(history)
}

fn number_events(by_client: Vec<Vec<(Event, Option<usize>)>>) -> Vec<Event> {
    let mut history = Vec::new();
    for events in by_client {
        let first = history.len();
        history.extend(events.into_iter().map(|(mut event, opened)| {
            if let (Call::Append { open, .. }, Some(at)) = (&mut event.call, opened) {
                *open = first + at;
            }
            event
        }));
    }
    history
}

fn shown(history: &[Event]) -> String {
    let mut lines: Vec<_> = history.iter().enumerate().collect();
    lines.sort_by_key(|(_, event)| event.called);
    let line = |(at, event): &(usize, &Event)| {
        let returned = if event.returned == u64::MAX { "never".to_owned() } else { event.returned.to_string() };
        format!(
            "#{at:<2} client {} [{} to {returned}] {:?} -> {:?}",
            event.client, event.called, event.call, event.answer
        )
    };
    lines.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[derive(Default)]
struct Counts {
    schedules: u64,
    calls: u64,
    fenced: u64,
    conflicts: u64,
    changed: u64,
    unheard: u64,
}

impl Counts {
    fn add(
        &mut self,
        ended: Option<Result<Result<Vec<Event>, Failure>, tokio::task::JoinError>>,
    ) -> Result<(), Failure> {
        let Some(history) = ended else { return Ok(()) };
        self.schedules += 1;
        for event in history?? {
            self.calls += 1;
            match event.answer {
                Said::Fenced { .. } => self.fenced += 1,
                Said::Conflict { .. } => self.conflicts += 1,
                Said::HeadChanged { .. } => self.changed += 1,
                Said::Unheard => self.unheard += 1,
                Said::Opened { .. } | Said::Landed { .. } | Said::Session { .. } | Said::Shared { .. } => {}
            }
        }
        Ok(())
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { schedules, calls, fenced, conflicts, changed, unheard } = self;
        write!(
            f,
            "{schedules} schedules, {calls} calls: {fenced} fenced, {conflicts} conflicts, {changed} head changes, {unheard} not waited for"
        )
    }
}
