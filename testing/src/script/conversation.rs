//! What a script sees of a model request, whatever API it came by: who said what, how many tool results, which tools are offered.

/// A model request as a script sees it. Whoever reads requests (a wire, an in-process model port) builds one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conversation {
    /// The messages in their order, without the system prompt.
    pub messages: Vec<Message>,
    /// Names of the tools the request offers.
    pub tools: Vec<String>,
}

/// One message. A tool result that the API carries as a message of its own is a user message here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who said it.
    pub side: Side,
    /// All its text: what was said, texts of tool results, names and arguments of calls.
    pub text: String,
    /// How many tool results it carries.
    pub results: usize,
}

/// Whose message it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The harness's: prompts, reminders, tool results.
    User,
    /// The model's own.
    Assistant,
}

impl Message {
    /// An empty message.
    #[must_use]
    pub fn new(side: Side) -> Self {
        Self { side, text: String::new(), results: 0 }
    }

    /// Adds a text; two texts stand on lines of their own, so no match runs from one into the next.
    pub fn say(&mut self, text: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(text);
    }
}

impl Conversation {
    /// How many tool results the conversation holds.
    #[must_use]
    pub fn results(&self) -> usize {
        self.messages.iter().map(|m| m.results).sum()
    }

    /// Whether `text` occurs in any message.
    #[must_use]
    pub fn mentions(&self, text: &str) -> bool {
        self.messages.iter().any(|m| m.text.contains(text))
    }

    /// Whether `text` occurs in what the model has not answered yet. That is one message for some APIs and a row of them for others
    /// (a message for each tool result, reminders set apart), so it is everything on the user's side after the model's last answer.
    /// An answer the harness began for the model (a prefill) does not count as one.
    #[must_use]
    pub fn newly_mentions(&self, text: &str) -> bool {
        self.messages
            .iter()
            .rev()
            .skip_while(|m| m.side == Side::Assistant)
            .take_while(|m| m.side == Side::User)
            .any(|m| m.text.contains(text))
    }

    /// The name under which the harness offers the tool that a script calls `name`: that name if it is offered, else the one offered
    /// name that ends with `__name`. With none or several such names it is `name` itself, which the harness then refuses as unknown.
    #[must_use]
    pub fn offered_name<'a>(&'a self, name: &'a str) -> &'a str {
        if self.tools.iter().any(|t| t == name) {
            return name;
        }
        let mut prefixed =
            self.tools.iter().filter(|t| t.strip_suffix(name).is_some_and(|prefix| prefix.ends_with("__")));
        match (prefixed.next(), prefixed.next()) {
            (Some(only), None) => only,
            _ => name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(text: &str) -> Message {
        Message { side: Side::User, text: text.to_owned(), results: 0 }
    }

    fn assistant(text: &str) -> Message {
        Message { side: Side::Assistant, text: text.to_owned(), results: 0 }
    }

    #[test]
    fn a_tool_is_called_by_the_name_it_is_offered_under() {
        let offering = |tools: &[&str]| Conversation {
            tools: tools.iter().map(|t| (*t).to_owned()).collect(),
            ..Conversation::default()
        };
        assert_eq!(offering(&["Bash", "submit", "mcp__host__submit"]).offered_name("submit"), "submit");
        assert_eq!(offering(&["Bash", "mcp__host__submit"]).offered_name("submit"), "mcp__host__submit");
        assert_eq!(
            offering(&["mcp__a__submit", "mcp__b__submit"]).offered_name("submit"),
            "submit",
            "two fit: neither is guessed"
        );
        assert_eq!(
            offering(&["mcp__host__resubmit", "host_submit"]).offered_name("submit"),
            "submit",
            "only whole names after `__`"
        );
        assert_eq!(offering(&["mcp__host__submit"]).offered_name("mcp__host__submit"), "mcp__host__submit");
    }

    #[test]
    fn new_is_everything_after_the_models_last_answer() {
        let mut talk = Conversation {
            messages: vec![user("old"), assistant("said"), user("result one"), user("result two")],
            tools: Vec::new(),
        };
        assert!(talk.newly_mentions("result one") && talk.newly_mentions("result two"));
        assert!(!talk.newly_mentions("old") && !talk.newly_mentions("said"));
        assert!(talk.mentions("old") && talk.mentions("said"));
        talk.messages.push(assistant("{"));
        assert!(talk.newly_mentions("result one"), "a prefill answers nothing");
    }
}
