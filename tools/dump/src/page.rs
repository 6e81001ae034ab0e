//! The pages of the allocation table.

use std::collections::HashSet;

use betr_cli::{Failure, Io};
use betr_core::format::{POINTERS_PER_PAGE, PageBody, TablePage};
use betr_core::ids::BLOCK_SIZE;

use crate::Image;
use crate::structure::Output;

/// Shows every page, parents before their children.
pub(crate) fn show(image: &Image, output: &mut Output, io: &mut Io) -> Result<(), Failure> {
    let root = image.superblock.table;
    let mut waiting = vec![(root.levels - 1, 0u64, root.page)];
    let mut seen = HashSet::new();
    while let Some((level, index, pointer)) = waiting.pop() {
        let title = format!("table page {level}/{index}");
        if !seen.insert(pointer.block) {
            output.damage(io, &title, format_args!("block {} was shown before", pointer.block))?;
            continue;
        }
        let at = pointer.block.byte();
        let block = match image.disk.read(at, BLOCK_SIZE) {
            Ok(block) => block,
            Err(error) => {
                output.damage(io, &title, error)?;
                continue;
            }
        };
        let page =
            output.structure(io, &title, at, &block, |trace| TablePage::decode(&block, trace))?;
        let Some((seal, page)) = page else { continue };
        if seal.hash != pointer.hash {
            output.damage(io, &title, "is not the page that its pointer means")?;
        }
        if let (PageBody::Pointers(pointers), Some(below)) = (&page.body, level.checked_sub(1)) {
            for (at, pointer) in pointers.iter().enumerate().rev() {
                if let Some(pointer) = pointer {
                    let child = index.saturating_mul(POINTERS_PER_PAGE as u64) + at as u64;
                    waiting.push((below, child, *pointer));
                }
            }
        }
    }
    Ok(())
}
