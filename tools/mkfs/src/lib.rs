//! `betr mkfs`: creates an image, empty, or from a tree of the host or a tar archive.
//!
//! The image gets its name only when it is complete. The same tree with the same UUID and `SOURCE_DATE_EPOCH` gives
//! the same bytes.

mod contents;
mod minimize;
mod size;

use std::path::PathBuf;
use std::sync::Arc;

use betr_cli::identity::{parse_label, parse_uuid};
use betr_cli::progress::Meter;
use betr_cli::size::{human, parse_size};
use betr_cli::volume::{clock_now, failure, nonces};
use betr_cli::{Exit, ExitCodes, Failure, Io, image, json, show, time};
use betr_copy::{CopyError, ExcludeArgs, ImportOptions, Imported, OwnerArgs, tally};
use betr_core::device::Device;
use betr_core::format::{Superblock, ZoneSizes};
use betr_core::fs::{Attributes, Fs};
use betr_core::ids::Time;
use betr_core::space::{Layout, default_log_bytes};
use betr_core::store::{CacheBudget, Geometry};
use betr_core::volume::{CreateOptions, NonceSource, Volume};
use serde_json::json;
use uuid::Uuid;

use crate::contents::{Contents, copy_failure};

/// Exit codes, with the meanings of mkfs(8).
pub const EXIT_CODES: ExitCodes = ExitCodes {
    how: "",
    codes: &[(Exit::DONE, "made"), (Exit::FAILED, "failed, or wrong usage")],
    note: "",
};

/// Make a betr image
///
/// With -d and without SIZE the image is made large enough for what is stored of the contents and a quarter more, and at
/// least 16 MiB: blocks of files that are all zeros are not stored. The file is sparse, so that what is not used takes no space. The log takes 1/64 of
/// the image, from 128 KiB to 64 MiB.
///
/// With a fixed UUID and SOURCE_DATE_EPOCH the same tree gives the same image, byte for byte: no time
/// is later than SOURCE_DATE_EPOCH; times of access are those of the last modification; times of
/// change and birth are SOURCE_DATE_EPOCH itself.
#[derive(clap::Args, Debug)]
#[command(after_help = EXIT_CODES.to_string())]
pub struct Args {
    /// Fill the image with this directory of the host, or with the contents of this tar archive; "-" is an
    /// archive on standard input, which needs a SIZE
    ///
    /// Archives are read in the formats v7, ustar, GNU and pax, with extended attributes, access control lists and
    /// sparse files, also compressed by gzip, xz or zstd. Of owners and groups the numbers count, not the names. Directories that
    /// are missing in an archive are made for root with permissions 0755; a member that comes again replaces
    /// the former; a name that leads upwards ('..') is an error.
    #[arg(short = 'd', value_name = "DIR|TAR")]
    contents: Option<PathBuf>,
    #[command(flatten)]
    excludes: ExcludeArgs,
    #[command(flatten)]
    owners: OwnerArgs,
    /// Take only the tag of directories that are tagged as caches (CACHEDIR.TAG)
    #[arg(long)]
    exclude_caches: bool,
    /// The label of the volume, at most 64 bytes
    #[arg(short = 'L', value_name = "LABEL", default_value = "", value_parser = parse_label)]
    label: String,
    /// The UUID of the volume, or "random" or "clear"
    #[arg(short = 'U', value_name = "UUID", default_value = "random", value_parser = parse_uuid)]
    uuid: Uuid,
    /// The size of nodes, a power of two [default: 4 MiB, or what 1/256 of the image allows]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    node_size: Option<u64>,
    /// The size of basements, the parts of leaves that are read at once [default: 4 KiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    basement_size: Option<u64>,
    /// Directories and files that grow beyond C1 become zones of their own, and zones that fall below C0 are
    /// merged again. 0 makes everything a zone; "inf" only what moves while it is large, and what has several links
    /// [default: inf; C0 is a quarter of C1, at most 1 MiB and 1/8 of the log]
    #[arg(long, value_name = "C1[,C0]", value_parser = zone_sizes)]
    zone_size: Option<ZoneSizes>,
    /// The size of the log [default: 1/64 of the image]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    log_size: Option<u64>,
    /// Make the image as small as the contents allow, to within 1 %
    ///
    /// The contents are read, and written to a temporary file beside the image, several times. What is left free is what
    /// keeps the volume from getting stuck, and little more.
    #[arg(long, requires = "contents", conflicts_with = "size")]
    minimize: bool,
    /// Only say what would be made
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Print nothing on standard output
    #[arg(short, long)]
    quiet: bool,
    /// Overwrite what the image holds
    #[arg(short, long)]
    force: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The image: a file, which is made, or a block device
    image: PathBuf,
    /// Its size; without a unit in bytes
    #[arg(value_parser = parse_size)]
    size: Option<u64>,
}

/// Parses C1, or C1 and C0 separated by a comma.
fn zone_sizes(text: &str) -> Result<ZoneSizes, String> {
    let (max, min) = match text.split_once(',') {
        Some((max, min)) => (max, Some(parse_size(min)?)),
        None => (text, None),
    };
    let of_max = match max {
        "inf" => ZoneSizes::UNLIMITED,
        max => ZoneSizes::of_max(parse_size(max)?),
    };
    let sizes = ZoneSizes { min: min.unwrap_or(of_max.min), ..of_max };
    match sizes {
        ZoneSizes { min: 1.., max: u64::MAX } => {
            Err(format!("C0, {}, asks for a C1: without one no bytes are counted", sizes.min))
        }
        ZoneSizes { min, max } if min > max => Err(format!("C0, {min}, is larger than C1, {max}")),
        _ => Ok(sizes),
    }
}

/// The parameters of the image to create.
struct Plan {
    bytes: u64,
    log_bytes: u64,
    geometry: Geometry,
    zones: ZoneSizes,
    now: Time,
    options: ImportOptions,
}

/// Runs the tool.
pub fn run(args: &Args, io: &mut Io) -> Result<Exit, Failure> {
    // mkfs(8) has only the exit codes for success and failure.
    make(args, io).map_err(|failure| failure.with_exit(Exit::FAILED))
}

fn make(args: &Args, io: &mut Io) -> Result<Exit, Failure> {
    let excludes = args.excludes.excludes().map_err(Failure::usage)?;
    let contents = args.contents.as_deref();
    let counting = |what| Meter::counting(!args.quiet, what, tally::so_far);
    let meter = counting("Reading");
    let counts = size::follows_contents(&args.image, args.size);
    let contents = contents.map(|path| Contents::open(path, excludes, args.exclude_caches, counts));
    let mut contents = contents.transpose()?;
    let bytes = size::image_bytes(&args.image, args.size, contents.as_ref())?;
    drop(meter);
    let meter = counting("Finding the least size");
    let bytes = match &mut contents {
        Some(contents) if args.minimize => least_bytes(args, contents, bytes)?,
        _ => bytes,
    };
    drop(meter);
    let plan = plan(args, bytes)?;
    if args.dry_run {
        // A dry run fails where a real one would. The target is dropped without a commit, so nothing is left.
        drop(image::create(&args.image, plan.bytes, args.force)?);
        return show(args, &plan, None, io);
    }
    let target = image::create(&args.image, plan.bytes, args.force)?;
    target.begin()?;
    let device = target.device(plan.bytes);
    let meter = counting("Writing");
    let made = fill(args, &plan, nonces()?, device, contents.as_mut(), &mut |warning| {
        // A failure to print the warning must not fail the creation.
        let _ = io.note(&format!("betr mkfs: warning: {warning}"));
    });
    let (fs, imported) = made.map_err(|error| match error {
        CopyError::Image(betr_core::Error::NoSpace { .. }) => {
            too_small(args, plan.bytes, contents.as_ref())
        }
        CopyError::Image(error) => failure(&args.image, None, &error),
        other => copy_failure(&other),
    })?;
    let superblock = fs.volume().superblock().clone();
    drop(fs);
    target.commit()?;
    drop(meter);
    show(args, &plan, Some(&(superblock, imported)), io)
}

/// The error for contents that do not fit.
fn too_small(args: &Args, bytes: u64, contents: Option<&Contents>) -> Failure {
    let name = show::path(&args.image);
    let found = format!(
        "{name}: no space left in the image: the contents do not fit into {} ({bytes} bytes)",
        human(bytes)
    );
    let needs = contents.map_or(Ok(None), Contents::needs);
    let enough = needs.ok().flatten().map(|needs| size::needed(&needs));
    Failure::failed(match enough.filter(|enough| *enough > bytes) {
        Some(enough) => format!(
            "{found}: a SIZE of {} ({enough} bytes) is enough, and is taken where none is given; \
             --minimize takes the least",
            human(enough)
        ),
        None => format!("{found}: give a larger SIZE"),
    })
}

/// The smallest size that the contents fit into; `enough` is an estimate that should suffice.
fn least_bytes(args: &Args, contents: &mut Contents, enough: u64) -> Result<u64, Failure> {
    if let Contents::Stream(..) = contents {
        let name = show::path(&args.image);
        let why = "--minimize reads the contents several times, which a pipe cannot give";
        return Err(Failure::usage(format!("{name}: {why}: write them to a file first")));
    }
    minimize::least(enough, |bytes| {
        let Ok(plan) = plan(args, bytes) else { return Ok(None) };
        let scratch = betr_cli::scratch::beside(&args.image)?;
        let failed = |error: std::io::Error| {
            Failure::failed(format!("a temporary file beside {}: {error}", show::path(&args.image)))
        };
        let device = scratch.device(bytes).map_err(failed)?;
        let made = fill(args, &plan, nonces()?, device, Some(contents), &mut |_| {});
        match made.and_then(|(fs, _)| Ok(fs.volume().blocks()?.available)) {
            Ok(available) => Ok(Some(available)),
            // Too small for the contents, or for the fixed structures.
            Err(CopyError::Image(
                betr_core::Error::NoSpace { .. } | betr_core::Error::Input(_),
            )) => Ok(None),
            Err(CopyError::Image(error)) => Err(failure(&args.image, None, &error)),
            Err(other) => Err(copy_failure(&other)),
        }
    })
}

fn plan(args: &Args, bytes: u64) -> Result<Plan, Failure> {
    let epoch = time::source_date_epoch().map_err(Failure::usage)?;
    let now = epoch.map_or_else(clock_now, |secs| Time { secs, nanos: 0 });
    let log_bytes = args.log_size.unwrap_or_else(|| default_log_bytes(bytes));
    let geometry = size::geometry(bytes, args.node_size, args.basement_size)?;
    let refuse =
        |error: betr_core::Error| Failure::failed(format!("{}: {error}", show::path(&args.image)));
    Layout::new(bytes, log_bytes).map_err(refuse)?;
    let asked = args.zone_size.unwrap_or_default();
    let zones = asked.within(log_bytes);
    let is_implied = asked.min == ZoneSizes::of_max(asked.max).min;
    if zones != asked && !is_implied {
        return Err(Failure::usage(format!(
            "C0 is {} bytes, and only zones of up to {} bytes can be merged with this log (--log-size)",
            asked.min, zones.min
        )));
    }
    let options = ImportOptions { epoch, owners: args.owners.owners() };
    Ok(Plan { bytes, log_bytes, geometry, zones, now, options })
}

/// Writes the image. It is complete after its one checkpoint, at the end.
fn fill(
    args: &Args,
    plan: &Plan,
    nonces: NonceSource,
    device: Arc<dyn Device>,
    contents: Option<&mut Contents>,
    warn: &mut dyn FnMut(String),
) -> Result<(Fs, Imported), CopyError> {
    let options = CreateOptions {
        label: args.label.clone(),
        log_bytes: plan.log_bytes,
        geometry: plan.geometry,
        zones: plan.zones,
        cache: CacheBudget::of(192 << 20),
        ..CreateOptions::new(args.uuid.into_bytes(), plan.bytes, nonces)
    };
    let volume = Volume::create(device, options)?;
    let now = plan.now;
    let empty = Attributes { perm: 0o755, ..Attributes::at(now) };
    // The contents may describe the root later.
    let root = if contents.is_some() { empty } else { plan.options.owned(empty)? };
    let mut fs = Fs::format(volume, Box::new(move || now), root)?;
    let imported = match contents {
        Some(contents) => contents.import(&mut fs, plan.options, warn)?,
        None => Imported::default(),
    };
    // Directories that grew beyond a zone were moved: what they left behind goes with its leaves, which are few.
    fs.volume_mut().reclaim(u64::MAX)?;
    fs.checkpoint()?;
    Ok((fs, imported))
}

fn show(
    args: &Args,
    plan: &Plan,
    made: Option<&(Superblock, Imported)>,
    io: &mut Io,
) -> Result<Exit, Failure> {
    let geometry = plan.geometry;
    if args.json {
        let mut value = json!({
            "image": show::path(&args.image),
            "dry_run": made.is_none(),
            "label": args.label,
            "uuid": args.uuid.to_string(),
            "bytes": plan.bytes,
            "log_bytes": plan.log_bytes,
            "zone_min": plan.zones.min,
            "zone_max": betr_cli::size::limit(plan.zones.max),
            "node_size": geometry.node_size,
            "leaf_size": geometry.leaf_size,
            "basement_size": geometry.basement_size,
        });
        if let Some((superblock, imported)) = made {
            value["root_hash"] = json::hex(&superblock.table.page.hash.0).into();
            value["used_blocks"] = superblock.used_blocks.into();
            value["files"] = imported.files.into();
            value["directories"] = imported.directories.into();
            value["others"] = imported.others.into();
            value["links"] = imported.links.into();
            value["file_bytes"] = imported.bytes.into();
        }
        io.json("betr.mkfs", 1, value)?;
        return Ok(Exit::DONE);
    }
    if args.quiet {
        return Ok(Exit::DONE);
    }
    let out = &mut io.out;
    writeln!(
        out,
        "    Image: {}{}",
        show::path(&args.image),
        if made.is_none() { " (not made: dry run)" } else { "" }
    )?;
    writeln!(out, "    Label: {}", betr_core::text::Printable(args.label.as_bytes()))?;
    writeln!(out, "     UUID: {}", args.uuid)?;
    writeln!(
        out,
        "     Size: {} ({} bytes), log {}",
        human(plan.bytes),
        plan.bytes,
        human(plan.log_bytes)
    )?;
    writeln!(
        out,
        "    Nodes: {}, leaves of {}, basements of {}",
        human(geometry.node_size.into()),
        human(geometry.leaf_size.into()),
        human(geometry.basement_size.into())
    )?;
    if let Some((superblock, imported)) = made {
        if args.contents.is_some() {
            writeln!(
                out,
                " Contents: {} files of {}, {} directories, {} others, {} more links",
                imported.files,
                human(imported.bytes),
                imported.directories,
                imported.others,
                imported.links
            )?;
        }
        writeln!(out, "Root hash: {}", superblock.table.page.hash)?;
    }
    Ok(Exit::DONE)
}
