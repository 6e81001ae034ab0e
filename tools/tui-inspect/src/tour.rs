//! The guided tour: builds a small image in stages, and shows each stage on the real screens.

use std::sync::Arc;

use betr_cli::Failure;
use betr_core::address::Address;
use betr_core::device::{Device, MemoryDevice};
use betr_core::format::FileType;
use betr_core::fs::{Attributes, Fs, New};
use betr_core::ids::{Time, TreeId};
use betr_core::store::Geometry;
use betr_core::volume::{CreateOptions, Mode, OpenOptions, Volume};
use betr_core::{Error, Result};
use bytes::Bytes;
use crossterm::event::{KeyCode, KeyEvent};

use crate::image::{Image, Source};
use crate::model::{Effect, Model, Screen};
use crate::spot::Spot;

/// A step of the tour.
pub(crate) struct Step {
    pub title: &'static str,
    pub text: &'static str,
    pub screen: Screen,
    pub spot: Spot,
    /// The pane to focus.
    focus: usize,
    image: Arc<Image>,
}

/// The tour and its current step.
pub(crate) struct Tour {
    pub steps: Vec<Step>,
    pub at: usize,
}

impl Tour {
    pub(crate) fn step(&self) -> &Step {
        &self.steps[self.at]
    }
}

/// The number of steps.
pub(crate) const STEPS: usize = 12;

/// Starts the inspector at a step, counted from 0.
pub(crate) fn begin(
    at: usize,
    size: (u16, u16),
) -> std::result::Result<(Model, Vec<Effect>), Failure> {
    let steps: [Step; STEPS] = steps()?;
    let first = &steps[at];
    let (image, spot, screen, focus) =
        (first.image.clone(), first.spot.clone(), first.screen, first.focus);
    let (mut model, effects) = Model::begin(image, Some(spot), Some(screen), size);
    model.focus = focus;
    model.tour = Some(Tour { steps: steps.into(), at });
    Ok((model, effects))
}

impl Model {
    /// Space and Backspace move through the tour. Returns whether the key was one of them.
    pub(crate) fn tour_key(&mut self, key: KeyEvent, effects: &mut Vec<Effect>) -> bool {
        let Some(tour) = &mut self.tour else { return false };
        let to = match key.code {
            KeyCode::Char(' ') => tour.at + 1,
            KeyCode::Backspace => tour.at.saturating_sub(1),
            _ => return false,
        };
        if to >= tour.steps.len() {
            effects.push(Effect::Quit);
            return true;
        }
        tour.at = to;
        let step = tour.step();
        let (image, screen, spot) = (step.image.clone(), step.screen, step.spot.clone());
        let focus = step.focus;
        self.look_at(image, screen, spot);
        self.sync(effects);
        self.focus = focus;
        true
    }
}

/// The steps: text, screen and spot.
fn steps() -> std::result::Result<[Step; STEPS], Failure> {
    let failed = |error: Error| Failure::failed(format!("the tour's image: {error}"));
    let states = states().map_err(failed)?;
    let open = |bytes: &Vec<u8>| {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::from(bytes.clone()));
        let source = Source::Memory { name: "tour.img".into(), device };
        Image::open(source, None, &Arc::default()).map(Arc::new)
    };
    let images: Vec<Arc<Image>> = states.iter().map(open).collect::<std::result::Result<_, _>>()?;
    let root = Spot::node(TreeId::Data.root());
    let path = |path: &str| Spot::At(Address::Path(path.as_bytes().to_vec()));
    let waiting = |child| Spot::Buffer(TreeId::Data.root(), child, None);
    let step = |title, image: usize, screen, spot: &Spot, text| Step {
        title,
        text,
        screen,
        spot: spot.clone(),
        focus: if matches!(spot, Spot::Buffer(..)) { 2 } else { 0 },
        image: images[image].clone(),
    };
    Ok([
        step(
            "an image",
            0,
            Screen::Overview,
            &Spot::Image,
            "This image was just made, and holds a few files. A superblock leads to an allocation table, that to two Bε-trees: one for names and inodes, one for the contents of files. One hash stands for all of it. 1 to 9 show the screens, ? all keys.",
        ),
        step(
            "the tree",
            0,
            Screen::Node,
            &root,
            "The root of the data tree. Each line is a child, with the first key that belongs to it, and what waits for it. A node has buffers, one for each child: that is what makes a B-tree a Bε-tree. Nothing waits yet. Tab goes from pane to pane.",
        ),
        step(
            "a message enters at the root",
            1,
            Screen::Node,
            &waiting(0),
            "Four bytes of a file were written, and that is all that happened: a message, 'write 4 bytes at 100', went into the root's buffer. Neither the leaf nor the block was read. It is listed with its number (MSN): messages are carried out in that order.",
        ),
        step(
            "what a read does",
            1,
            Screen::Key,
            &path("/docs/notes@1"),
            "The block that was written to. A read goes DOWN from the root to the leaf, meets the message on its way, and then works UP: what the leaf holds, changed by what was pending above it. This screen tells that of every path and key: i asks for one, = takes the selection.",
        ),
        step(
            "buffers fill",
            2,
            Screen::Node,
            &waiting(1),
            "Many more small writes, all over the files. All of them wait in the root, child by child, packed into runs; ! marks the heaviest buffer. o shows them in the order in which they came.",
        ),
        step(
            "a flush moves them down",
            3,
            Screen::Node,
            &root,
            "More writes came, the buffers outgrew the node, and the heaviest one was moved one level down, as a whole: many messages for the price of one write of the child, which has a new epoch (on the left). Compare what is pending with the step before (Backspace).",
        ),
        step(
            "a range delete eats",
            4,
            Screen::Node,
            &waiting(1),
            "A file was cut to nothing. That is one range delete in the root, however large the file was. On its way down it eats the older messages for the same keys that it comes by, and leaves that it covers are dropped without being read (the papers call it Pac-Man). A read that meets it here goes no further.",
        ),
        step(
            "a value is bound late",
            5,
            Screen::Log,
            &Spot::Image,
            "64 KiB were written and made durable, without a checkpoint. The log did not take the bytes: its record only names the keys. The values were written once, into the leaves where they belong, and the log group ends with binding entries that say where, with hashes. Enter shows what the record did.",
        ),
        step(
            "and read again",
            5,
            Screen::Key,
            &path("/big@3"),
            "A block of that write. The checkpoint knows nothing of it; the log's binding entry leads a recovery to the place where the value is. After a crash this is how a late-bound write comes back.",
        ),
        step(
            "a zone splits",
            6,
            Screen::Zones,
            &Spot::Image,
            "Keys are paths within a zone, so that a directory lies together. A directory that moves while it is large becomes a zone of its own, referred to from the one above, and later renames of it change that reference alone.",
        ),
        step(
            "where everything is",
            6,
            Screen::Space,
            &Spot::Image,
            "The whole device. Arrows move, + and - zoom, c paints by age, fill, or what is pending; Enter goes to the node under the cursor, x to its bytes. Nothing that the last two checkpoints need is ever overwritten: what was there before is still there. [ and ] go back and forth in time.",
        ),
        step(
            "is it sound?",
            6,
            Screen::Findings,
            &Spot::Image,
            "A check of everything: it would list what is wrong, where, which rule that breaks, and what a repair would do and lose (p). From a finding, x goes to its bytes. The inspector itself never writes to an image. That is all: Space ends the tour.",
        ),
    ])
}

/// Builds the image; returns its bytes after each stage.
pub(crate) fn states() -> Result<Vec<Vec<u8>>> {
    let device = Arc::new(MemoryDevice::new(16 << 20));
    let mut nonce = 0;
    let nonces = Box::new(move || {
        nonce += 1;
        nonce
    });
    let options = CreateOptions {
        label: "tour".into(),
        log_bytes: 512 << 10,
        geometry: Geometry {
            node_size: 16 << 10,
            leaf_size: 64 << 10,
            basement_size: 4096,
            fanout: 8,
        },
        ..CreateOptions::new(*b"betr guided tour", device.len(), nonces)
    };
    let clock = |mut secs: i64| {
        move || {
            secs += 1;
            Time { secs, nanos: 0 }
        }
    };
    let attributes = Attributes::at(Time { secs: 1_700_000_000, nanos: 0 });
    let mut fs = Fs::format(
        Volume::create(device.clone(), options)?,
        Box::new(clock(1_700_000_000)),
        attributes,
    )?;
    let mut states = Vec::new();
    let root = fs.root()?;
    let file = |fs: &mut Fs, directory: &betr_core::fs::Object, name: &str, bytes: usize| {
        let object = fs.make(directory, name.as_bytes(), New::of(FileType::Regular, attributes))?;
        fs.write(&object, 0, &Bytes::from(vec![b'a'; bytes]))?;
        Ok::<_, Error>(object)
    };
    let zoned = || New { zone: true, ..New::of(FileType::Directory, attributes) };
    let docs = fs.make(&root, b"docs", zoned())?;
    let notes = file(&mut fs, &docs, "notes", 40_000)?;
    let mut all = vec![notes.clone()];
    for number in 0..7 {
        all.push(file(&mut fs, &docs, &format!("page-{number}"), 60_000)?);
    }
    fs.checkpoint()?;
    states.push(device.snapshot());
    // One small write.
    fs.write(&notes, 4196, &Bytes::from_static(b"betr"))?;
    fs.checkpoint()?;
    states.push(device.snapshot());
    // First enough writes to fill a buffer, then enough to overflow it.
    let scribble = |fs: &mut Fs, from: u64, to: u64| {
        for number in from..to {
            let object = &all[(number * 5 % 8) as usize];
            let at = number * 7919 % 39_000;
            fs.write(object, at, &Bytes::from(vec![b'0' + (number % 10) as u8; 80]))?;
        }
        fs.checkpoint()
    };
    scribble(&mut fs, 0, 80)?;
    states.push(device.snapshot());
    scribble(&mut fs, 80, 330)?;
    states.push(device.snapshot());
    scribble(&mut fs, 330, 370)?;
    fs.truncate(&all[3], 0)?;
    fs.checkpoint()?;
    states.push(device.snapshot());
    // A volume that was just created does not log. It is reopened, so that from here on a sync writes a log group.
    drop((docs, notes, all, fs));
    let options = OpenOptions {
        late_bytes: 32 << 10,
        ..OpenOptions::new(Mode::ReadWrite, Box::new(|| 4711))
    };
    let (volume, _) = Volume::open(device.clone(), options)?;
    let mut fs = Fs::open(volume, Box::new(clock(1_700_010_000)));
    let root = fs.root()?;
    let big = fs.make(&root, b"big", New::of(FileType::Regular, attributes))?;
    fs.checkpoint()?;
    fs.write(&big, 0, &Bytes::from(vec![b'z'; 64 << 10]))?;
    fs.volume_mut().sync()?;
    states.push(device.snapshot());
    let many = fs.make(&root, b"many", zoned())?;
    for number in 0..150 {
        let below = fs.make(
            &many,
            format!("part-{}", number / 30).as_bytes(),
            New::of(FileType::Directory, attributes),
        );
        let below =
            below.or_else(|_| fs.lookup(&many, format!("part-{}", number / 30).as_bytes()))?;
        file(&mut fs, &below, &format!("file-{number:03}"), 6000)?;
    }
    fs.checkpoint()?;
    states.push(device.snapshot());
    Ok(states)
}
