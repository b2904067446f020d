//! libFuzzer's main of `flatout_properties::documents`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| flatout_properties::documents(bytes));
