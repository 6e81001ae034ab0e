//! Compares an image before and after a repair.

use std::collections::BTreeSet;
use std::fmt;

use betr_core::check::{Code, Finding, Report, Severity};

/// Why the result of a repair is worse than before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Worse {
    /// There is no valid superblock any more.
    NoSuperblock,
    /// Errors of kinds that were not there before.
    NewErrors(Vec<Code>),
    /// More errors than before.
    MoreErrors {
        /// Number of errors before.
        before: usize,
        /// Number of errors after.
        after: usize,
    },
}

impl fmt::Display for Worse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Worse::NoSuperblock => f.write_str("no superblock would verify any more"),
            Worse::NewErrors(codes) => {
                let names: Vec<&str> = codes.iter().map(|code| code.name()).collect();
                write!(f, "errors that were not there before: {}", names.join(" "))
            }
            Worse::MoreErrors { before, after } => {
                write!(f, "{after} errors, where there were {before}")
            }
        }
    }
}

/// Compares the check of an image with that of its repaired view.
///
/// Notes do not count. New kinds of errors, or more errors, are worse. Errors that the first check could not see do not
/// count: without a superblock it sees nothing else, and it checks the schema only if the structure is sound.
pub fn worse(before: &Report, after: &Report) -> Option<Worse> {
    before.superblock.as_ref()?;
    if after.superblock.is_none() {
        return Some(Worse::NoSuperblock);
    }
    let schema_seen =
        !before.findings.iter().any(|finding| is_error(finding) && !of_schema(finding));
    let count = |finding: &&Finding| is_error(finding) && (schema_seen || !of_schema(finding));
    let old: Vec<&Finding> = before.findings.iter().filter(count).collect();
    let new: Vec<&Finding> = after.findings.iter().filter(count).collect();
    let known: BTreeSet<Code> = old.iter().map(|finding| finding.code).collect();
    let codes: BTreeSet<Code> = new.iter().map(|finding| finding.code).collect();
    let fresh: Vec<Code> = codes.difference(&known).copied().collect();
    if !fresh.is_empty() {
        return Some(Worse::NewErrors(fresh));
    }
    (new.len() > old.len()).then_some(Worse::MoreErrors { before: old.len(), after: new.len() })
}

fn is_error(finding: &Finding) -> bool {
    finding.code.severity() == Severity::Error
}

/// Whether the finding is of the schema, which is checked last.
fn of_schema(finding: &Finding) -> bool {
    finding.code.name().starts_with('F')
}

#[cfg(test)]
mod tests {
    use super::*;
    use betr_core::error::Place;

    /// The report of a check of an image with a superblock.
    fn report(codes: &[Code]) -> Report {
        let device: std::sync::Arc<dyn betr_core::device::Device> =
            std::sync::Arc::new(betr_core::device::MemoryDevice::from(sound()));
        let mut report = betr_core::check::check(&device, Default::default(), &mut ());
        assert!(report.superblock.is_some() && report.findings.is_empty());
        let finding = |code: &Code| Finding { code: *code, place: Place::Image, detail: "".into() };
        report.findings = codes.iter().map(finding).collect();
        report
    }

    fn sound() -> Vec<u8> {
        use betr_core::volume::{Content, CreateOptions, Volume};
        let device = std::sync::Arc::new(betr_core::device::MemoryDevice::new(2 << 20));
        let options = CreateOptions {
            content: Content::Keys,
            log_bytes: 128 << 10,
            ..CreateOptions::new([1; 16], 2 << 20, Box::new(|| 1))
        };
        Volume::create(device.clone(), options).unwrap().checkpoint().unwrap();
        device.snapshot()
    }

    #[test]
    fn worse_is_what_was_not_there_and_could_be_seen() {
        use Code::*;
        let cases: &[(&[Code], &[Code], Option<Worse>)] = &[
            (&[SlotInvalid], &[], None),
            (&[SlotInvalid], &[SlotInvalid], None),
            (&[LogReplayed], &[LogTorn, OrphanLeft], None),
            (
                &[SlotInvalid],
                &[SlotInvalid, SlotInvalid],
                Some(Worse::MoreErrors { before: 1, after: 2 }),
            ),
            (&[SlotInvalid, BlockLost], &[HeadInvalid], Some(Worse::NewErrors(vec![HeadInvalid]))),
            (&[LinksWrong], &[SumsWrong], Some(Worse::NewErrors(vec![SumsWrong]))),
            // The schema was not checked before.
            (&[HeadInvalid], &[LinksWrong, SumsWrong], None),
        ];
        for (before, after, expected) in cases {
            let found = worse(&report(before), &report(after));
            assert_eq!(found, *expected, "{before:?} {after:?}");
        }
        let nothing = Report::default();
        assert_eq!(worse(&report(&[SlotInvalid]), &nothing), Some(Worse::NoSuperblock));
        assert_eq!(worse(&nothing, &report(&[HeadInvalid])), None);
        let said = worse(&report(&[]), &report(&[BlockLost, HeadInvalid])).unwrap().to_string();
        assert_eq!(said, "errors that were not there before: M04 N01");
    }
}
