//! The sound image that is edited.

use std::sync::{Arc, OnceLock};

use betr_core::check::{CheckOptions, check};
use betr_core::device::{Device, MemoryDevice};
use betr_core::format::ZoneSizes;
use betr_core::fs::{Attributes, Fs};
use betr_core::ids::{Epoch, Time};
use betr_core::log::Survey;
use betr_core::volume::Mode;
use betr_lab::explore::devices::ForkDevice;
use betr_lab::explore::{parse, perform};

use super::parts::Parts;
use crate::contents::{Contents, contents};
use crate::{clock, create_zoned, open, tight, tiny};

const IMAGE: u64 = 2 << 20;
/// 4 KiB: larger directories and files get a zone of their own.
const ZONES: ZoneSizes = ZoneSizes::of_max(4 << 10);

/// The operations before the first checkpoint, before the second, and in the log. They make files with and without
/// holes, attributes and zones; clones of directories and of a part of a file, changed since; pending messages, including
/// range deletes; and late-bound values.
const STORY: [&str; 3] = [
    "mkdir /d\nmkdir /d/empty\nmkdir /zone\nsymlink /link d/small\nmkfifo /fifo\n\
     create /d/small\nwrite /d/small 0 900 1\nsetxattr /d/small user.a 30 2\nsetxattr /d/small user.b 700 3\n\
     create /large\nwrite /large 0 18000 4\ncreate /holes\nwrite /holes 40000 5000 5\n\
     link /d/small /d/hard\nmkdir /gone\ncreate /gone/file\nwrite /gone/file 0 9000 6\n",
    "write /large 100 50 7\ntruncate /large 17000\nremove-tree /gone\nchmod /d/small 600\nunlink /fifo\n\
     write /d/hard 300 20 8\nrmxattr /d/small user.a\nsetxattr /holes user.c 40 9\npunch /large 4096 5000\n\
     clone-directory /zone /clone\nwrite /clone/entry-3 10 20 14\nclone-directory /d /clone/d\nunlink /clone/entry-9\n\
     create /part\nwrite /part 0 9000 15\ncopy-blocks /large /part 0 2\nrename /clone/d/small /d/back\n",
    "clone-directory /clone /again\nchmod /again/entry-4 700\ncreate /logged\nwrite /logged 0 200 10\nsync\nwrite /large 0 17000 11\nsync\n\
     rename /d/hard /zone/hard\nchmod /link 777\nsync\nremove-tree /d/empty\nwrite /holes 0 100 12\n",
];
/// 24 more files in a directory, which is a zone.
const ENTRIES: usize = 24;

/// The image, its structures, and its contents.
pub(crate) struct Sound {
    pub device: ForkDevice,
    pub parts: Parts,
    pub contents: Contents,
    pub epoch: Epoch,
    pub log: Survey,
}

impl Sound {
    /// The image, which is made once.
    pub(crate) fn image() -> &'static Sound {
        static SOUND: OnceLock<Sound> = OnceLock::new();
        SOUND.get_or_init(Sound::make)
    }

    fn make() -> Sound {
        let bytes = story();
        let parts = Parts::of(&bytes);
        let device = ForkDevice::of(&bytes);
        let fork: Arc<dyn Device> = Arc::new(device.fork());
        let report = check(&fork, CheckOptions::ALL, &mut ());
        assert!(report.is_clean() && report.needs_replay(), "{:?}", report.findings);
        let contents = contents(&fork).unwrap();
        let epoch = report.superblock.unwrap().birth.epoch;
        Sound { device, parts, contents, epoch, log: report.log.unwrap() }
    }
}

fn story() -> Vec<u8> {
    let device = Arc::new(MemoryDevice::new(IMAGE));
    let volume = create_zoned(device.clone(), tiny(), tight(), ZONES, 1).unwrap();
    let mut fs = Fs::format(volume, clock(0), Attributes::at(Time::default())).unwrap();
    for (number, script) in STORY.iter().enumerate() {
        take(&mut fs, script);
        if number == 0 {
            for entry in 0..ENTRIES {
                take(
                    &mut fs,
                    &format!("create /zone/entry-{entry}\nwrite /zone/entry-{entry} 0 300 13\n"),
                );
            }
        }
        match number {
            2 => fs.volume_mut().sync().unwrap(),
            _ => fs.checkpoint().unwrap(),
        }
        drop(fs);
        let volume = open(device.clone(), Mode::ReadWrite, tight(), number as u64).unwrap().0;
        fs = Fs::open(volume, clock(1000));
    }
    device.snapshot()
}

fn take(fs: &mut Fs, script: &str) {
    for step in parse(script).unwrap() {
        perform(fs, &step).unwrap_or_else(|error| panic!("{step}: {error}"));
    }
}
