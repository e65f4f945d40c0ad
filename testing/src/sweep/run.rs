//! The whole sweep: a census of each scenario, a case for each crossing of it, some at a time, and the table of what became of them.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use agentrun_kernel::crossings::Crossing;

use super::Fault;
use super::case::{Backend, Case, Cut, Site, Stage};
use super::scenario::Scenario;
use super::verdict::can_be_cut;

/// What is swept.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The sweep's own program, which is started for each process of a case.
    pub program: PathBuf,
    /// Where cases keep their stores while they run.
    pub folder: PathBuf,
    /// Stores.
    pub backends: Vec<Backend>,
    /// Scenarios.
    pub scenarios: Vec<Scenario>,
    /// Also kills the process that goes on, at a crossing of its own.
    pub twice: bool,
    /// Only crossings whose name begins so.
    pub only: Option<String>,
    /// Cases that run at a time.
    pub jobs: usize,
    /// This part of so many, from 1.
    pub shard: (usize, usize),
    /// A fault to plant in every process.
    pub planted: String,
    /// Ends at the first case that breaks something.
    pub stop_at_first: bool,
}

/// What became of it.
#[derive(Clone, Debug, Default)]
pub struct Report {
    census: Vec<(Scenario, Backend, Vec<Site>)>,
    ran: Vec<Case>,
    /// The cases that broke something, each with what it broke.
    pub failed: Vec<(Case, Vec<String>)>,
}

/// Runs the sweep.
///
/// # Errors
/// [`Fault`] when it cannot be run; a case that breaks something is in the report.
pub fn run(plan: &Plan) -> Result<Report, Fault> {
    let mut report = Report::default();
    let mut cases = Vec::new();
    for backend in &plan.backends {
        for scenario in &plan.scenarios {
            let folder = tempfile::tempdir_in(&plan.folder).map_err(Fault::of)?;
            let stage = Stage { program: &plan.program, folder: folder.path(), planted: "" };
            let census = stage.census(*scenario, *backend)?;
            cases.extend(cases_of(plan, *scenario, *backend, &census));
            report.census.push((*scenario, *backend, census));
        }
    }
    let (part, of) = plan.shard;
    let mine = cases.into_iter().enumerate().filter(|(place, _)| place % of.max(1) == part.saturating_sub(1));
    let queue: Mutex<VecDeque<Case>> = Mutex::new(mine.map(|(_, case)| case).collect());
    let done = Mutex::new(&mut report);
    let enough = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..plan.jobs.max(1) {
            scope.spawn(|| {
                while !enough.load(Ordering::Relaxed) {
                    let Some(case) = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front() else { return };
                    let broken = one(plan, &case).unwrap_or_else(|fault| vec![fault.0]);
                    let mut report = done.lock().unwrap_or_else(PoisonError::into_inner);
                    report.ran.push(case.clone());
                    if !broken.is_empty() {
                        enough.store(plan.stop_at_first, Ordering::Relaxed);
                        report.failed.push((case, broken));
                    }
                }
            });
        }
    });
    report.ran.sort_by_key(|case| (case.backend, case.scenario, case.site.clone(), case.cut));
    Ok(report)
}

fn one(plan: &Plan, case: &Case) -> Result<Vec<String>, Fault> {
    let folder = tempfile::tempdir_in(&plan.folder).map_err(Fault::of)?;
    case.run(Stage { program: &plan.program, folder: folder.path(), planted: &plan.planted })
}

fn cases_of(plan: &Plan, scenario: Scenario, backend: Backend, census: &[Site]) -> Vec<Case> {
    let mut cases = Vec::new();
    for (place, site) in census.iter().enumerate() {
        if plan.only.as_ref().is_some_and(|only| !site.point.starts_with(only.as_str())) {
            continue;
        }
        // Spread over what a process that goes on can cross: its first points as well as its last.
        let later = u32::try_from(place.wrapping_mul(7) % 40).unwrap_or_default().saturating_add(1);
        let cuts = [Some(Cut::Kill), Some(Cut::Owner), plan.twice.then_some(Cut::Twice(later))];
        for cut in cuts.into_iter().flatten().filter(|cut| can_be_cut(&site.point, *cut, backend)) {
            cases.push(Case { scenario, backend, site: site.clone(), cut });
        }
    }
    cases
}

impl Report {
    /// How many cases ran.
    #[must_use]
    pub fn cases(&self) -> usize {
        self.ran.len()
    }

    /// Whether nothing broke, and a sweep of all scenarios met every crossing: a new one that no scenario meets would go unswept.
    #[must_use]
    pub fn passed(&self) -> bool {
        let all = Scenario::ALL.iter().all(|it| self.census.iter().any(|(scenario, _, _)| scenario == it));
        self.failed.is_empty() && (!all || self.unmet().is_empty())
    }

    /// Crossings that exist and that no census met.
    fn unmet(&self) -> Vec<&'static str> {
        let met = |name: &str| {
            self.census
                .iter()
                .flat_map(|(_, _, sites)| sites)
                .any(|site| site.point == name || site.point.strip_suffix(".before") == Some(name))
        };
        Crossing::ALL.iter().map(|crossing| crossing.name()).filter(|name| !met(name)).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (scenario, backend, sites) in &self.census {
            let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
            for site in sites {
                let count = counts.entry(&site.point).or_default();
                *count = count.saturating_add(1);
            }
            let counts: Vec<_> = counts.iter().map(|(point, count)| format!("{point} {count}")).collect();
            let (scenario, backend) = (scenario.name(), backend.name());
            writeln!(f, "census of {scenario} on {backend}: {} crossings: {}", sites.len(), counts.join(", "))?;
        }
        writeln!(
            f,
            "\n{:<22} {:>6} {:>6} {:>6} {:>6} {:>7}",
            "crossing", "cases", "kills", "twice", "owners", "failed"
        )?;
        let mut rows: BTreeMap<&str, [usize; 5]> = BTreeMap::new();
        for case in &self.ran {
            let failed = self.failed.iter().any(|(failed, _)| failed == case);
            let cut = match case.cut {
                Cut::Kill => 1,
                Cut::Twice(_) => 2,
                Cut::Owner => 3,
            };
            for name in [case.site.point.as_str(), "all"] {
                let row = rows.entry(name).or_default();
                for (place, count) in row.iter_mut().enumerate() {
                    let counts = place == 0 || place == cut || (place == 4 && failed);
                    *count = count.saturating_add(usize::from(counts));
                }
            }
        }
        let all = rows.remove("all");
        for (name, [cases, kills, twice, owners, failed]) in rows.into_iter().chain(all.map(|all| ("all", all))) {
            writeln!(f, "{name:<22} {cases:>6} {kills:>6} {twice:>6} {owners:>6} {failed:>7}")?;
        }
        let unmet = self.unmet();
        if !unmet.is_empty() {
            writeln!(f, "no scenario meets: {}", unmet.join(", "))?;
        }
        for (case, broken) in &self.failed {
            writeln!(f, "FAILED {case}:")?;
            for broken in broken {
                writeln!(f, "  {}", broken.replace('\n', "\n    "))?;
            }
        }
        Ok(())
    }
}
