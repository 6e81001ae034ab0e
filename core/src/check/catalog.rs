//! The catalog of problems: codes, titles, meanings, broken rules, and repairs. Messages, JSON, `--explain`, the manual
//! and the choice of repairs use it.
//!
//! What a new problem needs:
//!
//! 1. Its row here, its rule in SPEC.md (13.1 is generated), and the check.
//! 2. If it is repairable, the repair: of the schema by a `check::Correction` that the mender applies
//!    (`mend::schema`); of parts of nodes by `mend::suspects`; of slots, fixed places and zones that are too large by `mend::repair`; of nodes, tables and holds by
//!    `mend::{trees, scan, holds}`; of the map by `Space::rebuilt`, of a lost superblock by `volume::raise`, of the log by a replay (`replay_sound`).
//! 3. An image with it in `lab/src/damage/broken`; for a bad write a case in `tests/all/crafted`.
//! 4. Tests: `tests/all/broken` (its list `TOGETHER` if it comes with another problem), `checks`, `tidy`,
//!    `tools/betr/tests/cli/broken` with its snapshot; `BETR_BLESS=1` writes SPEC 13.1 and DAMAGE.md.
//! 5. Lists of codes elsewhere, which `grep -rnwE 'Code::[A-Z]\w*' core/src/{check,mend} lab offline tools tests` shows, and texts
//!    such as `"T01"` in tests of commands and mounts, where the search is for the code;
//!    `offline::plan::outcome` reads the letter of a code.

/// The severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth reporting; no error.
    Note,
    /// An error.
    Error,
}

/// A kind of problem.
pub struct Problem {
    /// Its code.
    pub code: Code,
    /// The code as printed; it never changes.
    pub name: &'static str,
    /// Its severity.
    pub severity: Severity,
    /// A short title.
    pub title: &'static str,
    /// The meaning.
    pub meaning: &'static str,
    /// The section of `format/SPEC.md` with the broken rule.
    pub rule: &'static str,
    /// What a repair takes.
    pub repairable: Repairable,
    /// How it is repaired.
    pub repair: &'static str,
}

/// What it takes to repair the findings of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Repairable {
    /// There is nothing to repair.
    Nothing,
    /// A repair loses nothing and needs no confirmation (`fsck -p`).
    Safely,
    /// A repair may lose something (`fsck -y`).
    WithLoss,
    /// It cannot be repaired.
    No,
}

macro_rules! catalog {
    ($(
        $code:ident $name:literal $severity:ident $repairable:ident $rule:literal $title:literal
        $meaning:literal $repair:literal;
    )*) => {
        /// The code of a kind of problem.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs)]
        pub enum Code {
            $($code,)*
        }

        /// Every kind of problem.
        pub const CATALOG: &[Problem] = &[
            $(Problem {
                code: Code::$code,
                name: $name,
                severity: Severity::$severity,
                title: $title,
                meaning: $meaning,
                rule: $rule,
                repairable: Repairable::$repairable,
                repair: $repair,
            },)*
        ];
    };
}

catalog! {
    ReadFailed "D01" Error No "2" "cannot be read"
        "The device failed to read these bytes. Copy what can be read to a sound device first."
        "None here: copy what can be read to a sound device first, and repair that.";
    IdentityInvalid "I01" Error WithLoss "3" "identity block does not verify"
        "UUID, label and the place of the superblocks cannot be trusted. The rest of the image may be whole."
        "It is written afresh from a superblock. UUID and label are lost.";
    ImageTruncated "I02" Error No "3" "image is shorter than it says"
        "The end of the image is missing, with everything that was there."
        "None: lengthen the file to the size that it should have, and check again.";
    ErrorMet "I03" Note Safely "3" "an error was met while the volume was used"
        "Something could not be read, or did not verify. This check looks at everything, contents of files included, and says what is wrong now."
        "Where nothing is wrong any more, that is noted in the identity block.";
    SlotInvalid "S01" Error Safely "4.2" "superblock slot does not verify"
        "A slot of the ring that no checkpoint was about to write holds neither zeros nor a superblock. The other slot of the same epoch serves, and repair copies it."
        "The other slot of the same epoch is copied; where there is none the slot becomes empty.";
    NoSuperblock "S02" Error WithLoss "4.2" "no superblock slot verifies"
        "The trees have to be found without one."
        "It is raised again from the space map, the table, the log and the identity block. Sizes that shape the trees are those of a new volume.";
    SlotTorn "S04" Note Safely "4.2" "superblock slot was being written when the power went"
        "Nothing is lost: the other slot of the epoch holds its superblock, or its checkpoint was never durable and the one before it counts. The next checkpoint writes it afresh."
        "The slot becomes empty, or a copy of the other one.";
    CheckpointLost "S05" Error WithLoss "4.2" "newest checkpoint is lost"
        "It was durable, but neither of its superblock slots verifies."
        "Its superblock is raised again from the space map, the table, the log and the superblock before it. Where that cannot be done, or with -b, an older checkpoint serves, and everything since is given up.";
    FeaturesUnknown "S03" Error No "4.1" "features that this version does not know"
        "The image was made by a newer version. Use that to check it."
        "None.";
    LogReplayed "L01" Note Safely "9.6" "log holds records that are not in the trees yet"
        "The volume was not closed cleanly. The records were replayed in memory for this check; the next mount, or a repair, makes them durable."
        "The records are replayed, and a checkpoint makes them durable.";
    LogTorn "L02" Note Safely "9.5" "log ends in a group that was never finished"
        "A power cut while a group was being written. What it held was never acknowledged. A group that lacks nothing but its padding is replayed all the same."
        "What counts is replayed; the checkpoint starts the log afresh.";
    LogDamaged "L03" Error WithLoss "9.5" "log group that was acknowledged does not verify"
        "Operations that had been made durable are lost from this group on."
        "The groups before it are replayed; what was acknowledged from there on is lost, and listed.";
    SuperblockLost "L04" Error WithLoss "9.5" "log is younger than the superblock"
        "A checkpoint was durable, but nothing is left of its superblock slots."
        "Its superblock is raised again from the space map, the table, the log and the superblock before it.";
    ReplayFailed "L05" Error WithLoss "9.6" "log cannot be replayed"
        "The records are whole, but the trees that they change are not."
        "The trees are mended first, and then it is replayed.";
    ValueLost "L06" Error WithLoss "9.3" "acknowledged bytes of a file are lost"
        "The log says where they were written, but what stands there does not verify. The rest of the log was replayed."
        "The bytes become a hole, unless something newer covers them.";
    OperationLost "L07" Error WithLoss "9.5" "acknowledged operation is lost"
        "It stands in the log behind a group that does not verify, and cannot be replayed without that."
        "It is given up.";
    MapSlotInvalid "M01" Error Safely "5" "space-map slot is not what it must be"
        "It cannot be read, is of another place or volume, or was the one that counts. The other slot of the page may serve. Repair writes both afresh."
        "The page is written afresh.";
    SpaceMapWrong "M02" Error WithLoss "5" "space map is not the one that the superblock means"
        "A page fell back to an older state. The map can be rebuilt from the table and the nodes."
        "The map is made anew from what owns blocks.";
    BlockUnmarked "M03" Error WithLoss "5" "blocks in use are marked free"
        "They would be overwritten. The map can be rebuilt."
        "The map is made anew from what owns blocks.";
    BlockLost "M04" Error WithLoss "5" "blocks marked in use belong to nothing"
        "Space is lost, nothing else."
        "The map is made anew from what owns blocks: they are free.";
    BlockTwice "M05" Error WithLoss "5" "blocks belong to two structures"
        "At least one of them is wrong."
        "One keeps them; the other is copied to a place of its own, as far as it verifies.";
    BlockOutside "M06" Error WithLoss "5" "extent lies outside the space for nodes"
        "It reaches past the image's end or into a fixed region."
        "What is there cannot be read, and is lost.";
    MapSlotTorn "M07" Note Safely "5" "space-map slot was being written when the power went"
        "The checkpoint that it belongs to was never durable; the other slot of the page counts. The next checkpoint writes it afresh."
        "The page is written afresh.";
    TablePageInvalid "T01" Error WithLoss "6" "table page does not verify"
        "The nodes that it names cannot be found through it."
        "Nodes are looked for all over the image, and the table is made anew.";
    EntryWrong "T02" Error WithLoss "6" "table entry contradicts the trees"
        "A node that nothing leads to, or a wrong reference count."
        "What nothing leads to goes; references are counted afresh.";
    NodeMissing "T03" Error WithLoss "6" "node is not in the table"
        "An edge leads to a node that the table does not know."
        "A node is raised in its place over those that hung from it; without any it is an empty leaf.";
    ScatterMapInvalid "N08" Error WithLoss "1.4" "map of a scattered node does not verify"
        "It says where the blocks of the node are. What the node holds cannot be found without it."
        "The node is lost: another is raised in its place.";
    HeadInvalid "N01" Error WithLoss "7.1" "head of a node does not verify"
        "What the node holds cannot be found through it."
        "A node is raised in its place over those that hung from it; a leaf becomes empty.";
    PartInvalid "N02" Error WithLoss "7.2" "part of a node does not verify"
        "The keys or messages of this part are lost."
        "The node is made anew from its other parts.";
    NodeWrong "N03" Error WithLoss "7.3" "node contradicts its parent"
        "Bounds, height or tree are not those that the edge calls for."
        "What has the right keys is taken over; the rest is raised again.";
    MessageWrong "N04" Error WithLoss "7.4" "message is where it cannot be"
        "Its key lies outside the child that it is pending for, or its number in the future."
        "The messages are sorted anew; what cannot be is dropped.";
    GrowthWrong "N07" Error WithLoss "4.1" "counts that free room is kept by are wrong"
        "Nothing is lost, but a volume that is nearly full may refuse an operation too late, or too early."
        "It is counted afresh.";
    PaddingDirty "N05" Error WithLoss "7" "padding is not zero"
        "Nothing should have written there."
        "It is zeroed, or the node is written afresh.";
    ValueInvalid "N06" Error WithLoss "7.2" "value does not verify"
        "The bytes of this value are lost."
        "The value goes: bytes of a file become a hole.";
    HoldsInvalid "H01" Error WithLoss "6.1" "page of snapshots does not verify"
        "The snapshots on it cannot be looked at. The live volume does not need it."
        "The snapshots on it are given up, and what they alone use becomes free.";
    HoldWrong "H02" Error WithLoss "6.1" "what is said of snapshots is wrong"
        "Counts, names or sizes are not those of what there is. Nothing is lost."
        "It is counted afresh; a name that is there twice gets a number.";
    DeadWrong "H03" Error WithLoss "6.2" "dead list is not what snapshots keep"
        "What died is not what the tables of two snapshots say, or a page of the list does not verify. Dropping a snapshot would free too much, or too little."
        "The list is made anew from the tables.";
    SnapshotDamaged "H04" Error WithLoss "6.1" "part of a snapshot does not verify"
        "What the snapshot has there is lost. The live volume does not use it."
        "The snapshot is given up.";
    KeyInvalid "F01" Error WithLoss "11.2" "key cannot be"
        "It is no key of this index."
        "The entry is dropped.";
    ValueMalformed "F02" Error WithLoss "11.3" "value of the metadata index does not parse"
        "The inode or zone reference is lost."
        "The entry is dropped; a directory that others are below is made again.";
    ZoneWrong "F03" Error WithLoss "11.5" "zone and its references disagree"
        "A reference without a zone, a zone without a reference, or another inode number or type."
        "The root counts for more than its references; what has no name is put into lost+found.";
    LinksWrong "F04" Error WithLoss "11.5" "link count is wrong"
        "The inode says another number of names than lead to it."
        "They are counted afresh.";
    DirectoryUnreachable "F05" Error WithLoss "11.5" "directory cannot be reached from the root"
        "A cycle, or a lost parent."
        "Missing directories are made again; what hangs on nothing is put into lost+found; what is below a file is dropped.";
    DataWrong "F06" Error WithLoss "11.4" "block belongs to no file, or lies past its end"
        "The data index holds what no inode asks for."
        "A file whose inode is lost is made again over its contents; what lies behind the end of a sound one is dropped.";
    CounterWrong "F07" Error WithLoss "11.5" "counter is behind"
        "A number that is given out next is in use already."
        "It is set behind what is in use.";
    InodeTwice "F08" Error WithLoss "11.5" "inode number is used twice, or cannot be"
        "Two objects carry the same number, or one carries a number that is never given out."
        "One of them is given a number of its own.";
    XattrLost "F09" Error WithLoss "11.5" "extended attribute without an owner"
        "There is no inode that it belongs to."
        "It is dropped, unless its owner comes back.";
    SumsWrong "F10" Error WithLoss "11.6" "counters of a directory are wrong"
        "They say how much stands below it in its zone. Nothing is lost, but zones may become too large or too small."
        "They are counted afresh.";
    ZoneTooLarge "F11" Error Safely "11.6" "directory or file is too large for the zone that it stands in"
        "Renaming it takes long. It should have a zone of its own."
        "It is given one.";
    ZoneTooSmall "F12" Error WithLoss "11.7" "list of zones to be merged is wrong"
        "It should be noted in the orphan directory, so that the next checkpoint merges it; or it is noted there, and is not too small."
        "The note is set right.";
    OrphanLeft "F13" Note Safely "11.7" "files without a name wait to be deleted"
        "They were unlinked while they were in use, and then the volume was not closed cleanly. The next change of the volume, or a repair, deletes them."
        "They are deleted.";
    HolesUnflagged "F14" Error WithLoss "11.4" "file has holes and says that it has none"
        "What asks for holes or for the space of the file gets a wrong answer. The holes read as zeros; whether they belong there is unknown."
        "The file says that it may have holes.";
}

impl Code {
    /// The entry of the catalog.
    pub fn problem(self) -> &'static Problem {
        &CATALOG[self as usize]
    }

    /// The code as it is printed.
    pub fn name(self) -> &'static str {
        self.problem().name
    }

    /// How bad it is.
    pub fn severity(self) -> Severity {
        self.problem().severity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_found_by_their_place_and_unique() {
        for (at, problem) in CATALOG.iter().enumerate() {
            assert_eq!(problem.code as usize, at);
            assert!(CATALOG[..at].iter().all(|other| other.name != problem.name));
            let (rule, spec) = (problem.rule, include_str!("../../../format/SPEC.md"));
            let heading =
                |line: &str| line.trim_start_matches('#').starts_with(&format!(" {rule} "));
            let found = spec.lines().any(|line| line.starts_with('#') && heading(line));
            assert!(found, "{}: there is no section {rule}", problem.name);
        }
    }
}
