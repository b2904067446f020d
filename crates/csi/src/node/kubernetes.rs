//! The API of Kubernetes, for what kubelet does not say: a role that a service account names, and pods of
//! engines that serve one volume alone. A few calls a volume: each has a connection of its own.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use flatout_ambient::Environment;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::Code;

use crate::link::Failure;

/// Of one call: kubelet waits for two minutes, and asks again.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// Where the API is called, and as whom.
#[derive(Debug)]
pub struct Kubernetes {
    host: String,
    port: u16,
    /// Has `token`, which changes, `ca.crt` and `namespace`.
    account: PathBuf,
    namespace: String,
}

/// What the API answered.
enum Answer {
    Done(Value),
    NotFound,
    Conflict,
}

impl Kubernetes {
    /// That of the cluster in which this process is a pod with such a folder; `None` where it has none.
    ///
    /// # Errors
    /// The folder is not what Kubernetes makes.
    pub fn of_pod(environment: &Environment, account: &Path) -> Result<Option<Kubernetes>, Failure> {
        let get = |name: &str| environment.get(&OsString::from(name))?.to_str().map(str::to_owned);
        let (Some(host), Some(port)) = (get("KUBERNETES_SERVICE_HOST"), get("KUBERNETES_SERVICE_PORT"))
        else {
            return Ok(None);
        };
        if !account.join("token").exists() {
            return Ok(None);
        }
        let wrong = |what: &str| Failure::new(Code::Internal, format!("{}: {what}", account.display()));
        let port = port.parse().map_err(|_| wrong("KUBERNETES_SERVICE_PORT is no port"))?;
        let namespace = fs::read_to_string(account.join("namespace"))
            .map_err(|error| Failure::internal(&account.join("namespace").display().to_string(), &error))?;
        let namespace = namespace.trim().to_owned();
        Ok(Some(Kubernetes { host, port, account: account.to_owned(), namespace }))
    }

    /// That of this process.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// `None` where there is no such object.
    ///
    /// # Errors
    /// The API's refusal, or it cannot be reached: then nothing is known.
    pub fn get(&self, path: &str) -> Result<Option<Value>, Failure> {
        match self.call(Method::GET, path, None)? {
            Answer::Done(object) => Ok(Some(object)),
            Answer::NotFound => Ok(None),
            Answer::Conflict => {
                Err(Failure::new(Code::Unavailable, format!("Kubernetes: {path}: a conflict")))
            }
        }
    }

    /// `false` where there is one of that name already.
    ///
    /// # Errors
    /// As [`Kubernetes::get`].
    pub fn create(&self, path: &str, object: &Value) -> Result<bool, Failure> {
        match self.call(Method::POST, path, Some(object))? {
            Answer::Done(_) => Ok(true),
            Answer::Conflict => Ok(false),
            Answer::NotFound => {
                Err(Failure::new(Code::Unavailable, format!("Kubernetes: there is no {path}")))
            }
        }
    }

    /// Asks for the object's deletion, which may take a while. An object that is absent is no error.
    ///
    /// # Errors
    /// As [`Kubernetes::get`].
    pub fn delete(&self, path: &str) -> Result<(), Failure> {
        self.call(Method::DELETE, path, None).map(drop)
    }

    /// Blocks.
    fn call(&self, method: Method, path: &str, object: Option<&Value>) -> Result<Answer, Failure> {
        let named =
            |why: String| Failure::new(Code::Unavailable, format!("Kubernetes: {method} {path}: {why}"));
        let plain = |error: std::io::Error| named(flatout_engine::plain(&error));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(plain)?;
        let asked = async {
            let answered = tokio::time::timeout(ANSWERS_WITHIN, self.ask(&method, path, object)).await;
            answered.unwrap_or_else(|_| Err(format!("no answer within {} s", ANSWERS_WITHIN.as_secs())))
        };
        let (status, body) = runtime.block_on(asked).map_err(named)?;
        let said: Value = serde_json::from_slice(&body).unwrap_or_default();
        match status {
            200..=299 => Ok(Answer::Done(said)),
            404 => Ok(Answer::NotFound),
            409 => Ok(Answer::Conflict),
            _ => {
                let why = said["message"].as_str().unwrap_or("no reason was given");
                let code =
                    if matches!(status, 401 | 403) { Code::PermissionDenied } else { Code::Unavailable };
                Err(Failure::new(code, format!("Kubernetes: {method} {path}: {status}: {why}")))
            }
        }
    }

    async fn ask(
        &self,
        method: &Method,
        path: &str,
        object: Option<&Value>,
    ) -> Result<(u16, Vec<u8>), String> {
        let token = fs::read_to_string(self.account.join("token"))
            .map_err(|error| format!("its token: {}", flatout_engine::plain(&error)))?;
        let body = object.map(Value::to_string).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, self.host.as_str())
            .header(AUTHORIZATION, format!("Bearer {}", token.trim()))
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/json")
            .body(body)
            .map_err(|_| "this is no request".to_owned())?;
        let plain = |error: std::io::Error| flatout_engine::plain(&error);
        // An address of IPv6 stands in brackets in some clusters.
        let host = self.host.trim_start_matches('[').trim_end_matches(']');
        let socket = TcpStream::connect((host, self.port)).await.map_err(plain)?;
        let server = ServerName::try_from(host.to_owned()).map_err(|_| format!("{host} is no host"))?;
        let secured =
            TlsConnector::from(Arc::new(self.trusted()?)).connect(server, socket).await.map_err(plain)?;
        let answer = send(secured, request).await?;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.map_err(|error| error.to_string())?;
        Ok((status, body.to_bytes().to_vec()))
    }

    /// The cluster's own authority, as of now.
    fn trusted(&self) -> Result<ClientConfig, String> {
        let path = self.account.join("ca.crt");
        let wrong = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(&path).map_err(|error| wrong(&error))? {
            roots.add(certificate.map_err(|error| wrong(&error))?).map_err(|error| wrong(&error))?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        Ok(config.map_err(|error| error.to_string())?.with_root_certificates(roots).with_no_client_auth())
    }
}

async fn send(
    socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<String>,
) -> Result<Response<Incoming>, String> {
    let opened = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await;
    let (mut sender, connection) = opened.map_err(|error| error.to_string())?;
    tokio::spawn(connection);
    sender.send_request(request).await.map_err(|error| error.to_string())
}
