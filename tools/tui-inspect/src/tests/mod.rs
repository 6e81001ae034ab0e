//! Tests of the inspector without a terminal: they feed events to the model, carry out effects synchronously, and
//! inspect frames.

mod frames;
mod hostile;
mod keys;
mod random;

use std::collections::VecDeque;
use std::sync::Arc;

use betr_core::device::{Device, MemoryDevice};
use betr_core::disk::Disk;
use betr_core::ids::TreeId;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::image::{Image, Source};
use crate::model::{Effect, Model, Msg, Screen};
use crate::perform::perform;
use crate::spot::Spot;
use crate::still::{frame, settle};
use crate::{tour, work::Work};

/// Indices of tour images: the last but one has a log.
const LOGGED: usize = 5;
const LAST: usize = 6;

/// Feeds an event to the model and carries out all of its effects.
fn happen(model: &mut Model, msg: Msg) {
    let effects = model.update(msg);
    settle(model, effects);
}

fn bytes_of(state: usize) -> Vec<u8> {
    tour::states().unwrap().swap_remove(state)
}

fn open(bytes: Vec<u8>) -> Arc<Image> {
    on(Arc::new(MemoryDevice::from(bytes)))
}

fn on(device: Arc<dyn Device>) -> Arc<Image> {
    let source = Source::Memory { name: "test.img".into(), device };
    Arc::new(
        Image::open(source, None, &Arc::default())
            .unwrap_or_else(|failure| panic!("{}", failure.message)),
    )
}

/// An image in which the root of the data tree does not verify.
fn damaged() -> Vec<u8> {
    let mut bytes = bytes_of(LAST);
    let image = open(bytes.clone());
    let work = Arc::new(Work::default());
    let entry = image.table(&work).unwrap().get(TreeId::Data.root()).unwrap().unwrap();
    bytes[entry.extent.start.byte() as usize + 200] ^= 4;
    bytes
}

fn begin(image: &Arc<Image>, screen: Screen, size: (u16, u16)) -> Model {
    at(image, None, Some(screen), size)
}

fn at(image: &Arc<Image>, spot: Option<Spot>, screen: Option<Screen>, size: (u16, u16)) -> Model {
    let (mut model, effects) = Model::begin(image.clone(), spot, screen, size);
    settle(&mut model, effects);
    model
}

fn key(code: KeyCode) -> Msg {
    Msg::Key(KeyEvent::new(code, KeyModifiers::NONE))
}

/// Types a text: letters are keys, `\n` is Enter, `\x1b` is Esc, `\t` is Tab.
fn press(model: &mut Model, text: &str) {
    for letter in text.chars() {
        let code = match letter {
            '\n' => KeyCode::Enter,
            '\x1b' => KeyCode::Esc,
            '\t' => KeyCode::Tab,
            letter => KeyCode::Char(letter),
        };
        happen(model, key(code));
    }
}

/// The disk of an image, for tests that read it directly.
fn disk(image: &Image) -> Disk {
    Disk::new(image.base().clone())
}
