//! What a quote adds to the strict pass that every body takes anyway, for a body of the usual size of an agent's (210 KB), through all
//! three APIs. One command, and each ratio is of one run: the two are measured in turns.
//!
//! ```text
//! cargo bench -p agentrun-host --bench quote
//! ```
//!
//! `beyond` is all that is done to a body before it is admitted (checked, read on the way and shaped, quoted) without the strict pass alone.
//! To hold: at most 0.4 of that pass. `pinned` is the same where the request leaves the tier open, as Codex's does: the policy sets it, and what
//! goes out is a copy.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, missing_docs)] // a bench prints

use std::hint::black_box;
use std::time::{Duration, Instant};

use agentrun_cap::{Catalog, quote};
use agentrun_host::{Provider, RouteKind, shape, strict};
use bytes::Bytes;
use serde_json::{Value, json};

const SIZE: usize = 210_000;
const ROUNDS: usize = 400;

/// A page of code as a tool gives it back, with the escapes that code has.
const CODE: &str =
    "    let rows = \"SELECT id, name FROM t WHERE a = 'b'\";\n\tif (x > 0 && y[1] != \"\\n\") { return foo(x, y); }\n";

fn schema(n: usize) -> Value {
    let member = |name: &str| json!({"type": "string", "description": format!("The {name} of tool {n}, as the harness documents it at length.")});
    json!({"type": "object", "required": ["path"], "additionalProperties": false,
        "properties": {"path": member("path"), "pattern": member("pattern"), "replacement": member("replacement")}})
}

/// Tools, then calls and their results until the size is reached.
fn body(api: Provider, is_open: bool) -> String {
    let described =
        |n: usize| (format!("tool_{n}"), "Does one thing, and says in a paragraph what it does. ".repeat(8));
    let tools: Vec<Value> = (0..20)
        .map(|n| {
            let (name, description) = described(n);
            match api {
                Provider::Anthropic => json!({"name": name, "description": description, "input_schema": schema(n)}),
                Provider::OpenAi => json!({"type": "function", "name": name, "description": description, "parameters": schema(n)}),
                Provider::OpenAiChat => json!({"type": "function", "function": {"name": name, "description": description, "parameters": schema(n)}}),
            }
        })
        .collect();
    let turn = |n: usize| {
        let (id, arguments) = (format!("call_{n}"), json!({"path": format!("src/file_{n}.rs"), "pattern": "fn main"}));
        let result = CODE.repeat(20);
        match api {
            Provider::Anthropic => vec![
                json!({"role": "assistant", "content": [{"type": "text", "text": "I look at it."}, {"type": "tool_use", "id": id, "name": "tool_1", "input": arguments}]}),
                json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": [{"type": "text", "text": result}]}]}),
            ],
            Provider::OpenAi => vec![
                json!({"type": "function_call", "call_id": id, "name": "tool_1", "arguments": arguments.to_string()}),
                json!({"type": "function_call_output", "call_id": id, "output": result}),
            ],
            Provider::OpenAiChat => vec![
                json!({"role": "assistant", "tool_calls": [{"id": id, "type": "function", "function": {"name": "tool_1", "arguments": arguments.to_string()}}]}),
                json!({"role": "tool", "tool_call_id": id, "content": result}),
            ],
        }
    };
    let of = |turns: usize| {
        let items: Vec<Value> = (0..turns).flat_map(&turn).collect();
        let mut body = match api {
            Provider::Anthropic => {
                json!({"model": "claude-sonnet-4-5", "max_tokens": 32_000, "stream": true, "system": [{"type": "text", "text": "You work.",
                "cache_control": {"type": "ephemeral"}}], "tools": tools, "messages": items,
                "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}})
            }
            Provider::OpenAi => {
                json!({"model": "gpt-5", "stream": true, "store": false, "service_tier": "default", "instructions": "You work.", "tools": tools, "input": items})
            }
            Provider::OpenAiChat => {
                json!({"model": "gpt-5", "max_tokens": 32_000, "stream": true, "service_tier": "default",
                "stream_options": {"include_usage": true}, "tools": tools, "messages": items})
            }
        };
        if is_open {
            body.as_object_mut().unwrap().remove("service_tier");
        }
        body.to_string()
    };
    (1..).map(of).find(|body| body.len() >= SIZE).unwrap()
}

fn timed(work: impl FnOnce()) -> Duration {
    let began = Instant::now();
    work();
    began.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap()
}

fn main() {
    let catalog = Catalog::bundled().unwrap();
    let day = "2026-11-30".parse().unwrap();
    println!("{:<20} {:>8} {:>12} {:>12} {:>6}", "API", "bytes", "strict", "beyond", "ratio");
    for (api, is_open) in [
        (Provider::Anthropic, false),
        (Provider::OpenAi, false),
        (Provider::OpenAi, true),
        (Provider::OpenAiChat, false),
        (Provider::OpenAiChat, true),
    ] {
        let policy = api.policy();
        let route = policy.routes().iter().find(|route| route.kind == RouteKind::Paid).unwrap();
        let body = Bytes::from(body(api, is_open));
        let (mut strictly, mut wholly) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            strictly.push(timed(|| strict(black_box(&body)).unwrap()));
            wholly.push(timed(|| {
                let shaped = shape(&*policy, route, black_box(&body)).unwrap();
                black_box(quote(&catalog, &shaped.facts, day).unwrap());
            }));
        }
        let (strictly, wholly) = (median(strictly), median(wholly));
        let beyond = wholly.saturating_sub(strictly);
        let ratio = beyond.as_secs_f64() / strictly.as_secs_f64();
        let what = format!("{api}{}", if is_open { ", pinned" } else { "" });
        println!("{what:<20} {:>8} {strictly:>12.1?} {beyond:>12.1?} {ratio:>6.2}", body.len());
    }
}
