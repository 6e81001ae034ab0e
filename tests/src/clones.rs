//! Random operations on a volume of keys with cloned ranges, beside a model, and all power cuts of them.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use betr_core::check::{CheckOptions, check};
use betr_core::device::Device;
use betr_core::error::Error;
use betr_core::format::{Action, Key, Lens, Op, RangeClone, RecordMessage, data_key, prefix_end};
use betr_core::ids::{BLOCK_SIZE, Time, TreeId};
use betr_core::volume::{Content, CreateOptions, Mode, OpenOptions, Pruned, Transaction, Volume};
use betr_lab::explore::Sweep;
use betr_lab::explore::devices::{ForkDevice, RecordingDevice};
use bytes::Bytes;

use crate::{Random, nonces, tight, tiny};

const TREE: TreeId = TreeId::Data;
const IMAGE: u64 = 8 << 20;

type Model = BTreeMap<Vec<u8>, Bytes>;

/// The end of an operation.
struct Boundary {
    /// Number of events of the device so far.
    events: usize,
    /// Whether all operations up to here are durable.
    is_durable: bool,
    model: Model,
}

/// Makes `steps` random operations, of which some clone and rename ranges, and looks at up to `states` states of a power
/// cut after each event of the device. Returns the number of distinct states, or what is wrong.
pub fn sweep(seed: u64, steps: usize, states: usize) -> Result<u64, String> {
    let made = catch_unwind(AssertUnwindSafe(|| record(seed, steps)));
    let (base, device, boundaries) = made.map_err(|_| "a panic".to_string())??;
    let events = device.events();
    let mut count = 0;
    let sweep = Sweep { base, events, seed, states };
    let swept = sweep.run(|device, at| {
        count += 1;
        let goes_on = count % 8 == 0;
        let judged = AssertUnwindSafe(|| judge(&device, at, &boundaries, goes_on));
        catch_unwind(judged).unwrap_or_else(|_| Err("a panic".into()))
    });
    swept.map_err(|broken| {
        let events = broken.cut.events;
        format!("after event {events}: {}\n{}", broken.what, broken.description.join("\n"))
    })
}

fn opened(device: Arc<dyn Device>, mode: Mode, seed: u64) -> betr_core::Result<Volume> {
    let options = OpenOptions {
        content: None,
        cache: tight(),
        late_bytes: 2 * BLOCK_SIZE,
        ..OpenOptions::new(mode, nonces(seed))
    };
    Volume::open(device, options).map(|(volume, _)| volume)
}

fn contents(volume: &Volume) -> betr_core::Result<Model> {
    let mut found = Model::new();
    for entry in volume.cursor(TREE, Key::default(), None) {
        let (key, value) = entry?;
        found.insert(key.to_vec(), value);
    }
    Ok(found)
}

type Recorded = (ForkDevice, Arc<RecordingDevice>, Vec<Boundary>);

fn record(seed: u64, steps: usize) -> Result<Recorded, String> {
    let text = |error: Error| error.to_string();
    let mut random = Random::new(seed);
    let device = Arc::new(ForkDevice::new(IMAGE as usize / BLOCK_SIZE));
    let options = CreateOptions {
        geometry: tiny(),
        log_bytes: 256 << 10,
        content: Content::Keys,
        ..CreateOptions::new(*b"a volume of keys", IMAGE, nonces(seed))
    };
    let created = Volume::create(device.clone(), options);
    created.and_then(|mut volume| volume.checkpoint()).map_err(text)?;
    let mut model = Model::new();
    let mut volume = opened(device.clone(), Mode::ReadWrite, seed + 1).map_err(text)?;
    for _ in 0..30 {
        step(&mut volume, &mut model, &mut random)?;
    }
    volume.checkpoint().map_err(text)?;
    drop(volume);
    let base = device.fork();
    let recorder = Arc::new(RecordingDevice::new(Arc::new(base.fork())));
    let mut volume = opened(recorder.clone(), Mode::ReadWrite, seed + 2).map_err(text)?;
    let mut boundaries = vec![Boundary { events: 0, is_durable: true, model: model.clone() }];
    for _ in 0..steps {
        let is_durable = match random.below(6) {
            0 | 1 => volume.sync().map(|()| true),
            2 if random.below(3) == 0 => volume.checkpoint_with(Pruned::Some).map(|()| true),
            _ => Ok(false),
        };
        let is_durable = is_durable.map_err(text)?;
        if !is_durable {
            step(&mut volume, &mut model, &mut random)?;
        }
        let events = recorder.position();
        boundaries.push(Boundary { events, is_durable, model: model.clone() });
    }
    match contents(&volume).map_err(text)? == model {
        true => Ok((base, recorder, boundaries)),
        false => Err("the volume differs from the model".into()),
    }
}

/// One or two letters.
fn prefix(random: &mut Random) -> Vec<u8> {
    let len = 1 + random.below(2) as usize;
    (0..len).map(|_| b"abc"[random.below(3) as usize]).collect()
}

/// The key of a block of a file whose name begins with a prefix.
fn block_key(prefix: &[u8], block: u64) -> Key {
    data_key(&[prefix, &b"_______"[..8 - prefix.len()]].concat(), block)
}

/// Makes one random operation in both.
fn step(volume: &mut Volume, model: &mut Model, random: &mut Random) -> Result<(), String> {
    let mut messages = Vec::new();
    let put = |key: Key, value: Vec<u8>| {
        RecordMessage::Point(TREE, key, Action::Insert(Bytes::from(value)))
    };
    let one = prefix(random);
    match random.below(10) {
        0 => messages.push(RecordMessage::RangeDelete(
            TREE,
            Key::copied(&one),
            prefix_end(&one).expect("letters have an end"),
        )),
        1..5 => {
            let lens = Lens::of_ranges(Key::new(prefix(random)), Key::copied(&one));
            let Some(lens) = lens else { return Ok(()) };
            let rest = |random: &mut Random| Key::copied(&[random.below(120) as u8]);
            let (start, end) = (rest(random), (random.below(2) == 0).then(|| rest(random)));
            let part = RangeClone::part(lens.clone(), start, end);
            let clone = part.filter(|_| random.below(2) == 0).unwrap_or_else(|| lens.into());
            if random.below(3) == 0 {
                let hi = prefix_end(&one).expect("letters have an end");
                messages.push(RecordMessage::RangeDelete(TREE, Key::copied(&one), hi));
            }
            messages.insert(0, RecordMessage::Clone(TREE, clone));
        }
        5 => {
            let (first, byte) = (random.below(9), random.below(200) as u8);
            let blocks = first..first + 1 + random.below(8);
            messages
                .extend(blocks.map(|block| put(block_key(&one, block), vec![byte; BLOCK_SIZE])));
        }
        _ => {
            for _ in 0..1 + random.below(12) {
                let key = [&prefix(random)[..], &(random.below(200) as u16).to_be_bytes()].concat();
                let len = random.below(400) as usize;
                messages.push(match random.below(5) {
                    0 => RecordMessage::Point(TREE, Key::new(key), Action::Delete),
                    _ => put(Key::new(key), random.bytes(len)),
                });
            }
        }
    }
    let transaction =
        Transaction { op: Op::Raw, wall: Time::default(), messages: messages.clone() };
    match volume.commit(transaction) {
        Ok(_) => messages.iter().for_each(|message| apply(model, message)),
        // There are keys with the new prefix.
        Err(Error::Misuse(_)) => {}
        Err(error) => return Err(error.to_string()),
    }
    Ok(())
}

fn apply(model: &mut Model, message: &RecordMessage) {
    match message {
        RecordMessage::Point(_, key, Action::Insert(value)) => {
            model.insert(key.to_vec(), value.clone());
        }
        RecordMessage::Point(_, key, _) => {
            model.remove(&key[..]);
        }
        RecordMessage::RangeDelete(_, lo, hi) => {
            model.retain(|key, _| key[..] < **lo || key[..] >= **hi);
        }
        RecordMessage::Clone(_, clone) => {
            let (keys, lens) = (clone.source(), clone.lens());
            let source = model.iter().filter(|(key, _)| keys.contains(key));
            let cloned: Vec<_> =
                source.map(|(key, value)| (lens.up(key).to_vec(), value.clone())).collect();
            model.extend(cloned);
        }
        RecordMessage::Unbound(..) => unreachable!("messages come with their values"),
    }
}

/// Whether a state is sound, and holds what was acknowledged and nothing that was not begun.
fn judge(
    device: &Arc<dyn Device>,
    events: usize,
    boundaries: &[Boundary],
    goes_on: bool,
) -> Result<(), String> {
    let text = |error: Error| error.to_string();
    let report = check(device, CheckOptions::ALL, &mut ());
    if !report.is_clean() && !report.is_repairable() {
        return Err(format!("{:?}", report.findings));
    }
    let done = |boundary: &Boundary| boundary.is_durable && boundary.events <= events;
    let least = boundaries.iter().rposition(done).unwrap_or(0);
    let most = boundaries.iter().position(|boundary| boundary.events >= events);
    let most = most.unwrap_or(boundaries.len() - 1).max(least);
    let found =
        contents(&opened(device.clone(), Mode::ReadOnly, 90).map_err(text)?).map_err(text)?;
    let last = boundaries.iter().rposition(|boundary| boundary.events <= events).unwrap_or(0);
    let possible = &boundaries[least..=most.max(last)];
    if !possible.iter().any(|boundary| boundary.model == found) {
        return Err(format!("none of the states {least} to {}", most.max(last)));
    }
    if !goes_on {
        return Ok(());
    }
    // Work goes on there.
    let (mut random, mut model) = (Random::new(events as u64), found);
    let mut volume = opened(device.clone(), Mode::ReadWrite, 91).map_err(text)?;
    for _ in 0..4 {
        step(&mut volume, &mut model, &mut random)?;
    }
    volume.checkpoint().map_err(text)?;
    for _ in 0..4 {
        step(&mut volume, &mut model, &mut random)?;
    }
    volume.sync().map_err(text)?;
    drop(volume);
    let report = check(device, CheckOptions::ALL, &mut ());
    if !report.is_clean() {
        return Err(format!("later: {:?}", report.findings));
    }
    let found =
        contents(&opened(device.clone(), Mode::ReadOnly, 92).map_err(text)?).map_err(text)?;
    if found == model { Ok(()) } else { Err("later: another state".into()) }
}
