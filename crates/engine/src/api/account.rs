//! The account: the services of both dialects, the keys for each, and where buckets turned out to lie.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use flatout_settings::Settings;
use flatout_wire::documents;
use flatout_wire::endpoint::Endpoint;
use flatout_wire::head::Head;
use flatout_wire::location::{Location, LocationError};
use flatout_wire::oss::Oss;
use flatout_wire::oss_sign::{self, RANGE_BEHAVIOR, Resource, SignatureVersion};
use flatout_wire::request::Request;
use flatout_wire::s3::S3;
use flatout_wire::sign::{self, Signer};

use crate::api::credentials::{KeySet, Keys, Provider};
pub use crate::api::operation::Dialect;
pub(crate) use crate::api::operation::{Operation, Target};
use crate::api::operation::{oss_request, plain_request, s3_request};
use crate::api::refusal::{self, Failure, KeyRejection};
use crate::api::service::ServiceClient;
use crate::base::error::{Error, ErrorKind, SETTINGS};
use crate::base::hint::{Feature, Hint, Word, setting, setting_to, text};
use crate::base::time::unix_seconds;

/// What one request is signed with; kept until its answer is judged.
#[derive(Clone)]
pub(crate) enum RequestSigner {
    Plain,
    S3(Arc<KeySet<Signer>>),
    Oss(Arc<KeySet<oss_sign::Signer>>),
}

/// What calls are made with.
pub(crate) struct Account {
    s3: Arc<S3>,
    /// Where there is neither a region nor an endpoint, only those who ask for OSS need to know.
    oss: Result<Oss, LocationError>,
    pub(crate) aws_keys: Arc<Keys<Signer>>,
    pub(crate) oss_keys: Arc<Keys<oss_sign::Signer>>,
    s3_payer: bool,
    oss_payer: bool,
    /// Buckets that an answer said to lie elsewhere.
    moved: Mutex<HashMap<String, Arc<S3>>>,
}

/// What holds for `oss://` where a knob serves both dialects, and what was found around is about S3 alone:
/// the addressing and the payer that AWS's own files name say nothing about OSS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OssSettings {
    /// `auto`, `path` or `virtual`; as the knob says where absent.
    pub addressing: Option<String>,
    /// Whether to agree to pay; as the knob says where absent.
    pub request_payer: Option<bool>,
}

impl Account {
    pub(crate) fn new(
        settings: &Settings,
        differs: &OssSettings,
        aws: Arc<dyn Provider>,
        oss: Arc<dyn Provider>,
        ask: Arc<dyn ServiceClient>,
    ) -> Result<Account, LocationError> {
        let addressing = settings.addressing.parse()?;
        let s3 = S3::new(settings.endpoint_url.as_deref(), settings.region.as_deref(), addressing)?;
        let version: SignatureVersion = settings.oss_signature.parse()?;
        let addressing = differs.addressing.as_ref().unwrap_or(&settings.addressing).parse()?;
        let service = Oss::new(settings.oss_endpoint.as_deref(), settings.oss_region.as_deref(), addressing);
        let region = s3.region.clone();
        let aws_keys = Keys::new(aws, ask.clone(), move |credentials| Signer::new(credentials, &region));
        let signing = service.clone();
        let oss_keys = Keys::new(oss, ask, move |credentials| match &signing {
            Ok(oss) => oss.signer(credentials, version),
            // Nothing is asked of it: `Account::signer` refuses before.
            Err(_) => oss_sign::Signer::new(credentials, version, "", ""),
        });
        Ok(Account {
            s3: Arc::new(s3),
            oss: service,
            aws_keys,
            oss_keys,
            s3_payer: settings.request_payer,
            oss_payer: differs.request_payer.unwrap_or(settings.request_payer),
            moved: Mutex::default(),
        })
    }

    /// Where calls about no bucket go, for an error.
    pub(crate) fn endpoint(&self, dialect: Dialect) -> String {
        match (dialect, &self.oss) {
            (Dialect::Oss, Ok(oss)) => oss.endpoint.to_string(),
            (Dialect::Oss, Err(_)) => "oss://".into(),
            _ => self.s3.endpoint.to_string(),
        }
    }

    /// Where a location is asked for, as far as is known by now.
    pub(crate) fn endpoint_of(&self, location: &Location) -> Result<Endpoint, Error> {
        Ok(match location {
            Location::S3 { bucket, .. } => self.s3_for(bucket).endpoint_of(bucket),
            Location::Oss { bucket, .. } => self.oss()?.endpoint_of(bucket),
            Location::Http { url } => url.endpoint.clone(),
        })
    }

    /// Where the buckets of a dialect are asked for.
    pub(crate) fn endpoint_of_buckets(&self, dialect: Dialect) -> Result<Endpoint, Error> {
        Ok(match dialect {
            Dialect::Oss => self.oss()?.endpoint.clone(),
            Dialect::S3 | Dialect::Plain => self.s3.endpoint.clone(),
        })
    }

    /// What the request that makes a bucket carries.
    pub(crate) fn create_bucket_document(&self, location: &Location) -> Vec<u8> {
        match location {
            Location::S3 { .. } => documents::create_bucket_body(&self.s3.region),
            Location::Oss { .. } | Location::Http { .. } => Vec::new(),
        }
    }

    /// What comes of an endpoint URL with a path, which most stores have none of: what was not found lies
    /// elsewhere then.
    pub(crate) fn note_on_path(&self, dialect: Dialect) -> Option<String> {
        let path = match dialect {
            Dialect::Plain => return None,
            Dialect::S3 => &self.s3.base_path,
            Dialect::Oss => &self.oss.as_ref().ok()?.base_path,
        };
        let says = || {
            format!(
                "the endpoint URL has a path, and {path} comes before every bucket: leave it out, unless the store lies there"
            )
        };
        (!path.is_empty()).then(says)
    }

    /// The failure of a request that was signed by `signer`, with what may be why.
    pub(crate) fn explain(&self, failure: Failure, signer: &RequestSigner) -> Failure {
        let dialect = match signer {
            RequestSigner::Plain => Dialect::Plain,
            RequestSigner::S3(_) => Dialect::S3,
            RequestSigner::Oss(_) => Dialect::Oss,
        };
        match self.note_on_path(dialect).filter(|_| failure.error.kind() == ErrorKind::NotFound) {
            Some(note) => Failure { error: failure.error.with_hint_before(note), ..failure },
            None => failure,
        }
    }

    /// The keys of now; waits while there are none yet.
    pub(crate) async fn signer(&self, dialect: Dialect) -> Result<RequestSigner, Error> {
        match dialect {
            Dialect::Plain => Ok(RequestSigner::Plain),
            Dialect::S3 => Ok(RequestSigner::S3(self.aws_keys.current().await?)),
            Dialect::Oss => {
                self.oss()?;
                Ok(RequestSigner::Oss(self.oss_keys.current().await?))
            }
        }
    }

    /// After a refusal that may be about the age of the keys: whether there are new ones, so that asking
    /// again may help. The signer is then that of now, and knows why where there are none.
    pub(crate) async fn renew(&self, signer: &mut RequestSigner, rejection: KeyRejection) -> bool {
        match signer {
            RequestSigner::Plain => false,
            RequestSigner::S3(held) => renewed(&self.aws_keys, held, rejection).await,
            RequestSigner::Oss(held) => renewed(&self.oss_keys, held, rejection).await,
        }
    }

    /// The request for an operation, signed.
    pub(crate) fn request(&self, operation: &Operation, signer: &RequestSigner) -> Result<Request, Error> {
        let (bucket, key) = operation.resource();
        match operation.dialect() {
            Dialect::Plain => Ok(plain_request(operation)),
            Dialect::S3 => {
                let s3 = self.s3_for(bucket);
                let mut request = s3_request(&s3, operation);
                note_payer(self.s3_payer, bucket, "x-amz-request-payer", &mut request);
                self.sign_s3(&s3, signer, &mut request);
                Ok(request)
            }
            Dialect::Oss => {
                let mut request = oss_request(self.oss()?, operation);
                note_payer(self.oss_payer, bucket, "x-oss-request-payer", &mut request);
                let signer = match signer {
                    RequestSigner::Oss(held) => held.signer.as_ref(),
                    _ => None,
                };
                match signer {
                    Some(signer) => signer.sign(&mut request, Resource { bucket, key }, unix_seconds()),
                    // An origin of several dialects tells them by the signature, or by a header of OSS's own.
                    None => request.set(RANGE_BEHAVIOR.0, RANGE_BEHAVIOR.1),
                }
                Ok(request)
            }
        }
    }

    /// The URL by which anyone reads or writes an object for `expires_s` seconds, without keys: a secret.
    pub(crate) fn presigned(
        &self,
        operation: &Operation,
        signer: &RequestSigner,
        expires_s: u64,
    ) -> Result<String, Error> {
        let (bucket, key) = operation.resource();
        let request = match signer {
            RequestSigner::Plain => {
                let error = Error::new(ErrorKind::Unsupported, "a plain URL is not for us to sign");
                return Err(error.with_hint("hand it on as it is, or name the object by s3:// or oss://"));
            }
            RequestSigner::S3(held) => {
                let expires_s = check_expiry(expires_s, sign::PRESIGNED_MAX_S)?;
                let s3 = self.s3_for(bucket);
                let mut request = s3_request(&s3, operation);
                note_payer_in_query(self.s3_payer, "x-amz-request-payer", &mut request);
                let presign = |signer: &Signer| signer.presign(&mut request, expires_s, unix_seconds());
                self.with_s3_signer(&s3, held, presign).ok_or_else(|| no_keys(signer))?;
                request
            }
            RequestSigner::Oss(held) => {
                let Some(signer) = &held.signer else { return Err(no_keys(signer)) };
                let expires_s = check_expiry(expires_s, signer.presigned_max_s())?;
                let mut request = oss_request(self.oss()?, operation);
                note_payer_in_query(self.oss_payer, "x-oss-request-payer", &mut request);
                signer.presign(&mut request, Resource { bucket, key }, expires_s, unix_seconds());
                request
            }
        };
        Ok(request.url())
    }

    /// Learns from a refusal where an S3 bucket lies; whether asking again goes there. OSS is not followed:
    /// what it names is the public endpoint of a region that costs traffic and time, which is the user's to
    /// choose.
    ///
    /// A region that is known already is taken out of the head: it is not what the origin refuses for.
    pub(crate) fn learn(&self, operation: &Operation, head: &mut Head, body: &[u8]) -> bool {
        let (bucket, _) = operation.resource();
        if operation.dialect() != Dialect::S3 || bucket.is_empty() {
            return false;
        }
        let (known, told) = (self.s3_for(bucket), refusal::whereabouts(head, body));
        let moved = told.and_then(|(region, url)| {
            let endpoint = url.filter(|url| operation.is_asked_by(url)).map(|url| url.endpoint);
            let elsewhere = |from: &S3| from.elsewhere(bucket, region.as_deref(), endpoint.as_ref());
            // Another request may have learnt it while this one was on its way.
            elsewhere(&known).or_else(|| elsewhere(&self.s3))
        });
        match moved {
            Some(s3) => {
                let mut moved = self.moved.lock().unwrap_or_else(PoisonError::into_inner);
                moved.insert(bucket.to_owned(), Arc::new(s3));
                true
            }
            None => {
                head.bucket_region.take_if(|region| *region == known.region);
                false
            }
        }
    }

    fn oss(&self) -> Result<&Oss, Error> {
        self.oss.as_ref().map_err(|why| {
            let error = Error::new(ErrorKind::Usage, why.to_string());
            match why {
                LocationError::NoOssEndpoint => error.with_hint([
                    text("write "),
                    setting_to("oss-region", "cn-hangzhou"),
                    text(" or "),
                    setting_to("oss-endpoint", "oss-cn-hangzhou.aliyuncs.com"),
                ]),
                LocationError::BadRegion { .. } => error.during(SETTINGS, "oss-region"),
                _ => error.during(SETTINGS, "oss-endpoint"),
            }
        })
    }

    fn s3_for(&self, bucket: &str) -> Arc<S3> {
        let moved = self.moved.lock().unwrap_or_else(PoisonError::into_inner);
        moved.get(bucket).unwrap_or(&self.s3).clone()
    }

    fn sign_s3(&self, s3: &S3, signer: &RequestSigner, request: &mut Request) {
        let RequestSigner::S3(held) = signer else { return };
        // Without keys it leaves unsigned.
        let _ = self.with_s3_signer(s3, held, |signer| signer.sign(request, unix_seconds()));
    }

    /// `None` without keys. A bucket in another region than the keys' signer is made for costs the key of the
    /// day anew, once a minute and object.
    fn with_s3_signer(&self, s3: &S3, held: &KeySet<Signer>, sign: impl FnOnce(&Signer)) -> Option<()> {
        let signer = held.signer.as_ref()?;
        match s3.region == self.s3.region {
            true => sign(signer),
            false => sign(&Signer::new(held.credentials()?.clone(), &s3.region)),
        }
        Some(())
    }
}

fn note_payer(pays: bool, bucket: &str, header: &str, request: &mut Request) {
    if pays && !bucket.is_empty() {
        request.set(header, "requester");
    }
}

/// Whoever uses a presigned URL sends no header for it.
fn note_payer_in_query(pays: bool, name: &str, request: &mut Request) {
    if pays {
        request.add_parameter(name, "requester");
    }
}

fn check_expiry(expires_s: u64, most_s: u32) -> Result<u32, Error> {
    let within = u32::try_from(expires_s).ok().filter(|expires_s| (1..=most_s).contains(expires_s));
    within.ok_or_else(|| {
        let cause = format!("a presigned URL cannot work for {expires_s} seconds");
        Error::new(ErrorKind::Usage, cause).with_hint(format!("say 1 to {most_s} seconds"))
    })
}

fn no_keys(signer: &RequestSigner) -> Error {
    let error = Error::new(ErrorKind::Denied, "there are no keys to sign with");
    let show = || [Word::Feature(Feature::ShowSettings), text(" says where keys come from")].into();
    error.with_hint(signer.note().unwrap_or_else(show))
}

async fn renewed<S: Send + Sync + 'static>(
    keys: &Arc<Keys<S>>,
    held: &mut Arc<KeySet<S>>,
    rejection: KeyRejection,
) -> bool {
    if rejection == KeyRejection::No {
        return false;
    }
    let renewed = keys.renew(held.number, rejection == KeyRejection::Certain).await;
    if let Ok(now) = keys.current().await {
        *held = now;
    }
    renewed
}

impl RequestSigner {
    /// Why the request is not signed, or what else there is to know of its keys.
    pub(crate) fn note(&self) -> Option<Hint> {
        let presign =
            "plain URLs are asked for as they are: use a presigned one that has not expired, or s3:// with ";
        match self {
            RequestSigner::Plain => Some(Hint::from([text(presign), setting("endpoint-url")])),
            RequestSigner::S3(held) => held.note.clone(),
            RequestSigner::Oss(held) => held.note.clone(),
        }
    }

    /// The origin has let in what was signed with these keys.
    pub(crate) fn on_accepted(&self) {
        match self {
            RequestSigner::Plain => {}
            RequestSigner::S3(held) => held.on_accepted(),
            RequestSigner::Oss(held) => held.on_accepted(),
        }
    }

    /// Another number is another pair of keys.
    pub(crate) fn number(&self) -> u64 {
        match self {
            RequestSigner::Plain => 0,
            RequestSigner::S3(held) => held.number,
            RequestSigner::Oss(held) => held.number,
        }
    }
}

/// An object has a key; a bucket or a folder cannot be read.
pub(crate) fn check_object(location: &Location) -> Result<(), Error> {
    match location {
        Location::S3 { key, .. } | Location::Oss { key, .. } if key.is_empty() => {
            Err(Error::new(ErrorKind::Usage, "this is a bucket, not an object")
                .during("read", location)
                .with_hint([
                    text(format!("name an object: {location}/KEY; ")),
                    Word::Feature(Feature::List),
                    text(" shows what is there"),
                ]))
        }
        _ => Ok(()),
    }
}

/// The dialect of an object that can be written to.
pub(crate) fn check_writable(location: &Location) -> Result<Dialect, Error> {
    check_object(location)?;
    match Dialect::of(location) {
        Dialect::Plain => {
            let error = Error::new(ErrorKind::Unsupported, "a plain URL cannot be written to");
            Err(error.with_hint("name a bucket by s3:// or oss://"))
        }
        dialect => Ok(dialect),
    }
}
