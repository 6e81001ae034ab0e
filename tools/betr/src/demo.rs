//! `betr demo`: the main job on a real tree, every command as a user would type it.

use std::path::{Path, PathBuf};

use betr_cli::{Exit, Failure, Io, show};

/// Make an image of a real tree, check it, copy it out again and compare
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The tree [default: the current directory]
    directory: Option<PathBuf>,
}

/// Runs the demo; `betr` runs one command line.
pub fn run(
    args: &Args,
    io: &mut Io,
    betr: impl Fn(&[&str], &mut Io) -> Result<Exit, Failure>,
) -> Result<Exit, Failure> {
    let tree = args.directory.clone().unwrap_or_else(|| PathBuf::from("."));
    let work = std::env::temp_dir().join(format!("betr-demo-{}", std::process::id()));
    let failed = |error: std::io::Error| Failure::failed(format!("{}: {error}", show::path(&work)));
    std::fs::create_dir(&work).map_err(failed)?;
    let result = story(&tree, &work, io, betr);
    std::fs::remove_dir_all(&work).map_err(failed)?;
    result
}

fn story(
    tree: &Path,
    work: &Path,
    io: &mut Io,
    betr: impl Fn(&[&str], &mut Io) -> Result<Exit, Failure>,
) -> Result<Exit, Failure> {
    let path = |name: &str| work.join(name).to_string_lossy().into_owned();
    let (image, out, tree) = (path("demo.img"), path("out"), tree.to_string_lossy().into_owned());
    let step = |io: &mut Io, words: &[&str]| -> Result<(), Failure> {
        writeln!(io.out, "\n$ betr {}", words.join(" "))?;
        match betr(words, io)? {
            Exit::DONE => Ok(()),
            exit => Err(Failure::failed(format!("betr {} ended with {}", words[0], exit.code()))),
        }
    };
    step(io, &["mkfs", &image, "-d", &tree, "-L", "demo"])?;
    step(io, &["fsck", "-fnv", &image])?;
    step(io, &["ls", "-l", &image])?;
    step(io, &["export", &image, &out])?;
    writeln!(io.out)?;
    Ok(Exit::DONE)
}
