//! Questions on a terminal, one for each kind of problem.

use std::io::{BufRead, IsTerminal, stdin};

use betr_cli::{Failure, Io};
use betr_core::check::{Code, Report};

/// Whether standard input and output are terminals.
pub(crate) fn can_ask(io: &Io) -> bool {
    io.terminal && stdin().is_terminal()
}

/// Asks whether to repair. The answer is for all findings, because the parts of a repair depend on each other.
pub(crate) fn wants_repair(report: &Report, io: &mut Io) -> Result<bool, Failure> {
    let mut codes: Vec<Code> = Vec::new();
    for finding in &report.findings {
        if !codes.contains(&finding.code) {
            codes.push(finding.code);
        }
    }
    for code in codes {
        let places = report.findings.iter().filter(|finding| finding.code == code).count();
        let problem = code.problem();
        writeln!(io.out, "\n{}: {} ({places} x)", problem.name, problem.title)?;
        write!(io.out, "{} Repair? [y]es, [n]o, [a]ll: ", problem.repair)?;
        io.out.flush()?;
        match answer()? {
            Answer::Yes => {}
            Answer::All => return Ok(true),
            Answer::No => return Ok(false),
        }
    }
    Ok(true)
}

enum Answer {
    Yes,
    No,
    All,
}

/// Reads one line from standard input. Anything but yes and all means no.
fn answer() -> Result<Answer, Failure> {
    let mut line = String::new();
    stdin().lock().read_line(&mut line)?;
    Ok(match line.trim().to_lowercase().as_str() {
        "y" | "yes" => Answer::Yes,
        "a" | "all" => Answer::All,
        _ => Answer::No,
    })
}
