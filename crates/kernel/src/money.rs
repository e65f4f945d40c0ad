//! Money as integer pico-dollars. Every price a provider publishes is an integer there, so nothing is rounded on the way and
//! no float ever holds an amount. Arithmetic is checked; text is an exact decimal.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Pico-dollars in one dollar.
pub const PICO: i64 = 1_000_000_000_000;

/// An amount of money in pico-dollars (10⁻¹² USD). Prints and parses as a plain decimal number of dollars.
///
/// The range is about ±9.2 million dollars; arithmetic that would leave it answers `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Usd(i64);

/// Why a text is not an amount.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UsdParseError {
    /// Not digits with at most one point (no exponent, no sign but a leading `-`, no blanks).
    #[error("`{0}` is not a decimal number of dollars such as `0.25`")]
    NotDecimal(String),
    /// More than twelve digits after the point.
    #[error("`{0}` has more than 12 digits after the point; the smallest amount is 0.000000000001")]
    TooFine(String),
    /// Outside ±9.2 million dollars.
    #[error("`{0}` is out of range (about 9.2 million dollars)")]
    OutOfRange(String),
}

impl Usd {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// The largest amount.
    pub const MAX: Self = Self(i64::MAX);

    /// An amount of `pico` pico-dollars.
    #[must_use]
    pub const fn from_pico(pico: i64) -> Self {
        Self(pico)
    }

    /// The amount in pico-dollars.
    #[must_use]
    pub const fn pico(self) -> i64 {
        self.0
    }

    /// Sum, or `None` when it leaves the range.
    #[must_use]
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }

    /// Difference, or `None` when it leaves the range.
    #[must_use]
    pub const fn checked_sub(self, other: Self) -> Option<Self> {
        match self.0.checked_sub(other.0) {
            Some(difference) => Some(Self(difference)),
            None => None,
        }
    }

    /// This amount `times` times, or `None` when it leaves the range.
    #[must_use]
    pub fn checked_mul(self, times: u64) -> Option<Self> {
        i64::try_from(times).ok().and_then(|t| self.0.checked_mul(t)).map(Self)
    }

    /// Sum that stays at [`Usd::MAX`]: for counting against a cap, where the larger figure is the safe side.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Whether the amount is below zero.
    #[must_use]
    pub const fn is_negative(self) -> bool {
        self.0 < 0
    }
}

impl fmt::Display for Usd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let magnitude = self.0.unsigned_abs();
        let (whole, pico) = (magnitude / PICO.unsigned_abs(), magnitude % PICO.unsigned_abs());
        if pico == 0 {
            return write!(f, "{sign}{whole}");
        }
        let digits = format!("{pico:012}");
        write!(f, "{sign}{whole}.{}", digits.trim_end_matches('0'))
    }
}

impl FromStr for Usd {
    type Err = UsdParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let not_decimal = || UsdParseError::NotDecimal(text.to_owned());
        let (negative, digits) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
        let plain = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !plain(whole) || !plain(fraction) {
            return Err(not_decimal());
        }
        if fraction.len() > 12 {
            return Err(UsdParseError::TooFine(text.to_owned()));
        }
        let out_of_range = || UsdParseError::OutOfRange(text.to_owned());
        let whole: i128 = whole.parse().map_err(|_| out_of_range())?;
        let fraction: i128 = format!("{fraction:0<12}").parse().map_err(|_| not_decimal())?;
        let pico =
            whole.checked_mul(i128::from(PICO)).and_then(|w| w.checked_add(fraction)).ok_or_else(out_of_range)?;
        let signed = if negative { -pico } else { pico };
        i64::try_from(signed).map(Self).map_err(|_| out_of_range())
    }
}

impl Serialize for Usd {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Usd {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_prints_as_the_shortest_exact_decimal_and_reads_back() {
        for (pico, text) in [
            (0, "0"),
            (1, "0.000000000001"),
            (PICO, "1"),
            (11_340_000_000, "0.01134"),
            (-PICO / 2, "-0.5"),
            (i64::MAX, "9223372.036854775807"),
            (i64::MIN, "-9223372.036854775808"),
        ] {
            assert_eq!(Usd::from_pico(pico).to_string(), text);
            assert_eq!(text.parse(), Ok(Usd::from_pico(pico)));
        }
    }

    #[test]
    fn what_is_not_a_plain_decimal_is_refused_by_kind() {
        for bad in ["", "-", ".", "1.", ".5", "1e3", "+1", " 1", "1 ", "0x1", "1.2.3", "--1", "NaN", "١"] {
            assert!(matches!(bad.parse::<Usd>(), Err(UsdParseError::NotDecimal(_))), "{bad}");
        }
        assert!(matches!("0.0000000000001".parse::<Usd>(), Err(UsdParseError::TooFine(_))));
        for bad in ["9223372.036854775808", "99999999999999999999999999999999999999999999"] {
            assert!(matches!(bad.parse::<Usd>(), Err(UsdParseError::OutOfRange(_))), "{bad}");
        }
    }

    #[test]
    fn arithmetic_that_leaves_the_range_answers_none() {
        assert_eq!(Usd::MAX.checked_add(Usd::from_pico(1)), None);
        assert_eq!(Usd::from_pico(i64::MIN).checked_sub(Usd::from_pico(1)), None);
        assert_eq!(Usd::from_pico(2).checked_mul(u64::MAX), None);
        assert_eq!(Usd::MAX.saturating_add(Usd::from_pico(1)), Usd::MAX);
    }
}
