//! `agentrun run` and the part `resume` shares with it. The order is the promise: everything that can be wrong with the input is found
//! before the store is made, and everything the records can answer is answered before a key is asked for or anything is started.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agentrun_cap::Books;
use agentrun_host::{ModelProxy, Origin, ProviderConfig, Timeouts};
use agentrun_kernel::{RunId, SessionKey, SessionState, Store};
use agentrun_runner::{Delivered, HarnessRunner, ModelProvider, NodeError, NodeWord, RunnerOptions, Step, live_owner};

use crate::args::{How, Provider, RunArgs};
use crate::credential::Secrets;
use crate::exit::{Exit, Failure};
use crate::output::{self, Last, counted};
use crate::plan::{Flags, Plan};
use crate::progress::Progress;
use crate::send::{self, Standing};
use crate::{harness, node_file, price, signals, stores};

pub(crate) async fn run(url: &str, args: &RunArgs, secrets: &Secrets) -> Result<Exit, Failure> {
    let plan = plan(args)?;
    let given = args.session.is_some();
    let session = match &args.session {
        Some(key) => key.clone(),
        None => SessionKey::new(uuid::Uuid::now_v7().to_string())?,
    };
    // A key that may be missing is asked for before the store is made; one that is not needed is not asked for.
    let known = given && stores::file_of(url).is_none_or(Path::exists);
    let store = if known {
        stores::open(url).await?
    } else {
        upstream(&plan.flags, &args.how, secrets)?;
        stores::open(url).await?
    };
    let state = SessionState::fold(&stores::records(&store, &session).await?);
    let run = place(&store, url, &state, args, &session).await?;
    if !given {
        output::note(&format!("session {session}; if it is cut: agentrun resume {session} --store {url}"));
    }
    let at = Place { store, url, session, run, state };
    go(at, &plan, &args.how, secrets).await
}

/// What the flags and the node file say, checked.
fn plan(args: &RunArgs) -> Result<Plan, Failure> {
    let mut node = node_file::read(&args.node)?;
    if args.model.is_some() {
        node.model.clone_from(&args.model);
    }
    if node.model.as_deref().is_none_or(str::is_empty) {
        return Err(Failure::usage(format!(
            "{}: at `model`: is missing; write the model's exact id, or give --model",
            args.node.display()
        )));
    }
    let folder = |path: &Path, flag: &str| {
        let real =
            path.canonicalize().map_err(|error| Failure::usage(format!("{flag} {}: {error}", path.display())))?;
        if real.is_dir() {
            Ok(real)
        } else {
            Err(Failure::usage(format!("{flag} {}: is not a folder", path.display())))
        }
    };
    let file = |path: &Option<std::path::PathBuf>| {
        path.as_ref().map(std::path::absolute).transpose().map_err(|error| Failure::usage(error.to_string()))
    };
    let flags = Flags {
        harness: args.harness,
        workspace: folder(&args.workspace, "--workspace")?,
        provider: args.provider.or_else(|| args.harness.provider()),
        base_url: args.base_url.clone(),
        cap: args.cap,
        catalog: file(&args.catalog)?,
        script: file(&args.script)?,
    };
    // Read here so that a slip is found now, and again where they are used.
    let catalog = price::catalog(flags.catalog.as_deref())?;
    if let Some(model) = node.model.as_deref().filter(|model| catalog.model(model).is_none()) {
        return Err(Failure::usage(format!(
            "{}: at `model`: `{model}` is not in the price catalog {}, so nothing bounds what it may cost; write an exact id of `agentrun \
             price`, or add it with --catalog",
            args.node.display(),
            catalog.stamp()
        )));
    }
    harness::adapter(flags.harness, flags.script.as_deref())?;
    origin(&flags)?;
    let model = node.model.as_deref().and_then(|model| catalog.model(model));
    if let (Some(model), Some(provider)) = (model, flags.provider)
        && flags.harness.provider().is_some()
        && provider.vendor() != model.provider
    {
        let (node, harness) = (args.node.display(), flags.harness.name());
        match &flags.base_url {
            None => {
                return Err(Failure::usage(format!(
                    "{node}: at `model`: `{}` is not served by {}, which --harness {harness} asks; give --model one that is, or --base-url a \
                     server that serves it over that API",
                    model.id,
                    provider.api().default_origin(),
                )));
            }
            // Such a server may serve any model, but a node of another harness names the one it was written for.
            Some(_) if args.model.is_none() => {
                return Err(Failure::usage(format!(
                    "{node}: at `model`: `{}` is no model for --harness {harness}; give --model one that is, or --model {} if the server at \
                     --base-url serves it over that API",
                    model.id, model.id
                )));
            }
            Some(_) => {}
        }
    }
    Ok(Plan::new(node, flags))
}

/// Where the session stands, and whether its run allows what the flags ask.
async fn place(
    store: &Store,
    url: &str,
    state: &SessionState,
    args: &RunArgs,
    session: &SessionKey,
) -> Result<RunId, Failure> {
    let bound = state.bound.as_ref().map(|bound| bound.run.clone());
    let run = match (bound, &args.run) {
        (Some(bound), Some(asked)) if bound != *asked => {
            return Err(Failure::usage(format!(
                "session `{session}` belongs to run `{bound}`, not `{asked}`; leave --run out, or use another session"
            )));
        }
        (Some(bound), _) => bound,
        (None, Some(asked)) => asked.clone(),
        (None, None) => RunId::from(session),
    };
    if let Some(asked) = args.cap {
        let books = stores::books(store, &run).await?;
        let begun = books.seq() > Books::new().seq();
        // The command that began the run goes on with it, also after a raise.
        if begun && books.cap() != Some(asked) && stores::first_cap(store, &run).await? != Some(asked) {
            let (has, next) = match books.cap() {
                None => ("no cap".to_owned(), "leave --cap out".to_owned()),
                Some(cap) if cap < asked => (
                    format!("a cap of ${cap}"),
                    format!("to raise it: agentrun cap {run} --raise {asked} --store {url}"),
                ),
                Some(cap) => (format!("a cap of ${cap}"), "a cap is only ever raised, so leave --cap out".to_owned()),
            };
            return Err(Failure::usage(format!("run `{run}` has {has}, so --cap {asked} changes nothing; {next}")));
        }
    }
    Ok(run)
}

/// The provider's origin, where the harness needs one.
pub(crate) fn origin(flags: &Flags) -> Result<Option<(Provider, Origin)>, Failure> {
    let Some(provider) = flags.provider.filter(|_| flags.harness.provider().is_some()) else { return Ok(None) };
    Ok(Some((provider, origin_of(provider, flags.base_url.as_deref())?)))
}

fn origin_of(provider: Provider, base_url: Option<&str>) -> Result<Origin, Failure> {
    let text = base_url.unwrap_or(provider.api().default_origin());
    text.parse().map_err(|error| Failure::usage(format!("--base-url: {error}")))
}

/// The provider with its key; `None` for a harness that needs none.
fn upstream(flags: &Flags, how: &How, secrets: &Secrets) -> Result<Option<ProviderConfig>, Failure> {
    let Some((provider, _)) = origin(flags)? else { return Ok(None) };
    provider_at(provider, flags.base_url.as_deref(), how.credential_file.as_deref(), secrets).map(Some)
}

/// A provider where `base_url` says, with its key.
pub(crate) fn provider_at(
    provider: Provider,
    base_url: Option<&str>,
    credential_file: Option<&Path>,
    secrets: &Secrets,
) -> Result<ProviderConfig, Failure> {
    let origin = origin_of(provider, base_url)?;
    let credential = secrets.key(provider, credential_file)?;
    let api = provider.api();
    Ok(ProviderConfig { api, policy: api.policy(), origin, credential, timeouts: Timeouts::default() })
}

/// A session in its store, as it was read.
pub(crate) struct Place<'a> {
    pub(crate) store: Store,
    pub(crate) url: &'a str,
    pub(crate) session: SessionKey,
    pub(crate) run: RunId,
    pub(crate) state: SessionState,
}

/// Runs a plan at its place, and says how it ended.
pub(crate) async fn go(at: Place<'_>, plan: &Plan, how: &How, secrets: &Secrets) -> Result<Exit, Failure> {
    let asks = !at.state.answered();
    let seat = Seat::new(&at, plan, how, secrets, asks).await?;
    let node = plan.node(&at.session, at.store.id())?;
    let Place { store, url, session, run, .. } = at;
    let step = Step { run, ..Step::first(session.clone()) };
    let ended = seat.runner.run_node(node, step).await;
    seat.end(url);
    let standing = match &ended {
        Ok(_) => Standing::Delivered,
        Err(error) if RECORDED.contains(&error.word) => Standing::Over,
        Err(_) => Standing::Open,
    };
    let exit = said(ended, url, how)?;
    // What cannot be read now is no reason to end otherwise.
    if let Ok(Some(waiting)) = send::waiting(&store, url, &session, standing).await {
        output::note(&waiting);
    }
    Ok(exit)
}

/// Says how the node ended.
fn said(ended: Result<Delivered, NodeError>, url: &str, how: &How) -> Result<Exit, Failure> {
    match ended {
        Ok(delivered) => {
            let text = if how.json {
                serde_json::to_string(&Last::from(&delivered))
            } else {
                serde_json::to_string_pretty(&delivered.value)
            };
            let text = text.map_err(|error| Failure::internal(error.to_string()))?;
            output::result(&text).map_err(|error| {
                Failure::again(format!("the value could not be written to stdout ({error}); it is in the records, the same command prints it"))
            })?;
            if !how.json {
                let from = if delivered.from_records { "from the records, " } else { "" };
                let unknown = match delivered.spent.unknown {
                    agentrun_kernel::Usd::ZERO => String::new(),
                    cut => format!(", and up to ${cut} more for what was cut"),
                };
                output::note(&format!(
                    "delivered {from}{}, ${} spent{unknown}",
                    counted(delivered.turns, "turn"),
                    delivered.spent.booked
                ));
            }
            Ok(Exit::Done)
        }
        Err(error) => Ok(failed(&error, url, how.json)),
    }
}

/// A runner with all that a command gives it: progress, signals, and the way to the provider.
pub(crate) struct Seat {
    pub(crate) runner: HarnessRunner,
    progress: Arc<Progress>,
    signals: tokio::task::JoinHandle<()>,
}

impl Seat {
    /// What only answers from records `asks` nothing and prices nothing: a key, a script or a catalog that is gone by now is not missed.
    pub(crate) async fn new(
        at: &Place<'_>,
        plan: &Plan,
        how: &How,
        secrets: &Secrets,
        asks: bool,
    ) -> Result<Self, Failure> {
        let flags = &plan.flags;
        let (adapter, catalog, upstream) = if asks {
            let adapter = harness::adapter(flags.harness, flags.script.as_deref())?;
            (adapter, price::catalog(flags.catalog.as_deref())?, upstream(flags, how, secrets)?)
        } else {
            (harness::idle(flags.harness)?, price::catalog(None)?, None)
        };
        let provider = match upstream {
            None => ModelProvider::Direct,
            Some(upstream) => {
                let proxy = ModelProxy::start(upstream).await.map_err(|error| Failure::again(error.to_string()))?;
                ModelProvider::Proxy(Arc::new(proxy))
            }
        };
        // Said once it is taken: what is answered from the records takes nothing.
        let beside = asks.then(|| live_owner(&stores::homes(at.url), at.store.id(), &at.session)).flatten();
        let taken = beside.map(|owner| {
            let who = owner.pid.map_or_else(|| "a process".to_owned(), |pid| format!("process {pid}"));
            format!("session {} was taken over from {who}, which ends as fenced (exit 5)", at.session)
        });
        let progress = Arc::new(Progress::new(how.json, taken));
        let told = progress.clone();
        let options = RunnerOptions {
            store: at.store.clone(),
            catalog,
            provider,
            cap: flags.cap,
            homes: stores::homes(at.url),
            workspace: flags.workspace.clone(),
            on_event: Some(Arc::new(move |event| told.on(&event))),
            before_request: None,
        };
        let runner = HarnessRunner::new(adapter, options);
        let signals = signals::watch(runner.clone(), Duration::from_secs(how.drain))
            .map_err(|error| Failure::internal(format!("signals cannot be handled: {error}")))?;
        Ok(Self { runner, progress, signals })
    }

    /// The work is done.
    pub(crate) fn end(self, url: &str) {
        self.signals.abort();
        self.progress.end();
        if stores::file_of(url).is_none() {
            // Made for this process alone; one that still holds something is left.
            let _ = std::fs::remove_dir(stores::homes(url));
        }
    }
}

/// How a parked session goes on.
pub(crate) fn unpark(session: &SessionKey, needed: &str, url: &str) -> String {
    format!(
        "to go on: agentrun cap {session} --raise {needed} --store {url}, then agentrun resume {session} --store {url}"
    )
}

/// Ends that are in the session's records: the same key answers the same again.
const RECORDED: &[NodeWord] = NodeWord::RECORDED;

pub(crate) fn failed(error: &NodeError, url: &str, as_json: bool) -> Exit {
    if as_json {
        output::json_line(&Last::from(error));
    }
    output::note(&format!("agentrun: {error}"));
    let session = &error.session;
    let exit = Exit::from(error.word);
    match exit {
        // What was in this process's memory alone is gone with it.
        Exit::Again | Exit::Parked if stores::file_of(url).is_none() => {}
        Exit::Again => output::note(&format!("to go on: agentrun resume {session} --store {url}")),
        Exit::Parked => {
            let needed = error.park.map_or_else(|| "NEWCAP".to_owned(), |park| park.needed.to_string());
            output::note(&unpark(session, &needed, url));
        }
        Exit::Final if RECORDED.contains(&error.word) => {
            output::note("this end is recorded and final: change the node and run it under another --session");
        }
        _ => {}
    }
    exit
}
