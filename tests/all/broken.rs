//! Images with exactly one problem: a check finds that problem and no other.

use std::collections::BTreeSet;
use std::sync::Arc;

use betr_core::check::{CATALOG, CheckOptions, Code, Severity, check};
use betr_core::device::{Device, MemoryDevice};
use betr_lab::damage::make_broken;

const ALL: CheckOptions = CheckOptions::ALL;

/// Problems that never occur alone: a group is damaged only if a valid group follows it, whose operations cannot be
/// replayed.
const TOGETHER: [Code; 2] = [Code::LogDamaged, Code::OperationLost];

#[test]
fn each_problem_has_an_image_with_that_problem_alone() {
    let mut wrong = Vec::new();
    for problem in CATALOG {
        let image = match make_broken(problem.code) {
            Ok(Some(image)) => image,
            Ok(None) => {
                assert!([Code::ReadFailed, Code::ReplayFailed].contains(&problem.code));
                continue;
            }
            Err(error) => {
                wrong.push(format!("{}: {error}", problem.name));
                continue;
            }
        };
        assert_eq!(make_broken(problem.code).unwrap().as_ref(), Some(&image), "always the same");
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::from(image));
        let report = check(&device, ALL, &mut ());
        let counts = |code: Code| code == problem.code || code.severity() == Severity::Error;
        let found = report.findings.iter().map(|finding| finding.code).filter(|code| counts(*code));
        let found: BTreeSet<Code> = found.collect();
        let expected = match TOGETHER.contains(&problem.code) {
            true => TOGETHER.into(),
            false => BTreeSet::from([problem.code]),
        };
        if found != expected {
            let some: Vec<_> = report.findings.iter().take(5).collect();
            wrong.push(format!("{}: {found:?}, {some:?}", problem.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
