#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    betr_tests::fuzz::internal(bytes);
});
