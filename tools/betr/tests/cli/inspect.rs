//! The inspector on a pseudo-terminal, and without one.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use betr_cli::skip;
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{ControlModes, Termios, Winsize, tcgetattr, tcsetwinsize};

use crate::support::{betr, run, scratch, small_image, text};

/// How long the tests wait for output of the program; generous, for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program on a pseudo-terminal of its own.
struct OnTerminal {
    child: Child,
    master: File,
    slave: File,
    before: Termios,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl OnTerminal {
    fn start(image: &Path, words: &[&str]) -> OnTerminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let path = Path::new(std::ffi::OsStr::from_bytes(name.as_bytes()));
        let slave = OpenOptions::new().read(true).write(true).open(path).unwrap();
        size(&slave, 80, 24);
        let before = tcgetattr(&slave).unwrap();
        let end = || Stdio::from(slave.try_clone().unwrap());
        let program = assert_cmd::cargo::cargo_bin!("betr");
        let child = Command::new("setsid")
            .args(["--ctty", "--wait"])
            .arg(program)
            .arg("inspect")
            .arg(image)
            .args(words)
            .envs([("TERM", "xterm-256color"), ("LC_ALL", "C.UTF-8")])
            .env_remove("NO_COLOR")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        let master = File::from(master);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (mut from, to) = (master.try_clone().unwrap(), seen.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                to.lock().unwrap().extend_from_slice(&buffer[..count]);
            }
        });
        OnTerminal { child, master, slave, before, seen }
    }

    fn type_in(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned()
    }

    /// Waits until a text has been written to the terminal.
    fn wait_for(&self, wanted: &str) {
        let begun = Instant::now();
        while !self.shown().contains(wanted) {
            assert!(begun.elapsed() < PATIENCE, "no {wanted:?} in {:?}", self.shown());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for the end of the program. The state of the terminal must be restored.
    fn end(mut self) -> Option<i32> {
        let status = self.child.wait().unwrap();
        // The alternate screen and the mouse mode are left, and the cursor is visible.
        for code in ["\x1b[?1049l", "\x1b[?1000l", "\x1b[?25h"] {
            self.wait_for(code);
        }
        let after = tcgetattr(&self.slave).unwrap();
        assert_eq!(after.input_modes, self.before.input_modes);
        assert_eq!(after.output_modes, self.before.output_modes);
        assert_eq!(after.local_modes, self.before.local_modes);
        // CIBAUD: the speed of input equals that of output, whether it is set explicitly or not.
        let speed_of_input = ControlModes::from_bits_retain(0o2_003_600_000);
        assert_eq!(
            after.control_modes - speed_of_input,
            self.before.control_modes - speed_of_input
        );
        status.code()
    }
}

impl Drop for OnTerminal {
    /// Kills the program if a test has failed.
    fn drop(&mut self) {
        let _ = (self.child.kill(), self.child.wait());
    }
}

fn size(terminal: &File, columns: u16, lines: u16) {
    let size = Winsize { ws_col: columns, ws_row: lines, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).unwrap();
}

/// Whether the prerequisites of the tests exist.
fn has_terminals() -> bool {
    skip::need("setsid", skip::program("setsid").is_some())
        && skip::need("pseudo-terminals (/dev/ptmx)", Path::new("/dev/ptmx").exists())
}

#[test]
fn it_draws_resizes_and_leaves_the_terminal_as_it_was() {
    if !has_terminals() {
        return;
    }
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    let mut terminal = OnTerminal::start(&image, &[]);
    terminal.wait_for("\x1b[?1049h");
    terminal.wait_for("betr inspect");
    terminal.wait_for("geometry");
    terminal.type_in("8");
    terminal.wait_for("FINDI");
    terminal.wait_for("sound");
    size(&terminal.slave, 100, 30);
    terminal.wait_for("8 FINDINGS");
    // A terminal too small to draw on, and a large one again.
    size(&terminal.slave, 20, 5);
    terminal.wait_for("betr inspect needs");
    size(&terminal.slave, 132, 43);
    terminal.type_in("j?");
    terminal.wait_for("keys on Findings");
    terminal.type_in("jq");
    assert_eq!(terminal.end(), Some(0));
}

#[test]
fn a_signal_ends_it_and_the_terminal_is_as_it_was() {
    if !has_terminals() {
        return;
    }
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let terminal = OnTerminal::start(&image, &["--at", "n:2"]);
        terminal.wait_for("n:2");
        let pid = Pid::from_child(&terminal.child);
        kill_process(pid, signal).unwrap();
        let code = terminal.end();
        assert_eq!(code, None, "whoever waits sees the signal");
    }
}

#[test]
fn a_moment_is_opened_beside_the_interface() {
    if !has_terminals() {
        return;
    }
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    let mut terminal = OnTerminal::start(&image, &["--as-of", "checkpoint"]);
    terminal.wait_for("NOT NOW");
    terminal.type_in("q");
    assert_eq!(terminal.end(), Some(0));
}

#[test]
fn without_a_terminal_it_says_what_to_do_instead() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    let output = betr(["inspect"]).arg(&image).output().unwrap();
    let (_, err) = text(&output);
    assert_eq!(output.status.code(), Some(2));
    assert!(err.contains("--screenshot"), "{err}");
    let (out, _) = run("inspect IMG --screenshot 80x24 --at n:2", &image, &dir, 0);
    assert_eq!(out.lines().count(), 24);
    assert!(out.contains("data tree"), "{out}");
    let (_, err) = run("inspect IMG --screenshot 80", &image, &dir, 2);
    assert!(err.contains("100x30"), "{err}");
    let (_, err) = run("inspect IMG --at n:x --screenshot 80x24", &image, &dir, 2);
    assert!(err.contains("n:NODE"), "{err}");
    let (_, err) = run("inspect nothing.img --screenshot 80x24", &image, &dir, 1);
    assert!(err.contains("nothing.img"), "{err}");
}

#[test]
fn the_addresses_of_error_messages_can_be_opened() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    for (address, shown) in [
        ("n:1", "metadata tree"),
        ("n:1/c0", "metadata tree"),
        ("/", "metadata index, z:0 /"),
        ("k#2:00", "data index"),
        ("b:0x10000", "identity block"),
        ("z:0", "zone z:0"),
        ("f:N01.1", "sound"),
    ] {
        let line = format!("inspect IMG --screenshot 132x43 --at {address}");
        let (out, _) = run(&line, &image, &dir, 0);
        assert!(out.contains(shown), "{address}: {out}");
    }
}
