//! Its own tools that a node may list. Each call is asked for by the script before it runs and recorded; its end is read from the log, where
//! it stands whether the tool worked or not. What is not listed is not offered, and would not be run if it were called.

use crate::error::{Refusal, RefusalKind};

/// Those whose whole effect is behind one call. Not among them: what asks a person, starts sessions of its own, or asks somebody's server.
const KNOWN: [&str; 8] = ["apply_patch", "bash", "edit", "glob", "grep", "read", "webfetch", "write"];
/// One rule turns these on: the model is given those of them that suit it.
const EDITS: [&str; 3] = ["apply_patch", "edit", "write"];
/// Work by a program that OpenCode would fetch from the network.
const SEARCHES: [&str; 2] = ["glob", "grep"];

/// Whether these can be allowed, each for itself.
///
/// # Errors
/// [`Refusal`]: a name that is none of them, or one that cannot be had without another.
pub(super) fn check(listed: &[String]) -> Result<(), Refusal> {
    let has = |name: &str| listed.iter().any(|it| it == name);
    let refused = |message: String, next: String| Refusal { kind: RefusalKind::Plan, message, next };
    if let Some(name) = listed.iter().find(|name| !KNOWN.contains(&name.as_str())) {
        let message = format!("OpenCode has no built-in tool `{name}` that can be recorded");
        return Err(refused(message, format!("list none but {}", KNOWN.join(", "))));
    }
    let lacking: Vec<_> = EDITS.into_iter().filter(|name| !has(name)).collect();
    if lacking.len() < EDITS.len() && !lacking.is_empty() {
        let message = format!("OpenCode's {} are allowed together or not at all", EDITS.join(", "));
        return Err(refused(message, format!("list {} too", lacking.join(", "))));
    }
    if SEARCHES.into_iter().any(has) && !on_path("rg") {
        let message = "OpenCode's glob and grep need ripgrep, which it would fetch from the network".to_owned();
        return Err(refused(message, "install `rg` on the PATH, or take the two out of the list".to_owned()));
    }
    Ok(())
}

/// The rule that allows a tool.
pub(super) fn rule(name: &str) -> &str {
    if EDITS.contains(&name) { "edit" } else { name }
}

fn on_path(program: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|it| it.join(program).is_file()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(names: &[&str]) -> Option<String> {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        check(&names).err().map(|refusal| format!("{} {}", refusal.message, refusal.next))
    }

    #[test]
    fn b25_a_built_in_that_could_not_be_recorded_or_comes_with_another_is_refused() {
        assert_eq!(refused(&[]), None);
        assert_eq!(refused(&["bash", "read", "edit", "write", "apply_patch"]), None);
        for name in ["task", "question", "websearch", "Bash", "nosuch"] {
            assert!(refused(&[name]).unwrap().contains(name));
        }
        assert!(refused(&["write"]).unwrap().contains("list apply_patch, edit too"));
        assert_eq!(refused(&["grep"]).is_none(), on_path("rg"));
    }
}
