//! The script that brings the host's tools into OpenCode. It runs inside the program and does one thing: it asks the host, over loopback
//! and with a token of this epoch, and gives the answer on word for word. Whatever goes wrong is an error result, never a call that runs.

use serde_json::json;

use crate::seat::ModelApi;
use crate::tools::ToolSpec;

/// Where a part names the message that it is to be read behind.
pub(super) const BEHIND: &str = "agentrun_behind";

/// Where the script asks.
pub(super) struct Endpoint<'a> {
    pub(super) url: &'a str,
    pub(super) token: &'a str,
}

/// The script for these tools.
pub(super) fn script(
    endpoint: &Endpoint<'_>,
    api: ModelApi,
    system: &[String],
    tools: &[ToolSpec],
    builtins: &[String],
) -> String {
    let tools: Vec<_> = tools
        .iter()
        .map(|tool| json!({ "name": tool.name, "description": tool.description, "schema": tool.input_schema }))
        .collect();
    let host = json!({ "url": endpoint.url, "token": endpoint.token, "system": system.join("\n\n"), "tools": tools,
        "builtins": builtins, "behind": BEHIND, "unbounded": api == ModelApi::ChatCompletions });
    // JSON is an expression of the language as it stands.
    format!("const host = {host}\n{SCRIPT}")
}

const SCRIPT: &str = r#"
// Written anew at each start by agentrun.
const whole = new Map()
let over = false
let failed
const calling = new Set()

// Asked in pieces: the runtime ends any request after 300 seconds, whatever it is told, and a tool may take longer.
async function ask(what, signal) {
  const headers = { authorization: `Bearer ${host.token}`, "content-type": "application/json" }
  const body = JSON.stringify(what)
  for (;;) {
    const response = await fetch(host.url, { method: "POST", headers, body, signal })
    if (response.status === 202) continue
    if (!response.ok) throw new Error(`This call was not run: the host answered ${response.status}.`)
    return response.json()
  }
}

export default async () => {
  const tool = {}
  for (const { name, description, schema } of host.tools) {
    tool[name] = {
      description,
      args: schema.properties ?? {},
      async execute(args, context) {
        const answer = await ask({ tool: name, args, message: context.messageID, call: context.callID }, context.abort)
        if (answer.end_turn) over = true
        if (answer.is_error) throw new Error(answer.text)
        whole.set(context.callID, answer.text)
        return answer.text
      },
    }
  }
  return {
    tool,
    // As it stands: what is made of `args` drops everything beside the properties.
    async "tool.definition"(input, output) {
      const spec = host.tools.find((tool) => tool.name === input.toolID)
      if (spec) output.jsonSchema = spec.schema
    },
    // Behind this a tool of its own runs: whatever goes wrong here is told to the model in its place.
    async "tool.execute.before"(input, output) {
      // The host is asked by the first when it is called; the second only says what was wrong with a call.
      if (host.tools.some((tool) => tool.name === input.tool) || input.tool === "invalid") return
      if (!host.builtins.includes(input.tool)) throw new Error("This call was not run: the tool is not offered here.")
      // Made anew each time: a provider may give two calls one id.
      const asking = crypto.randomUUID()
      const answer = await ask({ tool: input.tool, args: output.args, asking, call: input.callID })
      if (answer.run !== true) throw new Error(answer.text ?? "This call was not run.")
    },
    // A command needs none of what the program itself is told.
    async "shell.env"(input, output) {
      for (const name of ["OPENCODE_SERVER_PASSWORD", "OPENCODE_CONFIG_CONTENT"]) output.env[name] = ""
    },
    // A long text was cut to its beginning and put into a file that no record has; texts are bounded when they are recorded.
    async "tool.execute.after"(input, output) {
      const text = whole.get(input.callID)
      whole.delete(input.callID)
      if (text !== undefined && output.metadata?.truncated) {
        output.output = text
        output.metadata = { truncated: false }
      }
    },
    async "experimental.chat.system.transform"(input, output) {
      if (host.system) output.system.splice(0, output.system.length, host.system)
    },
    // What says that all recorded before is above it must stand below it, now and in every later request.
    async "experimental.chat.messages.transform"(input, { messages }) {
      for (const message of [...messages]) {
        for (const note of message.parts) {
          const at = messages.findIndex((it) => it.info.id === note.metadata?.[host.behind])
          if (at < 0 || messages[at] === message) continue
          message.parts = message.parts.filter((part) => part !== note)
          messages.splice(at + 1, 0, { info: message.info, parts: [note] })
        }
      }
    },
    async "chat.message"() {
      over = false
      failed = undefined
      calling.clear()
    },
    // Both would be one more paid request, and no setting turns them off: another try after a failure, and asking on after an answer that
    // ended without a reason. Told in here, before the request is made; the host, which looks from outside, may be later.
    async event({ event: { type, properties } }) {
      if (type === "session.status" && properties.status.type === "retry")
        failed = properties.status.message || "the request failed"
      if (type === "message.part.updated" && properties.part.type === "tool") calling.add(properties.part.messageID)
      if (type === "message.updated" && properties.info.finish === "unknown" && !calling.has(properties.info.id))
        failed = "the model's answer ended without a reason"
    },
    async "chat.params"(input, output) {
      // Newer models of this API refuse the member it would be sent in; the host bounds what an answer may cost.
      if (host.unbounded) output.maxOutputTokens = undefined
      // The value is delivered: no request follows, and the host aborts what waits here.
      if (over) await new Promise(() => {})
      if (failed) throw new Error(failed)
    },
  }
}
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_written_into_the_script_as_data_and_cannot_leave_its_string() {
        let nasty = "\"; throw 1; //\n`${x}`";
        let spec = ToolSpec { name: "t".to_owned(), description: nasty.to_owned(), input_schema: json!({}) };
        let script =
            script(&Endpoint { url: "http://127.0.0.1:1/", token: "tok" }, ModelApi::Messages, &[], &[spec], &[]);
        let (first, _) = script.split_once('\n').unwrap();
        let host: serde_json::Value = serde_json::from_str(first.strip_prefix("const host = ").unwrap()).unwrap();
        assert_eq!(host["tools"][0]["description"], nasty);
    }
}
