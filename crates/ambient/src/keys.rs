//! The keys of AWS in the environment.

use flatout_wire::sign::Credentials;

use crate::credentials::flaw;
use crate::{AmbientError, Environment, text};

const ACCESS: &str = "AWS_ACCESS_KEY_ID";
const SECRET: &str = "AWS_SECRET_ACCESS_KEY";
const TOKEN: &str = "AWS_SESSION_TOKEN";

/// The pair with its token, or none.
///
/// # Errors
/// Half of a pair, and keys that no header can carry.
pub(crate) fn find(environment: &Environment) -> Result<Option<Credentials>, AmbientError> {
    pair(environment, [ACCESS, SECRET, TOKEN])
}

/// The pair with its token in variables of these names.
///
/// # Errors
/// As [`find`].
pub(crate) fn pair(
    environment: &Environment,
    [access, secret, token]: [&'static str; 3],
) -> Result<Option<Credentials>, AmbientError> {
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
    match flaw(&value) {
        Some(what) => Err(AmbientError::BadKey { variable, what }),
        None => Ok(Some(value)),
    }
}
