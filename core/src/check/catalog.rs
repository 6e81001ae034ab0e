//! The one table of problems: codes, titles, what they mean. Messages, JSON and `--explain` are made
//! from it.

/// How bad a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing; nothing is wrong.
    Note,
    /// Something is wrong.
    Error,
}

/// A kind of problem.
pub struct Problem {
    /// Its code.
    pub code: Code,
    /// The code as it is printed; it never changes.
    pub name: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What it is, in a few words.
    pub title: &'static str,
    /// What it means and what can be done.
    pub meaning: &'static str,
}

macro_rules! catalog {
    ($($code:ident $name:literal $severity:ident $title:literal $meaning:literal;)*) => {
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
            },)*
        ];
    };
}

catalog! {
    ReadFailed "D01" Error "cannot be read"
        "The device failed to read these bytes. Copy what can be read to a sound device first.";
    IdentityInvalid "I01" Error "identity block does not verify"
        "UUID, label and the place of the superblocks cannot be trusted. The rest of the image may be whole.";
    ImageTruncated "I02" Error "image is shorter than it says"
        "The end of the image is missing, with everything that was there.";
    SlotInvalid "S01" Error "superblock slot does not verify"
        "A slot of the ring holds neither zeros nor a superblock. The other slot of the same epoch serves, and repair copies it.";
    NoSuperblock "S02" Error "no superblock slot verifies"
        "Without a superblock the trees cannot be found.";
    SlotTorn "S04" Note "superblock slot was being written when the power went"
        "The checkpoint that it belongs to was never durable; the one before it counts. The next checkpoint writes it afresh.";
    CheckpointLost "S05" Error "newest checkpoint is lost"
        "It was durable, but neither of its superblock slots verifies. What it held beyond the checkpoint before it is lost; -b chooses that one.";
    FeaturesUnknown "S03" Error "features that this version does not know"
        "The image was made by a newer version. Use that to check it.";
    LogReplayed "L01" Note "log holds records that are not in the trees yet"
        "The volume was not closed cleanly. The records were replayed in memory for this check; the next mount, or a repair, makes them durable.";
    LogTorn "L02" Note "log ends in a group that was never finished"
        "A power cut while a group was being written. What it held was never acknowledged.";
    LogDamaged "L03" Error "log group that was acknowledged does not verify"
        "Operations that had been made durable are lost from this group on.";
    SuperblockLost "L04" Error "log is younger than the superblock"
        "A checkpoint was durable, but its superblock slot does not verify.";
    ReplayFailed "L05" Error "log cannot be replayed"
        "The records are whole, but the trees that they change are not.";
    ValueLost "L06" Error "acknowledged bytes of a file are lost"
        "The log says where they were written, but what stands there does not verify. The rest of the log was replayed.";
    OperationLost "L07" Error "acknowledged operation is lost"
        "It stands in the log behind a group that does not verify, and cannot be replayed without that.";
    MapSlotInvalid "M01" Error "space-map slot does not verify"
        "The other slot of the page may serve. Repair writes both afresh.";
    MapWrong "M02" Error "space map is not the one that the superblock means"
        "A page fell back to an older state. The map can be rebuilt from the table and the nodes.";
    BlockUnmarked "M03" Error "blocks in use are marked free"
        "They would be overwritten. The map can be rebuilt.";
    BlockLost "M04" Error "blocks marked in use belong to nothing"
        "Space is lost, nothing else.";
    BlockTwice "M05" Error "blocks belong to two structures"
        "At least one of them is wrong.";
    BlockOutside "M06" Error "extent lies outside the space for nodes"
        "It reaches past the image's end or into a fixed region.";
    TablePageInvalid "T01" Error "table page does not verify"
        "The nodes that it names cannot be found through it.";
    EntryWrong "T02" Error "table entry contradicts the trees"
        "A node that nothing leads to, or a wrong reference count.";
    NodeMissing "T03" Error "node is not in the table"
        "An edge leads to a node that the table does not know.";
    MapInvalid "N08" Error "map of a scattered node does not verify"
        "It says where the blocks of the node are. What the node holds cannot be found without it.";
    HeadInvalid "N01" Error "head of a node does not verify"
        "What the node holds cannot be found through it.";
    PartInvalid "N02" Error "part of a node does not verify"
        "The keys or messages of this part are lost.";
    NodeWrong "N03" Error "node contradicts its parent"
        "Bounds, height or tree are not those that the edge calls for.";
    MessageWrong "N04" Error "message is where it cannot be"
        "Its key lies outside the child that it is pending for, or its number in the future.";
    GrowthWrong "N07" Error "room that pending updates may need is wrong"
        "Nothing is lost, but a volume that is nearly full may refuse an operation too late, or too early.";
    PaddingDirty "N05" Error "padding is not zero"
        "Nothing should have written there.";
    ValueInvalid "N06" Error "value does not verify"
        "The bytes of this value are lost.";
    KeyInvalid "F01" Error "key cannot be"
        "It is no key of this index.";
    ValueMalformed "F02" Error "value of the metadata index does not parse"
        "The inode or zone reference is lost.";
    ZoneWrong "F03" Error "zone and its references disagree"
        "A reference without a zone, a zone without a reference, or another inode number or type.";
    LinksWrong "F04" Error "link count is wrong"
        "The inode says another number of names than lead to it.";
    DirectoryUnreachable "F05" Error "directory cannot be reached from the root"
        "A cycle, or a lost parent.";
    DataWrong "F06" Error "block belongs to no file, or lies past its end"
        "The data index holds what no inode asks for.";
    CounterWrong "F07" Error "counter is behind"
        "A number that is given out next is in use already.";
    InodeTwice "F08" Error "inode number is used twice"
        "Two objects carry the same number.";
    XattrLost "F09" Error "extended attribute without an owner"
        "There is no inode that it belongs to.";
    SumsWrong "F10" Error "counters of a directory are wrong"
        "They say how much stands below it in its zone. Nothing is lost, but zones may become too large or too small.";
    ZoneTooLarge "F11" Error "directory or file is too large for the zone that it stands in"
        "Renaming it takes long. It should have a zone of its own.";
    ZoneTooSmall "F12" Error "zone is too small, and nobody would notice"
        "It should be noted in the orphan directory, so that the next checkpoint merges it; or it is noted there, and is not too small.";
    OrphanLeft "F13" Note "files without a name wait to be deleted"
        "They were unlinked while they were in use, and then the volume was not closed cleanly. The next change of the volume, or a repair, deletes them.";
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
        }
    }
}
