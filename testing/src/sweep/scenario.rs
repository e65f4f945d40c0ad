//! What is run and cut: nodes with tools of each kind, and a model whose answers follow from how many results it has seen, so that a cut
//! anywhere leads to the same value.

use std::sync::Arc;
use std::time::Duration;

use agentrun_adapter::ToolSpec;
use agentrun_kernel::{OnRepeat, Replay, RunId, SessionKey, Usd};
use agentrun_runner::{Node, REQUEST_LIMIT, Review, Step, Tool, ToolRun};
use serde_json::{Value, json};

use super::Fault;
use crate::script::Tokens;

/// A program over one session, its ops one after the other. Started again it goes on where its records stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scenario {
    /// One turn: calls of each kind together, an exclusive one beside a safe one, a submit that does not fit, then one that does.
    Tools,
    /// Turns: one without a call, a nudge, a priced call, a value that the review rejects, then one that it accepts. A model that is told
    /// of an interruption asks for the same call again.
    Talk,
    /// The first one, begun by an owner that died while several calls were in flight: what recovery itself crosses.
    Resumed,
    /// A node, then two follow-ups, the first of them with a priced call.
    FollowUps,
    /// A harness with ids of its own, whose owner died between placing the prompt and sending it: the turn is settled, and the next message
    /// carries the prompt.
    Settled,
    /// A node that its turn limit ends.
    Bound,
    /// A node whose run parks behind its first answer, is raised, and delivers.
    Parked,
    /// A follow-up whose owner died in its turn: it is settled, its prompt taken back, and another one is asked.
    CutFollowUp,
    /// A node whose owner died before it sent the prompt; a person sends it words, sends others and takes them back, and runs it.
    People,
}

/// One thing a host asks of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// Run the node to its value.
    Run,
    /// Run the node until the cap refuses a step; to its value where the cap was raised before.
    Park,
    /// Raise the run's cap, by one id.
    Raise,
    /// Ask one more turn, by its name.
    FollowUp(&'static str),
    /// End what is open; `take` ends an owner that lives.
    Settle { take: bool },
    /// Send a person's words, under themselves as their id.
    Send(&'static str),
    /// Take them back.
    Retract(&'static str),
}

impl Op {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Park => PARK,
            Self::Raise => RAISE,
            Self::FollowUp(name) => name,
            Self::Settle { .. } => "settle",
            Self::Send(_) | Self::Retract(_) => POST,
        }
    }
}

/// The names of two ops, as results carry them.
pub(super) const PARK: &str = "park";
pub(super) const RAISE: &str = "raise";

/// What a node of a scenario comes to, wherever it is cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Value(Value),
    Failed(&'static str),
}

/// How a tool of the sweep behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SweepTool {
    pub(super) name: &'static str,
    pub(super) replay: Replay,
    pub(super) does: Does,
    priced: bool,
    exclusive: bool,
}

impl SweepTool {
    /// What a call costs.
    pub(super) fn price(self) -> Option<Usd> {
        self.priced.then(|| Usd::from_pico(PRICE))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    Succeed,
    Fail,
    /// Runs a process under its guard, which counts itself.
    Spawn,
}

const fn tool(name: &'static str, replay: Replay, does: Does) -> SweepTool {
    SweepTool { name, replay, does, priced: false, exclusive: false }
}

const LOOK: SweepTool = tool("look", Replay::Safe, Does::Succeed);
const PAY: SweepTool = SweepTool { priced: true, ..tool("pay", Replay::Never, Does::Succeed) };
const FAIL: SweepTool = tool("fail", Replay::Never, Does::Fail);
const SPAWN: SweepTool = tool("spawn", Replay::Never, Does::Spawn);
const ALONE: SweepTool = SweepTool { exclusive: true, ..tool("alone", Replay::Never, Does::Succeed) };
const GLANCE: SweepTool = tool("glance", Replay::Safe, Does::Succeed);

/// The price of a call of a priced tool: a hundredth of a dollar.
const PRICE: i64 = 10_000_000_000;
/// Room for a request or its bill, and for the tool, but not for a second request: four cents.
const CAP: i64 = 40_000_000_000;
/// Room for all that a run may do, however often it is cut: ten dollars.
const RAISED: i64 = 10_000_000_000_000;

/// The model of every scenario.
pub(super) const MODEL: &str = "claude-haiku-4-5";

/// Tokens of an answer that is dear.
const DEAR: u64 = 3_000;

/// The longest a tool of the sweep may take: a bound, never met.
const TOOL_TIME: Duration = Duration::from_secs(60);

/// The name of what only writes to the inbox, and takes no session.
pub(super) const POST: &str = "post";
/// A person's words, which the model is shown.
const PERSON: &str = "#person";
/// Words that were taken back, which it is not.
pub(super) const GONE: &str = "#gone";

/// Stands in the node's prompt, so that the sweep can count where the model is shown it.
pub(super) const NODE: &str = "#node";

impl Scenario {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::Tools,
        Self::Talk,
        Self::Resumed,
        Self::FollowUps,
        Self::Settled,
        Self::Bound,
        Self::Parked,
        Self::CutFollowUp,
        Self::People,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Talk => "talk",
            Self::Resumed => "resumed",
            Self::FollowUps => "follow-ups",
            Self::Settled => "settled",
            Self::Bound => "bound",
            Self::Parked => "parked",
            Self::CutFollowUp => "cut-follow-up",
            Self::People => "people",
        }
    }

    /// The scenario of this name.
    ///
    /// # Errors
    /// The names there are.
    pub fn named(name: &str) -> Result<Self, Fault> {
        let names: Vec<_> = Self::ALL.iter().map(|scenario| scenario.name()).collect();
        Self::ALL
            .iter()
            .copied()
            .find(|scenario| scenario.name() == name)
            .ok_or_else(|| Fault(format!("no scenario `{name}`; there are {}", names.join(", "))))
    }

    pub(super) const fn ops(self) -> &'static [Op] {
        match self {
            Self::Tools | Self::Talk | Self::Resumed | Self::Bound => &[Op::Run],
            Self::FollowUps | Self::CutFollowUp => &[Op::Run, Op::FollowUp("one"), Op::FollowUp("two")],
            Self::Parked => &[Op::Park, Op::Raise, Op::Run],
            Self::Settled => &[Op::Settle { take: false }, Op::Run],
            Self::People => &[Op::Send(GONE), Op::Send(PERSON), Op::Retract(GONE), Op::Run],
        }
    }

    /// What a second owner does while the first stands at its crossing. No follow-up begins beside an owner that lives, so the second one
    /// takes the session by a settle; who comes after both goes on.
    pub(super) const fn second(self) -> &'static [Op] {
        match self {
            Self::FollowUps | Self::CutFollowUp => &[Op::Run, Op::Settle { take: true }],
            Self::Settled => &[Op::Settle { take: true }, Op::Run],
            _ => self.ops(),
        }
    }

    /// Where an owner died before any of this began.
    pub(super) const fn prelude(self) -> Option<(&'static str, u32)> {
        match self {
            Self::Resumed => Some(("tool_return", 2)),
            Self::Settled | Self::People => Some(("send", 1)),
            Self::CutFollowUp => Some(("fu_request.after", 1)),
            _ => None,
        }
    }

    /// What that owner did.
    pub(super) const fn before(self) -> &'static [Op] {
        match self {
            // Words can be sent once there is a session.
            Self::People => &[Op::Run],
            _ => self.ops(),
        }
    }

    /// Whether the harness takes messages under our ids.
    pub(super) const fn own_ids(self) -> bool {
        !matches!(self, Self::Settled)
    }

    /// Texts that a prompt of the scenario holds and that a model may be shown once.
    pub(super) const fn tokens(self) -> &'static [&'static str] {
        match self {
            Self::FollowUps | Self::CutFollowUp => &[NODE, "#one", "#two"],
            Self::People => &[NODE, PERSON],
            _ => &[NODE],
        }
    }

    pub(super) const fn tools(self) -> &'static [SweepTool] {
        match self {
            Self::Tools | Self::Resumed => &[LOOK, PAY, FAIL, SPAWN, ALONE, GLANCE],
            Self::Talk | Self::Settled | Self::Parked | Self::People => &[PAY],
            Self::FollowUps | Self::CutFollowUp => &[PAY, SPAWN],
            Self::Bound => &[],
        }
    }

    pub(super) fn answer(self) -> Answer {
        match self {
            Self::Bound => Answer::Failed("turn_limit"),
            _ => Answer::Value(json!({"n": 1})),
        }
    }

    /// What a run of it may spend at first.
    pub(super) fn cap(self) -> Option<Usd> {
        (self == Self::Parked).then(|| Usd::from_pico(CAP))
    }

    /// What its cap is raised to.
    pub(super) fn raised() -> Usd {
        Usd::from_pico(RAISED)
    }

    /// What the model says that each request of it used.
    pub(super) fn tokens_used(self) -> Tokens {
        if self == Self::Parked { Tokens { output: DEAR, ..Tokens::UNSAID } } else { Tokens::UNSAID }
    }

    pub(super) fn script(self) -> String {
        let steps = match self {
            Self::Tools | Self::Resumed => json!([
                when(json!({"results": 0}), &[call("look"), call("pay"), call("fail"), call("spawn")]),
                when(json!({"results": 4}), &[call("alone"), call("glance")]),
                when(json!({"results": 6}), &[submit(json!("many"))]),
                when(json!({"results": 7}), &[submit(json!(1))]),
                when(json!({"results": 8}), &[submit(json!(1))]),
                when(json!({"results": 9}), &[submit(json!(1))]),
            ]),
            Self::Talk => json!([
                when(json!({"contains": "was cut while `pay`", "results": 1}), &[call("pay")]),
                when(json!({"results": 0, "anywhere": "ended without delivering"}), &[call("pay")]),
                {"when": {"results": 0}, "times": "always", "text": "Let me think."},
                when(json!({"results": 1}), &[submit(json!(0))]),
                when(json!({"results": 2}), &[submit(json!(1))]),
                when(json!({"results": 3}), &[submit(json!(1))]),
                when(json!({"results": 4}), &[submit(json!(1))]),
            ]),
            Self::FollowUps | Self::CutFollowUp => json!([
                {"when": {"anywhere": "#two"}, "times": "always", "text": "Two it is."},
                when(json!({"contains": "#one"}), &[call("pay"), call("spawn")]),
                {"when": {"anywhere": "#one"}, "times": "always", "text": "One it is."},
                when(json!({}), &[submit(json!(1))]),
            ]),
            Self::Settled => {
                json!([when(json!({"results": 0}), &[call("pay")]), when(json!({}), &[submit(json!(1))]),])
            }
            Self::Bound => json!([{"times": "always", "text": "Let me think."}]),
            Self::Parked => {
                json!([dear(when(json!({"results": 0}), &[call("pay")])), dear(when(json!({}), &[submit(json!(1))])),])
            }
            Self::People => json!([
                when(json!({"contains": PERSON}), &[submit(json!(1))]),
                when(json!({"results": 0}), &[call("pay")]),
                {"times": "always", "text": "Let me think."},
            ]),
        };
        json!({ "steps": steps }).to_string()
    }

    pub(super) fn step(self) -> Result<Step, Fault> {
        let session = SessionKey::new(self.name()).map_err(Fault::of)?;
        Ok(Step { run: RunId::from(&session), session, attempt: 1, earlier: Vec::new() })
    }

    pub(super) fn node(self, run: impl Fn(SweepTool) -> Arc<dyn ToolRun>, review: Arc<dyn Review>) -> Node {
        let tools = self.tools().iter().map(|it| Tool {
            spec: ToolSpec {
                name: it.name.to_owned(),
                description: "A tool of the sweep.".to_owned(),
                input_schema: json!({"type": "object"}),
            },
            replay: it.replay,
            on_repeat: OnRepeat::Refuse,
            price: it.price(),
            timeout: TOOL_TIME,
            exclusive: it.exclusive,
            run: run(*it),
        });
        Node {
            label: self.name().to_owned(),
            system: vec!["Be brief.".to_owned()],
            prompt: format!("Find n. {NODE}"),
            model: MODEL.to_owned(),
            schema: json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}),
            tools: tools.collect(),
            builtins: Vec::new(),
            budget: None,
            turn_limit: (self == Self::Bound).then_some(1),
            request_limit: REQUEST_LIMIT,
            review: (self == Self::Talk).then_some(review),
            fork: false,
            host: Value::Null,
        }
    }
}

fn call(tool: &str) -> Value {
    json!({"name": tool, "input": {"q": "n"}})
}

fn submit(n: Value) -> Value {
    json!({"name": "submit", "input": {"value": {"n": n}}})
}

/// An answer whose bill leaves no room for another.
fn dear(mut step: Value) -> Value {
    let Tokens { input, output, .. } = Scenario::Parked.tokens_used();
    if let Some(fields) = step.as_object_mut() {
        fields.insert("usage".to_owned(), json!({"input": input, "output": output}));
    }
    step
}

fn when(condition: Value, calls: &[Value]) -> Value {
    json!({"when": condition, "times": "always", "tools": calls})
}
