//! Crafted logs: records with impossible claims.

use super::*;

pub(super) const CASES: &[Case] = &[
    ("a record that uses all zones and inodes up", Finds(Code::LogTorn), |mut forge| {
        let message = insert(DATA, key(&[1; 16]), vec![1]);
        let record = forge.record(forge.superblock.next_msn.0, vec![message]);
        let next = NextNumbers { zone: ZoneId(u64::MAX), ..record.next };
        let record = Record { next, ..record };
        forge.group(forge.superblock.log_head, forge.superblock.first_group, &[record]);
        forge.seal()
    }),
    ("records that use all MSNs up", Finds(Code::LogTorn), |mut forge| {
        forge.superblock.next_msn = Msn(LAST - 2);
        let message = insert(DATA, key(&[1; 16]), vec![1]);
        forge.log(vec![message; 6]);
        forge.seal()
    }),
    ("a record of the last MSN", Finds(Code::LogTorn), |mut forge| {
        forge.superblock.next_msn = Msn(LAST);
        forge.log(vec![insert(DATA, key(&[1; 16]), vec![1])]);
        forge.seal()
    }),
    ("the last group", Finds(Code::LogTorn), |mut forge| {
        forge.superblock.first_group = LAST;
        forge.log(vec![insert(DATA, key(&[1; 16]), vec![1])]);
        forge.seal()
    }),
    ("a group of the epoch after the last", Wrong, |mut forge| {
        forge.superblock.birth.epoch = Epoch(u64::MAX);
        forge.log(vec![insert(DATA, key(&[1; 16]), vec![1])]);
        forge.seal()
    }),
    ("a log that is full", Wrong, |mut forge| {
        let mut unit = forge.superblock.log_head;
        let end = unit + forge.superblock.log_units;
        let mut number = forge.superblock.first_group;
        let mut lsn = forge.superblock.next_msn.0;
        while unit < end {
            let place = key(&[&[9; 8][..], &number.to_be_bytes()].concat());
            let record = forge.record(lsn, vec![insert(DATA, place, vec![1; 3000])]);
            unit = forge.group(unit, number, &[record]);
            (number, lsn) = (number + 1, lsn + 1);
        }
        forge.seal()
    }),
    ("a log full of headers that claim all of it", Clean, |mut forge| {
        let record = forge.record(1, vec![insert(DATA, key(&[1; 16]), vec![1])]);
        for unit in 1..forge.superblock.log_units {
            let unit = forge.superblock.log_head + unit;
            forge.group(unit, forge.superblock.first_group + 1, std::slice::from_ref(&record));
            let at = forge.superblock.log_start.0 + unit % forge.superblock.log_units;
            let at = BlockNr(at).byte() as usize;
            let bytes = forge.superblock.log_units as u32 * BLOCK_SIZE as u32;
            forge.bytes[at + 92..at + 96].copy_from_slice(&bytes.to_le_bytes());
        }
        forge.seal()
    }),
    ("a log full of groups that vouch for one another", Finds(Code::LogDamaged), |mut forge| {
        for unit in 1..forge.superblock.log_units {
            let lsn = forge.superblock.next_msn.0 + 1;
            let record = forge.record(lsn, vec![insert(DATA, key(&[1; 16]), vec![1])]);
            let mut writer = GroupWriter::default();
            writer.push(&record);
            let number = forge.superblock.first_group + unit;
            let group = writer.seal(&[], forge.birth(), Nonce(0), number, number - 1);
            let unit = (forge.superblock.log_head + unit) % forge.superblock.log_units;
            forge.write(BlockNr(forge.superblock.log_start.0 + unit), &group);
        }
        forge.seal()
    }),
    ("keys of 1024 bytes", Wrong, |forge| {
        logged(
            forge,
            vec![
                insert(META, key(&[0xff; 1024]), vec![1]),
                insert(DATA, key(&[0xff; 1024]), vec![1]),
                insert(META, key(&[0; 1024]), vec![1]),
            ],
        )
    }),
    ("empty keys", Wrong, |forge| {
        logged(forge, vec![insert(META, key(&[]), vec![1]), insert(DATA, key(&[]), vec![1])])
    }),
    ("everything is deleted", Wrong, |forge| {
        let all = |tree| RecordMessage::RangeDelete(tree, key(&[]), key(&[0xff; 1024]));
        logged(forge, vec![all(META), all(DATA)])
    }),
    ("all data is deleted, and then some", Finds(Code::LogReplayed), |forge| {
        let mut messages = vec![RecordMessage::RangeDelete(DATA, key(&[]), key(&[0xff; 1024]))];
        for number in 0..80u64 {
            let place = key(&[&[9; 8][..], &number.to_be_bytes()].concat());
            messages.push(insert(DATA, place.clone(), vec![1; 1000]));
            messages.push(RecordMessage::RangeDelete(DATA, place.clone(), place.successor()));
        }
        logged(forge, messages)
    }),
    ("values that are no inodes", Wrong, |forge| {
        let values = [vec![], vec![1; 10], vec![2; 24], vec![9; 200]];
        let place = |at: usize| root().child(format!("new-{at}").as_bytes()).encode();
        let values = values.into_iter().enumerate();
        logged(forge, values.map(|(at, value)| insert(META, place(at), value)).collect())
    }),
    (
        "a value that is no inode, and a slot that is no superblock",
        Finds(Code::ValueMalformed),
        |mut forge| {
            let slot = forge.ring_block(20);
            forge.write(slot, &[5; BLOCK_SIZE]);
            logged(forge, vec![insert(META, root().child(b"new").encode(), vec![9; 20])])
        },
    ),
    ("more data than the image has room for", Wrong, |mut forge| {
        let mut unit = forge.superblock.log_head;
        let mut number = forge.superblock.first_group;
        let mut lsn = forge.superblock.next_msn.0;
        let used: Vec<u64> =
            (0..forge.superblock.image_blocks - 16).filter(|b| !forge.is_used(*b)).collect();
        // All blocks but two are used.
        used.iter().skip(2).for_each(|block| forge.mark(*block..*block + 1, true));
        for _ in 0..3 {
            let place = |at: u64| key(&[number.to_be_bytes(), at.to_be_bytes()].concat());
            let messages = (0..8).map(|at| insert(DATA, place(at), vec![at as u8 + 1; 4096]));
            let record = forge.record(lsn, messages.collect());
            unit = forge.group(unit, number, &[record]);
            (number, lsn) = (number + 1, lsn + 8);
        }
        forge.seal()
    }),
];
