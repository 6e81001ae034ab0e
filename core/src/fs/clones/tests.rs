//! Clones of directories: as copies, apart from each other, and with numbers of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;

use super::super::{Attributes, Clock, New, Over};
use super::*;
use crate::check::{CheckOptions, check};
use crate::device::{Device, MemoryDevice};
use crate::error::Error;
use crate::random::Random;
use crate::volume::{CreateOptions, Mode, NonceSource, OpenOptions, Volume};

fn nonces(mut last: u64) -> NonceSource {
    Box::new(move || {
        last += 1;
        last
    })
}

fn clock() -> Clock {
    let mut secs = 1_000;
    Box::new(move || {
        secs += 1;
        Time { secs, nanos: 0 }
    })
}

fn formatted(bytes: u64, sizes: ZoneSizes) -> (Arc<dyn Device>, Fs) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(bytes));
    let options = CreateOptions {
        zones: sizes,
        ..CreateOptions::new(*b"a volume of dirs", bytes, nonces(0))
    };
    let volume = Volume::create(device.clone(), options).unwrap();
    let mut fs = Fs::format(volume, clock(), Attributes::at(Time::default())).unwrap();
    fs.checkpoint().unwrap();
    drop(fs);
    let fs = opened(&device);
    (device, fs)
}

fn opened(device: &Arc<dyn Device>) -> Fs {
    let options = OpenOptions::new(Mode::ReadWrite, nonces(99));
    Fs::open(Volume::open(device.clone(), options).unwrap().0, clock())
}

fn assert_sound(device: &Arc<dyn Device>, fs: &mut Fs) {
    fs.checkpoint().unwrap();
    let report = check(device, CheckOptions::ALL, &mut ());
    let bad: Vec<String> = report.findings.iter().map(|finding| format!("{finding:?}")).collect();
    assert!(bad.is_empty(), "{bad:#?}");
}

/// What a directory has, without times and numbers: names, inodes, contents, attributes, and which names are one file.
type Picture = BTreeMap<Vec<u8>, (FileType, u32, u64, Vec<u8>, Vec<(Vec<u8>, Vec<u8>)>, Vec<u8>)>;

fn picture(fs: &Fs, directory: &Object, numbers: &mut Vec<Ino>) -> Picture {
    let (mut all, mut firsts) = (Picture::new(), BTreeMap::new());
    let mut walk = super::super::Walk::new(directory.clone());
    while let Some((path, object)) = walk.next_object(fs).unwrap() {
        let inode = object.inode();
        let is_first = !firsts.contains_key(&object.ino());
        let first = firsts.entry(object.ino()).or_insert_with(|| path.clone()).clone();
        if is_first {
            numbers.push(object.ino());
        }
        let contents = match inode.kind {
            FileType::Regular => fs.read(&object, 0, inode.size as usize).unwrap(),
            _ => inode.target.clone(),
        };
        let xattrs = fs.xattrs(&object).unwrap();
        let xattrs = xattrs.into_iter().map(|(name, value)| (name, value.to_vec())).collect();
        // Names elsewhere are none of a clone's.
        let links = if inode.kind == FileType::Directory { inode.links } else { 0 };
        all.insert(path, (inode.kind, links, inode.size, contents, xattrs, first));
    }
    all
}

fn assert_all_differ(fs: &Fs) {
    let mut numbers = Vec::new();
    picture(fs, &fs.root().unwrap(), &mut numbers);
    let distinct: BTreeSet<Ino> = numbers.iter().copied().collect();
    assert_eq!(distinct.len(), numbers.len(), "two objects have one number");
}

fn file(fs: &mut Fs, directory: &Object, name: &str, contents: &[u8]) -> Object {
    let now = fs.now();
    let new = New::of(FileType::Regular, Attributes::at(now));
    let made = fs.make(directory, name.as_bytes(), new).unwrap();
    fs.write(&made, 0, &Bytes::copy_from_slice(contents)).unwrap();
    made
}

fn subdirectory(fs: &mut Fs, directory: &Object, name: &str) -> Object {
    let now = fs.now();
    fs.make(directory, name.as_bytes(), New::of(FileType::Directory, Attributes::at(now))).unwrap()
}

/// A directory with zones below it, a file with contents in a zone, a file with three names, one of them outside, and
/// attributes.
fn source(fs: &mut Fs, random: &mut Random) -> Object {
    let root = fs.root().unwrap();
    let src = subdirectory(fs, &root, "src");
    fs.set_xattrs(&src, &[(b"user.of".to_vec(), b"the top".to_vec())]).unwrap();
    for number in 0..20 {
        let sub = subdirectory(fs, &src, &format!("d{number}"));
        for inner in 0..20 {
            let len = random.below(300) as usize;
            file(fs, &sub, &format!("f{inner}"), &random.bytes(len));
        }
        let below = subdirectory(fs, &sub, "below");
        let made = file(fs, &below, "deep", b"deep");
        fs.set_xattrs(&made, &[(b"user.a".to_vec(), random.bytes(40))]).unwrap();
    }
    file(fs, &src, "large", &random.bytes(100_000));
    let linked = file(fs, &src, "one", b"a file with three names");
    let sub = fs.lookup(&src, b"d3").unwrap();
    fs.link(&linked, &sub, b"two").unwrap();
    fs.link(&linked, &root, b"outside").unwrap();
    src
}

#[test]
fn a_clone_of_a_directory_is_as_a_copy() {
    let (device, mut fs) = formatted(64 << 20, ZoneSizes::of_max(8 << 10));
    let mut random = Random::new(3);
    source(&mut fs, &mut random);
    let mut names = vec![b"src".to_vec()];
    for generation in 0..4 {
        let (root, last) = (fs.root().unwrap(), fs.resolve(&names[generation]).unwrap());
        let name = format!("clone{generation}").into_bytes();
        let before = picture(&fs, &last, &mut Vec::new());
        let clone = fs.clone_directory(&last, &root, &name).unwrap();
        assert!(picture(&fs, &clone, &mut Vec::new()) == before, "generation {generation}");
        assert_sound(&device, &mut fs);
        assert_all_differ(&fs);
        // Neither sees changes of the other.
        let sub = fs.lookup(&clone, b"d3").unwrap();
        let two = fs.lookup(&sub, b"two").unwrap();
        assert_eq!(two.inode().links, 2);
        fs.write(&two, 2, &Bytes::from_static(b"FILE")).unwrap();
        assert_eq!(&fs.read(&fs.resolve(b"outside").unwrap(), 0, 6).unwrap(), b"a file");
        let one = fs.lookup(&clone, b"one").unwrap();
        assert_eq!(&fs.read(&one, 0, 6).unwrap(), b"a FILE");
        fs.write(&two, 2, &Bytes::from_static(b"file")).unwrap();
        let large = fs.lookup(&clone, b"large").unwrap();
        fs.write(&large, 50_000, &Bytes::from(random.bytes(5_000))).unwrap();
        fs.write(&fs.resolve(b"clone0/d5/f6").unwrap(), 9, &Bytes::from_static(b"changed"))
            .unwrap();
        fs.unlink(&fs.lookup(&clone, b"d4").unwrap(), format!("f{generation}").as_bytes()).unwrap();
        file(&mut fs, &sub, &format!("new{generation}"), b"new");
        let fresh = subdirectory(&mut fs, &clone, &format!("fresh{generation}"));
        file(&mut fs, &fresh, "in it", b"fresh");
        // What moves between the two keeps its number.
        let (d6, elsewhere) = (
            fs.lookup(&clone, format!("d{}", 6 + generation).as_bytes()).unwrap(),
            fs.lookup(&last, format!("d{}", 12 + generation).as_bytes()).unwrap(),
        );
        let to = format!("moved{generation}").into_bytes();
        let moved = [fs.lookup(&d6, b"f6").unwrap().ino(), fs.lookup(&d6, b"below").unwrap().ino()];
        fs.rename(&d6, b"f6", &elsewhere, &[&to[..], b"f"].concat(), Over::Refuse).unwrap();
        fs.rename(&d6, b"below", &elsewhere, &[&to[..], b"d"].concat(), Over::Refuse).unwrap();
        let back = fs.lookup(&elsewhere, b"f7").unwrap().ino();
        fs.rename(&elsewhere, b"f7", &clone, &to, Over::Refuse).unwrap();
        let at = |fs: &Fs, directory: &Object, end: &[u8]| {
            fs.lookup(directory, &[&to[..], end].concat()).unwrap().ino()
        };
        let check_moved = |fs: &Fs, elsewhere: &Object, clone: &Object| {
            assert_eq!([at(fs, elsewhere, b"f"), at(fs, elsewhere, b"d")], moved);
            assert_eq!(at(fs, clone, b""), back);
        };
        check_moved(&fs, &elsewhere, &clone);
        assert_sound(&device, &mut fs);
        assert_all_differ(&fs);
        drop((sub, two, one, large, fresh, d6, elsewhere, clone, last, root));
        let now = picture(&fs, &fs.root().unwrap(), &mut Vec::new());
        drop(fs);
        fs = opened(&device);
        assert!(picture(&fs, &fs.root().unwrap(), &mut Vec::new()) == now);
        let [source, clone] = [&names[generation], &name].map(|name| fs.resolve(name).unwrap());
        check_moved(
            &fs,
            &fs.lookup(&source, format!("d{}", 12 + generation).as_bytes()).unwrap(),
            &clone,
        );
        names.push(name);
    }
    // Removal in any order leaves the others as they are.
    while !names.is_empty() {
        let name = names.remove(random.below(names.len() as u64) as usize);
        let left: Vec<Picture> = names.iter().map(|name| of(&fs, name)).collect();
        fs.remove_tree(&fs.root().unwrap(), &name).unwrap();
        assert!(names.iter().map(|name| of(&fs, name)).eq(left));
        assert_sound(&device, &mut fs);
    }
}

fn of(fs: &Fs, name: &[u8]) -> Picture {
    picture(fs, &fs.resolve(name).unwrap(), &mut Vec::new())
}

#[test]
fn a_clone_of_nothing_of_a_file_or_into_itself() {
    let (device, mut fs) = formatted(16 << 20, ZoneSizes::default());
    let root = fs.root().unwrap();
    let empty = subdirectory(&mut fs, &root, "empty");
    let made = file(&mut fs, &root, "file", b"contents");
    let refused = |fs: &mut Fs, from: &Object, into: &Object, name: &[u8], why: Refusal| match fs
        .clone_directory(from, into, name)
    {
        Err(Error::Refused(found)) => assert_eq!(found, why),
        other => panic!("{other:?}"),
    };
    refused(&mut fs, &empty, &empty, b"in it", Refusal::Invalid);
    refused(&mut fs, &root, &empty, b"all", Refusal::Invalid);
    refused(&mut fs, &made, &root, b"new", Refusal::NotADirectory);
    refused(&mut fs, &empty, &made, b"new", Refusal::NotADirectory);
    refused(&mut fs, &empty, &root, b"file", Refusal::Exists);
    refused(&mut fs, &empty, &root, b"a/b", Refusal::Invalid);
    let clone = fs.clone_directory(&empty, &root, b"second").unwrap();
    file(&mut fs, &clone, "f", b"only here");
    assert!(fs.list(&empty).unwrap().is_empty());
    assert_sound(&device, &mut fs);
}

#[test]
fn a_check_of_paths_that_multiply_ends() {
    let (device, mut fs) = formatted(16 << 20, ZoneSizes::of_max(8 << 10));
    let root = fs.root().unwrap();
    for number in 0..200 {
        file(&mut fs, &root, &format!("file {number}"), b"contents");
    }
    fs.checkpoint().unwrap();
    drop((root, fs));
    let options = OpenOptions::new(Mode::ReadWrite, nonces(99));
    let mut volume = Volume::open(device.clone(), options).unwrap().0;
    // Each level shows the zones of all levels before it 15 times more.
    for level in 0..7 {
        let prefix = |last: u8| Key::new([&vec![0; 6 - level][..], &[last]].concat());
        for copy in 1..16 {
            let lens = Lens::of_ranges(prefix(copy), prefix(0)).unwrap();
            let messages = vec![RecordMessage::Clone(TreeId::Metadata, lens.into())];
            let wall = Time::default();
            volume.commit(crate::volume::Transaction { op: Op::Clone, wall, messages }).unwrap();
            volume.checkpoint().unwrap();
        }
    }
    drop(volume);
    let report = check(&device, CheckOptions::ALL, &mut ());
    let count = report.findings.len();
    assert!((1 << 18..1 << 20).contains(&count), "{count} findings");
    let last = report.findings.iter().find(|finding| finding.detail.contains("behind lenses"));
    assert!(last.is_some(), "nothing says that the check gave up");
}

#[test]
fn clones_fill_a_volume_and_all_space_comes_back() {
    let (device, mut fs) = formatted(16 << 20, ZoneSizes::of_max(8 << 10));
    let mut random = Random::new(5);
    let before = fs.volume().blocks().unwrap().free;
    drop(source(&mut fs, &mut random));
    let original = of(&fs, b"src");
    let mut names = Vec::new();
    // Each clone is changed, so that it gets nodes of its own.
    loop {
        let (root, src) = (fs.root().unwrap(), fs.resolve(b"src").unwrap());
        let name = format!("clone{}", names.len()).into_bytes();
        let made = fs.clone_directory(&src, &root, &name).and_then(|clone| {
            let d5 = fs.lookup(&clone, b"d5")?;
            let large = fs.lookup(&clone, b"large")?;
            names.push(name.clone());
            fs.write(&large, 0, &Bytes::from(random.bytes(100_000)))?;
            fs.unlink(&d5, b"f3")?;
            fs.checkpoint()
        });
        match made {
            Ok(()) => {}
            Err(Error::NoSpace { .. }) => break,
            Err(error) => panic!("clone {}: {error}", names.len()),
        }
    }
    assert!(names.len() > 20, "only {} clones", names.len());
    assert!(of(&fs, b"src") == original);
    fs = opened_after(&device, fs);
    assert_sound(&device, &mut fs);
    assert_all_differ(&fs);
    // What is full takes removals, in any order.
    names.push(b"src".to_vec());
    while !names.is_empty() {
        let name = names.remove(random.below(names.len() as u64) as usize);
        fs.remove_tree(&fs.root().unwrap(), &name).unwrap();
    }
    fs.unlink(&fs.root().unwrap(), b"outside").unwrap();
    for _ in 0..4 {
        fs.checkpoint().unwrap();
    }
    fs.volume_mut().reclaim(u64::MAX).unwrap();
    for _ in 0..4 {
        fs.checkpoint().unwrap();
    }
    assert_sound(&device, &mut fs);
    let after = fs.volume().blocks().unwrap().free;
    assert!(after + 64 >= before, "{before} blocks were free, and now {after}");
}

fn opened_after(device: &Arc<dyn Device>, fs: Fs) -> Fs {
    drop(fs);
    opened(device)
}

#[test]
fn a_clone_costs_the_same_however_much_is_below() {
    let mut costs = Vec::new();
    for count in [100, 2_500] {
        // The log allows zones of 512 KiB.
        let (device, mut fs) = formatted(64 << 20, ZoneSizes::of_max(1 << 40));
        let root = fs.root().unwrap();
        let src = subdirectory(&mut fs, &root, "src");
        for part in 0..10u8 {
            let sub = subdirectory(&mut fs, &src, &format!("d{part}"));
            for number in 0..count / 10 {
                file(&mut fs, &sub, &format!("f{number}"), b"");
            }
        }
        fs.checkpoint().unwrap();
        drop((src, root, fs));
        let mut fs = opened(&device);
        let (root, src) = (fs.root().unwrap(), fs.resolve(b"src").unwrap());
        let (reads, messages) = (fs.volume().io_counts().reads, fs.volume().next_msn().0);
        fs.clone_directory(&src, &root, b"clone").unwrap();
        fs.volume_mut().sync().unwrap();
        let reads = fs.volume().io_counts().reads - reads;
        costs.push((fs.volume().next_msn().0 - messages, reads));
        assert!(of(&fs, b"clone") == of(&fs, b"src"));
        drop((src, root));
        assert_sound(&device, &mut fs);
    }
    let [small, large] = costs[..] else { unreachable!() };
    assert_eq!(small.0, large.0, "messages");
    // The nodes along the ends of both ranges, in two trees.
    assert!(large.1 <= small.1 + 40, "{} reads for {}", large.1, small.1);
}

#[test]
fn a_directory_with_entries_moves_into_a_clone_as_a_zone() {
    let (device, mut fs) = formatted(64 << 20, ZoneSizes::of_max(32 << 10));
    let root = fs.root().unwrap();
    for name in ["src", "other"] {
        let made = subdirectory(&mut fs, &root, name);
        file(&mut fs, &made, "f", b"contents");
    }
    let src = fs.resolve(b"src").unwrap();
    let clone = fs.clone_directory(&src, &root, b"clone").unwrap();
    assert_sound(&device, &mut fs);
    fs.rename(&root, b"other", &clone, b"in", Over::Refuse).unwrap();
    assert_sound(&device, &mut fs);
    let inner = fs.lookup(&clone, b"in").unwrap();
    fs.rename(&clone, b"in", &root, b"out", Over::Refuse).unwrap();
    assert_sound(&device, &mut fs);
    fs.rename(&root, b"out", &clone, b"again", Over::Refuse).unwrap();
    assert_sound(&device, &mut fs);
    fs.rename(&root, b"src", &clone, b"src", Over::Refuse).unwrap();
    assert_sound(&device, &mut fs);
    drop((inner, clone, src, root));
    drop(fs);
    let mut fs = opened(&device);
    assert_sound(&device, &mut fs);
    let root = fs.root().unwrap();
    fs.rename(&fs.resolve(b"clone").unwrap(), b"src", &root, b"src", Over::Refuse).unwrap();
    assert_sound(&device, &mut fs);
}

#[test]
fn a_clone_of_too_many_zones_is_refused_and_nothing_changes() {
    let (device, mut fs) = formatted(64 << 20, ZoneSizes { min: 0, max: 2000 });
    let root = fs.root().unwrap();
    let src = subdirectory(&mut fs, &root, "src");
    for number in 0..500 {
        file(&mut fs, &src, &format!("f{number}"), &[7; 5000]);
    }
    let before = picture(&fs, &root, &mut Vec::new());
    match fs.clone_directory(&src, &root, b"clone") {
        Err(Error::Unsupported(text)) => assert!(text.contains("zones"), "{text}"),
        other => panic!("{other:?}"),
    }
    assert!(picture(&fs, &root, &mut Vec::new()) == before);
    assert_sound(&device, &mut fs);
    // With fewer it is made.
    for number in 0..300 {
        fs.unlink(&src, format!("f{number}").as_bytes()).unwrap();
    }
    fs.clone_directory(&src, &root, b"clone").unwrap();
    drop((src, root));
    assert!(of(&fs, b"clone") == of(&fs, b"src"));
    assert_sound(&device, &mut fs);
}
