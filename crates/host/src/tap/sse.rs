//! Server-sent events over any split of the bytes: CRLF or LF, comments, several data lines. An event counts once its blank line came.

/// Largest event that is read. After a longer one nothing more is read: its response's usage is unknown.
const EVENT_BYTES: usize = 8 << 20;

/// Splits a stream into the data of its events.
#[derive(Debug, Default)]
pub(crate) struct Events {
    line: Vec<u8>,
    data: Vec<u8>,
    started: bool,
    overflow: bool,
}

impl Events {
    /// Feeds bytes; `event` is called with each whole event's data. Answers whether every event so far was within bounds.
    pub(crate) fn feed(&mut self, bytes: &[u8], mut event: impl FnMut(&[u8])) -> bool {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.line.len().saturating_add(part.len()).saturating_add(self.data.len()) > EVENT_BYTES {
                self.overflow = true;
                self.line.clear();
                self.data.clear();
            }
            if self.overflow {
                break;
            }
            // Most lines come in one piece, and are read where they stand.
            if self.line.is_empty() && part.ends_with(b"\n") {
                self.end_line(part, &mut event);
                continue;
            }
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                self.end_line(&line, &mut event);
            }
        }
        !self.overflow
    }

    fn end_line(&mut self, line: &[u8], event: &mut impl FnMut(&[u8])) {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let line = if self.started { line } else { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) };
        self.started = true;
        if line.is_empty() {
            if !self.data.is_empty() {
                event(&self.data);
                self.data.clear();
            }
        } else if let Some(data) = line.strip_prefix(b"data:") {
            if !self.data.is_empty() {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(data.strip_prefix(b" ").unwrap_or(data));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_beyond_the_bound_ends_the_reading_and_holds_no_memory() {
        let mut events = Events::default();
        let piece = vec![b'x'; 1 << 20];
        assert!(events.feed(b"data: ", |_| {}));
        let within: Vec<bool> = (0..10).map(|_| events.feed(&piece, |_| {})).collect();
        assert_eq!((within.first(), within.last()), (Some(&true), Some(&false)));
        let mut seen = 0;
        assert!(!events.feed(b"\n\ndata: later\n\n", |_| seen += 1));
        assert_eq!((seen, events.line.len()), (0, 0));
    }

    #[test]
    fn events_are_the_same_however_the_bytes_are_split() {
        let text = b"\xef\xbb\xbfevent: a\r\ndata: one\r\n\r\n: ping\n\ndata:two\ndata: more\n\ndata: cut";
        for split in 0..=text.len() {
            let (mut events, mut seen) = (Events::default(), Vec::new());
            for part in [&text[..split], &text[split..]] {
                assert!(events.feed(part, |data| seen.push(String::from_utf8(data.to_vec()).unwrap())));
            }
            assert_eq!(seen, ["one", "two\nmore"], "{split}");
        }
    }
}
