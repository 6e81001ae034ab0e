//! The on-disk format: encoders and decoders of every structure of an image; pure, no I/O.
//!
//! Layouts are those of `format/SPEC.md`, written by hand and little-endian. Decoder and encoder of a structure are in
//! one file, in the order of its bytes. A decoder reads named fields from a [`Fields`] cursor, which can report each
//! field to a [`Trace`]. So one decoder serves the engine, the checker, the dump and error messages. Decoders accept
//! exactly what encoders write: counts are compared with their limit and with the bytes left before use, padding must
//! be zero, and no bytes may follow.

mod binding;
mod clone;
mod dead;
mod fields;
mod filter;
mod growth;
mod holds;
mod identity;
mod inode;
mod internal;
mod key;
mod leaf;
mod lens;
pub mod limits;
mod lineage;
mod log;
mod message;
mod names;
mod next;
mod op;
mod plan;
mod run;
mod scatter;
mod seal;
mod section;
mod segments;
mod spacemap;
mod superblock;
mod table;
mod update;
mod zones;

pub use binding::{BINDING_BYTES_MAX, Binding, BoundLeaf, BoundSlice, MsnRange, Target};
pub use clone::RangeClone;
pub use dead::{Dead, DeadList, DeadOwner, DeadPage};
pub use fields::{Fields, FormatError, FormatFault, Trace, Writer};
pub use filter::{Probe, filter_bytes, push_filter};
pub use growth::{Growth, Inflow};
pub use holds::{Hold, HoldState, HoldsBody, HoldsPage, HoldsRoot, is_hold_name};
pub use identity::{IDENTITY_AT, Identity};
pub use inode::{
    APART_SUM_AT, DATA_SUM_AT, DATA_ZONE_AT, FLAGS_AT, FileType, INO_AT, INODE_BYTES, Inode,
    LINKS_AT, LinkKind, META_SUM_AT, MetaValue, Parent, SIZE_AT, SPARSE, ZONE_REF_BYTES, ZoneRef,
    apart,
};
pub(crate) use internal::{CHILD_BYTES, RUN_BYTES, SLICE_COST};
pub use internal::{ChildRef, InternalHead, RunRef, SectionRef, SliceList, SliceRef};
pub use key::{Bounds, Key};
pub(crate) use key::{separator, shared_prefix};
pub(crate) use leaf::BASEMENT_MAX;
pub use leaf::{
    BasementRef, BasementSize, Basements, HEAD_PADDING_MAX, LeafHead, PartOffsets, PartSizes,
    Places, stand_together,
};
pub use lens::{Joined, Lens, prefix_end};
pub use lineage::{Lineage, is_fixed, tag_of, untagged};
pub use log::{
    GROUP_HEADER_BYTES, Group, GroupWriter, Record, RecordMessage, are_apart, block_after, clones,
    group_length,
};
pub use message::{Action, Kind, Message, MessageRef, RangeDelete};
pub use names::{MetaKey, MetaPlace, data_key, is_name, parse_data_key};
pub use next::{NextNumbers, is_number};
pub use op::Op;
pub use plan::{BlockBytes, CHANGE_BYTES, Change, PlanHeader, PlanKind};
pub(crate) use run::MESSAGE_BYTES;
pub use run::{
    RUN_HEADER_BYTES, RunHeader, decode_ranges, decode_slice, encode_ranges, encode_slice,
    read_slice,
};
pub use scatter::{MAP_EXTENTS, ScatterMap};
pub use seal::{Birth, Magic, SEAL_BYTES, Seal};
pub(crate) use section::{CHUNK_BYTES, Chunks, SECTION_BYTES};
pub use section::{
    ChunkRef, EntryRef, KeySection, NO_CHUNK, SECTION_PADDING_MAX, chunks_of, encode_section,
    is_block, placed_chunks, section_entry_bytes,
};
pub use segments::{Segment, Segments};
pub use spacemap::{BITS_PER_PAGE, MapPage};
pub use superblock::{Features, HASH_SHA256, PruneRange, Superblock, TableRoot};
pub use table::{ENTRIES_PER_PAGE, Entry, POINTERS_PER_PAGE, PageBody, PagePointer, TablePage};
pub use update::{Stage, Update, apply_stages, growth_of, is_anew};
pub use zones::{Sums, ZoneSizes};
