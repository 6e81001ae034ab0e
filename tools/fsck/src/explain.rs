//! `--explain CODE`: prints the meaning of a code.

use betr_cli::{Exit, Failure, Io};
use betr_core::check::{CATALOG, Repairable, Severity};

use crate::EXIT_CODES;

/// The last part of the manual: exit codes, and all problems by code.
pub(crate) fn manual() -> String {
    let mut text = format!("{EXIT_CODES}\n\nProblems, of which --explain says more:\n");
    for problem in CATALOG {
        text += &format!("  {}  {}\n", problem.name, problem.title);
    }
    text
}

pub(crate) fn explain(code: &str, io: &mut Io) -> Result<Exit, Failure> {
    let Some(problem) = CATALOG.iter().find(|problem| problem.name.eq_ignore_ascii_case(code))
    else {
        let codes: Vec<&str> = CATALOG.iter().map(|problem| problem.name).collect();
        return Err(Failure::usage(format!(
            "there is no code {code}: the codes are {}",
            codes.join(" ")
        )));
    };
    let severity = match problem.severity {
        Severity::Note => "note",
        Severity::Error => "error",
    };
    writeln!(io.out, "{} ({severity}): {}", problem.name, problem.title)?;
    writeln!(io.out, "{}", problem.meaning)?;
    let consent = match problem.repairable {
        Repairable::Nothing | Repairable::Safely => " (-p, -y)",
        Repairable::WithLoss => " (-y)",
        Repairable::No => "",
    };
    writeln!(io.out, "Repair{consent}: {}", problem.repair)?;
    writeln!(io.out, "Rule: format/SPEC.md, section {}", problem.rule)?;
    Ok(Exit::DONE)
}
