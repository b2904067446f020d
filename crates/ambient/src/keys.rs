//! Keys from the environment, or a sentence that says why there are none.

use flatout_wire::sign::Credentials;

use crate::{AmbientError, Environment, text};

const ACCESS: &str = "AWS_ACCESS_KEY_ID";
const SECRET: &str = "AWS_SECRET_ACCESS_KEY";
const TOKEN: &str = "AWS_SESSION_TOKEN";

/// The pair with its token, or none and the reason.
pub(crate) fn find(environment: &Environment) -> Result<(Option<Credentials>, Option<String>), AmbientError> {
    let access = checked(environment, ACCESS)?;
    let secret = checked(environment, SECRET)?;
    let session_token = checked(environment, TOKEN)?;
    match (access, secret) {
        (Some(access_key), Some(secret_key)) => {
            Ok((Some(Credentials { access_key, secret_key, session_token }), None))
        }
        (Some(_), None) => Err(AmbientError::HalfPair { present: ACCESS, missing: SECRET }),
        (None, Some(_)) => Err(AmbientError::HalfPair { present: SECRET, missing: ACCESS }),
        (None, None) => Ok((None, Some(format!("{ACCESS} and {SECRET} are not set")))),
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
