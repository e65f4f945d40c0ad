//! `agentrun demo`: a node with a paid tool runs in a second process, which is killed with SIGKILL in the middle of the call, and is
//! resumed in this one. What ran is counted by the tool itself, what was asked by the scripted model server, what was paid by the ledger;
//! the demo fails when these do not agree that nothing ran or was paid twice.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use agentrun_adapter::claude::PROGRAM;
use agentrun_kernel::{Body, EffectKind, SessionKey};
use agentrun_testing::script::Script;
use agentrun_testing::scripted::ScriptedModel;
use tokio::process::{Child, Command};

use crate::args::{Harness, How, ResumeArgs};
use crate::credential::Secrets;
use crate::exit::{Exit, Failure};
use crate::output::{note, text};
use crate::{resume, stores};

const NODE: &str = include_str!("demo/node.json");
const SCRIPT: &str = include_str!("demo/script.json");
const COURIER: &str = include_str!("demo/courier.sh");
const SESSION: &str = "demo";
/// Between two looks for the tool's start file.
const LOOK: Duration = Duration::from_millis(5);
/// Most time until the tool runs: a cold start of a harness on a loaded machine takes a few seconds.
const START: Duration = Duration::from_secs(120);

pub(crate) async fn demo() -> Result<Exit, Failure> {
    let stage = Stage::set()?;
    let (harness, name) = match PROGRAM.find().await {
        Ok(program) => (Harness::Claude, format!("Claude Code {} ({})", program.version, program.path.display())),
        Err(error) => (Harness::Faux, format!("the faux harness, since no Claude Code in range is here ({error})")),
    };
    let script = Script::parse(SCRIPT).map_err(|error| Failure::internal(error.to_string()))?;
    let model =
        ScriptedModel::start(script).map_err(|error| Failure::internal(format!("the scripted model: {error}")))?;
    text("A node whose tool `courier` costs $0.25 a call, on a scripted model on 127.0.0.1: no key, no network.");
    text(&format!("Harness: {name}"));

    let mut first = stage.run(harness, &model.base_url())?;
    let pid = first.id().map_or_else(|| "?".to_owned(), |pid| pid.to_string());
    text(&format!("\n1. Process {pid} runs the node."));
    wait_for_tool(&mut first, &stage).await?;
    text(&format!("   `courier` is running. SIGKILL to process {pid}."));
    let killed = |error: std::io::Error| Failure::internal(format!("process {pid} could not be killed: {error}"));
    first.kill().await.map_err(killed)?;

    text(&format!("\n2. Process {} resumes it from the records.", std::process::id()));
    let exit = stage.resume().await?;
    if exit != Exit::Done {
        note("agentrun: the demo's node did not deliver");
        return Ok(exit);
    }
    text("\n3. The same once more: answered from the records.");
    let before = model.requests().len();
    stage.resume().await?;

    text("\n4. What ran, and what was paid:");
    let served = (harness == Harness::Claude).then(|| model.requests().len());
    let bill = stage.bill().await?;
    bill.print(served);
    let again = model.requests().len() - before;
    if bill.holds(served) && again == 0 {
        text("\nNothing ran twice and nothing was paid twice.");
        Ok(Exit::Done)
    } else {
        Err(Failure::internal(format!(
            "the demo does not hold: {bill:?}, served {served:?}, {again} requests when asked again"
        )))
    }
}

/// Waits for the file the tool makes when it begins, or for the end of the process that should have started it.
async fn wait_for_tool(first: &mut Child, stage: &Stage) -> Result<(), Failure> {
    let started = stage.work.join("started");
    let began = async {
        while !started.exists() {
            tokio::time::sleep(LOOK).await;
        }
    };
    let ended = tokio::select! {
        () = began => return Ok(()),
        ended = first.wait() => ended,
        () = tokio::time::sleep(START) => return Err(Failure::internal("the tool did not begin in time")),
    };
    let said = std::fs::read_to_string(stage.folder.path().join("first.stderr")).unwrap_or_default();
    Err(Failure::internal(format!("the first process ended before its tool began ({ended:?}):\n{said}")))
}

/// The demo's files, removed at its end.
struct Stage {
    folder: tempfile::TempDir,
    work: PathBuf,
    url: String,
}

impl Stage {
    fn set() -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::internal(format!("the demo's folder: {error}"));
        let folder = tempfile::Builder::new().prefix("agentrun-demo-").tempdir().map_err(failed)?;
        let at = |name: &str| folder.path().join(name);
        let work = at("work");
        std::fs::create_dir(&work).map_err(failed)?;
        let courier = at("courier.sh");
        let files: [(&Path, &str); 4] = [
            (&courier, COURIER),
            (&at("node.json"), NODE),
            (&at("script.json"), SCRIPT),
            (&at("key"), "made-up-key-of-the-demo"),
        ];
        for (path, content) in files {
            std::fs::write(path, content).map_err(failed)?;
        }
        std::fs::set_permissions(&courier, std::fs::Permissions::from_mode(0o755)).map_err(failed)?;
        let url = format!("sqlite:{}", at("agentrun.db").display());
        Ok(Self { folder, work, url })
    }

    /// The node in a process of its own: this program, run as anybody would.
    fn run(&self, harness: Harness, base_url: &str) -> Result<Child, Failure> {
        let failed = |error: std::io::Error| Failure::internal(format!("the second process: {error}"));
        let at = |name: &str| self.folder.path().join(name);
        let stderr = std::fs::File::create(at("first.stderr")).map_err(failed)?;
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command
            .arg("run")
            .arg(at("node.json"))
            .args(["--harness", harness.name(), "--session", SESSION, "--store", &self.url, "--json"])
            .arg("--workspace")
            .arg(&self.work)
            .arg("--credential-file")
            .arg(at("key"));
        match harness {
            Harness::Faux => command.arg("--script").arg(at("script.json")),
            Harness::Claude | Harness::Codex | Harness::OpenCode => command.args(["--base-url", base_url]),
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).kill_on_drop(true).spawn().map_err(failed)
    }

    async fn resume(&self) -> Result<Exit, Failure> {
        let how = How { json: false, drain: 10, credential_file: Some(self.folder.path().join("key")) };
        let args = ResumeArgs { session: SessionKey::new(SESSION)?, base_url: None, how };
        resume::resume(&self.url, &args, &Secrets::default()).await
    }

    async fn bill(&self) -> Result<Bill, Failure> {
        let store = stores::existing(&self.url).await?;
        let key = SessionKey::new(SESSION)?;
        let (records, state) = stores::session(&store, &self.url, &key).await?;
        let begun = |kind: EffectKind| {
            records
                .iter()
                .filter(|record| matches!(&record.body, Body::Intent(intent) if intent.effect == kind))
                .count()
        };
        let ran = std::fs::read_to_string(self.work.join("ran")).unwrap_or_default().lines().count();
        Ok(Bill { ran, calls: begun(EffectKind::Tool), requests: begun(EffectKind::Request), spent: state.spent })
    }
}

/// What the three counters say.
#[derive(Debug)]
struct Bill {
    /// Runs, by the tool's own file.
    ran: usize,
    /// Calls, by the records.
    calls: usize,
    /// Paid model requests, by the records.
    requests: usize,
    spent: agentrun_kernel::Spent,
}

impl Bill {
    fn print(&self, served: Option<usize>) {
        text(&format!("   courier ran              {} (its own counter)", self.ran));
        text(&format!("   courier calls recorded   {}", self.calls));
        text(&format!("   model requests recorded  {}", self.requests));
        if let Some(served) = served {
            text(&format!("   model requests served    {served} (counted by the scripted model)"));
        }
        text(&format!("   paid                     ${}", self.spent.booked));
        text(&format!(
            "   unknown                  ${} (the call that was cut: nobody can say, so it counts in full and is not run again)",
            self.spent.unknown
        ));
    }

    fn holds(&self, served: Option<usize>) -> bool {
        self.ran == 1 && self.calls == 1 && served.is_none_or(|served| served == self.requests)
    }
}
