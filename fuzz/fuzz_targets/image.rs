#![no_main]

use rayon::ThreadPoolBuilder;

libfuzzer_sys::fuzz_target!(
    init: {
        // Nothing happens beside the foreground: an input always does the same, and no thread waits for another.
        ThreadPoolBuilder::new().num_threads(1).use_current_thread().build_global().expect("a pool");
    },
    |bytes: &[u8]| {
        betr_tests::fuzz::image(bytes);
    }
);
