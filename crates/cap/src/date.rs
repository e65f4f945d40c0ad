//! A calendar day in UTC. Prices change by the day, and a day is all that a lookup needs, so there is no clock library here.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A day of the Gregorian calendar, in UTC. Orders by time; text is `YYYY-MM-DD`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Date {
    year: u16,
    month: u8,
    day: u8,
}

/// Why a text is not a day.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a day such as 2026-11-30")]
pub struct DateError(pub String);

const DAY_MS: u64 = 86_400_000;

impl Date {
    /// The day that holds this instant, in milliseconds since 1970 UTC. A day after year 9999 answers the last one.
    #[must_use]
    pub fn of_unix_ms(ms: u64) -> Self {
        // Civil-from-days over 400-year eras that begin on 1 March, so that the leap day is the last of its year.
        let z = ms / DAY_MS + 719_468;
        let (era, day_of_era) = (z / 146_097, z % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted_month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
        let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
        let year = era * 400 + year_of_era + u64::from(month <= 2);
        match (u16::try_from(year), u8::try_from(month), u8::try_from(day)) {
            (Ok(year), Ok(month), Ok(day)) if year <= 9999 => Self { year, month, day },
            _ => Self { year: 9999, month: 12, day: 31 },
        }
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

impl FromStr for Date {
    type Err = DateError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || DateError(text.to_owned());
        let mut parts = text.split('-');
        let mut part = |digits: usize| {
            let part =
                parts.next().filter(|p| p.len() == digits && p.bytes().all(|b| b.is_ascii_digit())).ok_or_else(bad)?;
            part.parse::<u16>().map_err(|_| bad())
        };
        let (year, month, day) = (part(4)?, part(2)?, part(2)?);
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let days = match month {
            1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
            4 | 6 | 9 | 11 => 30,
            2 if leap => 29,
            2 => 28,
            _ => 0,
        };
        if parts.next().is_some() || day == 0 || day > days {
            return Err(bad());
        }
        let small = |n: u16| u8::try_from(n).map_err(|_| bad());
        Ok(Self { year, month: small(month)?, day: small(day)? })
    }
}

impl Serialize for Date {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Date {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_falls_on_its_day_in_utc() {
        for (ms, day) in [
            (0, "1970-01-01"),
            (DAY_MS - 1, "1970-01-01"),
            (DAY_MS, "1970-01-02"),
            (951_782_400_000, "2000-02-29"),
            (1_796_083_199_999, "2026-11-30"),
            (1_796_083_200_000, "2026-12-01"),
            (u64::MAX, "9999-12-31"),
        ] {
            assert_eq!(Date::of_unix_ms(ms).to_string(), day);
        }
    }

    #[test]
    fn only_real_days_in_the_one_spelling_are_days() {
        for good in ["2024-02-29", "2026-12-31", "2000-02-29"] {
            assert_eq!(good.parse::<Date>().unwrap().to_string(), good);
        }
        for bad in [
            "2026-02-29",
            "1900-02-29",
            "2026-13-01",
            "2026-00-01",
            "2026-01-00",
            "2026-1-1",
            "26-01-01",
            "2026-01-01 ",
            "",
            "2026-01-01-01",
        ] {
            assert_eq!(bad.parse::<Date>(), Err(DateError(bad.to_owned())), "{bad}");
        }
    }
}
