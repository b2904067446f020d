//! Keys from the environment, or a sentence that says why there are none.

use flatout_wire::sign::Credentials;

use crate::{AmbientError, Environment, text};

/// The variables of a pair: key, secret, token.
type Names = [&'static str; 3];

const AWS: Names = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"];
/// Those of ossutil and the SDKs for OSS, then those of all of Alibaba Cloud.
const OSS: [Names; 2] = [
    ["OSS_ACCESS_KEY_ID", "OSS_ACCESS_KEY_SECRET", "OSS_SESSION_TOKEN"],
    ["ALIBABA_CLOUD_ACCESS_KEY_ID", "ALIBABA_CLOUD_ACCESS_KEY_SECRET", "ALIBABA_CLOUD_SECURITY_TOKEN"],
];

/// The keys for S3 with their token, or the reason why there are none.
pub(crate) fn aws(environment: &Environment) -> Result<Result<Credentials, String>, AmbientError> {
    Ok(pair(environment, AWS)?.ok_or_else(|| format!("{} and {} are not set", AWS[0], AWS[1])))
}

/// The keys for OSS, or the reason why there are none: a half pair is one, since S3 does not need them.
pub(crate) fn oss(environment: &Environment) -> Result<Credentials, String> {
    for names in OSS {
        if let Some(found) = pair(environment, names).map_err(|wrong| wrong.to_string())? {
            return Ok(found);
        }
    }
    Err(format!("{} and {} are not set", OSS[0][0], OSS[0][1]))
}

fn pair(environment: &Environment, names: Names) -> Result<Option<Credentials>, AmbientError> {
    let [access, secret, token] = names;
    let session_token = checked(environment, token)?;
    match (checked(environment, access)?, checked(environment, secret)?) {
        (Some(access_key), Some(secret_key)) => {
            Ok(Some(Credentials { access_key, secret_key, session_token }))
        }
        (Some(_), None) => Err(AmbientError::HalfPair { present: access, missing: secret }),
        (None, Some(_)) => Err(AmbientError::HalfPair { present: secret, missing: access }),
        (None, None) => Ok(None),
    }
}

/// A key with a line end in it would end a header early; one with a space can only fail later and say less.
fn checked(environment: &Environment, variable: &'static str) -> Result<Option<String>, AmbientError> {
    let Some(value) = text(environment, variable)? else { return Ok(None) };
    let what = if value.contains(char::is_whitespace) {
        "white space"
    } else if value.contains(char::is_control) {
        "a control character"
    } else if !value.is_ascii() {
        "a character outside ASCII"
    } else {
        return Ok(Some(value));
    };
    Err(AmbientError::BadKey { variable, what })
}
