//! What may be written for a knob, how it is read, and how it gets into a field.

use crate::{Knob, SettingError, format_duration, format_size, parse_duration, parse_size};

/// What a knob takes. Bounds are inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Bytes.
    Size {
        min: u64,
        max: u64,
    },
    Count {
        min: u64,
        max: u64,
    },
    /// Bytes a second.
    Rate {
        min: u64,
        max: u64,
    },
    /// A number a second: `50`, or `50/s`.
    Frequency {
        min: u64,
        max: u64,
    },
    Duration {
        min_ms: u64,
        max_ms: u64,
    },
    /// Permission bits in octal, as chmod(1) takes them.
    Mode,
    /// On or off; a bare flag turns it on.
    Switch,
    Text,
    Choice(&'static [&'static str]),
    /// Text that may be given several times.
    Many,
}

/// A value of the right kind and within its bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    /// Bytes, a count, something a second or milliseconds.
    Number(u64),
    /// The word for no number.
    Open,
    Switch(bool),
    Text(String),
}

impl Knob {
    /// The word that leaves a number open, where there is one.
    pub fn word(&self) -> Option<&'static str> {
        let is_number = matches!(
            self.kind,
            Kind::Size { .. }
                | Kind::Count { .. }
                | Kind::Rate { .. }
                | Kind::Frequency { .. }
                | Kind::Duration { .. }
        );
        Some(self.default).filter(|word| is_number && word.starts_with(|c: char| c.is_ascii_alphabetic()))
    }

    /// Reads what a user wrote, within the bounds.
    pub(crate) fn read(&'static self, text: &str) -> Result<Value, SettingError> {
        if self.word().is_some_and(|word| word.eq_ignore_ascii_case(text.trim())) {
            return Ok(Value::Open);
        }
        match self.kind {
            Kind::Size { min, max } => {
                let bytes = parse_size(text).map_err(|expected| self.wrong(text, expected))?;
                self.bounded(bytes, min, max, format_size)
            }
            Kind::Rate { min, max } => {
                let size = text.trim().strip_suffix("/s").ok_or("not a rate");
                let bytes = size.map_err(str::to_owned).and_then(parse_size);
                let expected = || "a rate: write bytes a second, as in 100MiB/s".to_owned();
                let bytes = bytes.map_err(|_| self.wrong(text, expected()))?;
                self.bounded(bytes, min, max, format_rate)
            }
            Kind::Count { min, max } => {
                let expected = || format!("a whole number: write {min} to {max}");
                let count = text.trim().parse().map_err(|_| self.wrong(text, expected()))?;
                self.bounded(count, min, max, |count| count.to_string())
            }
            Kind::Frequency { min, max } => {
                let expected = || format!("a number a second: write {min}/s to {max}/s");
                let number = text.trim();
                let number = number.strip_suffix("/s").unwrap_or(number).trim_end();
                let number = number.parse().map_err(|_| self.wrong(text, expected()))?;
                self.bounded(number, min, max, |number| format!("{number}/s"))
            }
            Kind::Duration { min_ms, max_ms } => {
                let ms = parse_duration(text).map_err(|expected| self.wrong(text, expected))?;
                self.bounded(ms, min_ms, max_ms, format_duration)
            }
            Kind::Mode => {
                let expected = || "permission bits in octal: write 0 to 0777".to_owned();
                let digits = text.trim();
                let digits = digits.strip_prefix("0o").unwrap_or(digits);
                // A sign would pass for a number.
                let all_digits = digits.bytes().all(|digit| digit.is_ascii_digit());
                let bits = u64::from_str_radix(digits, 8).ok().filter(|bits| all_digits && *bits <= 0o777);
                bits.map(Value::Number).ok_or_else(|| self.wrong(text, expected()))
            }
            Kind::Switch => self.switch(text),
            Kind::Choice(choices) => {
                match choices.iter().find(|choice| choice.eq_ignore_ascii_case(text.trim())) {
                    Some(choice) => Ok(Value::Text((*choice).to_owned())),
                    None => Err(self.wrong(text, format!("one of {}", choices.join(", ")))),
                }
            }
            Kind::Text | Kind::Many => Ok(Value::Text(text.trim().to_owned())),
        }
    }

    fn bounded(
        &self,
        number: u64,
        min: u64,
        max: u64,
        format: impl Fn(u64) -> String,
    ) -> Result<Value, SettingError> {
        if (min..=max).contains(&number) {
            return Ok(Value::Number(number));
        }
        let bounds = format!("{} to {}", format(min), format(max));
        Err(SettingError::Bounds { knob: self.name, value: format(number), bounds })
    }

    fn switch(&self, text: &str) -> Result<Value, SettingError> {
        match text.trim().to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Ok(Value::Switch(true)),
            "false" | "0" | "no" | "off" => Ok(Value::Switch(false)),
            _ => Err(self.wrong(text, "a switch: write true or false".to_owned())),
        }
    }

    fn wrong(&self, text: &str, expected: String) -> SettingError {
        let expected = match self.word() {
            Some(word) => format!("{expected}, or {word}"),
            None => expected,
        };
        SettingError::Value { knob: self.name, value: text.to_owned(), expected }
    }
}

impl Kind {
    /// The placeholder that `--help` shows for a value; None for a switch, which takes none.
    pub fn value_name(self) -> Option<&'static str> {
        match self {
            Kind::Size { .. } => Some("SIZE"),
            Kind::Count { .. } => Some("N"),
            Kind::Rate { .. } => Some("RATE"),
            Kind::Frequency { .. } => Some("N/s"),
            Kind::Duration { .. } => Some("TIME"),
            Kind::Mode => Some("MODE"),
            Kind::Switch => None,
            Kind::Text => Some("TEXT"),
            Kind::Choice(_) => Some("CHOICE"),
            Kind::Many => Some("TEXT"),
        }
    }
}

/// `100MiB/s`
pub(crate) fn format_rate(bytes: u64) -> String {
    format!("{}/s", format_size(bytes))
}

impl Value {
    /// `None` where the number is left open.
    pub(crate) fn number<T: TryFrom<u64>>(self) -> Option<T> {
        match self {
            Value::Number(number) => {
                Some(T::try_from(number).ok().expect("the bounds of every knob fit in its field"))
            }
            Value::Open => None,
            Value::Switch(_) | Value::Text(_) => unreachable!("a test sets every knob"),
        }
    }

    /// `None` where it is empty.
    fn text(self) -> Option<String> {
        match self {
            Value::Text(text) => Some(text).filter(|text| !text.is_empty()),
            Value::Number(_) | Value::Open | Value::Switch(_) => unreachable!("a test sets every knob"),
        }
    }
}

/// The types of settings.
pub(crate) trait Field {
    fn set(&mut self, value: Value);
}

impl Field for bool {
    fn set(&mut self, value: Value) {
        *self = value == Value::Switch(true);
    }
}

impl Field for String {
    fn set(&mut self, value: Value) {
        *self = value.text().unwrap_or_default();
    }
}

impl Field for Option<String> {
    fn set(&mut self, value: Value) {
        *self = value.text();
    }
}

impl Field for Vec<String> {
    fn set(&mut self, value: Value) {
        self.extend(value.text());
    }
}

macro_rules! numbers {
    ($($type:ty)*) => {
        $(impl Field for $type {
            fn set(&mut self, value: Value) {
                *self = value.number().expect("only an optional field has a word that leaves it open");
            }
        }

        impl Field for Option<$type> {
            fn set(&mut self, value: Value) {
                *self = value.number();
            }
        })*
    };
}

numbers!(u16 u32 u64);
