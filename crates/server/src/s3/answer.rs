//! What several answers of S3 say alike: the checksum of an object, its owner, its version.

use s3s::dto::*;
use s3s::{S3Result, s3_error};

use crate::object::Object;
use crate::sums::{Algorithm, Span, Sum};
use crate::version::Made;

/// Who owns everything here.
const OWNER: &str = "flatout";

/// The version of every object of a bucket that never had versions.
pub(super) const NO_VERSION: &str = "null";

/// The checksum of an object or a part as the fields of an answer: one of them is there, or none.
#[derive(Default)]
pub(super) struct Sums {
    pub kind: Option<ChecksumType>,
    pub crc32: Option<String>,
    pub crc32c: Option<String>,
    pub crc64nvme: Option<String>,
    pub sha1: Option<String>,
    pub sha256: Option<String>,
}

impl Sums {
    /// Of an object: the one that its upload chose, else its CRC64NVME.
    pub(super) fn of(made: &Made, crc64nvme: u64) -> Sums {
        match &made.sum {
            Some(sum) => Sums::of_sum(sum),
            None => Sums::of_crc64nvme(crc64nvme),
        }
    }

    /// The same of an object that is there; nothing of a file that nobody has summed up.
    pub(super) fn of_object(object: &Object) -> Sums {
        match &object.made.sum {
            Some(sum) => Sums::of_sum(sum),
            None => object.known.crcs().map(|crcs| Sums::of_crc64nvme(crcs.nvme)).unwrap_or_default(),
        }
    }

    pub(super) fn of_sum(sum: &Sum) -> Sums {
        Sums { kind: Some(type_of(sum.span)), ..Sums::one(sum.algorithm, sum.value.clone()) }
    }

    /// Of a part, which says nothing of the whole.
    pub(super) fn one(algorithm: Algorithm, value: String) -> Sums {
        let mut sums = Sums::default();
        let field = match algorithm {
            Algorithm::Crc32 => &mut sums.crc32,
            Algorithm::Crc32c => &mut sums.crc32c,
            Algorithm::Crc64Nvme => &mut sums.crc64nvme,
            Algorithm::Sha1 => &mut sums.sha1,
            Algorithm::Sha256 => &mut sums.sha256,
        };
        *field = Some(value);
        sums
    }

    fn of_crc64nvme(crc: u64) -> Sums {
        let value = flatout_wire::checksum::Algorithm::Crc64Nvme.encode(crc);
        Sums::of_sum(&Sum { algorithm: Algorithm::Crc64Nvme, span: Span::Whole, value })
    }
}

pub(super) fn type_of(span: Span) -> ChecksumType {
    ChecksumType::from_static(span.name())
}

pub(super) fn owner() -> Owner {
    Owner { id: Some(OWNER.to_owned()), display_name: Some(OWNER.to_owned()) }
}

pub(super) fn initiator() -> Initiator {
    Initiator { id: Some(OWNER.to_owned()), display_name: Some(OWNER.to_owned()) }
}

/// The access list that every bucket and object here has.
pub(super) fn private_grants() -> Vec<Grant> {
    let grantee = Grantee {
        display_name: Some(OWNER.to_owned()),
        email_address: None,
        id: Some(OWNER.to_owned()),
        type_: Type::from_static(Type::CANONICAL_USER),
        uri: None,
    };
    let permission = Permission::from_static(Permission::FULL_CONTROL);
    vec![Grant { grantee: Some(grantee), permission: Some(permission) }]
}

/// `NoSuchVersion` for any but the one that is there.
pub(super) fn check_version(asked: Option<&str>) -> S3Result<()> {
    match asked {
        None | Some(NO_VERSION) => Ok(()),
        Some(asked) => Err(s3_error!(NoSuchVersion, "this origin has no versions, and so not {asked}")),
    }
}

/// Storage class as S3 names it; OSS's own names are of objects that were written in its dialect.
pub(super) fn storage_class(kept: Option<&str>) -> String {
    match kept {
        None => "STANDARD".to_owned(),
        Some("IA") => "STANDARD_IA".to_owned(),
        Some(other) => other.to_owned(),
    }
}
