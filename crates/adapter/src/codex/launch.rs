//! How the program is started: the one place for the supported range, the settings and the environment. Everything it would do beside the
//! turn (plugins, telemetry, updates, memories, retries) is off, and it starts from an empty environment.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;

use serde_json::{Value, json};

use crate::process::{HarnessProgram, Version};

/// The program.
pub const PROGRAM: HarnessProgram = HarnessProgram {
    product: "Codex",
    variable: "AGENTRUN_CODEX",
    command: "codex",
    package: "@openai/codex",
    pinned: PINNED,
    // Its protocol is experimental in every part we rest on: dynamic tools, history modes.
    oldest: PINNED,
    too_new: Version::new(0, 172, 0),
};
const PINNED: Version = Version::new(0, 171, 0);

/// Where it keeps its own files, below the private home. Rollouts are named from there in records, so it never changes.
pub(super) const HOME_FOLDER: &str = "codex";
/// The one provider it knows. Threads name it in their first line, so it never changes.
pub(super) const PROVIDER: &str = "agentrun";
/// What it knows of the one model, below its own folder.
const CATALOG: &str = "catalog.json";
/// Carries the session's key. The name is of the kind the program itself keeps out of the commands it runs.
const KEY_VARIABLE: &str = "AGENTRUN_MODEL_KEY";
/// What it may inherit from us. Everything else, credentials above all, stays out.
const INHERITED: [&str; 6] = ["PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "USER"];
/// What its shell brings with it: reads on in what a command says that runs behind its result.
pub(super) const WRITE_STDIN: &str = "write_stdin";
/// Bytes of a tool result that reach the model. Above the most a record holds, so that the model gets the recorded text.
const RESULT_BYTES: u32 = 2_000_000;

/// Everything a start depends on.
pub(super) struct Launch<'a> {
    pub(super) model: &'a str,
    pub(super) builtins: &'a [String],
    pub(super) home: &'a Path,
    pub(super) tmp: &'a Path,
    pub(super) workspace: &'a Path,
    /// Origin, without a path.
    pub(super) base_url: &'a str,
    pub(super) key: &'a str,
}

impl Launch<'_> {
    /// Makes its folder and tells it of the model, so that it looks none up: those it knows bring other tools and another wire form.
    pub(super) fn prepare(&self) -> io::Result<()> {
        let folder = self.home.join(HOME_FOLDER);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(CATALOG), json!({ "models": [self.model()] }).to_string())
    }

    /// The model as its catalog has one. Function tools under their own names, one call id for each, and nothing offered but what is asked for.
    fn model(&self) -> Value {
        let offers = |tool: &str| self.builtins.iter().any(|builtin| builtin == tool);
        let mut model = json!({
            "slug": self.model,
            "display_name": self.model,
            "base_instructions": "",
            "shell_type": if offers("exec_command") { "unified_exec" } else { "disabled" },
            // With a window it would sum the history up by a request of its own at nine tenths of it, and after the provider's word that a
            // request was too long; cut between that answer and its note of it, the summary stands as the model's last word. Whether a
            // request fits is the provider's to say.
            "context_window": null,
            "truncation_policy": { "mode": "bytes", "limit": RESULT_BYTES },
            "supported_reasoning_levels": [],
            "supports_parallel_tool_calls": true,
            "support_verbosity": false,
            "experimental_supported_tools": [],
            "supported_in_api": true,
            "visibility": "list",
            "priority": 0,
        });
        if let Some(fields) = model.as_object_mut().filter(|_| offers("apply_patch")) {
            fields.insert("apply_patch_tool_type".to_owned(), json!("freeform"));
        }
        model
    }

    /// The arguments. Prompts and keys are not among them: every process on the machine can read these.
    pub(super) fn arguments(&self) -> Vec<OsString> {
        let quoted = |text: &str| Value::from(text).to_string();
        let path = |path: &Path| quoted(&path.to_string_lossy());
        let provider = |field: &str| format!("model_providers.{PROVIDER}.{field}");
        let own = [
            ("model".to_owned(), quoted(self.model)),
            ("model_catalog_json".to_owned(), path(&self.home.join(HOME_FOLDER).join(CATALOG))),
            ("model_provider".to_owned(), quoted(PROVIDER)),
            (provider("name"), quoted(PROVIDER)),
            (provider("base_url"), quoted(&format!("{}/v1", self.base_url))),
            (provider("env_key"), quoted(KEY_VARIABLE)),
            (provider("wire_api"), quoted("responses")),
            // A retry is another paid request: those are decided, and recorded, outside.
            (provider("request_max_retries"), "0".to_owned()),
            (provider("stream_max_retries"), "0".to_owned()),
            // A model may think for long; our own clock is above this one's.
            (provider("stream_idle_timeout_ms"), "3600000".to_owned()),
            // A thread started in a folder makes it trusted, and a trusted project's own settings are obeyed: servers, hooks, instructions.
            ("projects".to_owned(), untrusted(self.workspace)),
            ("features.shell_tool".to_owned(), self.builtins.iter().any(|it| it == "exec_command").to_string()),
            ("shell_environment_policy.exclude".to_owned(), format!("[{}]", quoted(KEY_VARIABLE))),
        ];
        let fixed = SETTINGS.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let mut arguments = vec![OsString::from("app-server"), OsString::from("--strict-config")];
        for (name, value) in own.into_iter().chain(fixed) {
            arguments.push(OsString::from("-c"));
            arguments.push(OsString::from(format!("{name}={value}")));
        }
        arguments
    }

    /// The whole environment.
    pub(super) fn environment(&self) -> Vec<(OsString, OsString)> {
        let mut environment: Vec<(OsString, OsString)> =
            INHERITED.into_iter().filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?))).collect();
        let folder = self.home.join(HOME_FOLDER);
        let ours: [(&str, &OsStr); 4] = [
            ("HOME", self.home.as_os_str()),
            ("CODEX_HOME", folder.as_os_str()),
            ("TMPDIR", self.tmp.as_os_str()),
            (KEY_VARIABLE, OsStr::new(self.key)),
        ];
        environment.extend(ours.map(|(name, value)| (OsString::from(name), value.to_owned())));
        environment
    }
}

/// The workspace and every folder above it: the program asks for the trust of the repository's top, wherever that is.
fn untrusted(workspace: &Path) -> String {
    let resolved = workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned());
    let mut folders: Vec<_> = workspace.ancestors().chain(resolved.ancestors()).collect();
    folders.sort_unstable();
    folders.dedup();
    let entry = |folder: &&Path| format!("{}={{trust_level=\"untrusted\"}}", Value::from(folder.to_string_lossy()));
    format!("{{{}}}", folders.iter().map(entry).collect::<Vec<_>>().join(","))
}

/// What is the same for every session.
const SETTINGS: &[(&str, &str)] = &[
    // With it, a refused connection is tried again for ever.
    ("features.unbounded_connection_retries", "false"),
    // Only the model endpoint is asked anything.
    ("features.plugins", "false"),
    ("features.apps", "false"),
    ("features.remote_plugin", "false"),
    ("features.plugin_sharing", "false"),
    ("check_for_update_on_startup", "false"),
    ("analytics.enabled", "false"),
    ("feedback.enabled", "false"),
    ("otel.exporter", "\"none\""),
    ("otel.metrics_exporter", "\"none\""),
    ("otel.trace_exporter", "\"none\""),
    ("features.api_key_model_discovery", "false"),
    ("features.daemon_auto_start", "false"),
    ("features.memories", "false"),
    ("features.shell_snapshot", "false"),
    ("features.hooks", "false"),
    ("features.workspace_dependencies", "false"),
    // With it, words that are steered into a turn cut the response that comes, which is paid for and then in no history.
    ("features.instant_interrupt", "false"),
    ("features.guardian_approval", "false"),
    ("history.persistence", "\"none\""),
    // The model is offered the node's tools and nothing else.
    ("features.goals", "false"),
    ("features.multi_agent", "false"),
    ("features.tool_suggest", "false"),
    ("features.skill_search", "false"),
    ("features.skill_mcp_dependency_install", "false"),
    ("features.image_generation", "false"),
    ("features.view_image", "false"),
    ("features.browser_use", "false"),
    ("features.computer_use", "false"),
    ("features.in_app_browser", "false"),
    ("features.sleep_tool", "false"),
    ("web_search", "\"disabled\""),
    ("tools.experimental_request_user_input.enabled", "false"),
    // It is told what the node says and nothing else.
    ("project_doc_max_bytes", "0"),
    ("skills.bundled.enabled", "false"),
    ("skills.include_instructions", "false"),
    ("include_apps_instructions", "false"),
    ("include_environment_context", "false"),
    ("include_permissions_instructions", "false"),
    ("include_collaboration_mode_instructions", "false"),
    // Commands get our mark, by which strays are found, and no credential.
    ("shell_environment_policy.inherit", "\"all\""),
    ("shell_environment_policy.ignore_default_excludes", "false"),
    ("allow_login_shell", "false"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(builtins: &[String]) -> Launch<'_> {
        Launch {
            model: "m",
            builtins,
            home: Path::new("/h"),
            tmp: Path::new("/t"),
            workspace: Path::new("/w/s"),
            base_url: "http://127.0.0.1:1",
            key: "made-up",
        }
    }

    #[test]
    fn the_environment_holds_nothing_that_was_not_listed() {
        let ours = launch(&[]).environment();
        for (name, _) in std::env::vars_os().filter(|(name, _)| !INHERITED.iter().any(|allowed| name == *allowed)) {
            let set_by_us = name == "HOME" || name == "TMPDIR";
            assert!(set_by_us || !ours.iter().any(|(it, _)| *it == name), "{name:?} was inherited");
        }
    }

    #[test]
    fn the_key_is_in_no_argument_and_its_name_is_kept_from_commands() {
        let arguments = launch(&[]).arguments();
        let all: Vec<_> = arguments.iter().map(|it| it.to_string_lossy()).collect();
        assert!(!all.iter().any(|it| it.contains("made-up")));
        assert!(all.iter().any(|it| it == r#"shell_environment_policy.exclude=["AGENTRUN_MODEL_KEY"]"#));
    }

    #[test]
    fn the_workspace_and_all_above_it_are_untrusted() {
        let said = untrusted(Path::new("/no such/place"));
        for folder in ["/", "/no such", "/no such/place"] {
            assert!(said.contains(&format!("\"{folder}\"={{trust_level=\"untrusted\"}}")), "{said}");
        }
    }

    #[test]
    fn a_built_in_that_is_not_listed_is_not_offered() {
        let listed = ["exec_command".to_owned(), "apply_patch".to_owned()];
        let (none, all) = (launch(&[]).model(), launch(&listed).model());
        assert_eq!((&none["shell_type"], none.get("apply_patch_tool_type")), (&json!("disabled"), None));
        assert_eq!((&all["shell_type"], &all["apply_patch_tool_type"]), (&json!("unified_exec"), &json!("freeform")));
    }
}
