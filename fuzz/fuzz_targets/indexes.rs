//! libFuzzer's main of `flatout_properties::indexes`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| flatout_properties::indexes(bytes));
