//! Objects that change while they are read.

use flatout_server::FaultPlan;

use super::{DIALECTS, each_store, get};
use crate::client::{crc64nvme, send};

const SIZE: usize = 300_000;

#[test]
fn from_a_certain_get_on_an_object_is_another_for_everybody() {
    let fault_plan = FaultPlan { replace_after: Some(3), ..FaultPlan::default() };
    each_store(SIZE, &fault_plan, |address, bytes| {
        let etag = |dialect| {
            let head = send(address, "HEAD", "/bucket/k", dialect, b"").expect(200);
            head.header("etag").unwrap().to_owned()
        };
        let first = etag(DIALECTS[0]);
        let as_before = ("if-match", &*first);
        for range in ["bytes=0-99", "bytes=100-199"] {
            let (answer, _) = get(address, "/bucket/k", &[as_before, ("range", range)]);
            assert_eq!((answer.status, answer.header("etag")), (206, Some(&*first)));
        }
        assert_eq!(get(address, "/bucket/k", &[as_before, ("range", "bytes=200-299")]).0.status, 412);
        let other = etag(DIALECTS[1]);
        assert_ne!(first, other);
        assert_eq!(
            send(address, "GET", "/bucket?list-type=2", &[], b"")
                .xml("ETag")
                .unwrap()
                .replace("&quot;", "\""),
            other
        );
        let (answer, _) = get(address, "/bucket/k", DIALECTS[0]);
        assert_eq!((answer.body.len(), answer.header("etag")), (SIZE, Some(&*other)));
        assert!(answer.body != bytes);
        assert_eq!(answer.header("x-amz-checksum-crc64nvme"), Some(&*crc64nvme(&answer.body)));
        assert!(get(address, "/bucket/k", DIALECTS[1]).0.body == answer.body);
    });
}

#[test]
fn what_is_written_is_there_as_it_was_written() {
    let fault_plan = FaultPlan { replace_after: Some(1), ..FaultPlan::default() };
    let options =
        flatout_server::Options { fault_plan, ..crate::client::options(flatout_server::Store::Memory) };
    let origin = flatout_server::Origin::start(options).unwrap();
    let address = origin.addresses()[0];
    send(address, "PUT", "/bucket", &[], b"").expect(200);
    for body in [&b"one"[..], b"two"] {
        let etag =
            send(address, "PUT", "/bucket/k", &[], body).expect(200).header("etag").unwrap().to_owned();
        let head = send(address, "HEAD", "/bucket/k", &[], b"").expect(200);
        assert_eq!(head.header("etag"), Some(&*etag));
        assert_ne!(get(address, "/bucket/k", &[]).0.body, body);
    }
}
