//! Every screen on a sound image, on one with a log, and on a damaged one.

use super::*;

const SIZES: [(u16, u16); 3] = [(80, 24), (100, 30), (132, 43)];

fn shots(name: &str, image: &Arc<Image>) {
    for screen in Screen::ALL {
        let all = SIZES.map(|size| frame(&begin(image, screen, size)));
        insta::assert_snapshot!(format!("{name}_{}", screen.name().to_lowercase()), all.join("\n"));
    }
}

#[test]
fn every_screen_of_a_sound_image() {
    shots("sound", &open(bytes_of(LAST)));
}

#[test]
fn every_screen_of_an_image_with_a_log() {
    shots("logged", &open(bytes_of(LOGGED)));
}

#[test]
fn every_screen_of_a_damaged_image() {
    shots("damaged", &open(damaged()));
}

#[test]
fn help_palette_and_prompts() {
    let mut model = begin(&open(bytes_of(LAST)), Screen::Findings, (100, 30));
    press(&mut model, "?");
    insta::assert_snapshot!("help", frame(&model));
    press(&mut model, "\x1b:re");
    insta::assert_snapshot!("palette", frame(&model));
    press(&mut model, "\x1b/in");
    insta::assert_snapshot!("search", frame(&model));
}

#[test]
fn ascii_and_no_colour_are_enough() {
    let mut model = begin(&open(bytes_of(LAST)), Screen::Space, (80, 24));
    (model.is_ascii, model.has_color) = (true, false);
    let text = frame(&model);
    assert!(text.is_ascii());
    insta::assert_snapshot!("ascii", text);
}

#[test]
fn the_tour() {
    let (mut model, effects) =
        tour::begin(0, (100, 44)).unwrap_or_else(|failure| panic!("{}", failure.message));
    settle(&mut model, effects);
    let mut frames = vec![frame(&model)];
    let steps = model.tour.as_ref().unwrap().steps.len();
    for _ in 1..steps {
        press(&mut model, " ");
        frames.push(frame(&model));
    }
    // Each step shows what its text describes.
    let pending = |frame: &str| {
        let line = frame.lines().find(|line| line.contains(" pending, ")).unwrap_or_default();
        let digits: String = line
            .split("message")
            .next()
            .into_iter()
            .flat_map(str::chars)
            .filter(char::is_ascii_digit)
            .collect();
        digits.parse::<u64>().unwrap_or(0)
    };
    assert_eq!(pending(&frames[1]), 0);
    assert_eq!(pending(&frames[2]), 1, "{}", frames[2]);
    assert!(frames[3].contains("writes 4 bytes at 100"), "{}", frames[3]);
    assert!(pending(&frames[4]) > 50, "{}", frames[4]);
    // 250 messages were added since; a flush moved most of them out of this node.
    assert!(pending(&frames[5]) < pending(&frames[4]) + 100, "{}", frames[5]);
    assert!(frames[6].contains("range delete"), "{}", frames[6]);
    assert!(frames[7].contains("bound"), "{}", frames[7]);
    assert!(frames[8].contains("bound late, in n:"), "{}", frames[8]);
    assert!(frames[11].contains("sound"), "{}", frames[11]);
    insta::assert_snapshot!("tour", frames.join("\n"));
    // Back one step, then past the end.
    happen(&mut model, key(KeyCode::Backspace));
    assert_eq!(model.tour.as_ref().unwrap().at, steps - 2);
    press(&mut model, " ");
    let last = model.update(key(KeyCode::Char(' ')));
    assert!(last.iter().any(|effect| matches!(effect, Effect::Quit)));
}
