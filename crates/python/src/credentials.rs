//! Keys that a program gives to a client: a pair that stays, or a function that is asked for them, again
//! before they end.
//!
//! The engine asks on a thread of its own, which must not take the interpreter's lock. The question goes to a
//! thread of Python's, which calls the function (`_credentials.py`): between questions it waits without that
//! lock.

use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};

use flatout_engine::credentials::{Grant, Provider, Refused, Tried, Web};
use flatout_wire::sign;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::Failure;
use crate::exit::CallGuard;
use crate::settings::Pairs;

/// The name among a client's settings.
const NAME: &str = "credentials";

/// An access key pair of S3's or OSS's, with a token where it is temporary: what a client signs with instead
/// of what it finds around.
///
/// ``Client(credentials=…)`` takes one that stays, or a function that returns one. It shows nothing of what
/// it holds, and is never pickled.
///
/// Args:
///     access_key_id: the key's name.
///     secret_access_key: the secret.
///     session_token: of temporary ones.
///     expires: when they end: a datetime with its zone, or seconds since 1970. A function is asked again
///         five minutes before, or at half of a shorter life.
#[pyclass(frozen, module = "flatout")]
pub struct Credentials {
    keys: sign::Credentials,
    /// In seconds since 1970.
    expires: Option<f64>,
}

#[pymethods]
impl Credentials {
    #[new]
    #[pyo3(signature = (access_key_id, secret_access_key, session_token=None, *, expires=None))]
    fn new(
        access_key_id: &Bound<'_, PyAny>,
        secret_access_key: &Bound<'_, PyAny>,
        session_token: Option<&Bound<'_, PyAny>>,
        expires: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Credentials> {
        let (access_key, secret_key) =
            (text("access_key_id", access_key_id)?, text("secret_access_key", secret_access_key)?);
        let session_token = session_token.map(|token| text("session_token", token)).transpose()?;
        let expires = expires.map(end).transpose()?;
        Ok(Credentials { keys: sign::Credentials { access_key, secret_key, session_token }, expires })
    }

    /// When they end, in seconds since 1970; None of those that stay.
    #[getter]
    fn expires(&self) -> Option<f64> {
        self.expires
    }

    fn __repr__(&self) -> String {
        match self.expires {
            None => "Credentials(***)".to_owned(),
            Some(expires) => format!("Credentials(***, expires={expires})"),
        }
    }

    fn __reduce_ex__(&self, _protocol: i32) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "Credentials are never pickled: give the client a function that returns them, or make both in the process that uses them",
        ))
    }

    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __deepcopy__(slf: Py<Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        slf
    }
}

/// A value that is no text is not shown: it may be the secret in another form.
fn text(name: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    let text = value.extract::<String>();
    let kind = || value.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string());
    match text {
        Ok(text) if !text.trim().is_empty() => Ok(text),
        Ok(_) => Err(PyValueError::new_err(format!("{name} is empty"))),
        Err(_) => Err(PyTypeError::new_err(format!("{name} is a str, not {}", kind()))),
    }
}

/// Seconds since 1970, of a number or of a datetime that knows its zone.
fn end(value: &Bound<'_, PyAny>) -> PyResult<f64> {
    if !value.hasattr("timestamp")? {
        return value
            .extract::<f64>()
            .map_err(|_| PyTypeError::new_err("expires is a datetime, or a number of seconds since 1970"));
    }
    if value.getattr("tzinfo")?.is_none() {
        return Err(PyValueError::new_err(
            "expires is a datetime without a zone: make it one with datetime.UTC",
        ));
    }
    value.call_method0("timestamp")?.extract()
}

/// What a client was given for its keys.
pub enum GivenCredentials {
    /// They are looked for around the process.
    Nothing,
    Fixed(Py<Credentials>),
    /// A function that returns them.
    Function(Py<PyAny>),
}

impl GivenCredentials {
    /// Takes it out of a client's settings.
    pub fn take(settings: &Bound<'_, PyDict>) -> PyResult<GivenCredentials> {
        let Some(given) = settings.get_item(NAME)? else { return Ok(GivenCredentials::Nothing) };
        settings.del_item(NAME)?;
        if given.is_none() {
            return Ok(GivenCredentials::Nothing);
        }
        if let Ok(fixed) = given.cast::<Credentials>() {
            return Ok(GivenCredentials::Fixed(fixed.clone().unbind()));
        }
        match given.is_callable() && !given.is_instance_of::<pyo3::types::PyType>() {
            true => Ok(GivenCredentials::Function(given.unbind())),
            false => Err(PyTypeError::new_err(format!(
                "credentials is a flatout.Credentials, or a function that returns one, not {}",
                given.get_type().name()?
            ))),
        }
    }

    /// # Errors
    /// Requests are to be signed with these, and not to be signed.
    pub fn check(&self, py: Python<'_>, pairs: &Pairs) -> PyResult<()> {
        let is_unsigned = pairs.iter().any(|(name, value)| *name == "no-sign-request" && value == "true");
        match self {
            GivenCredentials::Fixed(_) | GivenCredentials::Function(_) if is_unsigned => Err(Failure::usage(
                "settings",
                "credentials are given, and no_sign_request says that nothing is signed",
            )
            .with_hint("leave one of them out")
            .raise(py)),
            _ => Ok(()),
        }
    }

    pub fn is_given(&self) -> bool {
        !matches!(self, GivenCredentials::Nothing)
    }

    /// Who is asked for the keys of an engine of this process; none where they are looked for around it.
    pub fn provider(&self, py: Python<'_>) -> PyResult<Option<Arc<dyn Provider>>> {
        match self {
            GivenCredentials::Nothing => Ok(None),
            GivenCredentials::Fixed(credentials) => {
                Ok(Some(Arc::new(FixedProvider(credentials.get().grant()))))
            }
            GivenCredentials::Function(callback) => {
                let (ask, asked) = mpsc::channel();
                let questions = Py::new(py, Questions(Mutex::new(asked)))?;
                // It ends when the engine has let go of `ask`.
                py.import("flatout._credentials")?.call_method1("start", (questions, callback))?;
                Ok(Some(Arc::new(CallbackProvider(ask))))
            }
        }
    }
}

impl Credentials {
    fn grant(&self) -> Grant {
        let expires = self.expires.map(|seconds| seconds.max(0.0) as u64);
        Grant { credentials: self.keys.clone(), expires, provider: "Client(credentials=…)".to_owned() }
    }
}

/// Keys that stay as they are.
#[derive(Debug)]
struct FixedProvider(Grant);

impl Provider for FixedProvider {
    fn provide(&self, _: &Web) -> Result<Grant, Refused> {
        Ok(self.0.clone())
    }
}

/// Keys that a function of Python's returns.
#[derive(Debug)]
struct CallbackProvider(Sender<Question>);

impl Provider for CallbackProvider {
    fn provide(&self, _: &Web) -> Result<Grant, Refused> {
        let (answer, answered) = mpsc::sync_channel(1);
        let sent = self.0.send(Question { answer: Some(answer) });
        let nobody = || refused("the thread that calls it is gone: the interpreter ends".to_owned());
        sent.map_err(|_| nobody()).and_then(|()| answered.recv().unwrap_or_else(|_| Err(nobody())))
    }
}

fn refused(why: String) -> Refused {
    Refused(vec![Tried { provider: "the function given as credentials".to_owned(), why, failed: true }])
}

/// Somebody wants keys of a function.
#[pyclass(module = "flatout._native")]
#[derive(Debug)]
pub struct Question {
    answer: Option<SyncSender<Result<Grant, Refused>>>,
}

#[pymethods]
impl Question {
    /// Answers it with what the function returned.
    fn answer(&mut self, returned: &Bound<'_, PyAny>) -> PyResult<()> {
        let Ok(credentials) = returned.cast::<Credentials>() else {
            let why = format!("it returned {}, not flatout.Credentials", returned.get_type().name()?);
            self.refuse(why);
            return Ok(());
        };
        self.put(Ok(credentials.get().grant()));
        Ok(())
    }

    /// Says why there are none.
    fn refuse(&mut self, why: String) {
        self.put(Err(refused(why)));
    }
}

impl Question {
    fn put(&mut self, answer: Result<Grant, Refused>) {
        if let Some(told) = self.answer.take() {
            // Whoever asked may have gone with its engine.
            let _ = told.send(answer);
        }
    }
}

/// What is asked of a function that returns keys.
#[pyclass(frozen, module = "flatout._native")]
pub struct Questions(Mutex<Receiver<Question>>);

#[pymethods]
impl Questions {
    /// Waits for the next one; None when nobody asks any more.
    fn next(&self, py: Python<'_>) -> Option<Question> {
        let (question, _inside) = py.detach(|| {
            let question = self.0.lock().unwrap_or_else(PoisonError::into_inner).recv().ok();
            match CallGuard::enter() {
                Ok(inside) => (question, inside),
                // The interpreter ends: this thread must not come back to it, and has nothing to do
                // elsewhere.
                Err(_) => loop {
                    std::thread::park();
                },
            }
        });
        question
    }
}
