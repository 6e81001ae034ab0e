//! Times reading a tree: `list_tree DIRECTORY`.

use std::path::Path;
use std::time::Instant;

use betr_copy::host::{Kind, Source};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = std::env::args_os().nth(1).ok_or("which directory?")?;
    let source = Source::open(Path::new(&root))?;
    let start = Instant::now();
    let links = source.links()?;
    println!("links: {} objects in {:?}", links.iter().count(), start.elapsed());

    let start = Instant::now();
    let (mut names, mut xattrs) = (0, 0);
    let mut files = Vec::new();
    let mut waiting = vec![Vec::new()];
    while let Some(dir) = waiting.pop() {
        for entry in source.list(&dir)? {
            let mut path = dir.clone();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&entry.name);
            names += 1;
            xattrs += entry.meta.xattrs.len();
            match entry.meta.kind {
                Kind::Directory => waiting.push(path),
                Kind::File => files.push((path, entry.meta)),
                _ => {}
            }
        }
    }
    println!("list: {names} names, {xattrs} extended attributes in {:?}", start.elapsed());

    let start = Instant::now();
    let (mut bytes, mut buffer) = (0, vec![0; 1 << 20]);
    for (path, meta) in &files {
        let mut reader = source.reader(path, meta)?;
        while let Some((_, length)) = reader.next_segment(&mut buffer)? {
            bytes += length;
        }
        reader.finish()?;
    }
    println!("read: {} files, {bytes} bytes in {:?}", files.len(), start.elapsed());
    Ok(())
}
