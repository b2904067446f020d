//! Options of other mounts: what each may mean here, and how values are read. The tables of them are in
//! `ossfs.rs`, `ossfs1.rs` and `libfuse.rs`.

/// An option of another mount.
#[derive(Debug)]
pub struct ForeignOption {
    pub name: &'static str,
    /// Its default there; the pages show it.
    #[allow(dead_code, reason = "the pages are written by tests")]
    pub default: &'static str,
    pub meaning: OptionMeaning,
}

/// What an option of another mount does here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OptionMeaning {
    /// Sets this knob; the value is in another unit.
    Knob(&'static str, ValueUnit),
    /// Sets this knob to this value.
    Sets(&'static str, &'static str),
    /// Is another name of this option of ours.
    Same(&'static str),
    /// Sets the address of the origin, in either dialect.
    Endpoint,
    /// Removes permission bits from files and folders; an option for one of the two is stronger.
    Umask,
    /// Removes permission bits from this knob, `file-mode` or `dir-mode`.
    Mask(&'static str),
    /// Sets `metrics` on 127.0.0.1.
    MetricsPort,
    /// States how it is here: these values are accepted, others are refused, and why.
    Is(&'static [&'static str], &'static str),
    /// Has no effect, which one line says; why.
    Idle(&'static str),
    /// 0 sets this knob to this value; any other number has no effect, why.
    ZeroSets(&'static str, &'static str, &'static str),
    /// Is refused; why.
    Refused(&'static str),
}

/// How another mount writes the value of a knob.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueUnit {
    /// Seconds, perhaps with a fraction.
    Seconds,
    /// Whole seconds; -1 is for ever.
    SecondsOrEver,
    /// Bytes; 0 is `auto`.
    Bytes,
    /// Units of 1 MiB, which s3fs and ossfs 1.0 call MB.
    Mebibytes,
    Milliseconds,
    /// The knob's own form.
    Same,
    /// No value, or `1`, `0`, `true` or `false`.
    Switch,
    /// `true` is the path style.
    PathStyle,
    /// Several values, separated by one of `,;|` or a space.
    List,
}

pub const fn row(name: &'static str, default: &'static str, meaning: OptionMeaning) -> ForeignOption {
    ForeignOption { name, default, meaning }
}

impl ValueUnit {
    /// Converts a value to the knob's own form; a list has several.
    ///
    /// # Errors
    /// The end of a sentence: what to write.
    pub fn read(self, value: Option<&str>) -> Result<Vec<String>, String> {
        let text = value.map(str::trim).filter(|value| !value.is_empty());
        let wanted = |what: &str| text.ok_or_else(|| format!("a value is missing: write {what}"));
        Ok(vec![match self {
            ValueUnit::SecondsOrEver if text == Some("-1") => format!("{EVER_S}s"),
            ValueUnit::Seconds | ValueUnit::SecondsOrEver => seconds(wanted("seconds")?)? + "s",
            ValueUnit::Mebibytes => number(wanted("a number of MiB")?, "a number of MiB")? + "MiB",
            ValueUnit::Milliseconds => number(wanted("milliseconds")?, "milliseconds")? + "ms",
            ValueUnit::Bytes if text == Some("0") => "auto".to_owned(),
            ValueUnit::Bytes => wanted("bytes")?.to_owned(),
            ValueUnit::Same => wanted("a value")?.to_owned(),
            ValueUnit::Switch => match text.unwrap_or("true") {
                "1" => "true".to_owned(),
                "0" => "false".to_owned(),
                other => other.to_owned(),
            },
            ValueUnit::PathStyle => match text.unwrap_or("true").to_ascii_lowercase().as_str() {
                "true" | "1" => "path".to_owned(),
                "false" | "0" => "auto".to_owned(),
                other => return Err(format!("'{other}' is not a switch: write true or false")),
            },
            ValueUnit::List => {
                let pieces = wanted("addresses")?.split([',', ';', '|', ' ']);
                return Ok(pieces.filter(|piece| !piece.is_empty()).map(str::to_owned).collect());
            }
        }])
    }
}

/// The longest lifetime, a year.
const EVER_S: &str = "31536000";

/// Whole or decimal seconds: libfuse writes `1.0`.
fn seconds(text: &str) -> Result<String, String> {
    match text {
        // mountpoint's words for its `metadata-ttl`.
        "minimal" => return Ok("0.1".to_owned()),
        "indefinite" => return Ok(EVER_S.to_owned()),
        _ => {}
    }
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let wrong = |_| format!("'{text}' is no number: write seconds");
    Ok(match number(fraction, "seconds").map_err(wrong)?.trim_end_matches('0') {
        "" => number(whole, "seconds").map_err(wrong)?,
        fraction => format!("{}.{fraction}", number(whole, "seconds").map_err(wrong)?),
    })
}

/// All permission bits but those of a mask, in the knob's own form.
///
/// # Errors
/// The end of a sentence: what to write.
pub fn without_mask(value: Option<&str>) -> Result<String, String> {
    let text = value.map(str::trim).filter(|text| !text.is_empty());
    let text = text.ok_or("a value is missing: write bits in octal, as in 022")?;
    // A sign is none of it.
    let bits = text.bytes().all(|digit| digit.is_ascii_digit()).then(|| u32::from_str_radix(text, 8).ok());
    match bits.flatten().filter(|bits| *bits <= 0o777) {
        Some(bits) => Ok(format!("{:04o}", 0o777 & !bits)),
        None => Err(format!("'{text}' is no mask of permission bits in octal: write 0 to 0777")),
    }
}

fn number(text: &str, what: &str) -> Result<String, String> {
    let is_number = text.bytes().all(|digit| digit.is_ascii_digit());
    is_number.then(|| text.to_owned()).ok_or_else(|| format!("'{text}' is no number: write {what}"))
}

/// The cell of a page.
#[cfg(test)]
pub fn described(meaning: OptionMeaning) -> String {
    match meaning {
        OptionMeaning::Knob(knob, unit) => {
            let unit = match unit {
                ValueUnit::Seconds => ", in seconds",
                ValueUnit::SecondsOrEver => ", in seconds; -1 is a year",
                ValueUnit::Mebibytes => ", in MiB",
                ValueUnit::Milliseconds => ", in milliseconds",
                ValueUnit::Bytes => ", in bytes; 0 is `auto`",
                ValueUnit::PathStyle => ": `true` is `path`, `false` is `auto`",
                ValueUnit::List => ", one for each address",
                ValueUnit::Same | ValueUnit::Switch => "",
            };
            format!("`{knob}`{unit}")
        }
        OptionMeaning::Sets(knob, value) => format!("`{knob}={value}`"),
        OptionMeaning::Same(name) => format!("`{name}`"),
        OptionMeaning::Endpoint => "`endpoint-url`, and `oss-endpoint` for `oss://`".into(),
        OptionMeaning::Umask => "`file-mode` and `dir-mode`, each 0777 without these bits; `fmask`, `dmask`, `file-mode`, `dir-mode` are stronger".into(),
        OptionMeaning::Mask(knob) => format!("`{knob}`: 0777 without these bits"),
        OptionMeaning::MetricsPort => "`metrics=127.0.0.1:PORT`; 0 is none".into(),
        OptionMeaning::Is(values, why) => format!("is `{}`; else refused: {why}", values[0]),
        OptionMeaning::Idle(why) => format!("no effect: {why}"),
        OptionMeaning::ZeroSets(knob, value, why) => format!("0 is `{knob}={value}`; else no effect: {why}"),
        OptionMeaning::Refused(why) => format!("refused: {why}"),
    }
}

#[cfg(test)]
#[path = "foreign_tests.rs"]
mod tests;
