//! Repair plans: refused plans, and power cuts during apply and undo.

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;

use betr_core::Error;
use betr_core::check::{CheckOptions, Code, Severity, check};
use betr_core::device::{Device, FileDevice, MemoryDevice, SECTOR};
use betr_core::format::{CHANGE_BYTES, Change, PlanHeader, PlanKind};
use betr_core::fs::Fs;
use betr_core::ids::{BLOCK_SIZE, BlockNr, Hash, Time};
use betr_core::mend::repair;
use betr_core::volume::Mode;
use betr_lab::explore::devices::{Call, FaultyDevice, ForkDevice, RecordingDevice, Trouble};
use betr_lab::explore::{Broken, Sweep, parse, perform};
use betr_offline::device::{PlanningDevice, Scratch};
use betr_offline::plan::{Plan, PlanView, Standing, apply, locate, write_repair};
use betr_tests::{clock, formatted, open, rounds, tight, tiny};

const IMAGE: u64 = 3 << 20;
const ALL: CheckOptions = CheckOptions::ALL;
const SLOT_9: u64 = IMAGE - 16 * 4096 + 4 * 4096;

fn unnamed() -> Scratch {
    Scratch::new(scratch(), String::new())
}

fn scratch() -> File {
    tempfile::tempfile().unwrap()
}

fn read_all(device: &dyn Device) -> Vec<u8> {
    let mut bytes = vec![0; device.len() as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

fn opened(file: &File) -> Plan {
    let len = file.metadata().unwrap().len();
    Plan::open(Arc::new(FileDevice::new(file.try_clone().unwrap(), len))).unwrap()
}

/// An image with an unreplayed log. One ring slot contains garbage, and another was torn by a power cut: a repair first
/// invalidates that slot and later rewrites it.
fn dirty() -> ForkDevice {
    let device = Arc::new(ForkDevice::new(IMAGE as usize / BLOCK_SIZE));
    let mut fs = formatted(device.clone(), tiny(), tight(), 1);
    let script = "mkdir /d\ncreate /d/large\nwrite /d/large 0 60000 1\ncreate /d/small\n";
    parse(script).unwrap().iter().for_each(|step| perform(&mut fs, step).unwrap());
    fs.checkpoint().unwrap();
    drop(fs);
    let volume = open(device.clone(), Mode::ReadWrite, tight(), 3).unwrap().0;
    let mut fs = Fs::open(volume, clock(100));
    let script = "mkdir /more\ncreate /more/large\nwrite /more/large 0 90000 3\nunlink /d/small\n";
    for step in parse(script).unwrap() {
        perform(&mut fs, &step).unwrap();
        fs.volume_mut().sync().unwrap();
    }
    let next = fs.volume().superblock().birth.epoch.0 + 1;
    assert!(next < 4, "the pair of epoch 4 has slot 9");
    drop(fs);
    device.write_at((32 + next) * 4096, &[1; 600]).unwrap();
    device.write_at(SLOT_9, &[0xa5; 4096]).unwrap();
    device.fork()
}

/// The plan of a repair, and the image after the repair.
fn planned(base: &ForkDevice) -> (Plan, Vec<u8>) {
    let view = Arc::new(PlanningDevice::new(Arc::new(base.fork()), unnamed()));
    let device: Arc<dyn Device> = view.clone();
    let report = check(&device, CheckOptions::default(), &mut ());
    repair(&device, &report, None, Time::default(), Box::new(|| 11)).unwrap();
    let file = scratch();
    assert!(write_repair(&view, true, "{\"why\":\"ε\"}", &file).unwrap());
    (opened(&file), read_all(&*view))
}

fn inverse(plan: &Plan) -> Plan {
    let file = scratch();
    plan.write_inverse(&file).unwrap();
    opened(&file)
}

/// The errors of a check, each code once.
fn errors(device: &Arc<dyn Device>) -> Vec<Code> {
    let findings = check(device, ALL, &mut ()).findings;
    let codes = findings.iter().map(|finding| finding.code);
    let mut codes: Vec<Code> = codes.filter(|code| code.severity() == Severity::Error).collect();
    codes.sort_unstable();
    codes.dedup();
    codes
}

#[test]
fn a_plan_shows_makes_and_takes_back_a_repair() {
    let base = dirty();
    let before = base.snapshot();
    let (plan, after) = planned(&base);
    assert_eq!(plan.explanation(), "{\"why\":\"ε\"}");
    assert!(plan.header().groups >= 4 && plan.blocks() < plan.header().changes);
    assert_eq!(plan.header().fixed.len(), 2);
    let image: Arc<dyn Device> = Arc::new(base.fork());
    assert_eq!(errors(&image), [Code::SlotInvalid]);

    // As an overlay the plan shows the repaired image and writes nothing.
    let view: Arc<dyn Device> =
        Arc::new(PlanView::new(image.clone(), inverse(&inverse(&plan))).unwrap());
    assert_eq!(read_all(&*view), after);
    assert_eq!(check(&view, ALL, &mut ()).findings, []);
    let mut piece = [0; 3];
    view.read_at(SLOT_9 + 4095, &mut piece).unwrap();
    assert_eq!(piece, after[SLOT_9 as usize + 4095..][..3]);
    assert!(view.write_at(0, &[1]).is_err());

    // Applying the plan gives the same image; its inverse restores every byte.
    let undo = inverse(&plan);
    assert_eq!(undo.header().kind, PlanKind::Undo);
    assert!(plan.is_inverse(&undo).unwrap() && undo.is_inverse(&plan).unwrap());
    assert!(!plan.is_inverse(&plan).unwrap());
    assert_eq!(locate(&plan, &*image).unwrap(), Standing::Untouched);
    assert_eq!(locate(&undo, &*image).unwrap(), Standing::Whole);
    assert_eq!(apply(&plan, &*image).unwrap(), Standing::Untouched);
    assert_eq!(read_all(&*image), after);
    assert_eq!(apply(&plan, &*image).unwrap(), Standing::Whole);
    assert_eq!(apply(&undo, &*image).unwrap(), Standing::Untouched);
    assert_eq!(read_all(&*image), before);
}

/// Of the states from which a group is resumed, the first 9 and every 80th are cut off again.
const FIRST: u64 = 10;
const AGAIN: u64 = 80;

fn finish(plan: &Plan, device: &dyn Device, result: &[u8]) -> Result<(), String> {
    apply(plan, device).map_err(|error| error.to_string())?;
    match read_all(device) == result {
        true => Ok(()),
        false => Err("finished, it is not the result".into()),
    }
}

/// Cuts the power at any point while a half applied plan continues.
fn cut_again(base: ForkDevice, plan: &Plan, result: &[u8], seed: u64) -> Result<(), String> {
    let recorder = Arc::new(RecordingDevice::new(Arc::new(base.fork())));
    apply(plan, &*recorder).map_err(|error| error.to_string())?;
    let sweep = Sweep { base, events: recorder.events(), seed, states: 6 };
    let swept = sweep.run(|device, _| finish(plan, &*device, result));
    swept.map(drop).map_err(|broken| format!("cut off again: {}", broken.what))
}

/// Cuts the power at any point while a plan is applied to `base`. The resulting state is recognised and can be
/// completed.
fn sweep(base: ForkDevice, plan: &Plan, result: &[u8], seed: u64) {
    let recorder = Arc::new(RecordingDevice::new(Arc::new(base.fork())));
    assert_eq!(apply(plan, &*recorder).unwrap(), Standing::Untouched);
    let mut known = errors(&(Arc::new(base.fork()) as Arc<dyn Device>));
    // Undoing a repair brings the old errors back.
    known.extend(errors(&(Arc::new(ForkDevice::of(result)) as Arc<dyn Device>)));
    let (mut half, undo) = (0, inverse(plan));
    let mut seen: HashMap<u32, u64> = HashMap::new();
    let before = base.snapshot();
    let sweep = Sweep { base, events: recorder.events(), seed, states: 4 * rounds(1) as usize };
    let swept = sweep.run(|device, _| {
        let unknown = errors(&device).into_iter().find(|code| !known.contains(code));
        if let Some(code) = unknown {
            return Err(format!("{} was not there before", code.name()));
        }
        let standing = locate(plan, &*device).map_err(|error| error.to_string())?;
        half += u64::from(matches!(standing, Standing::Half { .. }));
        let copy = MemoryDevice::from(read_all(&*device));
        apply(&undo, &copy).map_err(|error| format!("taken back: {error}"))?;
        if copy.snapshot() != before {
            return Err("taken back, it is not as it was".into());
        }
        let base = ForkDevice::of(&read_all(&*device));
        finish(plan, &*device, result)?;
        // The continuation can be cut off as well.
        let Standing::Half { next } = standing else { return Ok(()) };
        let count = seen.entry(next).or_default();
        *count += 1;
        match *count {
            0..FIRST => cut_again(base, plan, result, seed + half),
            count if count % AGAIN == 0 => cut_again(base, plan, result, seed + half),
            _ => Ok(()),
        }
    });
    match swept {
        Ok(states) => {
            println!("{states} distinct states, {half} of them half applied");
            assert!(states > 30 && half > 20 && half < states, "{states} states, {half} half");
        }
        Err(broken) => {
            let Broken { cut, description, what, .. } = *broken;
            panic!("after event {}: {what}\n{}", cut.events, description.join("\n"));
        }
    }
}

#[test]
fn applying_can_be_cut_off_anywhere_and_goes_on() {
    let base = dirty();
    let (plan, after) = planned(&base);
    sweep(base, &plan, &after, 5);
}

#[test]
fn taking_back_can_be_cut_off_anywhere_and_goes_on() {
    let base = dirty();
    let (plan, after) = planned(&base);
    sweep(ForkDevice::of(&after), &inverse(&plan), &base.snapshot(), 6);
}

#[test]
fn another_image_is_refused_and_stays() {
    let base = dirty();
    let (plan, _) = planned(&base);
    let refused = |change: &dyn Fn(&ForkDevice), place: &str| {
        let image = base.fork();
        change(&image);
        let before = image.snapshot();
        for error in [locate(&plan, &image).unwrap_err(), apply(&plan, &image).unwrap_err()] {
            assert!(matches!(error, Error::OtherImage(_)), "{error}");
            assert!(error.to_string().contains(place), "{error}");
        }
        assert!(image.snapshot() == before);
    };
    // A fixed structure outside the plan; one that the plan changes; a block that the plan changes.
    refused(&|image| image.write_at(100, &[1]).unwrap(), "superblocks and log");
    refused(&|image| image.write_at(SLOT_9 + 7, &[1]).unwrap(), &format!("b:{SLOT_9:#x}"));
    let first = plan.change(0).unwrap();
    let at = first.block.byte();
    refused(&|image| image.write_at(at + 600, &[1, 2, 3, 4, 5]).unwrap(), &format!("b:{at:#x}"));
    // Half a sector written by the plan.
    let at_sector = (0..8).find(|at| {
        let sector = at * SECTOR..(at + 1) * SECTOR;
        first.old[sector.clone()] != first.new[sector]
    });
    let from = at_sector.unwrap() * SECTOR;
    let (old, new) = (&first.old[from..from + SECTOR], &first.new[from..from + SECTOR]);
    let differs = old.iter().zip(new).position(|(old, new)| old != new).unwrap();
    if old[differs + 1..] != new[differs + 1..] {
        let half = [new[differs]];
        refused(&|image| image.write_at(at + (from + differs) as u64, &half).unwrap(), "block");
    }
    // The last group without the earlier ones.
    let last = plan.change(plan.header().changes - 1).unwrap();
    refused(&|image| image.write_at(last.block.byte(), &last.new[..]).unwrap(), "image");
    let longer = ForkDevice::new(IMAGE as usize / BLOCK_SIZE + 1);
    longer.write_at(0, &base.snapshot()).unwrap();
    let error = apply(&plan, &longer).unwrap_err().to_string();
    assert!(error.contains("blocks of the image: expected 768, found 769"), "{error}");
    let shorter: Arc<dyn Device> = Arc::new(MemoryDevice::new(4096));
    assert!(PlanView::new(shorter, inverse(&plan)).is_err());
}

#[test]
fn a_device_that_fails_is_said_and_the_rest_comes_later() {
    let base = dirty();
    let (plan, after) = planned(&base);
    let changes = plan.header().changes;
    for (call, trouble) in [
        (Call::Write(0), Trouble::Error),
        (Call::Write(changes / 2), Trouble::HalfDone),
        (Call::Write(changes / 3), Trouble::Lost),
        (Call::Flush(1), Trouble::Error),
    ] {
        let image = Arc::new(MemoryDevice::from(base.snapshot()));
        let faulty = FaultyDevice::new(image.clone());
        faulty.plan(call, trouble);
        let error = apply(&plan, &faulty).unwrap_err();
        assert!(
            matches!(error, Error::Io { .. } | Error::Corrupt(_) | Error::OtherImage(_)),
            "{error}"
        );
        if trouble != Trouble::Lost {
            apply(&plan, &*image).unwrap();
            assert!(image.snapshot() == after, "{call:?}");
        }
    }
}

/// The bytes of a plan with two changes of one block and one of another, in two groups.
fn small() -> Vec<u8> {
    let base = Arc::new(MemoryDevice::new(1 << 20));
    let view = PlanningDevice::new(base, unnamed());
    view.write_at(80 * 4096, &[1; 8192]).unwrap();
    view.flush().unwrap();
    view.write_at(80 * 4096 + 5, &[2]).unwrap();
    let file = scratch();
    write_repair(&view, false, "why", &file).unwrap();
    let len = file.metadata().unwrap().len();
    let bytes = read_all(&FileDevice::new(file, len));
    assert_eq!(bytes.len(), 2 * 4096 + 3 * CHANGE_BYTES);
    bytes
}

fn refusal(bytes: Vec<u8>) -> String {
    match Plan::open(Arc::new(MemoryDevice::from(bytes))) {
        Ok(_) => panic!("it was taken"),
        Err(error @ Error::Corrupt(_)) => error.to_string(),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_plan_that_has_been_damaged_anywhere_is_refused() {
    let sound = small();
    Plan::open(Arc::new(MemoryDevice::from(sound.clone()))).unwrap();
    for len in 0..sound.len() {
        refusal(sound[..len].to_vec());
    }
    refusal([&sound[..], &[0]].concat());
    for at in 0..sound.len() {
        let mut bytes = sound.clone();
        bytes[at] ^= 1 << (at % 8);
        refusal(bytes);
    }
}

/// The plan with a modified header and modified changes, and correct hashes.
fn forged(header: impl FnOnce(&mut PlanHeader), changes: impl FnOnce(&mut Vec<Change>)) -> Vec<u8> {
    let sound = small();
    let mut head = PlanHeader::decode(&sound[..4096], None).unwrap();
    let body = sound[8192..].chunks(CHANGE_BYTES);
    let mut all: Vec<Change> = body.map(|bytes| Change::decode(bytes, &head).unwrap()).collect();
    changes(&mut all);
    let mut body = sound[4096..8192].to_vec();
    for change in &all {
        body = change.encode(body);
    }
    head.body = Hash::of(&body);
    head.changes = all.len() as u64;
    header(&mut head);
    [head.encode(), body].concat()
}

#[test]
fn a_plan_that_contradicts_itself_is_refused() {
    Plan::open(Arc::new(MemoryDevice::from(forged(|_| {}, |_| {})))).unwrap();
    type ChangeHeader = fn(&mut PlanHeader);
    type ChangeBody = fn(&mut Vec<Change>);
    let headers: [(&str, ChangeHeader); 8] = [
        ("length", |head| head.changes = 1 << 30),
        ("length", |head| head.changes = 4),
        ("changes", |head| head.changes = u64::MAX),
        ("explanation", |head| head.explanation_bytes = u32::MAX as usize),
        ("length", |head| head.explanation_bytes = 16 << 20),
        ("groups", |head| head.groups = 3),
        ("group", |head| head.groups = 1),
        ("zeros behind it", |head| head.explanation_bytes = 2),
    ];
    for (what, change) in headers {
        let error = refusal(forged(change, |_| {}));
        assert!(error.contains(what), "{error}");
    }
    let changes: [(&str, ChangeBody); 7] = [
        ("block", |all| all[2].block = BlockNr(256)),
        ("block", |all| all[1].block = BlockNr(u64::MAX)),
        ("group", |all| all.swap(0, 2)),
        ("group", |all| all[0].group = 0),
        ("group", |all| all.iter_mut().for_each(|change| change.group = 2)),
        ("block", |all| all[1].block = all[0].block),
        ("old bytes", |all| all[2].old[9] = 7),
    ];
    for (what, change) in changes {
        let error = refusal(forged(|_| {}, change));
        assert!(error.contains(what), "{error}");
    }
    let mut text = forged(|_| {}, |_| {});
    text[4096] = 0xff;
    let mut head = PlanHeader::decode(&text[..4096], None).unwrap();
    head.body = Hash::of(&text[4096..]);
    text.splice(..4096, head.encode());
    assert!(refusal(text).contains("UTF-8"));
}
