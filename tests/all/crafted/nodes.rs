//! Crafted nodes: wrong child pointers, contradictory bounds and heights.

use super::*;

pub(super) fn child_becomes(
    forge: Forge,
    other: impl FnOnce(&mut Forge, NodeId) -> NodeId,
) -> Vec<u8> {
    let mut forge = forge;
    let (id, _) = parent(&mut forge);
    let other = other(&mut forge, id);
    forge.change(id, |head| head.children[1].id = other);
    forge.seal()
}

pub(super) const CASES: &[Case] = &[
    ("nothing is changed", Clean, Forge::seal),
    ("a child is the node itself", Wrong, |forge| child_becomes(forge, |_, id| id)),
    ("a child is the root", Wrong, |forge| child_becomes(forge, |_, _| DATA.root())),
    ("a child is its sibling", Wrong, |forge| {
        child_becomes(forge, |forge, id| forge.internal(id).children[0].id)
    }),
    ("a child is missing", Finds(Code::NodeMissing), |forge| {
        child_becomes(forge, |_, _| NodeId(u64::MAX))
    }),
    ("a child is node 0", Finds(Code::NodeMissing), |forge| child_becomes(forge, |_, _| NodeId(0))),
    ("a child is of the other tree", Wrong, |forge| {
        child_becomes(forge, |forge, _| internals(forge, META, 0)[0])
    }),
    ("a child of another height", Wrong, |mut forge| {
        let (id, _) = parent(&mut forge);
        let leaf = forge.internal(id).children[0].id;
        let top = forge.internal(DATA.root());
        forge.change(DATA.root(), |head| head.children[0].id = leaf);
        assert!(top.height.0 > 1);
        forge.seal()
    }),
    ("the root of a tree is one of the other", Wrong, |mut forge| {
        let root = InternalHead { tree: META, ..forge.internal(DATA.root()) };
        forge.put_internal(DATA.root(), &root);
        forge.seal()
    }),
    ("the roots are exchanged", Wrong, |mut forge| {
        let (meta, data) = (forge.internal(META.root()), forge.internal(DATA.root()));
        forge.put_internal(META.root(), &InternalHead { id: META.root(), ..data });
        forge.put_internal(DATA.root(), &InternalHead { id: DATA.root(), ..meta });
        forge.seal()
    }),
    ("bounds differ from those of the edge", Finds(Code::NodeWrong), |mut forge| {
        let (id, head) = parent(&mut forge);
        let bounds = Bounds { lo: head.bounds.lo.successor(), ..head.bounds.clone() };
        let fits = head.children.get(1).is_some_and(|child| bounds.contains(&child.pivot));
        assert!(fits);
        forge.change(id, |head| head.bounds = bounds);
        forge.seal()
    }),
    ("the root has bounds", Finds(Code::NodeWrong), |mut forge| {
        forge.change(DATA.root(), |head| {
            let last = head.children.last().unwrap().pivot.clone();
            head.bounds = Bounds { lo: key(&[0]), hi: Some(last.successor()) };
        });
        forge.seal()
    }),
    ("the metadata root has bounds", Finds(Code::NodeWrong), |mut forge| {
        forge.change(META.root(), |head| {
            let last = head.children.last().unwrap().pivot.clone();
            head.bounds = Bounds { lo: Key::default(), hi: Some(last.successor()) };
        });
        forge.seal()
    }),
    ("a root of height 16", Wrong, |mut forge| {
        forge.change(DATA.root(), |head| head.height = Height(16));
        forge.seal()
    }),
    ("a root of height 17", Wrong, |mut forge| {
        forge.change(DATA.root(), |head| head.height = Height(17));
        forge.seal()
    }),
    // The leaf below is empty, so the blocks of files are missing.
    ("a tower of 16 nodes with one child each", Finds(Code::HolesUnflagged), tower),
    ("the root's entry says that it is a leaf", Finds(Code::HeadInvalid), |mut forge| {
        forge.entry(DATA.root()).height = Height(0);
        forge.seal()
    }),
    ("pivots out of order", Finds(Code::HeadInvalid), |mut forge| {
        let (id, _) = parent(&mut forge);
        forge.change(id, |head| {
            let first = head.children[0].pivot.clone();
            head.children[1].pivot = first;
        });
        forge.seal()
    }),
    ("a pivot outside the bounds", Finds(Code::HeadInvalid), |mut forge| {
        let (id, head) = parent(&mut forge);
        let hi = head.bounds.hi.clone().unwrap_or_else(|| key(&[0xff; 1024]));
        forge.change(id, |head| {
            head.bounds.hi = Some(hi.clone());
            head.children.last_mut().unwrap().pivot = hi;
        });
        forge.seal()
    }),
    ("one child twice", Wrong, |mut forge| {
        let (id, _) = parent(&mut forge);
        forge.change(id, |head| {
            let mut twice = head.children[1].clone();
            twice.pivot = twice.pivot.successor();
            head.children.insert(2, twice);
        });
        forge.seal()
    }),
    ("a node with far more children than the fanout", Wrong, many_children),
    ("an entry of the table that nothing leads to", Finds(Code::EntryWrong), |mut forge| {
        let (id, _) = parent(&mut forge);
        let mut head = forge.internal(id);
        let lost = NodeId(forge.superblock.next_node.0);
        forge.superblock.next_node.0 += 1;
        head.id = lost;
        head.runs.clear();
        forge.put_internal(lost, &head);
        forge.seal()
    }),
    ("runs are numbered to the end", Clean, |mut forge| {
        let (id, _) = parent(&mut forge);
        forge.change(id, |head| head.next_run = RunSeq(u64::MAX));
        forge.seal()
    }),
    ("the metadata root's runs are numbered to the end", Clean, |mut forge| {
        forge.change(META.root(), |head| head.next_run = RunSeq(u64::MAX));
        forge.seal()
    }),
];

/// A chain of internal nodes with one child each above an empty leaf, of the greatest allowed height.
pub(super) fn tower(mut forge: Forge) -> Vec<u8> {
    for (id, entry) in forge.nodes() {
        if entry.tree == DATA {
            if entry.height.0 > 0 {
                for run in forge.internal(id).runs {
                    forge.mark(run.extent.start.0..run.extent.end().0, false);
                }
            }
            forge.mark(entry.extent.start.0..entry.extent.end().0, false);
            *forge.slot(id) = None;
        }
    }
    let free: Vec<NodeId> =
        (4..62).map(NodeId).filter(|id| forge.slot(*id).is_none()).take(16).collect();
    forge.put_leaf(free[0], DATA, Bounds::default(), &[], &[]);
    for height in 1..=16 {
        let id = if height == 16 { DATA.root() } else { free[height] };
        let child = ChildRef {
            id: free[height - 1],
            first_run: RunSeq(0),
            pivot: Key::default(),
            lens: None,
        };
        let head = InternalHead {
            id,
            tree: DATA,
            height: Height(height as u8),
            write_seq: 1,
            next_run: RunSeq(0),
            bounds: Bounds::default(),
            children: vec![child],
            runs: Vec::new(),
        };
        forge.put_internal(id, &head);
    }
    forge.superblock.next_node = NodeId(62);
    // The files without blocks stay: holes are not damage.
    forge.seal()
}

pub(super) fn many_children(mut forge: Forge) -> Vec<u8> {
    forge.change(DATA.root(), |head| {
        let last = head.children.last().unwrap().clone();
        for number in 0..9000u32 {
            let pivot = [&last.pivot[..], &number.to_be_bytes()].concat();
            let id = NodeId(1_000_000 + u64::from(number));
            head.children.push(ChildRef {
                id,
                first_run: RunSeq(0),
                pivot: key(&pivot),
                lens: None,
            });
        }
    });
    forge.seal()
}
