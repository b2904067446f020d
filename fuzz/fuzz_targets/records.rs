//! libFuzzer's main of `flatout_properties::records`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| flatout_properties::records(bytes));
