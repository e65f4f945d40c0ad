//! The processes of a case: one that runs a scenario's program on a store and tells its parent all that it does, and one that a tool
//! runs. What is told is told as it happens and waits for the parent's word, so a count is never behind the act.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use agentrun_adapter::AgentAdapter;
use agentrun_adapter::process::{Exit, Marker, Spawn, run_to_end};
use agentrun_cap::Catalog;
use agentrun_kernel::{FollowUpName, Store, open_url};
use agentrun_runner::{
    FollowUp, FollowUpError, HarnessRunner, HostFault, InboxError, ModelProvider, Node, NodeError, NodeWord, Posted,
    Review, ReviewVerdict, RunnerOptions, SettleError, SettleIn, ToolEnd, ToolInvocation, ToolRun, retract_message,
    send_message, settle_open_turn,
};
use async_trait::async_trait;
use serde_json::{Value, json};

use super::Fault;
use super::scenario::{Does, Op, Scenario, SweepTool};
use super::tally::Came;
use crate::faux::FauxAdapter;
use crate::script::{Conversation, Script, Side};

/// The name of an owner that takes a session from another one.
pub(super) const SECOND: &str = "second";

/// The name of the owner that died before a scenario begins.
pub(super) const BEFORE: &str = "prelude";

/// Exit code of a process whose parent is gone or that was started wrongly.
const ORPHAN: i32 = 98;

/// The way to the parent.
struct Parent {
    address: String,
    stream: Mutex<BufReader<TcpStream>>,
}

impl Parent {
    fn connect(address: &str) -> Result<Self, Fault> {
        let stream = TcpStream::connect(address).map_err(Fault::of)?;
        stream.set_nodelay(true).map_err(Fault::of)?;
        Ok(Self { address: address.to_owned(), stream: Mutex::new(BufReader::new(stream)) })
    }

    /// Tells one thing and waits until it is counted. Nothing may be done that could not be told.
    fn tell(&self, line: &str) {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let told = stream.get_mut().write_all(format!("{line}\n").as_bytes());
        let answered = told.and_then(|()| stream.read_line(&mut String::new()));
        if !matches!(answered, Ok(1..)) {
            std::process::exit(ORPHAN);
        }
    }
}

/// Runs a scenario's program as an owner of this name: `SCENARIO STORE FOLDER PARENT OWNER [beside]`. With `beside`, this process runs it once more, as a second owner
/// beside the first one, when its parent says so: for stores that one process has to itself.
#[must_use]
pub fn child(arguments: &[String]) -> ExitCode {
    exit(run_child(arguments))
}

/// A tool's process: `PARENT NAME KEY`.
#[must_use]
pub fn tool(arguments: &[String]) -> ExitCode {
    exit(run_tool(arguments))
}

fn exit(done: Result<(), Fault>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("crash sweep: {fault}");
            ExitCode::FAILURE
        }
    }
}

fn run_child(arguments: &[String]) -> Result<(), Fault> {
    let [scenario, store, folder, parent, owner, rest @ ..] = arguments else {
        return Err(Fault("a child needs SCENARIO STORE FOLDER PARENT OWNER".to_owned()));
    };
    let world = World {
        scenario: Scenario::named(scenario)?,
        store: open_url(store).map_err(Fault::of)?,
        folder: PathBuf::from(folder),
        parent: Arc::new(Parent::connect(parent)?),
    };
    if rest.first().is_none_or(|word| word != "beside") {
        return world.play(owner);
    }
    std::thread::scope(|scope| {
        let first = scope.spawn(|| world.play(owner));
        // Answered once the first one stands at its crossing.
        Parent::connect(&world.parent.address)?.tell("second");
        world.play(SECOND)?;
        world.parent.tell("played second");
        first.join().map_err(|_| Fault("the first owner panicked".to_owned()))?
    })
}

fn run_tool(arguments: &[String]) -> Result<(), Fault> {
    let [parent, name, key] = arguments else { return Err(Fault("a tool needs PARENT NAME KEY".to_owned())) };
    Parent::connect(parent)?.tell(&format!("tool {name} {key}"));
    Ok(())
}

struct World {
    scenario: Scenario,
    store: Store,
    folder: PathBuf,
    parent: Arc<Parent>,
}

impl World {
    /// The whole program, by one owner on one thread: where that thread stands at a crossing, all of the owner stands.
    fn play(&self, owner: &str) -> Result<(), Fault> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Fault::of)?;
        runtime.block_on(async {
            let (runner, adapter) = self.runner()?;
            let ops = match owner {
                SECOND => self.scenario.second(),
                BEFORE => self.scenario.before(),
                _ => self.scenario.ops(),
            };
            for op in ops {
                let result = self.op(&runner, &adapter, *op).await?;
                let json = serde_json::to_string(&result).map_err(Fault::of)?;
                self.parent.tell(&format!("result {owner} {json}"));
                if result.error.is_some() {
                    break;
                }
            }
            Ok(())
        })
    }

    fn runner(&self) -> Result<(HarnessRunner, Arc<dyn AgentAdapter>), Fault> {
        let script = Script::parse(&self.scenario.script()).map_err(Fault::of)?;
        let parent = self.parent.clone();
        let adapter = FauxAdapter::new(script).telling(Arc::new(move |talk| parent.tell(&request(talk))));
        let adapter: Arc<dyn AgentAdapter> =
            Arc::new(if self.scenario.own_ids() { adapter } else { adapter.without_own_ids() });
        let options = RunnerOptions {
            store: self.store.clone(),
            catalog: Arc::new(Catalog::bundled().map_err(Fault::of)?),
            provider: ModelProvider::Direct,
            cap: self.scenario.cap(),
            homes: self.folder.join("homes"),
            workspace: self.folder.clone(),
            on_event: None,
            before_request: None,
        };
        Ok((HarnessRunner::new(adapter.clone(), options), adapter))
    }

    fn node(&self) -> Node {
        let run = |tool| -> Arc<dyn ToolRun> { Arc::new(Told { tool, parent: self.parent.clone() }) };
        self.scenario.node(run, Arc::new(Told { tool: (), parent: self.parent.clone() }))
    }

    async fn op(&self, runner: &HarnessRunner, adapter: &Arc<dyn AgentAdapter>, op: Op) -> Result<Came, Fault> {
        let (node, step) = (self.node(), self.scenario.step()?);
        let failed = |error: &NodeError| failed(error.word.as_str(), error);
        let came = match op {
            Op::Run => match runner.run_node(node, step).await {
                Ok(done) => Came { value: done.value, from_records: done.from_records, ..Came::default() },
                Err(error) => failed(&error),
            },
            Op::Park => match runner.run_node(node, step).await {
                Ok(done) => Came { value: done.value, from_records: done.from_records, ..Came::default() },
                Err(error) if error.word == NodeWord::OverCap => {
                    Came { text: error.word.as_str().to_owned(), ..Came::default() }
                }
                Err(error) => failed(&error),
            },
            Op::Raise => {
                let ledger = runner.ledger(&step.run).await.map_err(Fault::of)?;
                let was = ledger.books().await.map_err(Fault::of)?.seq();
                ledger.raise("r1", Scenario::raised(), None).await.map_err(Fault::of)?;
                let now = ledger.books().await.map_err(Fault::of)?.seq();
                Came { from_records: was == now, ..Came::default() }
            }
            Op::FollowUp(name) => {
                let name = FollowUpName::new(name).map_err(Fault::of)?;
                let follow_up = FollowUp { prompt: format!("And why? #{name}"), name, reserve: None };
                match runner.follow_up_once(node, step, follow_up).await {
                    Ok(done) => Came {
                        end: Some(done.end),
                        text: done.text.to_string(),
                        from_records: done.from_records,
                        ..Came::default()
                    },
                    Err(FollowUpError::Node(error)) => failed(&error),
                    Err(error @ FollowUpError::Busy(_)) => self::failed("busy", &error),
                    Err(error) => self::failed("refused", &error),
                }
            }
            Op::Settle { take } => {
                let homes = self.folder.join("homes");
                let at = SettleIn { store: self.store.clone(), adapter: adapter.clone(), homes };
                match settle_open_turn(&at, &step.session, take).await {
                    Ok(_) => Came { from_records: true, ..Came::default() },
                    Err(SettleError::Node(error)) => failed(&error),
                    Err(error) => self::failed("busy", &error),
                }
            }
            Op::Send(words) => posted(send_message(&self.store, &step.session, words, words).await),
            Op::Retract(words) => posted(retract_message(&self.store, &step.session, words).await),
        };
        Ok(Came { op: op.name().to_owned(), ..came })
    }
}

fn posted(posted: Result<Posted, InboxError>) -> Came {
    match posted {
        Ok(posted) => Came { from_records: posted.again, ..Came::default() },
        Err(error) => failed("inbox", &error),
    }
}

fn failed(word: &str, error: &dyn std::fmt::Display) -> Came {
    Came { error: Some(word.to_owned()), text: error.to_string(), ..Came::default() }
}

/// What the model is shown, as the parent reads it.
fn request(talk: &Conversation) -> String {
    let messages: Vec<_> =
        talk.messages.iter().map(|it| json!({"model": it.side == Side::Assistant, "text": it.text})).collect();
    format!("request {}", Value::from(messages))
}

/// A tool or a review that tells the parent before it does anything.
struct Told<T> {
    tool: T,
    parent: Arc<Parent>,
}

#[async_trait]
impl ToolRun for Told<SweepTool> {
    async fn run(&self, call: ToolInvocation) -> ToolEnd {
        let SweepTool { name, does, .. } = self.tool;
        if does == Does::Spawn {
            return self.spawn(&call).await;
        }
        self.parent.tell(&format!("tool {name} {}", call.key));
        // Others run meanwhile: a call takes its time.
        tokio::task::yield_now().await;
        if does == Does::Fail { ToolEnd::Error(format!("{name} failed")) } else { ToolEnd::Ok(format!("{name} done")) }
    }
}

impl Told<SweepTool> {
    async fn spawn(&self, call: &ToolInvocation) -> ToolEnd {
        let program = match std::env::current_exe() {
            Ok(program) => program,
            Err(error) => return ToolEnd::Refused(error.to_string()),
        };
        let marker = Marker { store: call.store.clone(), session: call.session.to_string(), epoch: call.epoch };
        let spawn = Spawn::new(program, &call.workspace, marker)
            .arg("tool")
            .arg(&self.parent.address)
            .arg(self.tool.name)
            .arg(call.key.as_str());
        match run_to_end(&spawn, b"", call.timeout).await {
            Ok(finished) if finished.exit == Exit::Code(0) => ToolEnd::Ok(format!("{} done", self.tool.name)),
            Ok(finished) => ToolEnd::Interrupted(format!("{:?}", finished.exit)),
            Err(error) => ToolEnd::Interrupted(error.to_string()),
        }
    }
}

#[async_trait]
impl Review for Told<()> {
    async fn review(&self, key: &str, value: &Value) -> Result<ReviewVerdict, HostFault> {
        self.parent.tell(&format!("review {key}"));
        Ok(if *value == json!({"n": 0}) {
            ReviewVerdict::Reject("n is not 0".to_owned())
        } else {
            ReviewVerdict::Accept
        })
    }
}
