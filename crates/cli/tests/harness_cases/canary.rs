//! Case 10: the provider's key reaches the provider and nothing else, in no form, not even when the provider itself gives it back.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::harness::{Harness, cases};
use crate::processes::{Process, below, marked};
use crate::world::{Running, World, model, submits_after};

cases! {
    claude: c10_a_key_from_the_environment_is_upstream_and_nowhere_else_b89,
        c10_a_key_from_a_file_is_upstream_and_nowhere_else_b89,
        c10_a_key_in_a_provider_s_error_goes_no_further_b89;
    codex: c10_a_key_from_the_environment_is_upstream_and_nowhere_else_b89,
        c10_a_key_from_a_file_is_upstream_and_nowhere_else_b89,
        c10_a_key_in_a_provider_s_error_goes_no_further_b89;
    opencode: c10_a_key_from_the_environment_is_upstream_and_nowhere_else_b89,
        c10_a_key_from_a_file_is_upstream_and_nowhere_else_b89,
        c10_a_key_in_a_provider_s_error_goes_no_further_b89;
    opencode_messages: c10_a_key_in_a_provider_s_error_goes_no_further_b89;
}

/// A key and all the forms in which it must not be found.
struct Canary {
    key: String,
    forms: Vec<(&'static str, Vec<u8>)>,
}

impl Canary {
    fn new() -> Self {
        // With characters that URLs and base64 write in another way.
        let id = || uuid::Uuid::new_v4().simple().to_string();
        let key = format!("sk-ant/{}+{}==", id(), id());
        let (front, back) = key.split_at(key.len() / 2);
        let mut forms = vec![
            ("raw", key.clone()),
            ("first half", front.to_owned()),
            ("second half", back.to_owned()),
            ("backwards", key.chars().rev().collect()),
            ("hex", hex(&key)),
            ("HEX", hex(&key).to_uppercase()),
            ("in a URL", percent(&key)),
            ("in JSON", key.replace('/', "\\/")),
        ];
        // What stands before the key decides where its base64 groups begin.
        for (name, before) in [("base64", 0), ("base64 one off", 1), ("base64 two off", 2)] {
            let whole = base64(&format!("{}{key}", "x".repeat(before)));
            // Groups that hold none but the key's own bytes.
            let own = whole[before.min(1) * 4..whole.len() - 4].to_owned();
            forms.push((name, own.replace('+', "-").replace('/', "_")));
            forms.push((name, own));
        }
        Self { key, forms: forms.into_iter().map(|(name, form)| (name, form.into_bytes())).collect() }
    }

    /// The form in which it stands in these bytes.
    fn found_in(&self, bytes: &[u8]) -> Option<&'static str> {
        let holds = |form: &[u8]| bytes.windows(form.len()).any(|window| window == form);
        self.forms.iter().find(|(_, form)| holds(form)).map(|(name, _)| *name)
    }

    fn absent(&self, place: &str, bytes: &[u8]) {
        assert_eq!(self.found_in(bytes), None, "the key stands in {place}");
    }

    fn absent_in_process(&self, process: &Process) {
        self.absent(&format!("the environment of {process:?}"), &process.environment());
        self.absent(&format!("the arguments of {process:?}"), &process.arguments());
    }

    /// In names and contents of all files below.
    fn absent_below(&self, folder: &Path) -> usize {
        let mut files = 0;
        for entry in fs::read_dir(folder).into_iter().flatten().map(Result::unwrap) {
            let path = entry.path();
            self.absent("a file's name", path.as_os_str().as_encoded_bytes());
            // While the program runs, files come and go.
            match fs::symlink_metadata(&path) {
                Ok(meta) if meta.is_dir() => files += self.absent_below(&path),
                Ok(meta) if meta.is_file() => {
                    self.absent(&path.display().to_string(), &fs::read(&path).unwrap_or_default());
                    files += 1;
                }
                _ => {}
            }
        }
        files
    }
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn percent(text: &str) -> String {
    let one = |byte: u8| {
        if byte.is_ascii_alphanumeric() || byte == b'-' { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    };
    text.bytes().map(one).collect()
}

fn base64(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |bytes: &[u8]| {
        let bits = (0..3).fold(0_usize, |bits, at| bits << 8 | usize::from(bytes.get(at).copied().unwrap_or(0)));
        (0..4)
            .map(|at| if at > bytes.len() { '=' } else { char::from(DIGITS[bits >> (18 - 6 * at) & 63]) })
            .collect::<String>()
    };
    text.as_bytes().chunks(3).map(group).collect()
}

#[test]
fn c10_the_search_finds_a_key_in_every_form() {
    assert_eq!(
        (base64("foobar").as_str(), base64("fooba").as_str(), base64("foob").as_str()),
        ("Zm9vYmFy", "Zm9vYmE=", "Zm9vYg==")
    );
    let canary = Canary::new();
    let key = &canary.key;
    for text in [
        key.clone(),
        hex(key),
        percent(key),
        base64(key),
        base64(&format!("Bearer {key}")),
        base64(&format!("k={key}&more")),
        key[..40].to_owned(),
        key[30..].to_owned(),
        json!({"key": key}).to_string(),
    ] {
        let around = format!("before {text} after");
        assert!(canary.found_in(around.as_bytes()).is_some(), "{text}");
    }
    assert_eq!(Canary::new().found_in(key.as_bytes()), None);
}

/// Writes what a curious command sees of the environments of every process above it.
const CURIOUS: &str = "#!/bin/sh\n\
    pid=$$\n\
    while [ \"$pid\" -gt 1 ]; do\n\
      cat /proc/$pid/environ /proc/$pid/cmdline >>seen-by-$1\n\
      pid=$(awk '/^PPid/ {print $2}' /proc/$pid/status)\n\
    done\n";

/// The step in which the model looks around through the harness's own shell, where a node may list that.
fn shell_step(on: Harness, command: &str) -> Option<serde_json::Value> {
    let (name, member) = on.shell?;
    let input = json!({member: command, "description": "look"});
    Some(json!({"when": {"results": 0}, "tools": [{"name": name, "input": input}], "echo_authorization": true}))
}

fn keeps_the_key(on: Harness, set: impl FnOnce(&World, &str) -> (Option<String>, Vec<String>), faults: &[u16]) {
    let canary = Canary::new();
    let mut world = World::new(on);
    if let Some((name, _)) = on.shell {
        world.node = json!({"builtin_tools": [name]});
    }
    let work = world.tool("work", "never", None);
    let curious = world.program("tools/curious.sh", CURIOUS);
    let curious = curious.display();
    let script = fs::read_to_string(world.path("tools/work.sh")).unwrap();
    world.program("tools/work.sh", &script.replacen("#!/bin/sh\n", &format!("#!/bin/sh\n{curious} tool\n"), 1));
    let (key, arguments) = set(&world, &canary.key);
    world.key = key;

    let mut steps: Vec<_> = shell_step(on, &format!("{curious} shell; env")).into_iter().collect();
    let asks = json!([{"name": "work", "input": {}}]);
    steps.push(json!({"when": {"results": steps.len()}, "tools": asks, "echo_authorization": true}));
    let results = steps.len();
    steps.extend(
        faults.iter().map(|status| json!({"when": {"results": results}, "status": status, "echo_authorization": true})),
    );
    steps.push(submits_after(results));
    let model = model(steps.into());
    let command = || {
        let mut command = world.run(&model.base_url());
        command.args(&arguments);
        command
    };

    work.hold();
    let mut running = Running::start(command());
    let mut ended = Vec::new();
    work.held();
    let program = running.process();
    let mut processes = below(program.pid);
    processes.extend(marked(&world.session));
    assert!(processes.len() >= 4, "two guards, the harness and the tool: {processes:?}");
    for process in &processes {
        canary.absent_in_process(process);
    }
    assert!(!program.environment().is_empty());
    canary.absent_in_process(&program);
    assert!(canary.absent_below(&world.path("")) > 8);

    work.release();
    loop {
        let end = running.wait();
        let code = end.code;
        ended.push(end);
        if code != Some(4) {
            break;
        }
        running = Running::start(command());
    }
    ended.last().unwrap().delivered(17);
    assert_eq!(ended.len(), 1 + faults.len());
    for end in &ended {
        canary.absent("stdout", end.stdout.as_bytes());
        canary.absent("stderr", end.stderr.as_bytes());
    }
    for command in [
        &["show", &world.session][..],
        &["show", &world.session, "--json"],
        &["sessions", "--json"],
        &["doctor", "--verbose"],
    ] {
        let shown = world.agentrun().args(command).args(["--store", &world.store()]).output().unwrap();
        assert!(!shown.stdout.is_empty());
        canary.absent("what is shown", &shown.stdout);
        canary.absent("what is shown", &shown.stderr);
    }
    canary.absent_below(&world.path(""));
    let shell = on.shell.map(|_| "workspace/seen-by-shell");
    for looked in ["workspace/seen-by-tool"].into_iter().chain(shell) {
        let seen = fs::read(world.path(looked)).unwrap();
        assert!(String::from_utf8_lossy(&seen).contains("AGENTRUN_MARK="), "{looked} saw nothing");
    }
    // Upstream it is, in every request, and only where it belongs.
    for request in model.requests() {
        let carried = request.headers[on.credential].trim_start_matches("Bearer ");
        assert_eq!(carried, canary.key);
        canary.absent("a request's body", request.body.to_string().as_bytes());
        let others = request.headers.iter().filter(|(name, _)| *name != on.credential);
        others.for_each(|(name, value)| canary.absent(name, value.as_bytes()));
    }
    world.check();
}

fn c10_a_key_from_the_environment_is_upstream_and_nowhere_else_b89(on: Harness) {
    keeps_the_key(on, |_, key| (Some(key.to_owned()), Vec::new()), &[]);
}

fn c10_a_key_from_a_file_is_upstream_and_nowhere_else_b89(on: Harness) {
    // Outside the world: this file is where it may stand.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    let named = file.display().to_string();
    keeps_the_key(
        on,
        move |_, key| {
            fs::write(&file, format!("{key}\n")).unwrap();
            (None, vec!["--credential-file".to_owned(), named])
        },
        &[],
    );
}

fn c10_a_key_in_a_provider_s_error_goes_no_further_b89(on: Harness) {
    keeps_the_key(on, |_, key| (Some(key.to_owned()), Vec::new()), &[529, 401]);
}
