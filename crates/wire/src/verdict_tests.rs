//! Tables of answers and what they mean.

use super::*;

fn body(code: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>Because &amp; so</Message>\
         <Key>k</Key><RequestId>4442587FB7D0A2F9</RequestId></Error>"
    )
}

fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Done => "done",
        Verdict::Again(_) => "again",
        Verdict::Later(_) => "later",
        Verdict::Refused(_) => "refused",
    }
}

fn refusal(verdict: Verdict) -> Refusal {
    match verdict {
        Verdict::Again(refusal) | Verdict::Later(refusal) | Verdict::Refused(refusal) => refusal,
        Verdict::Done => panic!("done"),
    }
}

#[test]
fn statuses_without_a_body() {
    let rows = [
        (200, "done", None),
        (204, "done", None),
        (206, "done", None),
        (301, "refused", Some(Reason::Redirect)),
        (304, "refused", Some(Reason::Other)),
        (400, "refused", Some(Reason::Other)),
        (401, "refused", Some(Reason::AccessDenied)),
        (403, "refused", Some(Reason::AccessDenied)),
        (404, "refused", Some(Reason::NotFound)),
        (405, "refused", Some(Reason::Unsupported)),
        (408, "again", Some(Reason::Other)),
        (410, "refused", Some(Reason::NotFound)),
        (411, "refused", Some(Reason::Other)),
        (412, "refused", Some(Reason::Changed)),
        (413, "refused", Some(Reason::TooLarge)),
        (416, "refused", Some(Reason::BadRange)),
        (418, "refused", Some(Reason::Other)),
        (425, "again", Some(Reason::Other)),
        (429, "later", Some(Reason::Other)),
        (500, "again", Some(Reason::Other)),
        (501, "refused", Some(Reason::Unsupported)),
        (502, "again", Some(Reason::Other)),
        (503, "later", Some(Reason::Other)),
        (504, "again", Some(Reason::Other)),
        (505, "refused", Some(Reason::Other)),
        (507, "refused", Some(Reason::Full)),
        (509, "later", Some(Reason::Other)),
        (520, "again", Some(Reason::Other)),
    ];
    for (status, expected, reason) in rows {
        let verdict = of(status, b"");
        assert_eq!(word(&verdict), expected, "{status}");
        if let Some(reason) = reason {
            let refusal = refusal(verdict);
            assert_eq!(refusal.reason(), reason, "{status}");
            assert!(!refusal.code.is_empty(), "{status}");
        }
    }
}

#[test]
fn codes() {
    let rows = [
        (404, "NoSuchKey", "refused", Reason::NotFound),
        (404, "NoSuchBucket", "refused", Reason::NoSuchBucket),
        (403, "AccessDenied", "refused", Reason::AccessDenied),
        (403, "InvalidAccessKeyId", "refused", Reason::BadCredentials),
        (403, "SignatureDoesNotMatch", "refused", Reason::BadCredentials),
        (400, "AuthorizationHeaderMalformed", "refused", Reason::BadCredentials),
        (400, "ExpiredToken", "refused", Reason::ExpiredCredentials),
        (403, "RequestTimeTooSkewed", "refused", Reason::ClockSkew),
        (412, "PreconditionFailed", "refused", Reason::Changed),
        (416, "InvalidRange", "refused", Reason::BadRange),
        (403, "InvalidObjectState", "refused", Reason::Archived),
        (301, "PermanentRedirect", "refused", Reason::WrongRegion { region: None }),
        (307, "TemporaryRedirect", "refused", Reason::WrongRegion { region: None }),
        (403, "SecurityTokenExpired", "refused", Reason::ExpiredCredentials),
        (403, "InvalidSecurityToken", "refused", Reason::BadCredentials),
        (403, "AccessKeyIdAndSecurityTokenNotMatch", "refused", Reason::BadCredentials),
        (403, "SecondLevelDomainForbidden", "refused", Reason::WrongAddressing),
        (403, "UserDisable", "refused", Reason::AccessDenied),
        (409, "PositionNotEqualToLength", "refused", Reason::Changed),
        (409, "ObjectNotAppendable", "refused", Reason::Other),
        (503, "DownloadTrafficRateLimitExceeded", "later", Reason::Other),
        (429, "TotalQpsLimitExceeded", "later", Reason::Other),
        (400, "SomethingNew", "refused", Reason::Other),
        (400, "RequestTimeout", "again", Reason::Other),
        (400, "IncompleteBody", "again", Reason::Other),
        (409, "OperationAborted", "again", Reason::Other),
        (500, "InternalError", "again", Reason::Other),
        (200, "InternalError", "again", Reason::Other),
        (200, "SlowDown", "later", Reason::Other),
        (503, "SlowDown", "later", Reason::Other),
        (400, "Throttling", "later", Reason::Other),
        (503, "InternalError", "again", Reason::Other),
        (501, "NotImplemented", "refused", Reason::Unsupported),
    ];
    check_codes(&rows);
}

#[test]
fn codes_of_writes() {
    let rows = [
        (404, "NoSuchUpload", "refused", Reason::UploadGone),
        (400, "EntityTooLarge", "refused", Reason::TooLarge),
        (400, "MaxMessageLengthExceeded", "refused", Reason::TooLarge),
        (400, "EntityTooSmall", "refused", Reason::TooSmall),
        (400, "InvalidPart", "refused", Reason::BadParts),
        (400, "InvalidPartOrder", "refused", Reason::BadParts),
        (400, "FilePartNotExist", "refused", Reason::BadParts),
        (400, "BadDigest", "refused", Reason::Mismatch),
        (400, "InvalidDigest", "refused", Reason::Mismatch),
        (400, "XAmzContentSHA256Mismatch", "refused", Reason::Mismatch),
        (400, "XAmzContentChecksumMismatch", "refused", Reason::Mismatch),
        (403, "QuotaExceeded", "refused", Reason::Full),
        (507, "InsufficientCapacity", "refused", Reason::Full),
        (507, "XMinioStorageFull", "refused", Reason::Full),
        (400, "XMinioAdminBucketQuotaExceeded", "refused", Reason::Full),
        (409, "FileAlreadyExists", "refused", Reason::Exists),
        (409, "BucketAlreadyExists", "refused", Reason::Exists),
        (409, "BucketAlreadyOwnedByYou", "refused", Reason::ExistsAndIsOurs),
        (412, "PreconditionFailed", "refused", Reason::Changed),
        (409, "ConditionalRequestConflict", "again", Reason::Other),
        (409, "BucketNotEmpty", "refused", Reason::NotEmpty),
        (400, "KeyTooLongError", "refused", Reason::BadKey),
        (400, "InvalidObjectName", "refused", Reason::BadKey),
        (400, "MetadataTooLarge", "refused", Reason::BadOptions),
        (400, "InvalidStorageClass", "refused", Reason::BadOptions),
        (400, "InvalidTag", "refused", Reason::BadOptions),
        (400, "AccessControlListNotSupported", "refused", Reason::BadOptions),
        (405, "MethodNotAllowed", "refused", Reason::Unsupported),
        (411, "MissingContentLength", "refused", Reason::Other),
        (200, "NoSuchUpload", "refused", Reason::UploadGone),
        (503, "UploadTrafficRateLimitExceeded", "later", Reason::Other),
    ];
    check_codes(&rows);
}

fn check_codes(rows: &[(u16, &str, &str, Reason)]) {
    for (status, code, expected, reason) in rows {
        let (status, code) = (*status, *code);
        let verdict = of(status, body(code).as_bytes());
        assert_eq!(word(&verdict), *expected, "{status} {code}");
        let refusal = refusal(verdict);
        assert_eq!(refusal.reason(), *reason, "{status} {code}");
        assert_eq!((refusal.status, refusal.code.as_str()), (status, code));
        assert_eq!(refusal.to_string(), format!("{status} {code}: Because & so (request 4442587FB7D0A2F9)"));
    }
}

#[test]
fn where_the_bucket_is() {
    let malformed = "<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-1</Region></Error>";
    let elsewhere = Reason::WrongRegion { region: Some("eu-west-1".into()) };
    assert_eq!(refusal(of(400, malformed.as_bytes())).reason(), elsewhere);
    // A HEAD has no body: the engine knows the region from x-amz-bucket-region.
    let of_head = Refusal { region: Some("eu-west-1".into()), ..refusal(of(301, b"")) };
    assert_eq!(of_head.reason(), elsewhere);
    let of_key = Refusal { region: Some("eu-west-1".into()), ..refusal(of(404, b"")) };
    assert_eq!(of_key.reason(), Reason::NotFound);
}

#[test]
fn the_endpoint_of_a_bucket() {
    let refused = |code: &str, endpoint: &str| {
        let body = format!(
            "<Error><Code>{code}</Code><Message>The bucket you are attempting to access must be addressed using the \
             specified endpoint.</Message><RequestId>5C1B</RequestId><HostId>b.oss-cn-qingdao.aliyuncs.com</HostId>\
             <Bucket>b</Bucket><Endpoint>{endpoint}</Endpoint><EC>0003-00001403</EC></Error>"
        );
        refusal(of(403, body.as_bytes()))
    };
    let of_oss = refused("AccessDenied", "oss-cn-beijing.aliyuncs.com");
    let endpoint = Reason::WrongEndpoint { endpoint: "oss-cn-beijing.aliyuncs.com".into() };
    assert_eq!(of_oss.reason(), endpoint);
    assert!(of_oss.to_string().ends_with("(EC 0003-00001403, request 5C1B)"), "{of_oss}");
    // Words that are no host are not passed on as one.
    assert_eq!(refused("AccessDenied", "; rm -rf /").reason(), Reason::AccessDenied);
    let region = Reason::WrongRegion { region: Some("eu-west-1".into()) };
    let of_s3 = Refusal { status: 301, ..refused("PermanentRedirect", "b.s3-eu-west-1.amazonaws.com") };
    assert_eq!(of_s3.reason(), region);
}

#[test]
fn a_signature_for_another_region() {
    let body = "<Error><Code>InvalidArgument</Code><Message>Invalid signing region in Authorization header.</Message>\
        <EC>0002-00000226</EC></Error>";
    assert_eq!(refusal(of(400, body.as_bytes())).reason(), Reason::WrongRegion { region: None });
}

#[test]
fn presigned_urls_expire() {
    let body = "<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>";
    assert_eq!(refusal(of(403, body.as_bytes())).reason(), Reason::ExpiredCredentials);
}

#[test]
fn bodies_that_are_no_errors() {
    let done =
        ["", "<ListBucketResult/>", "<Errors/>", "<?xml", "Error", "{\"a\":1}", "<Error", "<Error></Error>"];
    for body in done {
        assert_eq!(of(200, body.as_bytes()), Verdict::Done, "{body}");
    }
    for body in ["<html><body>nginx</body></html>", "<Error>", "\u{0}\u{1}", "<Error></Error>"] {
        assert_eq!(refusal(of(404, body.as_bytes())).code, "NotFound", "{body}");
    }
    // CompleteMultipartUpload keeps its connection alive with spaces before the document.
    assert_eq!(word(&of(200, format!("\u{feff}  \n{}", body("InternalError")).as_bytes())), "again");
}

#[test]
fn an_error_cut_off_is_still_an_error() {
    let whole = body("SlowDown");
    let cut = &whole[..whole.find("<Key>").unwrap()];
    assert_eq!(word(&of(200, cut.as_bytes())), "later");
}

#[test]
fn messages_are_fit_for_a_terminal() {
    let body = format!("<Error><Code>X</Code><Message>a\u{1b}[31mb\n{}</Message></Error>", "c".repeat(9999));
    let message = refusal(of(400, body.as_bytes())).message;
    assert!(message.starts_with("a [31mb c") && message.chars().count() == 500, "{message}");
}

/// Of one key of a deletion, which has no status of its own.
#[test]
fn keys_of_a_deletion() {
    for (code, expected) in [
        ("InternalError", "again"),
        ("SlowDown", "later"),
        ("AccessDenied", "refused"),
        ("NoSuchKey", "refused"),
        ("Other", "refused"),
    ] {
        assert_eq!(word(&of_key(code, "m")), expected, "{code}");
    }
    assert_eq!(refusal(of_key("NoSuchKey", "")).reason(), Reason::NotFound);
    assert_eq!(refusal(of_key("Other", "")).reason(), Reason::Other);
}
