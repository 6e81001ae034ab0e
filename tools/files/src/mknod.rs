//! `betr mknod`: creates devices, pipes and sockets.

use std::path::PathBuf;

use betr_cli::view::View;
use betr_cli::{Exit, Failure, Io};
use betr_core::format::FileType;
use betr_core::volume::Mode;
use clap::ValueEnum;

use crate::make::{self, parse_mode};
use crate::{Command, Session};

/// Make a device, a pipe or a socket in an image
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The permissions, in octal
    #[arg(short, long, value_name = "MODE", default_value = "644", value_parser = parse_mode)]
    mode: u32,
    /// The image
    image: PathBuf,
    /// What to make
    path: PathBuf,
    /// Its type
    #[arg(value_name = "TYPE")]
    kind: Kind,
    /// The major number of a device
    #[arg(required_if_eq_any = [("kind", "b"), ("kind", "c")])]
    major: Option<u32>,
    /// The minor number of a device
    #[arg(required_if_eq_any = [("kind", "b"), ("kind", "c")])]
    minor: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// A block device
    B,
    /// A character device
    #[value(alias = "u")]
    C,
    /// A named pipe
    P,
    /// A socket
    S,
}

impl Command for Args {
    fn image(&self) -> (View<'_>, Mode) {
        (View::from(self.image.as_path()), Mode::ReadWrite)
    }

    fn act(&self, session: &mut Session, _io: &mut Io) -> Result<Exit, Failure> {
        let kind = match self.kind {
            Kind::B => FileType::BlockDevice,
            Kind::C => FileType::CharDevice,
            Kind::P => FileType::Fifo,
            Kind::S => FileType::Socket,
        };
        let device = match (self.kind, self.major, self.minor) {
            (Kind::B | Kind::C, Some(major), Some(minor)) => (major, minor),
            (Kind::P | Kind::S, None, None) => (0, 0),
            _ => return Err(Failure::usage("only devices have numbers")),
        };
        let path = session.operand(&self.path);
        let slot = session.vacant(&path, kind)?;
        let at = session.at(&path);
        session.change(|fs| {
            let mut new = make::plain(fs, kind, self.mode);
            new.device = device;
            make::make(fs, &slot.directory, &slot.name, new).map_err(at)?;
            Ok(Exit::DONE)
        })
    }
}
