//! Fields that several responses of S3 share: the checksum of an object, its owner, its version.

use s3s::dto::*;
use s3s::{S3Result, s3_error};

use crate::object::Object;
use crate::sums::{ChecksumScope, Sum, SumAlgorithm};
use crate::version::Provenance;

/// The owner of every bucket and object.
const OWNER: &str = "flatout";

/// The version of every object of a bucket that never had versions.
pub(super) const NO_VERSION: &str = "null";

/// The checksum of an object or a part as the fields of an answer: one of them is there, or none.
#[derive(Default)]
pub(super) struct ChecksumFields {
    pub kind: Option<ChecksumType>,
    pub crc32: Option<String>,
    pub crc32c: Option<String>,
    pub crc64nvme: Option<String>,
    pub sha1: Option<String>,
    pub sha256: Option<String>,
}

/// A value of a type of s3s that has these fields among others: such types share no trait.
macro_rules! with_checksum {
    ($sums:expr, $type:ident { $($field:ident: $value:expr),* $(,)? }) => {
        $type {
            $($field: $value,)*
            checksum_crc32: $sums.crc32,
            checksum_crc32c: $sums.crc32c,
            checksum_crc64nvme: $sums.crc64nvme,
            checksum_sha1: $sums.sha1,
            checksum_sha256: $sums.sha256,
        }
    };
    ($sums:expr, $type:ident { $($field:ident: $value:expr),*, ..$others:expr }) => {
        $type {
            $($field: $value,)*
            checksum_crc32: $sums.crc32,
            checksum_crc32c: $sums.crc32c,
            checksum_crc64nvme: $sums.crc64nvme,
            checksum_sha1: $sums.sha1,
            checksum_sha256: $sums.sha256,
            ..$others
        }
    };
}
pub(super) use with_checksum;

impl ChecksumFields {
    /// Of an object: the one that its upload chose, else its CRC64NVME.
    pub(super) fn of(provenance: &Provenance, crc64nvme: u64) -> ChecksumFields {
        match &provenance.sum {
            Some(sum) => ChecksumFields::of_sum(sum),
            None => ChecksumFields::of_crc64nvme(crc64nvme),
        }
    }

    /// The checksum of a stored object; none of a file that was not written through the origin.
    pub(super) fn of_object(object: &Object) -> ChecksumFields {
        match &object.provenance.sum {
            Some(sum) => ChecksumFields::of_sum(sum),
            None => object
                .known_crcs
                .crcs()
                .map(|crcs| ChecksumFields::of_crc64nvme(crcs.nvme))
                .unwrap_or_default(),
        }
    }

    pub(super) fn of_sum(sum: &Sum) -> ChecksumFields {
        ChecksumFields {
            kind: Some(type_of(sum.scope)),
            ..ChecksumFields::one(sum.algorithm, sum.value.clone())
        }
    }

    /// Of a part, which says nothing of the whole.
    pub(super) fn one(algorithm: SumAlgorithm, value: String) -> ChecksumFields {
        let mut sums = ChecksumFields::default();
        let field = match algorithm {
            SumAlgorithm::Crc32 => &mut sums.crc32,
            SumAlgorithm::Crc32c => &mut sums.crc32c,
            SumAlgorithm::Crc64Nvme => &mut sums.crc64nvme,
            SumAlgorithm::Sha1 => &mut sums.sha1,
            SumAlgorithm::Sha256 => &mut sums.sha256,
        };
        *field = Some(value);
        sums
    }

    fn of_crc64nvme(crc: u64) -> ChecksumFields {
        let value = flatout_wire::checksum::Algorithm::Crc64Nvme.encode(crc);
        ChecksumFields::of_sum(&Sum {
            algorithm: SumAlgorithm::Crc64Nvme,
            scope: ChecksumScope::Whole,
            value,
        })
    }
}

pub(super) fn type_of(scope: ChecksumScope) -> ChecksumType {
    ChecksumType::from_static(scope.name())
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
pub(super) fn check_version(version: Option<&str>) -> S3Result<()> {
    match version {
        None | Some(NO_VERSION) => Ok(()),
        Some(version) => Err(s3_error!(NoSuchVersion, "this origin has no versions, and so not {version}")),
    }
}

/// Storage class as S3 names it; OSS's own names are of objects that were written in its dialect.
pub(super) fn storage_class(metadata: Option<&str>) -> String {
    match metadata {
        None => "STANDARD".to_owned(),
        Some("IA") => "STANDARD_IA".to_owned(),
        Some(other) => other.to_owned(),
    }
}
