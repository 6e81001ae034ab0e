//! Random events in any order, on screens of any size.

use super::*;
use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};

use crate::action::ACTIONS;

/// A deterministic source of random numbers.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

fn anything(dice: &mut Dice) -> Msg {
    match dice.roll(20) {
        0 => Msg::Resize(dice.roll(160) as u16, dice.roll(60) as u16),
        1 | 2 => {
            let kinds = [
                MouseEventKind::Down(MouseButton::Left),
                MouseEventKind::Drag(MouseButton::Left),
                MouseEventKind::ScrollDown,
                MouseEventKind::ScrollUp,
            ];
            let kind = kinds[dice.roll(4) as usize];
            let (column, row) = (dice.roll(170) as u16, dice.roll(70) as u16);
            Msg::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE })
        }
        3 => {
            let letters = b"/docs/notes@1 n:2 k#2:00 b:0x4000 l:9 z:2 f:N01 checkpoint \\ \x1b";
            key(KeyCode::Char(char::from(letters[dice.roll(letters.len() as u64) as usize])))
        }
        4 => Msg::Tick,
        _ => {
            let entry = &ACTIONS[dice.roll(ACTIONS.len() as u64) as usize];
            let (code, modifiers) = entry.keys[dice.roll(entry.keys.len() as u64) as usize];
            Msg::Key(KeyEvent::new(code, modifiers))
        }
    }
}

/// Carries out effects, except those that write files; delays some answers and drops others.
fn follow(model: &mut Model, effects: Vec<Effect>, late: &mut Vec<Msg>, dice: &mut Dice) {
    let mut waiting: VecDeque<Effect> = effects.into();
    while let Some(effect) = waiting.pop_front() {
        if matches!(effect, Effect::Save { .. } | Effect::WriteOverlay { .. } | Effect::Quit) {
            continue;
        }
        let Some(msg) = perform(effect) else { continue };
        match dice.roll(8) {
            0 => late.push(msg),
            _ => waiting.extend(model.update(msg)),
        }
    }
}

fn wander(image: &Arc<Image>, seed: u64, steps: usize) {
    let mut dice = Dice(seed);
    let (mut model, effects) = Model::begin(image.clone(), None, None, (100, 30));
    let mut late = Vec::new();
    follow(&mut model, effects, &mut late, &mut dice);
    for _ in 0..steps {
        let msg = match late.pop() {
            Some(msg) if dice.roll(3) == 0 => msg,
            Some(other) => {
                late.insert(0, other);
                anything(&mut dice)
            }
            None => anything(&mut dice),
        };
        let effects = model.update(msg);
        follow(&mut model, effects, &mut late, &mut dice);
        let text = frame(&model);
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
    }
    // Esc leads out even while answers are outstanding.
    for _ in 0..600 {
        drop(model.update(key(KeyCode::Esc)));
    }
    assert_eq!(model.screen, Screen::Overview, "seed {seed}");
    assert!(model.prompt.is_none() && model.help.is_none() && !model.is_expanded, "seed {seed}");
}

#[test]
fn random_actions_never_panic_and_esc_leads_out() {
    let rounds: u64 =
        std::env::var("BETR_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(2);
    for (at, bytes) in [bytes_of(LOGGED), bytes_of(LAST), damaged()].into_iter().enumerate() {
        let image = open(bytes);
        for seed in 1..=rounds {
            wander(&image, seed * 7919 + at as u64, 400);
        }
    }
}

#[test]
fn sizes_from_nothing_on() {
    let image = open(bytes_of(LOGGED));
    for screen in Screen::ALL {
        let mut model = begin(&image, screen, (100, 30));
        for width in [0, 1, 2, 3, 10, 59, 60, 61, 99, 100, 131, 132, 133, 300] {
            for height in [0, 1, 2, 5, 14, 15, 16, 24, 100] {
                happen(&mut model, Msg::Resize(width, height));
                let text = frame(&model);
                assert_eq!(text.lines().count(), usize::from(height));
                press(&mut model, "?\x1b:x\x1be");
                drop(frame(&model));
                press(&mut model, "e");
            }
        }
    }
}
