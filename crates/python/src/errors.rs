//! From the engine's errors to Python's exceptions: the one table from kinds to classes, which are
//! `flatout.errors`.

use flatout_ambient::AmbientError;
use flatout_engine::{Error, ErrorKind, Feature, Hint, Word, plain, remedy};
use flatout_settings::{Kind, SettingError, knob};
use flatout_wire::location::{Location, LocationError};
use flatout_wire::range::Span;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyModule};

/// An exception to be raised: made without the interpreter's lock, raised with it.
#[derive(Clone, Debug)]
pub struct Failure(Box<Details>);

#[derive(Clone, Debug)]
struct Details {
    class: &'static str,
    kind: &'static str,
    doing: String,
    object: String,
    cause: String,
    hint: Option<String>,
}

/// The class of `flatout.errors`, and the name of the kind, which is that of the command line's JSON.
fn class(kind: ErrorKind) -> (&'static str, &'static str) {
    match kind {
        ErrorKind::Usage => ("UsageError", "usage"),
        ErrorKind::NotFound => ("NotFound", "not_found"),
        ErrorKind::Denied => ("AccessDenied", "denied"),
        ErrorKind::Untrusted => ("Untrusted", "untrusted"),
        ErrorKind::Throttled => ("Throttled", "throttled"),
        ErrorKind::Changed => ("ObjectChanged", "changed"),
        ErrorKind::Corrupt => ("Corrupt", "corrupt"),
        ErrorKind::Network => ("NetworkError", "network"),
        ErrorKind::Timeout => ("Timeout", "timeout"),
        ErrorKind::LocalIo => ("LocalError", "local_io"),
        ErrorKind::Cancelled => ("Cancelled", "cancelled"),
        ErrorKind::Unsupported => ("Unsupported", "unsupported"),
        _ => ("InternalError", "internal"),
    }
}

impl Failure {
    pub fn new(kind: ErrorKind, doing: &str, object: impl ToString, cause: impl ToString) -> Failure {
        let (class, kind) = class(kind);
        let (object, cause) = (object.to_string(), cause.to_string());
        Failure(Box::new(Details { class, kind, doing: doing.to_owned(), object, cause, hint: None }))
    }

    pub fn usage(doing: &str, cause: impl ToString) -> Failure {
        Failure::new(ErrorKind::Usage, doing, "", cause)
    }

    /// The machine refused something other than a file of the user's.
    pub fn local(cause: &str, refused: &std::io::Error) -> Failure {
        let failure = Failure::new(ErrorKind::LocalIo, "", "", format!("{cause}: {}", plain(refused)));
        failure.with(remedy(refused).map(str::to_owned))
    }

    /// A thread ended without a result.
    pub fn panicked() -> Failure {
        Failure::new(ErrorKind::Internal, "", "", "a thread panicked: this is a defect of flatout")
    }

    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> Failure {
        self.with(Some(hint.into()))
    }

    fn with(mut self, hint: Option<String>) -> Failure {
        self.0.hint = hint;
        self
    }

    /// Whether it says that there is no such object.
    pub fn is_not_found(&self) -> bool {
        self.0.kind == class(ErrorKind::NotFound).1
    }

    /// Whether the object may just have no bytes at `span`, which origins refuse.
    pub fn may_be_of_nothing(&self, span: &Span) -> bool {
        *span != Span::All && self.0.kind == class(ErrorKind::Usage).1
    }

    /// The exception, or the error that kept it from being made.
    pub fn raise(&self, py: Python<'_>) -> PyErr {
        self.exception(py).map_or_else(|error| error, PyErr::from_value)
    }

    /// The exception as an object, to be handed on.
    pub fn exception<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
        let module = MODULE.get_or_try_init(py, || py.import("flatout.errors").map(Bound::unbind))?;
        let details = PyDict::new(py);
        details.set_item("kind", self.0.kind)?;
        details.set_item("doing", &self.0.doing)?;
        details.set_item("object", &self.0.object)?;
        details.set_item("cause", &self.0.cause)?;
        details.set_item("hint", &self.0.hint)?;
        module.bind(py).getattr(self.0.class)?.call((), Some(&details))
    }
}

/// Raises what a `Result` failed by.
pub trait OrRaise<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T, E: Into<Failure>> OrRaise<T> for Result<T, E> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| error.into().raise(py))
    }
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Failure {
        let mut failure = Failure::new(error.kind(), error.doing(), error.object(), error.cause());
        if error.is_there() {
            failure.0.class = "AlreadyExists";
        }
        failure.with(error.hint().map(worded))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::from(&error)
    }
}

impl From<AmbientError> for Failure {
    fn from(error: AmbientError) -> Failure {
        let cause = error.worded(keyword);
        // What was given to the client is named as it was given there: `--part-size: …` is `part_size: …`.
        let cause = match cause.strip_prefix("--").and_then(|given| given.split_once(": ")) {
            Some((name, why)) => format!("{}: {why}", name.replace('-', "_")),
            None => cause,
        };
        Failure::usage("settings", cause).with(error.hint().as_ref().map(worded))
    }
}

impl From<SettingError> for Failure {
    fn from(error: SettingError) -> Failure {
        let cause = match &error {
            SettingError::Value { knob, .. } | SettingError::Bounds { knob, .. } => {
                error.to_string().replacen(knob, &knob.replace('-', "_"), 1)
            }
            SettingError::Together(clash) => format!("window: {}", clash.worded(keyword)),
            SettingError::Unknown { .. } => error.to_string(),
        };
        Failure::usage("settings", cause)
    }
}

/// A hint as one who writes Python reads it: settings are keywords of `Client`, features are functions.
pub fn worded(hint: &Hint) -> String {
    let word = |word: &Word| match word {
        Word::Text(text) => text.to_string(),
        Word::Setting { name, value } => keyword(name, value.as_deref()),
        Word::Feature(feature) => match feature {
            Feature::Stat => "`flatout.stat`".into(),
            Feature::List => "`flatout.ls`".into(),
            Feature::Read => "`flatout.read`".into(),
            Feature::ShowSettings => "`Client.settings`".into(),
            Feature::NameSettings => "docs/settings.md".into(),
            Feature::ConfigPath => "`flatout config path`".into(),
            Feature::KeepExisting => "what keeps an existing file".into(),
            Feature::UnmountLazily(folder) => format!("`fusermount3 -uz {folder}`"),
        },
    };
    hint.words().iter().map(word).collect()
}

/// A setting as a keyword of `Client`: `region="eu-west-1"`.
fn keyword(name: &str, value: Option<&str>) -> String {
    let keyword = name.replace('-', "_");
    match (value, knob(name).map(|knob| knob.kind)) {
        (None, _) => keyword,
        (Some("true"), Some(Kind::Switch)) => format!("{keyword}=True"),
        (Some(count), Some(Kind::Count { .. })) => format!("{keyword}={count}"),
        (Some(text), _) => format!("{keyword}=\"{text}\""),
    }
}

/// The location that `url` means.
pub fn location(doing: &str, url: &str) -> Result<Location, Failure> {
    Location::parse(url).map_err(|wrong| {
        if let Some(ours) = fsspec_scheme(url) {
            let dialect = if ours.ends_with("oss") { "oss" } else { "s3" };
            return Failure::usage(doing, format!("{ours}:// is the spelling for fsspec"))
                .with_hint(format!("write {dialect}://BUCKET/KEY here, or open it by fsspec.open"));
        }
        let failure = Failure::usage(doing, &wrong);
        match wrong {
            LocationError::NotALocation { .. } | LocationError::UnknownScheme { .. } => failure,
            _ => failure
                .with_hint("objects are named s3://BUCKET/KEY, oss://BUCKET/KEY or https://HOST[:PORT]/PATH"),
        }
    })
}

/// The scheme of a URL that only fsspec knows as ours.
fn fsspec_scheme(url: &str) -> Option<&str> {
    let (scheme, _) = url.split_once("://")?;
    scheme.starts_with("flatout").then_some(scheme)
}
