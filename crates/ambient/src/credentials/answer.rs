//! Answers that hold keys: JSON and XML of the services, each name that one of them uses.

use flatout_engine::ServiceReply;
use flatout_engine::credentials::Grant;
use flatout_wire::sign::Credentials;
use flatout_wire::time::parse_iso;
use flatout_wire::words::excerpt;
use flatout_wire::xml;
use serde_json::Value;

use super::flaw;

const ACCESS: &[&str] = &["AccessKeyId", "accessKeyId", "access_key_id"];
const SECRET: &[&str] =
    &["SecretAccessKey", "secretAccessKey", "AccessKeySecret", "access_key_secret", "accessKeySecret"];
const TOKEN: &[&str] =
    &["Token", "SessionToken", "sessionToken", "SecurityToken", "sts_token", "securityToken"];
const EXPIRES: &[&str] = &["Expiration", "expiration"];
/// An origin's words are cut here.
const WORDS_MAX: usize = 300;

/// The keys in a JSON object.
///
/// # Errors
/// What is missing or wrong; no value is quoted.
pub(super) fn grant(answer: &Value) -> Result<Grant, String> {
    let found = |names: &[&str]| {
        let value = names.iter().find_map(|name| answer.get(name)?.as_str());
        value.filter(|value| !value.is_empty())
    };
    let wanted = |names: &[&str]| {
        found(names).map(str::to_owned).ok_or_else(|| format!("the answer has no {}", names[0]))
    };
    let credentials = Credentials {
        access_key: wanted(ACCESS)?,
        secret_key: wanted(SECRET)?,
        session_token: found(TOKEN).map(str::to_owned),
    };
    let expires = match EXPIRES.iter().find_map(|name| answer.get(name)) {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) if text.is_empty() => None,
        // SSO writes milliseconds.
        Some(Value::Number(number)) => number.as_u64().map(|milliseconds| milliseconds / 1000),
        Some(Value::String(text)) => Some(time(text).ok_or("the answer's Expiration is no date")?),
        Some(_) => return Err("the answer's Expiration is no date".into()),
    };
    fit(&credentials)?;
    Ok(Grant { credentials, expires, provider: String::new() })
}

/// Whether keys can be sent in headers.
pub(super) fn fit(credentials: &Credentials) -> Result<(), String> {
    let token = credentials.session_token.as_deref().unwrap_or("");
    let parts = [
        ("access key", &*credentials.access_key),
        ("secret key", &*credentials.secret_key),
        ("token", token),
    ];
    match parts.iter().find_map(|(name, value)| Some((name, flaw(value)?))) {
        Some((name, what)) => Err(format!("the {name} holds {what}")),
        None => Ok(()),
    }
}

/// The keys in a service's JSON answer, below `path`; `who` is the service, for messages.
///
/// # Errors
/// The service's refusal in its own words, or what is wrong with the answer.
pub(crate) fn json_grant(who: &str, reply: &ServiceReply, path: &[&str]) -> Result<Grant, String> {
    let parsed: Result<Value, _> = serde_json::from_slice(&reply.body);
    if reply.status != 200 {
        return Err(refusal(who, reply.status, parsed.ok().as_ref()));
    }
    let answer = parsed.map_err(|_| format!("{who} did not answer with JSON"))?;
    if let Some(code) = answer.get("Code").and_then(Value::as_str)
        && !matches!(code, "Success" | "200")
    {
        return Err(refusal(who, reply.status, Some(&answer)));
    }
    let keys = path.iter().try_fold(&answer, |value, name| value.get(name));
    let keys = keys.ok_or_else(|| format!("{who} answered without {}", path.join(".")))?;
    grant(keys).map_err(|why| format!("{who}: {why}"))
}

/// `STS refused (403 AccessDenied: …)`
fn refusal(who: &str, status: u16, answer: Option<&Value>) -> String {
    let word = |names: &[&str]| {
        let found = names.iter().find_map(|name| answer?.get(name)?.as_str());
        cleaned(found.unwrap_or(""))
    };
    let (code, message) = (word(&["Code", "code", "__type", "error"]), word(&["Message", "message"]));
    refused(who, status, &code, &message)
}

fn refused(who: &str, status: u16, code: &str, message: &str) -> String {
    let code = if code.is_empty() { String::new() } else { format!(" {code}") };
    let message = if message.is_empty() { String::new() } else { format!(": {message}") };
    format!("{who} refused ({status}{code}{message})")
}

/// The keys in an answer of AWS's STS.
///
/// # Errors
/// As [`json_grant`].
pub(crate) fn sts_grant(reply: &ServiceReply) -> Result<Grant, String> {
    let mut keys = serde_json::Map::new();
    let (mut code, mut message) = (String::new(), String::new());
    let walked = xml::walk(&reply.body, |path, text| {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let text = text.trim();
        match (parent.rsplit('/').next().unwrap_or(""), name) {
            ("Credentials", _) => drop(keys.insert(name.to_owned(), text.into())),
            ("Error", "Code") => code = cleaned(text),
            ("Error", "Message") => message = cleaned(text),
            _ => {}
        }
        Ok(())
    });
    match (reply.status, walked) {
        (200, Ok(())) if keys.is_empty() => Err("STS did not answer with Credentials".into()),
        (200, Ok(())) => grant(&Value::Object(keys)).map_err(|why| format!("STS: {why}")),
        (200, Err(_)) => Err("STS did not answer with XML".into()),
        (status, _) => Err(refused("STS", status, &code, &message)),
    }
}

/// A date as the services and tools write it: UTC, or with an offset as Python does.
pub(super) fn time(text: &str) -> Option<u64> {
    let text = text.trim();
    if let Some(utc) = text.strip_suffix("UTC") {
        return parse_iso(&format!("{}Z", utc.trim_end()));
    }
    // The date has signs of its own; those of an offset stand behind the T.
    let sign_at = text.find('T').and_then(|at| Some(at + text[at..].find(['+', '-'])?));
    let Some(sign_at) = sign_at else { return parse_iso(text) };
    let (date, (sign, offset)) = (&text[..sign_at], text[sign_at..].split_at(1));
    let (hours, minutes) = offset.split_once(':').or_else(|| offset.split_at_checked(2))?;
    let two_digits = |text: &str| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    if !(two_digits(hours) && two_digits(minutes)) {
        return None;
    }
    let seconds = hours.parse::<u64>().ok()? * 3_600 + minutes.parse::<u64>().ok()? * 60;
    let local = parse_iso(&format!("{date}Z"))?;
    if sign == "+" { local.checked_sub(seconds) } else { local.checked_add(seconds) }
}

/// Another's words, fit for one line.
fn cleaned(text: &str) -> String {
    excerpt(text.trim(), WORDS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn dates_of_all_services() {
        let check = |text: &str, expected: Option<u64>| assert_eq!(time(text), expected, "{text}");
        check("1970-01-02T00:00:00Z", Some(86_400));
        check("1970-01-02T00:00:00.123Z", Some(86_400));
        check("1970-01-02T00:00:00UTC", Some(86_400));
        check("1970-01-02T00:00:00+00:00", Some(86_400));
        check("1970-01-02T01:30:00.5+01:30", Some(86_400));
        check("1970-01-01T22:00:00-02:00", Some(86_400));
        check("1970-01-02T01:30:00+0130", Some(86_400));
        check("1970-01-02T00:00:00+0000", Some(86_400));
        check("1970-01-02T00:00:00+00", None);
        check("1970-01-02T00:00:00+-1:00", None);
        check("1970-01-02T00:00:00++1:00", None);
        check("1970-01-02T00:00:00+01:+0", None);
        check("1970-01-02T00:00:00+é", None);
        check("tomorrow", None);
        check("", None);
        check("é+00:00", None);
    }

    #[test]
    fn keys_are_whole_and_fit() {
        let check = |answer: Value, expected: &str| {
            let said = match grant(&answer) {
                Ok(grant) => format!("{} {:?}", grant.credentials.access_key, grant.expires),
                Err(why) => why,
            };
            assert_eq!(said, expected);
            assert!(!said.contains("s3cr3t"));
        };
        let date = "1970-01-02T00:00:00Z";
        check(json!({"AccessKeyId": "a", "SecretAccessKey": "s3cr3t", "Expiration": date}), "a Some(86400)");
        check(json!({"AccessKeyId": "a", "AccessKeySecret": "s3cr3t", "Expiration": null}), "a None");
        check(json!({"accessKeyId": "a", "secretAccessKey": "s", "expiration": 86_400_999}), "a Some(86400)");
        check(json!({"AccessKeyId": "a"}), "the answer has no SecretAccessKey");
        check(json!({"AccessKeyId": 7, "SecretAccessKey": "s"}), "the answer has no AccessKeyId");
        check(json!([]), "the answer has no AccessKeyId");
        check(json!({"AccessKeyId": "a", "SecretAccessKey": "s3cr3t x"}), "the secret key holds white space");
        let late = json!({"AccessKeyId": "a", "SecretAccessKey": "s3cr3t", "Expiration": "soon"});
        check(late, "the answer's Expiration is no date");
    }
}
