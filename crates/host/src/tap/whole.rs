//! An answer that comes in one piece: kept within bounds, and read at its end.

use super::{Metered, Tap};

/// Largest answer in one piece that is read.
const ANSWER_BYTES: usize = 32 << 20;

/// Follows an answer in one piece.
pub(crate) struct Whole<F> {
    body: Vec<u8>,
    over: bool,
    read: F,
}

impl<F: Fn(&[u8]) -> Option<Metered> + Send> Whole<F> {
    /// `read` is given the answer if it came whole and was not too long.
    pub(crate) const fn read_by(read: F) -> Self {
        Self { body: Vec::new(), over: false, read }
    }
}

impl<F: Fn(&[u8]) -> Option<Metered> + Send> Tap for Whole<F> {
    fn feed(&mut self, bytes: &[u8]) {
        self.over |= self.body.len().saturating_add(bytes.len()) > ANSWER_BYTES;
        if !self.over {
            self.body.extend_from_slice(bytes);
        }
    }

    fn is_whole(&self) -> bool {
        false
    }

    fn finish(self: Box<Self>) -> Option<Metered> {
        if self.over { None } else { (self.read)(&self.body) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_beyond_the_bound_is_not_read_and_not_kept() {
        let mut tap = Box::new(Whole::read_by(|_| Some(Metered::default())));
        for _ in 0..40 {
            tap.feed(&[b' '; 1 << 20]);
        }
        assert!(tap.body.len() <= ANSWER_BYTES);
        assert_eq!(tap.finish(), None);
    }
}
