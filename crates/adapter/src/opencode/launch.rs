//! Which program it is and how it is started: the one place for the supported range, the folders, the environment and the configuration.
//! Everything of it is private and made new, so that it reads nothing of the person's or the project's, asks no network but the model's,
//! and waits for no package registry.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::builtins;
use super::json::set;
use crate::process::{HarnessProgram, Version};
use crate::seat::ModelApi;

/// What the harness may inherit from us. Everything else, credentials above all, stays out.
const INHERITED: [&str; 6] = ["PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "USER"];
/// The provider, the agent and the user as its configuration names them.
pub(super) const PROVIDER: &str = "host";
pub(super) const AGENT: &str = "node";
pub(super) const USER: &str = "opencode";
/// Most output tokens of one answer, which is also what one request may be held for.
const OUTPUT_TOKENS: u64 = 32_000;
/// A bound that is never reached: whether a request fits is the provider's to say, and compaction is off.
const CONTEXT_TOKENS: u64 = 1_000_000;

/// The program and the versions of it that are started.
pub const PROGRAM: HarnessProgram = HarnessProgram {
    product: "OpenCode",
    variable: "AGENTRUN_OPENCODE",
    command: "opencode",
    package: "opencode-ai",
    pinned: Version::new(1, 18, 33),
    // Earlier ones order messages by their ids, and retry without a bound.
    oldest: Version::new(1, 18, 33),
    // Its database and its events have changed between minor versions before.
    too_new: Version::new(1, 19, 0),
};

/// Everything a start depends on.
pub(super) struct Launch<'a> {
    pub(super) home: &'a Path,
    pub(super) tmp: &'a Path,
    pub(super) model: &'a str,
    pub(super) api: ModelApi,
    pub(super) base_url: &'a str,
    pub(super) key: &'a str,
    pub(super) system: &'a [String],
    pub(super) tools: Vec<&'a str>,
    /// Tools of its own that it may use.
    pub(super) builtins: &'a [String],
    pub(super) password: &'a str,
    /// The script with the host's tools.
    pub(super) plugin: &'a str,
}

impl Launch<'_> {
    /// The arguments. Nothing secret is among them: every process on the machine can read these.
    pub(super) fn arguments() -> impl Iterator<Item = &'static str> {
        // It tries port 4096 first and takes another when that is busy; what it took is read from what it says.
        ["serve", "--hostname", "127.0.0.1", "--port", "0", "--print-logs", "--log-level", "WARN"].into_iter()
    }

    /// Makes its folders, the files it would else fetch, and the catalogue it need not read.
    pub(super) fn prepare(&self) -> io::Result<()> {
        for folder in ["data", "state", "cache", "config/opencode/node_modules"] {
            std::fs::create_dir_all(self.home.join(folder))?;
        }
        // Looked for in every configuration folder; without it the first turn waits for a package registry, minutes when there is none.
        let wants =
            json!({ "packages": { "": { "dependencies": { "@opencode-ai/plugin": PROGRAM.pinned.to_string() } } } });
        std::fs::write(self.home.join("config/opencode/package-lock.json"), wants.to_string())?;
        std::fs::write(self.catalogue(), "{}")?;
        let script = self.script();
        match std::fs::remove_file(&script) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(script)?;
        io::Write::write_all(&mut file, self.plugin.as_bytes())
    }

    /// The one it comes with has every model of every provider, and takes a second and a half of a processor in the first turn and half a
    /// second in the next; ours is named in the configuration.
    fn catalogue(&self) -> PathBuf {
        self.home.join("models.json")
    }

    fn script(&self) -> PathBuf {
        self.home.join("agentrun.js")
    }

    /// The whole environment.
    pub(super) fn environment(&self) -> Vec<(OsString, OsString)> {
        let mut environment: Vec<(OsString, OsString)> =
            INHERITED.into_iter().filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?))).collect();
        let places = [
            ("HOME", self.home.to_owned()),
            ("XDG_DATA_HOME", self.home.join("data")),
            ("XDG_CONFIG_HOME", self.home.join("config")),
            ("XDG_STATE_HOME", self.home.join("state")),
            ("XDG_CACHE_HOME", self.home.join("cache")),
            ("OPENCODE_MODELS_PATH", self.catalogue()),
            // Each start leaves a library of 6 MB here; the folder goes with the epoch.
            ("TMPDIR", self.tmp.to_owned()),
        ];
        environment.extend(places.map(|(name, path)| (OsString::from(name), path.into_os_string())));
        let switches = [
            "OPENCODE_DISABLE_AUTOUPDATE",
            "OPENCODE_DISABLE_MODELS_FETCH",
            "OPENCODE_DISABLE_LSP_DOWNLOAD",
            "OPENCODE_DISABLE_DEFAULT_PLUGINS",
            // What the model gets is what the node says: nothing of the work tree's, nothing of other programs'.
            "OPENCODE_DISABLE_PROJECT_CONFIG",
            "OPENCODE_DISABLE_CLAUDE_CODE",
            "OPENCODE_DISABLE_EXTERNAL_SKILLS",
            "OPENCODE_DISABLE_SHARE",
            "OPENCODE_DISABLE_AUTOCOMPACT",
            "OPENCODE_DISABLE_PRUNE",
            "OPENCODE_EXPERIMENTAL_DISABLE_FILEWATCHER",
        ];
        environment.extend(switches.map(|name| (OsString::from(name), OsString::from("1"))));
        environment.push(("OPENCODE_SERVER_PASSWORD".into(), self.password.into()));
        environment.push(("OPENCODE_CONFIG_CONTENT".into(), self.configuration().to_string().into()));
        environment
    }

    fn configuration(&self) -> Value {
        let model = format!("{PROVIDER}/{}", self.model);
        let package = match self.api {
            ModelApi::Messages => "@ai-sdk/anthropic",
            ModelApi::Responses => "@ai-sdk/openai",
            ModelApi::ChatCompletions => "@ai-sdk/openai-compatible",
        };
        // The last rule that fits counts. A call three times the same is ours to stop, not a question to a person.
        let mut permission =
            Map::from_iter([("*".to_owned(), json!("deny")), ("doom_loop".to_owned(), json!("allow"))]);
        let allowed = self.builtins.iter().map(|name| builtins::rule(name)).chain(self.tools.iter().copied());
        permission.extend(allowed.map(|rule| (rule.to_owned(), json!("allow"))));
        let mut agent = json!({ "mode": "primary", "permission": permission });
        if !self.system.is_empty() {
            set(&mut agent, "prompt", json!(self.system.join("\n\n")));
        }
        let mut models = Map::new();
        let limit = json!({ "context": CONTEXT_TOKENS, "output": OUTPUT_TOKENS });
        models.insert(self.model.to_owned(), json!({ "name": self.model, "tool_call": true, "limit": limit }));
        json!({
            "autoupdate": false, "share": "disabled", "snapshot": false, "lsp": false, "formatter": false,
            "compaction": { "auto": false, "prune": false },
            "model": model, "small_model": model, "enabled_providers": [PROVIDER],
            "provider": { PROVIDER: {
                "npm": package, "name": "agentrun", "models": models,
                // The proxy has the clock.
                "options": { "baseURL": format!("{}/v1", self.base_url), "apiKey": self.key, "timeout": false },
            } },
            "permission": { "*": "deny" },
            "plugin": [format!("file://{}", self.script().display())],
            // Each would be a request of its own that nobody asked for.
            "agent": { "title": { "disable": true }, "summary": { "disable": true }, AGENT: agent },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(home: &Path) -> Launch<'_> {
        Launch {
            home,
            tmp: Path::new("/t"),
            model: "some-model",
            api: ModelApi::ChatCompletions,
            base_url: "http://127.0.0.1:1",
            key: "made-up",
            system: &[],
            tools: vec!["submit"],
            builtins: &[],
            password: "made-up-too",
            plugin: "// the script",
        }
    }

    #[test]
    fn the_environment_holds_nothing_that_was_not_listed() {
        let home = Path::new("/h");
        let ours = launch(home).environment();
        for (name, _) in std::env::vars_os().filter(|(name, _)| !INHERITED.iter().any(|allowed| name == *allowed)) {
            let set = ours.iter().find(|(it, _)| *it == name);
            let by_us = set.is_none_or(|(_, value)| {
                let value = value.to_string_lossy();
                value == "1" || value.starts_with("/h") || value == "/t"
            });
            assert!(by_us, "{name:?} was inherited");
        }
    }

    #[test]
    fn b28_what_is_not_a_tool_of_the_host_is_denied_and_every_side_call_is_off() {
        let configuration = launch(Path::new("/h")).configuration();
        let rules: Vec<_> = configuration["agent"][AGENT]["permission"].as_object().unwrap().keys().cloned().collect();
        assert_eq!(rules, ["*", "doom_loop", "submit"]);
        assert_eq!(configuration["permission"]["*"], "deny");
        for off in ["autoupdate", "snapshot", "lsp", "formatter"] {
            assert_eq!(configuration[off], false, "{off}");
        }
        assert_eq!(configuration["compaction"], json!({"auto": false, "prune": false}));
        assert_eq!(configuration["share"], "disabled");
        assert_eq!(configuration["agent"]["title"]["disable"], true);
    }

    #[test]
    fn b70_its_own_tools_are_allowed_by_name_and_no_other() {
        let listed = ["bash", "edit", "write", "apply_patch"].map(str::to_owned);
        let configuration = Launch { builtins: &listed, ..launch(Path::new("/h")) }.configuration();
        assert_eq!(
            configuration["agent"][AGENT]["permission"],
            json!({"*": "deny", "doom_loop": "allow", "bash": "allow", "edit": "allow", "submit": "allow"})
        );
    }

    #[test]
    fn the_script_with_the_token_is_for_this_user_alone_and_nothing_is_left_to_be_fetched() {
        use std::os::unix::fs::PermissionsExt as _;
        let home = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            launch(home.path()).prepare().unwrap();
        }
        let script = home.path().join("agentrun.js");
        assert_eq!(std::fs::metadata(&script).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_to_string(script).unwrap(), "// the script");
        assert!(home.path().join("config/opencode/node_modules").is_dir());
        let lock = std::fs::read_to_string(home.path().join("config/opencode/package-lock.json")).unwrap();
        assert!(lock.contains("@opencode-ai/plugin") && lock.contains("1.18.33"));
    }
}
