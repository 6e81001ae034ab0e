//! `betr dev make-broken`: creates an image with exactly one problem.

use std::path::PathBuf;

use betr_cli::{Exit, Failure, Io, show};
use betr_core::check::{CATALOG, Code};
use betr_lab::damage::make_broken;

/// Make the smallest image with exactly one problem
///
/// The image has 2 MiB and is always the same. It is sound but for the one problem that CODE names ('betr fsck --explain
/// CODE' says what it means); what 'betr fsck' says of it and does with it is what it would say and do of any image.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The problem
    #[arg(value_parser = code)]
    code: Code,
    /// The image, which must not exist
    image: PathBuf,
}

fn code(text: &str) -> Result<Code, String> {
    let known = CATALOG.iter().find(|problem| problem.name.eq_ignore_ascii_case(text));
    known.map(|problem| problem.code).ok_or_else(|| {
        let names: Vec<&str> = CATALOG.iter().map(|problem| problem.name).collect();
        format!("no problem has this code: they are {}", names.join(", "))
    })
}

pub(crate) fn run(args: &Args, io: &mut Io) -> Result<Exit, Failure> {
    let name = show::path(&args.image);
    let (code, title) = (args.code.name(), args.code.problem().title);
    let image =
        make_broken(args.code).map_err(|error| Failure::failed(format!("{name}: {error}")))?;
    let Some(image) = image else {
        let text = "it is the device that fails, not the image";
        return Err(Failure::failed(format!("{name}: no image has problem {code}: {text}")));
    };
    let failed = |error| Failure::failed(format!("{name}: {error}"));
    let mut file = std::fs::File::create_new(&args.image).map_err(failed)?;
    std::io::Write::write_all(&mut file, &image).map_err(|error| {
        // An incomplete image would have other problems.
        let _ = std::fs::remove_file(&args.image);
        failed(error)
    })?;
    writeln!(io.out, "{name}: {code}, {title}")?;
    Ok(Exit::DONE)
}
