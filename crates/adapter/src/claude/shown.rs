//! How much of a result the program shows to the model. What is longer it puts into a file of its own, which no record has and no resume
//! finds; so it gets no more than it shows: the head and the tail.

use std::borrow::Cow;

/// The most characters (UTF-16 units) of one result the program can be made to show; it asks no more of `anthropic/maxResultSizeChars`.
pub(super) const SHOWN: u32 = 500_000;
/// What is kept of each end of a longer one.
const END: usize = 245_000;

/// The text, or its two ends with a word on what is left out between them. The record keeps the whole.
pub(super) fn shown(text: &str) -> Cow<'_, str> {
    let units = |text: &str| text.encode_utf16().count();
    if text.len() <= SHOWN as usize || units(text) <= SHOWN as usize {
        return Cow::Borrowed(text);
    }
    let head = text.get(..ends_with(text.chars())).unwrap_or(text);
    let rest = text.get(head.len()..).unwrap_or_default();
    let tail_bytes = ends_with(rest.chars().rev());
    let (between, tail) = rest.split_at_checked(rest.len().saturating_sub(tail_bytes)).unwrap_or((rest, ""));
    Cow::Owned(format!("{head}\n[{} characters are left out here]\n{tail}", between.chars().count()))
}

/// How many bytes of these characters make one end.
fn ends_with(chars: impl Iterator<Item = char>) -> usize {
    let mut left = END;
    let fitting = chars.map_while(|c| {
        left = left.checked_sub(c.len_utf16())?;
        Some(c.len_utf8())
    });
    fitting.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_program_shows_whole_is_left_as_it_is() {
        for text in [String::new(), "x".repeat(SHOWN as usize), "ä".repeat(SHOWN as usize)] {
            assert_eq!(shown(&text), text);
        }
    }

    #[test]
    fn a_longer_text_keeps_its_two_ends_at_character_borders_and_fits() {
        for c in ["x", "ä", "𝄞"] {
            let text = format!("head{}tail", c.repeat(SHOWN as usize + 1));
            let cut = shown(&text);
            assert!(cut.starts_with("head") && cut.ends_with("tail"));
            assert!(cut.contains("characters are left out here"));
            assert!(cut.encode_utf16().count() <= SHOWN as usize);
        }
    }
}
