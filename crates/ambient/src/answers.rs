//! What services and programs answer when they are asked for keys, without the asking: for
//! `flatout-properties`, which tries it with any bytes. It is no part of what others may build on.

use flatout_engine::ServiceReply;
use flatout_engine::credentials::Grant;

use crate::credentials::{
    ProviderError, ProviderResult, json_grant, printed_by_alibaba, printed_by_aws, sts_grant,
};

/// A JSON answer of metadata, of an agent, of SSO, of Alibaba Cloud's STS.
///
/// # Errors
/// In words for people.
pub fn json_keys(status: u16, body: &[u8]) -> Result<Grant, String> {
    json_grant("the service", &reply(status, body), &[])
}

/// An answer of AWS's STS.
///
/// # Errors
/// In words for people.
pub fn sts_keys(status: u16, body: &[u8]) -> Result<Grant, String> {
    sts_grant(&reply(status, body))
}

/// What a `credential_process` printed, and the same as what a `process_command` printed.
pub fn printed_keys(bytes: &[u8]) -> [Result<Grant, String>; 2] {
    [printed_by_aws(bytes), printed_by_alibaba(bytes)].map(in_words)
}

fn in_words(answer: ProviderResult) -> Result<Grant, String> {
    answer.map_err(|lack| match lack {
        ProviderError::Nothing(why) | ProviderError::Failed(why) => why,
    })
}

fn reply(status: u16, body: &[u8]) -> ServiceReply {
    ServiceReply { status, body: body.to_vec().into() }
}
