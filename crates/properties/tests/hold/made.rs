//! Inputs that are made of what a target reads.

use proptest::prelude::*;

use super::answers::{answer, body};
use super::target;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1000) })]

    #[test]
    fn heads_hold(bytes in answer()) {
        target("head")(&bytes);
    }

    #[test]
    fn answers_are_read_as_hyper_reads_them(bytes in answer()) {
        target("differential")(&bytes);
    }

    #[test]
    fn chunked_bodies_hold(bytes in body()) {
        target("chunked")(&bytes);
    }

    #[test]
    fn content_ranges_hold(text in "(bytes|Bytes|items|) {0,2}[0-9*]{0,20}-?[0-9]{0,20}/[0-9*]{0,20}") {
        target("ranges")(text.as_bytes());
    }

    #[test]
    fn urls_hold(text in "(s3|oss|http|https)://([a-z:%@/]{0,6}@)?[a-z0-9.:\\[\\]-]{1,12}(/\\PC{0,12})?(\\?\\PC{0,12})?") {
        target("locations")(text.as_bytes());
    }
}
