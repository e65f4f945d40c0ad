//! What the types of a node file cannot say: nothing is missing, names are free and once, money is not negative, schemas compile without
//! leaving the document, commands are there. Each check answers the path of the member.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use agentrun_kernel::Replay;
use agentrun_runner::{PROMPT_BYTES, RESERVED, compile};
use serde_json::Value;

use super::{NodeFault, NodeSpec, ToolSpec};

/// Longest tool call, in seconds: harnesses give up on a tool after a day, and theirs must be the longer clock.
const LONGEST_S: u64 = 86_000;
/// Longest tool name, in bytes, that providers take.
const NAME_BYTES: usize = 64;

type Checked = Result<(), NodeFault>;

fn fault(at: impl Into<String>, what: impl Into<String>) -> NodeFault {
    NodeFault { at: at.into(), what: what.into() }
}

/// Checks `spec` and makes its commands absolute, relative ones from `folder`.
pub(super) fn check(spec: &mut NodeSpec, folder: &Path) -> Checked {
    if spec.label.is_empty() {
        return Err(fault("label", "is empty; name the node, or leave the member out"));
    }
    match spec.prompt.as_deref() {
        None => return Err(fault("prompt", "is missing; write what the model is asked")),
        Some(text) if text.trim().is_empty() => return Err(fault("prompt", "is empty; write what the model is asked")),
        Some(text) if text.len() > PROMPT_BYTES => {
            return Err(fault("prompt", "is longer than 1 MiB; put the rest into a file of the workspace"));
        }
        Some(_) => {}
    }
    if spec.model.as_deref().is_some_and(str::is_empty) {
        return Err(fault("model", "is empty; write the model's exact id"));
    }
    match &spec.schema {
        None => return Err(fault("schema", "is missing; write the JSON Schema of the value, `{}` for any")),
        Some(schema) => schema_at("schema", schema)?,
    }
    if spec.budget_usd.is_some_and(|budget| budget.is_negative()) {
        return Err(fault("budget_usd", "is below zero; a budget is at least \"0\""));
    }
    for (at, limit) in [("turn_limit", spec.turn_limit), ("request_limit", spec.request_limit)] {
        if limit == Some(0) {
            return Err(fault(at, "is 0, so nothing could ever be asked; at least 1"));
        }
    }
    let mut names = BTreeSet::new();
    for (index, tool) in spec.tools.iter_mut().enumerate() {
        let at = format!("tools[{index}]");
        if !names.insert(tool.name.clone()) {
            return Err(fault(format!("{at}.name"), format!("two tools are called `{}`; name each once", tool.name)));
        }
        check_tool(tool, &at, folder)?;
    }
    let mut names = BTreeSet::new();
    for (index, name) in spec.builtin_tools.iter().enumerate() {
        if name.is_empty() || !names.insert(name) {
            return Err(fault(format!("builtin_tools[{index}]"), format!("`{name}` is empty or named twice")));
        }
    }
    if let Some(review) = &mut spec.review {
        command_at("review.command", &mut review.command, folder)?;
    }
    Ok(())
}

fn check_tool(tool: &mut ToolSpec, at: &str, folder: &Path) -> Checked {
    let name = tool.name.as_str();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if RESERVED.contains(&name) {
        return Err(fault(
            format!("{at}.name"),
            format!("`{name}` is reserved: the value is delivered through it; choose another name"),
        ));
    }
    if name.is_empty() || name.len() > NAME_BYTES || !name.chars().all(plain) {
        return Err(fault(
            format!("{at}.name"),
            format!("`{name}` is no name a model can call; use at most {NAME_BYTES} letters, digits, `_` and `-`"),
        ));
    }
    if !tool.input_schema.is_object() {
        return Err(fault(format!("{at}.input_schema"), "is not an object; write the JSON Schema of the arguments"));
    }
    schema_at(&format!("{at}.input_schema"), &tool.input_schema)?;
    if let Some(price) = tool.price_usd {
        if price.is_negative() {
            return Err(fault(format!("{at}.price_usd"), "is below zero; leave it out for a tool that costs nothing"));
        }
        if tool.replay == Replay::Safe {
            return Err(fault(
                format!("{at}.replay"),
                format!(
                    "a tool that costs money is never `safe`: a crash would pay for it twice; write `never` for `{name}`, or take its price out"
                ),
            ));
        }
    }
    if tool.timeout_s == 0 || tool.timeout_s > LONGEST_S {
        return Err(fault(format!("{at}.timeout_s"), format!("is {}; from 1 to {LONGEST_S} seconds", tool.timeout_s)));
    }
    command_at(&format!("{at}.command"), &mut tool.command, folder)?;
    match &mut tool.reconcile {
        Some(command) => command_at(&format!("{at}.reconcile"), command, folder),
        None => Ok(()),
    }
}

fn schema_at(at: &str, schema: &Value) -> Checked {
    compile(schema).map(|_| ()).map_err(|error| fault(format!("{at}{}", dotted(&error.path)), error.what))
}

/// A JSON pointer in the form the other paths have.
fn dotted(pointer: &str) -> String {
    pointer.split('/').skip(1).fold(String::new(), |mut path, part| {
        let part = part.replace("~1", "/").replace("~0", "~");
        if !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()) {
            path.push_str(&format!("[{part}]"));
        } else {
            path.push('.');
            path.push_str(&part);
        }
        path
    })
}

/// Finds the program of a command and makes it absolute: with a slash from the file's folder, without one on PATH.
fn command_at(at: &str, command: &mut [String], folder: &Path) -> Checked {
    let Some(program) = command.first_mut().filter(|program| !program.is_empty()) else {
        return Err(fault(at, "is empty; write the program and its arguments, as in [\"./search.sh\", \"--all\"]"));
    };
    let found = if program.contains('/') {
        let path = folder.join(&*program);
        if !path.exists() {
            return Err(fault(format!("{at}[0]"), format!("`{program}` was not found ({})", path.display())));
        }
        if !runnable(&path) {
            return Err(fault(
                format!("{at}[0]"),
                format!("{} is not a program; make it executable (chmod +x)", path.display()),
            ));
        }
        path
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path)
            // A relative entry means another program in every folder.
            .filter(|folder| folder.is_absolute())
            .map(|folder| folder.join(&*program))
            .find(|candidate| runnable(candidate))
            .ok_or_else(|| {
                fault(
                    format!("{at}[0]"),
                    format!("`{program}` was not found on PATH; write ./{program} for one beside the node file"),
                )
            })?
    };
    *program = absolute(found)
        .into_os_string()
        .into_string()
        .map_err(|path| fault(format!("{at}[0]"), format!("{} is not text", PathBuf::from(path).display())))?;
    Ok(())
}

fn absolute(path: PathBuf) -> PathBuf {
    // `/node/./tool.sh` and `/node/tool.sh` are one command, and are recorded as one.
    std::path::absolute(&path).map_or(path, |path| path.components().collect())
}

fn runnable(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node() -> Value {
        json!({"prompt": "p", "model": "m", "schema": {"type": "object"}, "tools": [tool("t")]})
    }

    fn tool(name: &str) -> Value {
        json!({"name": name, "description": "d", "input_schema": {"type": "object"}, "command": ["sh", "-c", "true"]})
    }

    fn with(pointer: &str, value: Value) -> Result<NodeSpec, NodeFault> {
        let mut node = node();
        let (parent, member) = pointer.rsplit_once('/').unwrap();
        node.pointer_mut(parent).unwrap()[member] = value;
        crate::node_file::again(&node)
    }

    #[test]
    fn a_sound_node_passes_and_its_commands_are_absolute() {
        let spec = crate::node_file::again(&node()).unwrap();
        assert!(spec.tools[0].command[0].starts_with('/'), "{:?}", spec.tools[0].command);
        assert_eq!((spec.tools[0].replay, spec.label.as_str()), (Replay::Never, "node"));
    }

    #[test]
    fn a_normalised_node_reads_back_as_itself() {
        let spec = crate::node_file::again(&node()).unwrap();
        assert_eq!(crate::node_file::again(&serde_json::to_value(&spec).unwrap()).unwrap(), spec);
    }

    #[test]
    fn each_slip_is_named_by_its_path() {
        let two = json!([tool("t"), tool("t")]);
        for (pointer, value, at, why) in [
            ("/prompt", Value::Null, "prompt", "missing"),
            ("/prompt", json!(" "), "prompt", "empty"),
            ("/prompt", json!("p".repeat(PROMPT_BYTES + 1)), "prompt", "1 MiB"),
            ("/schema", Value::Null, "schema", "missing"),
            ("/schema", json!({"type": "objekt"}), "schema.type", "objekt"),
            (
                "/schema",
                json!({"properties": {"a": {"$ref": "https://example.com/s"}}}),
                "schema.properties.a.$ref",
                "leaves",
            ),
            ("/schema", json!({"allOf": [{"minimum": "x"}]}), "schema.allOf[0].minimum", "x"),
            ("/budget_usd", json!("-0.5"), "budget_usd", "below zero"),
            ("/budget_usd", json!(0.5), "budget_usd", "string"),
            ("/turn_limit", json!(0), "turn_limit", "at least 1"),
            ("/promt", json!("p"), "promt", "unknown field `promt`"),
            ("/tools", two, "tools[1].name", "two tools"),
            ("/tools/0/name", json!("submit"), "tools[0].name", "reserved"),
            ("/tools/0/name", json!("a b"), "tools[0].name", "no name"),
            ("/tools/0/comand", json!([]), "tools[0].comand", "unknown field"),
            ("/tools/0/command", json!([]), "tools[0].command", "empty"),
            ("/tools/0/command", json!(["./none.sh"]), "tools[0].command[0]", "not found"),
            ("/tools/0/command", json!(["no-such-program-here"]), "tools[0].command[0]", "PATH"),
            ("/tools/0/command", json!(["/etc/passwd"]), "tools[0].command[0]", "executable"),
            ("/tools/0/price_usd", json!("-1"), "tools[0].price_usd", "below zero"),
            ("/tools/0/replay", json!("sometimes"), "tools[0].replay", "sometimes"),
            ("/tools/0/timeout_s", json!(0), "tools[0].timeout_s", "1 to"),
            ("/tools/0/input_schema", json!(true), "tools[0].input_schema", "object"),
            ("/tools/0/reconcile", json!([]), "tools[0].reconcile", "empty"),
            ("/review", json!({"command": ["./none.sh"]}), "review.command[0]", "not found"),
            ("/builtin_tools", json!(["Read", "Read"]), "builtin_tools[1]", "twice"),
        ] {
            let told = with(pointer, value.clone()).expect_err(&format!("{pointer} {value}"));
            assert_eq!(told.at, at, "{told}");
            assert!(told.what.contains(why), "{told}");
        }
    }

    #[test]
    fn b54_a_priced_tool_declared_safe_is_refused() {
        let mut priced = tool("t");
        priced["price_usd"] = json!("0.01");
        assert!(with("/tools", json!([priced])).is_ok());
        priced["replay"] = json!("safe");
        let told = with("/tools", json!([priced])).unwrap_err();
        assert_eq!(told.at, "tools[0].replay");
    }
}
