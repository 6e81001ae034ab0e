//! Crafted runs: messages for other nodes, with future MSNs, or out of order; extents of other structures.

use super::*;

/// Adds a run to a node of height 1; `make` builds it from the head and the upper bound of the first child.
pub(super) fn with_run(
    mut forge: Forge,
    make: impl FnOnce(&InternalHead, &Key) -> (Vec<(Key, Message)>, Vec<RangeDelete>),
) -> Vec<u8> {
    let (id, head) = parent(&mut forge);
    let hi = head.children[1].pivot.clone();
    let (points, ranges) = make(&head, &hi);
    let slices = vec![(0, points)];
    let slices = if slices[0].1.is_empty() { Vec::new() } else { slices };
    forge.add_run(id, &slices, &ranges);
    forge.seal()
}

/// Changes the reference to a new, sound run of the metadata root, which every writer rewrites.
pub(super) fn run_becomes(
    mut forge: Forge,
    change: impl FnOnce(&mut Forge, &mut RunRef),
) -> Vec<u8> {
    let id = META.root();
    let head = forge.internal(id);
    let points = vec![(head.bounds.lo.successor(), message(1, b"x"))];
    let slices = [(0, points)];
    let mut run = forge.run(id, head.tree, head.next_run, &slices, &[]);
    change(&mut forge, &mut run);
    forge.change(id, |head| {
        head.next_run.0 += 1;
        head.runs.push(run);
    });
    forge.seal()
}

/// A run of the metadata root with two slices for its first child; they delete keys that do not exist.
fn two_slices(mut forge: Forge, suffixes: [u8; 2], change: impl FnOnce(&mut RunRef)) -> Vec<u8> {
    let id = META.root();
    let head = forge.internal(id);
    let gone = |suffix| {
        let key = key(&[0, 0, 0, 0, 0, 0, 0, 0, 0, suffix]);
        (0, vec![(key, Message { msn: Msn(1), action: Action::Delete })])
    };
    let mut run = forge.run(id, head.tree, head.next_run, &suffixes.map(gone), &[]);
    change(&mut run);
    forge.change(id, |head| {
        head.next_run.0 += 1;
        head.runs.push(run);
    });
    forge.seal()
}

fn update(msn: u64, update: Update) -> Message {
    Message { msn: Msn(msn), action: Action::Update(update) }
}

pub(super) fn range(msn: u64, lo: &[u8], hi: &[u8]) -> RangeDelete {
    RangeDelete { msn: Msn(msn), lo: key(lo), hi: key(hi) }
}

pub(super) const CASES: &[Case] = &[
    ("messages outside their child", Finds(Code::MessageWrong), |forge| {
        with_run(forge, |_, hi| (vec![(hi.successor(), message(1, b"x"))], vec![]))
    }),
    ("a message of the future", Finds(Code::MessageWrong), |forge| {
        with_run(forge, |head, _| (vec![(head.bounds.lo.clone(), message(1 << 60, b"x"))], vec![]))
    }),
    ("a message of the far future at the root", Finds(Code::MessageWrong), |mut forge| {
        let head = forge.internal(META.root());
        let place = root().child(b"new-0").encode();
        let at = head.children.partition_point(|child| child.pivot <= place) - 1;
        let points = vec![(place, message(u64::MAX, &[1, 2, 3]))];
        forge.add_run(META.root(), &[(at as u16, points)], &[]);
        forge.seal()
    }),
    ("a message older than a range message that covers it", Finds(Code::MessageWrong), |forge| {
        with_run(forge, |head, hi| {
            let lo = head.bounds.lo.clone();
            (vec![(lo.clone(), message(1, b"x"))], vec![range(2, &lo, hi)])
        })
    }),
    ("messages where no number has been given out", Finds(Code::MessageWrong), |forge| {
        forge.seal_with(|superblock| superblock.next_msn = Msn(1))
    }),
    ("an addition to a block of a file", Finds(Code::MessageWrong), |forge| {
        with_run(forge, |head, _| {
            (vec![(head.bounds.lo.clone(), update(1, Update::add(8, 1)))], vec![])
        })
    }),
    ("updates of one key that grow older", Finds(Code::MessageWrong), |mut forge| {
        let (id, head) = parent(&mut forge);
        let place = head.bounds.lo.clone();
        let patch = |msn| update(msn, Update::patch(0, b"patch", true));
        for message in [message(1, b"whole"), patch(3), patch(2)] {
            forge.add_run(id, &[(0, vec![(place.clone(), message)])], &[]);
        }
        forge.seal()
    }),
    ("runs whose messages grow older", Wrong, |mut forge| {
        let head = forge.internal(DATA.root());
        let place = head.children[1].pivot.clone();
        for msn in [1 << 40, 1 << 30, 3] {
            let points = vec![(place.clone(), message(msn, b"x"))];
            forge.add_run(DATA.root(), &[(1, points)], &[]);
        }
        forge.seal()
    }),
    ("range messages outside the bounds", Finds(Code::MessageWrong), |forge| {
        with_run(forge, |_, _| (vec![], vec![range(1, &[], &[0xff; 1024])]))
    }),
    ("a range message that covers all of the metadata", Wrong, |mut forge| {
        let msn = forge.superblock.next_msn.0 - 1;
        forge.add_run(META.root(), &[], &[range(msn, &[], &[0xff; 9])]);
        forge.seal()
    }),
    ("a run past the image's end", Finds(Code::BlockOutside), |forge| {
        run_becomes(forge, |_, run| run.extent.start = BlockNr(1 << 40))
    }),
    ("a dead run past the image's end", Finds(Code::BlockOutside), |forge| {
        run_becomes(forge, |_, run| {
            run.slices.clear();
            run.extent.start = BlockNr(1 << 40);
        })
    }),
    ("a run in the log", Finds(Code::BlockOutside), |forge| {
        run_becomes(forge, |forge, run| run.extent.start = forge.superblock.log_start)
    }),
    ("a dead run in the log", Finds(Code::BlockOutside), |forge| {
        run_becomes(forge, |forge, run| {
            run.slices.clear();
            run.extent.start = forge.superblock.log_start;
        })
    }),
    ("a dead run over the superblocks", Finds(Code::BlockOutside), |forge| {
        run_becomes(forge, |_, run| {
            run.slices.clear();
            run.extent.start = BlockNr(32);
        })
    }),
    ("a dead run over a node", Finds(Code::BlockTwice), |forge| {
        run_becomes(forge, |forge, run| {
            run.slices.clear();
            run.extent.start = forge.entry(DATA.root()).extent.start;
        })
    }),
    ("a run without even a header", Wrong, |forge| {
        run_becomes(forge, |_, run| {
            run.slices.clear();
            run.bytes = 0;
            run.extent.blocks = 0;
        })
    }),
    ("a run shorter than its header", Wrong, |forge| {
        run_becomes(forge, |_, run| {
            run.slices.clear();
            run.bytes = 17;
        })
    }),
    ("a run of another node", Finds(Code::PartInvalid), |mut forge| {
        let (id, head) = parent(&mut forge);
        let run = forge.run(NodeId(77), head.tree, head.next_run, &[], &[]);
        forge.change(id, |head| {
            head.next_run.0 += 1;
            head.runs.push(run);
        });
        forge.seal()
    }),
    ("a slice of another length", Wrong, |forge| {
        run_becomes(forge, |_, run| run.slices[0].section.count = 1 << 30)
    }),
    ("a slice of wrong growth", Finds(Code::MessageWrong), |forge| {
        run_becomes(forge, |_, run| run.slices[0].growth.bytes += 1)
    }),
    ("a slice whose filter leaves out its keys", Finds(Code::MessageWrong), |forge| {
        run_becomes(forge, |_, run| run.filters = vec![0; run.filters.len()].into())
    }),
    ("two slices for one child", Clean, |forge| two_slices(forge, [1, 2], |_| {})),
    ("two slices for one child the wrong way round", Wrong, |forge| {
        two_slices(forge, [2, 1], |run| run.slices[1].first = Key::default())
    }),
    ("a key in front of its slice", Finds(Code::MessageWrong), |forge| {
        two_slices(forge, [1, 2], |run| run.slices[1].first = run.slices[1].first.successor())
    }),
    ("a key behind its slice", Finds(Code::MessageWrong), |forge| {
        two_slices(forge, [2, 3], |run| {
            let first = run.slices[1].first.to_vec();
            run.slices[1].first = key(&first[..first.len() - 1]);
        })
    }),
    ("a run of many children and slices", Wrong, |mut forge| {
        let mut head = forge.internal(DATA.root());
        let last = head.children.last().unwrap().clone();
        let mut slices = Vec::new();
        for number in 0..10_000u32 {
            let pivot = key(&[&last.pivot[..], &number.to_be_bytes()].concat());
            let id = NodeId(1_000_000 + u64::from(number));
            head.children.push(ChildRef {
                id,
                first_run: RunSeq(0),
                pivot: pivot.clone(),
                lens: None,
            });
            slices.push((head.children.len() as u16 - 1, vec![(pivot, message(1, b""))]));
        }
        head.next_run.0 += 1;
        let run = forge.run(DATA.root(), DATA, RunSeq(head.next_run.0 - 1), &slices, &[]);
        head.runs.push(run);
        forge.put_internal(DATA.root(), &head);
        forge.seal()
    }),
];
