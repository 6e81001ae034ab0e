//! Counting what an archive holds before it is read for good.

use betr_host::{Excludes, Kind, Survey};

use crate::TarError;
use crate::reader::{Archive, What};

/// What data of a file are rounded to.
const BLOCK: u64 = 4096;

/// Counts the members of an archive that are not excluded. Holes do not count as data, and what is replaced
/// later on does.
pub fn survey(archive: &mut Archive, excludes: &Excludes) -> Result<Survey, TarError> {
    let mut survey = Survey::default();
    while let Some(member) = archive.next_member()? {
        if excludes.covers(&member.path) {
            continue;
        }
        survey.names += 1;
        survey.names_bytes +=
            member.path.rsplit(|byte| *byte == b'/').next().map_or(0, <[u8]>::len) as u64;
        let stored = archive.stored();
        survey.data_bytes = survey.data_bytes.saturating_add(stored);
        survey.allocated_bytes = survey.data_bytes;
        survey.block_bytes = survey.block_bytes.saturating_add(stored.next_multiple_of(BLOCK));
        match member.what {
            What::Object(meta) => match meta.kind {
                Kind::Directory => survey.directories += 1,
                Kind::File => survey.files += 1,
                Kind::Symlink(target) => {
                    survey.others += 1;
                    survey.symlink_bytes += target.len() as u64;
                }
                _ => survey.others += 1,
            },
            What::Link { .. } => {}
        }
    }
    Ok(survey)
}
