//! Certificates made for a test: an authority, and servers' certificates that it signs, right or wrong.

use std::path::PathBuf;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

/// An authority of a test's own, its certificate in a file.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: tempfile::TempDir,
}

/// A chain and its key, in PEM.
pub struct Identity {
    pub certificate: String,
    pub key: String,
}

/// The years in which a certificate is valid.
pub const NOW: (i32, i32) = (2020, 2090);
#[allow(dead_code, reason = "not every set of tests needs it")]
pub const PAST: (i32, i32) = (2020, 2021);
#[allow(dead_code, reason = "not every set of tests needs it")]
pub const FUTURE: (i32, i32) = (2080, 2090);

impl Authority {
    pub fn new() -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let folder = tempfile::tempdir().unwrap();
        // A name of its own: two authorities of one name are taken for one whose signature is wrong.
        let name = format!("the tests' authority {}", folder.path().display());
        params.distinguished_name.push(DnType::CommonName, name);
        (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2090, 1, 1));
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Authority { issuer, folder }
    }

    /// The file for `--ca-bundle`.
    pub fn bundle(&self) -> String {
        self.path().to_str().expect("temporary paths are text").to_owned()
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// A server's certificate for these names and addresses.
    pub fn identity(&self, names: &[&str], years: (i32, i32)) -> Identity {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        (params.not_before, params.not_after) = (date_time_ymd(years.0, 1, 1), date_time_ymd(years.1, 1, 1));
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Identity { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}
