//! The terminal: reads events, draws frames, and restores the terminal at the end.

use std::io::{self, Write, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use base64::Engine;
use crossterm::event::{
    DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture, Event,
    read,
};
use crossterm::execute;
use ratatui::{DefaultTerminal, restore, try_init};

use crate::model::{Effect, Model, Msg};
use crate::perform::perform;
use crate::view::view;

/// A frame is drawn at least every 120 ms while a query runs.
const TICK: Duration = Duration::from_millis(120);
/// The image is checked for changes by other processes every 2 s.
const PULSE: Duration = Duration::from_secs(2);
/// At most 256 events are handled between two frames.
const BETWEEN_FRAMES: usize = 256;

/// Runs the event loop until the program ends.
pub(crate) fn show(mut model: Model, effects: Vec<Effect>) -> io::Result<()> {
    let mut terminal = try_init()?;
    let after_panic = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // A panic in another thread is caught there, and the terminal is still in use.
        if std::thread::current().name() == Some("main") {
            let _ = execute!(stdout(), DisableMouseCapture, DisableBracketedPaste);
            after_panic(panic);
        }
    }));
    let _ = execute!(stdout(), EnableMouseCapture, EnableBracketedPaste);
    let result = run(&mut terminal, &mut model, effects);
    let _ = execute!(stdout(), DisableMouseCapture, DisableBracketedPaste);
    restore();
    let _ = terminal.show_cursor();
    // After the terminal is restored, the signal ends the process, so that its sender sees that.
    if let Some(signal) = result? {
        signal_hook::low_level::emulate_default_handler(signal)?;
    }
    Ok(())
}

/// A message from another thread.
enum Said {
    Msg(Box<Msg>),
    /// End of input.
    End,
    /// The process received this signal.
    Signal(i32),
}

fn run(
    terminal: &mut DefaultTerminal,
    model: &mut Model,
    effects: Vec<Effect>,
) -> io::Result<Option<i32>> {
    let (sender, receiver) = channel();
    listen(sender.clone());
    end_on_signals(sender.clone())?;
    let size = terminal.size()?;
    let mut waiting = effects;
    waiting.extend(model.update(Msg::Resize(size.width, size.height)));
    let mut looked = Instant::now();
    let is_looking = Arc::new(AtomicBool::new(false));
    let mut is_new = true;
    loop {
        for effect in waiting.drain(..) {
            match effect {
                Effect::Quit => return Ok(None),
                Effect::Copy(text) => copy(&text)?,
                effect => beside(effect, &sender),
            }
        }
        if is_new || model.is_busy() {
            terminal.draw(|frame| view(model, frame))?;
        }
        if looked.elapsed() >= PULSE {
            looked = Instant::now();
            look(model, &is_looking, &sender);
        }
        match take(&receiver, model, &mut waiting) {
            Taken::Nothing => is_new = false,
            Taken::Something => is_new = true,
            Taken::End(signal) => return Ok(signal),
        }
    }
}

/// The outcome of [`take`].
enum Taken {
    Nothing,
    Something,
    /// The program ends; `Some` after a signal.
    End(Option<i32>),
}

/// Handles the events that have arrived.
fn take(receiver: &Receiver<Said>, model: &mut Model, waiting: &mut Vec<Effect>) -> Taken {
    let mut first = Some(receiver.recv_timeout(TICK));
    let mut taken = Taken::Nothing;
    for _ in 0..BETWEEN_FRAMES {
        let said = match first.take() {
            Some(Ok(said)) => said,
            Some(Err(RecvTimeoutError::Timeout)) => {
                waiting.extend(model.update(Msg::Tick));
                break;
            }
            Some(Err(RecvTimeoutError::Disconnected)) => return Taken::End(None),
            None => match receiver.try_recv() {
                Ok(said) => said,
                Err(_) => break,
            },
        };
        match said {
            Said::End => return Taken::End(None),
            Said::Signal(signal) => return Taken::End(Some(signal)),
            Said::Msg(msg) => {
                taken = Taken::Something;
                waiting.extend(model.update(*msg));
            }
        }
        if waiting.iter().any(|effect| matches!(effect, Effect::Quit)) {
            break;
        }
    }
    taken
}

/// Starts the thread that reads events from the terminal.
fn listen(sender: Sender<Said>) {
    std::thread::spawn(move || {
        loop {
            let said = match read() {
                Ok(Event::Key(key)) => Said::Msg(Box::new(Msg::Key(key))),
                Ok(Event::Mouse(mouse)) => Said::Msg(Box::new(Msg::Mouse(mouse))),
                Ok(Event::Paste(text)) => Said::Msg(Box::new(Msg::Paste(text))),
                Ok(Event::Resize(width, height)) => Said::Msg(Box::new(Msg::Resize(width, height))),
                Ok(_) => continue,
                Err(_) => Said::End,
            };
            let is_end = matches!(said, Said::End);
            if sender.send(said).is_err() || is_end {
                return;
            }
        }
    });
}

fn end_on_signals(sender: Sender<Said>) -> io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM])?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            let _ = sender.send(Said::Signal(signal));
        }
    });
    Ok(())
}

/// Carries out an effect in another thread, and sends the resulting event.
fn beside(effect: Effect, sender: &Sender<Said>) {
    let sender = sender.clone();
    std::thread::spawn(move || {
        if let Some(msg) = perform(effect) {
            let _ = sender.send(Said::Msg(Box::new(msg)));
        }
    });
}

/// Starts a check for changes by other processes.
fn look(model: &Model, is_looking: &Arc<AtomicBool>, sender: &Sender<Said>) {
    if model.has_moved || is_looking.swap(true, Ordering::Relaxed) {
        return;
    }
    let (image, is_looking, sender) = (model.image.clone(), is_looking.clone(), sender.clone());
    std::thread::spawn(move || {
        if image.has_moved() {
            let _ = sender.send(Said::Msg(Box::new(Msg::Moved(image.clone()))));
        }
        is_looking.store(false, Ordering::Relaxed);
    });
}

/// Copies a text to the clipboard of the terminal (OSC 52).
fn copy(text: &str) -> io::Result<()> {
    let encoded = base64::engine::general_purpose::STANDARD.encode(text);
    write!(stdout(), "\x1b]52;c;{encoded}\x1b\\")?;
    stdout().flush()
}
