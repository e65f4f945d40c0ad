//! The command line as a person types it. The help teaches: what a command does, what it costs, and what to type next.

use std::path::PathBuf;

use agentrun_cap::Date;
use agentrun_kernel::{RunId, SessionKey, Usd};
use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

const EXAMPLES: &str = "\
Examples:
  agentrun demo
      Runs a node, kills the program in the middle of a paid tool call, resumes it, and shows what was paid. No key, no network.
  agentrun run node.json --session t1 --workspace . --cap 5
      Runs the node on Claude Code. The same command again answers from the records and costs nothing.
  agentrun resume t1
      Goes on with a run that was stopped or killed, from its records alone.
  agentrun show t1
      What happened, record by record, and what it cost.

Exit codes: 0 done · 1 internal · 2 bad usage or input · 3 final failure or refusal · 4 stopped, or something outside failed; can be
resumed · 5 fenced by a newer owner · 6 parked, waiting for a raise of the cap.

Credentials: ANTHROPIC_API_KEY or OPENAI_API_KEY, or --credential-file. They reach the model provider and nothing else.";

const RUN_HELP: &str = "\
Runs a node to its value. The value goes to stdout, progress to stderr.

NODE.json says what is asked and what the answer looks like:

  { \"label\": \"triage\",
    \"system\": [\"You triage tickets.\"],
    \"prompt\": \"Ticket: the disk of db-3 is full.\",
    \"model\": \"claude-sonnet-4-5\",
    \"schema\": {\"type\": \"object\", \"properties\": {\"severity\": {\"enum\": [\"low\", \"high\"]}}, \"required\": [\"severity\"]},
    \"tools\": [{\"name\": \"search\", \"description\": \"Searches the runbooks.\", \"input_schema\": {\"type\": \"object\"},
               \"command\": [\"./search.sh\"], \"replay\": \"never\", \"price_usd\": \"0.01\", \"timeout_s\": 60}],
    \"budget_usd\": \"2\", \"turn_limit\": 8 }

Relative commands resolve from the file's folder; tools run in the workspace. A tool gets its arguments as JSON on stdin, and of the
environment only HOME, LANG, PATH, AGENTRUN_CALL_KEY (the same after a restart) and AGENTRUN_SESSION. Exit 0: its stdout is the result;
another exit: an error result with the end of its stderr; over timeout_s or killed: interrupted.

Also: \"builtin_tools\": [\"Read\"]  the harness's own tools it may use; all others end the node
      \"request_limit\": 100         paid requests of one turn
      \"review\": {\"command\": [..]}  gets {\"value\": ..} on stdin; exit 0 accepts, exit 1 rejects with its stdout as the reason for the
                                 model, anything else stops the node and is asked again on resume
and of a tool:
      \"exclusive\": true           runs alone
      \"on_repeat\": \"allow\"        an interrupted call that the model asks for again is run; the default refuses it
      \"reconcile\": [..]           asked about an interrupted call with {\"call_key\": .., \"arguments\": ..} on stdin: exit 0, it happened and
                                 stdout is the result; exit 1 with nothing on stderr, it did not, run it; else it stays interrupted

A request is admitted only when budget and cap have room for the most it can cost, which is its whole output limit: about half a dollar for
claude-sonnet-4-5 on Claude Code, $1.30 for gpt-5 on Codex and OpenCode, though it then costs a fraction of that. One that was cut counts in
full, since nobody can say what it cost: leave room in the budget for a cut.

A `never` tool (the default) is run at most once for a call, whatever dies in between; a `safe` one may be run again after a crash.

A model that `agentrun price` does not list is refused; `agentrun price --help` says how a --catalog file adds it.";

const CATALOG_HELP: &str = "\
A catalog file (--catalog of price, run and proxy) adds models to the built-in ones; where both list an id, the file's row stands:

  {\"format\": 1, \"id\": \"my-prices\", \"date\": \"2026-11-30\", \"models\": [
    {\"id\": \"my-model\", \"provider\": \"openai\", \"context_window\": 128000, \"max_output\": 16000,
     \"prices\": [{\"from\": null, \"rates\": {\"input\": 1000000, \"output\": 4000000, \"cache_read\": 100000}}]}]}

provider: anthropic or openai. rates: whole pico-dollars a token, so $1 a million tokens is 1000000; also cache_write_5m, cache_write_1h and
web_search (one search). Leave out what the model does not have: what has no price is not sent. Also prices[].from (the first day of a row,
oldest first), prices[].above ([{\"prompt\": N, \"rates\"}]: prompts of more tokens), modes ([{\"name\": \"priority\", \"prices\"}]) and geo.
examples/prices/ has a longer one, and says what each member is.";

const PROXY_HELP: &str = "\
Serves a provider's API on loopback until SIGINT or SIGTERM, for any harness started by hand:

  ANTHROPIC_BASE_URL=(the url printed) ANTHROPIC_API_KEY=(the key printed) claude

The harness never sees the provider's key. Each paid request is held at the most it can cost before it is sent, and refused with 403 when
the cap has no room; what the provider says was used is booked in the ledger of a new run, whose id is printed. `agentrun cap RUN` shows it
and raises its cap while the proxy serves. The first signal lets requests in flight end (10 s), the second one does not; then comes the bill.

With --json: {\"type\":\"proxy\",\"url\",\"key\",\"run\"}, then a line a request
{\"type\":\"request\",\"model\",\"usd\",\"unknown_usd\",\"end\":\"booked|released|unknown|denied\",\"why\"}, and last
{\"type\":\"bill\",\"requests\",\"usd\",\"unknown_usd\"}: the requests let through, what they cost, what nobody can say in full.";

/// Runs agent harnesses durably: every effect is recorded before it runs, and no paid step is paid for twice.
#[derive(Debug, Parser)]
#[command(name = "agentrun", version, after_help = EXAMPLES, max_term_width = 120)]
pub(crate) struct Args {
    /// Where sessions and ledgers live: `sqlite:PATH`, `sled:PATH` or `memory:`.
    #[arg(long, global = true, value_name = "URL", default_value = DEFAULT_STORE)]
    pub(crate) store: String,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The store of a command that names none.
pub(crate) const DEFAULT_STORE: &str = "sqlite:.agentrun/agentrun.db";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a node to its value; the same command again resumes it or answers from the records
    #[command(long_about = RUN_HELP)]
    Run(RunArgs),
    /// Go on with a session, from its records alone
    Resume(ResumeArgs),
    /// What happened in a session: records, effects, spend
    Show(ShowArgs),
    /// The sessions of the store
    Sessions {
        /// One JSON object a line.
        #[arg(long)]
        json: bool,
    },
    /// What is installed and what works here
    Doctor {
        /// Also what each harness can do.
        #[arg(long, short)]
        verbose: bool,
    },
    /// The exact price of what a request used; without arguments, the catalog
    #[command(after_long_help = CATALOG_HELP)]
    Price(PriceArgs),
    /// What a run may spend and has spent; --raise lets a parked one go on
    Cap(CapArgs),
    /// The model proxy alone, for a harness started by hand; one bill and one cap
    #[command(long_about = PROXY_HELP)]
    Proxy(ProxyArgs),
    /// End what is open in a session, and run nothing
    #[command(long_about = crate::settle::HELP)]
    Settle(crate::settle::SettleArgs),
    /// One more turn in a session that has answered, at most once a name
    #[command(long_about = crate::follow_up::HELP)]
    FollowUp(crate::follow_up::FollowUpArgs),
    /// A message to a session, beside its owner or for the next one
    #[command(long_about = crate::send::SEND_HELP)]
    Send(crate::send::SendArgs),
    /// Take a message back that no owner has taken
    #[command(long_about = crate::send::RETRACT_HELP)]
    Retract(crate::send::RetractArgs),
    /// Remove a session for good; its key stays taken, its money counted
    #[command(long_about = crate::rm::HELP)]
    Rm(crate::rm::RmArgs),
    /// Write a session to a file: a copy, or sealed for a move
    #[command(long_about = crate::export::HELP)]
    Export(crate::export::ExportArgs),
    /// Read a session from a file: moved here, or a copy
    #[command(long_about = crate::import::HELP)]
    Import(crate::import::ImportArgs),
    /// A node killed in the middle of a paid tool call and resumed: nothing runs or is paid twice
    Demo,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct RunArgs {
    /// The node, a JSON file.
    #[arg(value_name = "NODE.json")]
    pub(crate) node: PathBuf,
    /// What runs the model loop.
    #[arg(long, value_enum, default_value_t = Harness::Claude)]
    pub(crate) harness: Harness,
    /// The session's key. The same key again resumes it, or answers from its records. Without it a new one is made and printed.
    #[arg(long, value_name = "KEY")]
    pub(crate) session: Option<SessionKey>,
    /// The run whose cap and ledger the session shares; without it the session is a run of its own.
    #[arg(long, value_name = "ID")]
    pub(crate) run: Option<RunId>,
    /// The folder the harness and the tools work in.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) workspace: PathBuf,
    /// The model, in place of the node file's.
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Whose API serves the model; by default the harness's own.
    #[arg(long, value_enum)]
    pub(crate) provider: Option<Provider>,
    /// Where that API is, without the path: any server that speaks it.
    #[arg(long, value_name = "ORIGIN")]
    pub(crate) base_url: Option<String>,
    /// The most a new run may spend, in dollars. An existing run keeps its own.
    #[arg(long, value_name = "USD", value_parser = amount, allow_hyphen_values = true)]
    pub(crate) cap: Option<Usd>,
    /// A price catalog that adds to the one built in; `agentrun price --help` shows one.
    #[arg(long, value_name = "FILE")]
    pub(crate) catalog: Option<PathBuf>,
    /// What the model says, for the faux harness: a script of the scripted model server.
    #[arg(long, value_name = "FILE", required_if_eq("harness", "faux"))]
    pub(crate) script: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) how: How,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ResumeArgs {
    /// The session.
    #[arg(value_name = "KEY")]
    pub(crate) session: SessionKey,
    /// Where the API is now, if not where the session's records say; for this time alone.
    #[arg(long, value_name = "ORIGIN")]
    pub(crate) base_url: Option<String>,
    #[command(flatten)]
    pub(crate) how: How,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct CapArgs {
    /// A session, or the run it belongs to.
    #[arg(value_name = "KEY|RUN")]
    pub(crate) of: String,
    /// The run's new cap, in dollars. A live run sees it at its next step; a parked one goes on with `agentrun resume`.
    #[arg(long, value_name = "NEWCAP", value_parser = amount)]
    pub(crate) raise: Option<Usd>,
    /// The raise's id: the same id again is the same raise, so that a script may repeat it. Without one each raise is a new one.
    #[arg(long, value_name = "ID", requires = "raise", value_parser = name)]
    pub(crate) id: Option<String>,
    /// One JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ProxyArgs {
    /// Whose API is served.
    #[arg(long, value_enum)]
    pub(crate) provider: Provider,
    /// Where that API is, without the path: any server that speaks it.
    #[arg(long, value_name = "ORIGIN")]
    pub(crate) base_url: Option<String>,
    /// The most all requests together may spend, in dollars; without it there is no cap.
    #[arg(long, value_name = "USD", value_parser = amount, allow_hyphen_values = true)]
    pub(crate) cap: Option<Usd>,
    /// A price catalog that adds to the one built in; `agentrun price --help` shows one.
    #[arg(long, value_name = "FILE")]
    pub(crate) catalog: Option<PathBuf>,
    /// How often a request that the provider is too busy for (429, 5xx, or not reached) is asked again, before anything of an answer came.
    /// Each try is held and counted on its own.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) retries: u32,
    /// A file that holds the provider's key, in place of the environment variable.
    #[arg(long, value_name = "FILE")]
    pub(crate) credential_file: Option<PathBuf>,
    /// One JSON object a line on stdout; the last one is the bill.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is not part of the run itself, and may differ when it is resumed.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct How {
    /// One JSON event a line on stdout; the last one is the result.
    #[arg(long)]
    pub(crate) json: bool,
    /// How long calls in flight may go on after the first SIGINT or SIGTERM, in seconds.
    #[arg(long, value_name = "S", default_value_t = 10)]
    pub(crate) drain: u64,
    /// A file that holds the provider's key, in place of the environment variable.
    #[arg(long, value_name = "FILE")]
    pub(crate) credential_file: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ShowArgs {
    /// The session.
    #[arg(value_name = "KEY")]
    pub(crate) session: SessionKey,
    /// The records, one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
    /// Only check the records: exit 0, or 3 with the broken invariant and the record's seq.
    #[arg(long, conflicts_with_all = ["json", "follow"])]
    pub(crate) check: bool,
    /// Only what was spent: per model, per paid tool, per turn, and in all.
    #[arg(long, conflicts_with_all = ["json", "check", "follow"])]
    pub(crate) spend: bool,
    /// The spend as comma-separated values.
    #[arg(long, requires = "spend")]
    pub(crate) csv: bool,
    /// Go on showing records as they come, until the session has its answer, its end, or this command a SIGINT. An owner that lives, in
    /// whatever process, is not disturbed.
    #[arg(long)]
    pub(crate) follow: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PriceArgs {
    /// The model's exact id.
    #[arg(value_name = "MODEL", requires = "usage")]
    pub(crate) model: Option<String>,
    /// What was used; `input` is uncached input: {"input":1200,"cache_read":0,"output":300,"tier":"priority","web_searches":1}
    #[arg(long, value_name = "JSON", requires = "model")]
    pub(crate) usage: Option<String>,
    /// The day the prices are of; without it, today.
    #[arg(long, value_name = "DATE")]
    pub(crate) at: Option<Date>,
    /// A price catalog that adds to the one built in; `agentrun price --help` shows one.
    #[arg(long, value_name = "FILE")]
    pub(crate) catalog: Option<PathBuf>,
    /// JSON on stdout.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What runs the model loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Harness {
    /// Claude Code
    Claude,
    /// OpenAI Codex
    Codex,
    /// OpenCode
    #[value(name = "opencode")]
    #[serde(rename = "opencode")]
    OpenCode,
    /// No program and no network: the model is a script
    Faux,
}

impl Harness {
    /// As typed and recorded.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::OpenCode => "opencode",
            Self::Faux => "faux",
        }
    }

    /// The provider it speaks to when none is named; `None`: it needs none.
    pub(crate) const fn provider(self) -> Option<Provider> {
        match self {
            Self::Claude => Some(Provider::Anthropic),
            Self::Codex => Some(Provider::OpenAi),
            Self::OpenCode => Some(Provider::OpenAiChat),
            Self::Faux => None,
        }
    }
}

/// Whose API serves the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Provider {
    /// Anthropic Messages
    Anthropic,
    /// OpenAI Responses
    #[value(name = "openai")]
    #[serde(rename = "openai")]
    OpenAi,
    /// OpenAI chat completions, and the servers that speak it
    #[value(name = "openai-chat")]
    #[serde(rename = "openai-chat")]
    OpenAiChat,
}

impl Provider {
    /// As the proxy names it.
    pub(crate) const fn api(self) -> agentrun_host::Provider {
        match self {
            Self::Anthropic => agentrun_host::Provider::Anthropic,
            Self::OpenAi => agentrun_host::Provider::OpenAi,
            Self::OpenAiChat => agentrun_host::Provider::OpenAiChat,
        }
    }

    /// Whose models it serves by itself.
    pub(crate) const fn vendor(self) -> agentrun_cap::Provider {
        match self {
            Self::Anthropic => agentrun_cap::Provider::Anthropic,
            Self::OpenAi | Self::OpenAiChat => agentrun_cap::Provider::Openai,
        }
    }

    /// The environment variable that holds its key.
    pub(crate) const fn variable(self) -> &'static str {
        match self {
            Self::Anthropic => "ANTHROPIC_API_KEY",
            Self::OpenAi | Self::OpenAiChat => "OPENAI_API_KEY",
        }
    }
}

/// A name that somebody gives: one of blanks alone is a variable that was empty.
pub(crate) fn name(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        Err("is empty; leave the flag out, or give it a name".to_owned())
    } else {
        Ok(text.to_owned())
    }
}

pub(crate) fn amount(text: &str) -> Result<Usd, String> {
    let amount: Usd = text.parse().map_err(|error: agentrun_kernel::UsdParseError| error.to_string())?;
    if amount.is_negative() { Err("an amount below zero; give at least 0".to_owned()) } else { Ok(amount) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent_with_itself() {
        Args::command().debug_assert();
    }

    #[test]
    fn every_command_and_flag_says_what_it_is_for() {
        for command in Args::command().get_subcommands() {
            assert!(command.get_about().is_some(), "{}", command.get_name());
            for arg in command.get_arguments().filter(|arg| arg.get_id() != "help") {
                assert!(arg.get_help().is_some(), "{} {}", command.get_name(), arg.get_id());
            }
        }
    }

    #[test]
    fn a_negative_cap_and_an_unknown_harness_are_refused() {
        for bad in [&["--cap", "-1"][..], &["--cap", "cheap"], &["--harness", "gemini"], &["--session", "two words"]] {
            let typed = ["agentrun", "run", "n.json"].iter().chain(bad);
            assert!(Args::try_parse_from(typed).is_err(), "{bad:?}");
        }
        for bad in
            [&["cap", "r", "--raise", "1", "--id"][..], &["send", "s", "words", "--id"], &["run", "n.json", "--run"]]
        {
            for empty in ["", " "] {
                let typed = ["agentrun"].iter().chain(bad).chain([&empty]);
                assert!(Args::try_parse_from(typed).is_err(), "{bad:?}");
            }
        }
        assert!(Args::try_parse_from(["agentrun", "run", "n.json", "--cap", "0.5"]).is_ok());
    }

    #[test]
    fn the_faux_harness_asks_for_its_script() {
        assert!(Args::try_parse_from(["agentrun", "run", "n.json", "--harness", "faux"]).is_err());
        assert!(Args::try_parse_from(["agentrun", "run", "n.json", "--harness", "faux", "--script", "s.json"]).is_ok());
    }
}
