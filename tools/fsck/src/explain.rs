//! `--explain CODE`.

use betr_cli::{Exit, Failure, Io};
use betr_core::check::{CATALOG, Severity};

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
    Ok(Exit::DONE)
}
