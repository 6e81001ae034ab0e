//! Puts the seeds into the corpora: what fuzzing begins with where the format has changed.

use std::io;
use std::path::Path;

fn main() -> io::Result<()> {
    for (number, (target, bytes)) in betr_tests::fuzz::seeds().iter().enumerate() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(format!("seed-{number}")), bytes)?;
    }
    Ok(())
}
