//! Sessions of a user, key by key.

use super::*;

use betr_core::address::Address;

#[test]
fn from_a_finding_to_its_bytes_and_to_the_repair() {
    let mut model = begin(&open(damaged()), Screen::Overview, (132, 43));
    press(&mut model, "8");
    let text = frame(&model);
    assert!(text.contains("N0") && text.contains("n:2"), "{text}");
    press(&mut model, "x");
    let text = frame(&model);
    assert!(text.contains("DOES NOT VERIFY") && text.contains("hash computed"), "{text}");
    assert_eq!(model.screen, Screen::Hex);
    // Esc and `p`: five keys in all.
    press(&mut model, "\x1bp");
    let text = frame(&model);
    assert!(text.contains("repair:") && text.contains("findings before, 0 after"), "{text}");
    assert!(text.contains("w writes it to an overlay"), "{text}");
}

#[test]
fn a_path_in_two_keys_and_its_name() {
    let mut model = begin(&open(bytes_of(LOGGED)), Screen::Overview, (132, 43));
    press(&mut model, ":/docs/notes\n");
    let text = frame(&model);
    assert!(
        text.contains("DOWN") && text.contains("READ") && text.contains("regular file"),
        "{text}"
    );
    // Tab moves to the directory listing, from which the next entry is opened.
    press(&mut model, "\t");
    assert_eq!(model.spots().first(), Some(&Spot::At(Address::Path(b"/docs/notes".to_vec()))));
    happen(&mut model, key(KeyCode::Down));
    press(&mut model, "\n");
    assert_eq!(model.spot, Spot::At(Address::Path(b"/docs/page-0".to_vec())));
    press(&mut model, "H");
    assert_eq!(model.spot, Spot::At(Address::Path(b"/docs/notes".to_vec())));
    press(&mut model, "L");
    assert_eq!(model.spot, Spot::At(Address::Path(b"/docs/page-0".to_vec())));
}

#[test]
fn time_goes_back_and_forth() {
    let mut model = begin(&open(bytes_of(LOGGED)), Screen::Key, (100, 44));
    press(&mut model, ":/big@3\n");
    assert!(frame(&model).contains("bound late"), "{}", frame(&model));
    press(&mut model, "[");
    let text = frame(&model);
    assert!(text.contains("NOT NOW") && text.contains("READ       returns nothing"), "{text}");
    press(&mut model, "[");
    assert!(frame(&model).contains("AS OF e:"), "{}", frame(&model));
    press(&mut model, "]]");
    assert!(frame(&model).contains("AS OF now"), "{}", frame(&model));
    press(&mut model, "]");
    assert!(frame(&model).contains("this is now"), "{}", frame(&model));
    // The checkpoint, compared with now.
    press(&mut model, "6D\n");
    let text = frame(&model);
    assert!(text.contains("from checkpoint to now") && text.contains("/big"), "{text}");
}

#[test]
fn rows_are_found_and_filtered() {
    let mut model = begin(&open(bytes_of(LAST)), Screen::Zones, (100, 30));
    let all = model.panes[0].len();
    assert!(all > 3);
    press(&mut model, "/orphans\n");
    assert_eq!(model.panes[0].cursor, 1);
    press(&mut model, "fMANY\n");
    let shown = model.panes[0].len();
    assert!((1..all).contains(&shown), "{shown} of {all}");
    press(&mut model, "\x1b");
    assert_eq!(model.panes[0].len(), all);
    press(&mut model, "/no such thing\n");
    assert!(frame(&model).contains("no row has"), "{}", frame(&model));
}

#[test]
fn marks_marks_the_place() {
    let mut model = begin(&open(bytes_of(LAST)), Screen::Node, (100, 30));
    press(&mut model, "ma8'a");
    assert_eq!(model.screen, Screen::Node);
    press(&mut model, "'z");
    assert!(frame(&model).contains("no such mark"), "{}", frame(&model));
}

fn copied(effects: Vec<Effect>) -> Option<String> {
    effects.into_iter().find_map(|effect| match effect {
        Effect::Copy(text) => Some(text),
        _ => None,
    })
}

#[test]
fn addresses_and_commands_are_copied() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a file");
    std::fs::write(&path, bytes_of(LAST)).unwrap();
    let source = Source::File { path: path.clone(), overlay: None };
    let image = Image::open(source, None, &Arc::default());
    let image = Arc::new(image.unwrap_or_else(|failure| panic!("{}", failure.message)));
    let mut model = begin(&image, Screen::Node, (100, 30));
    assert_eq!(copied(model.update(key(KeyCode::Char('y')))).as_deref(), Some("n:2"));
    press(&mut model, "\t");
    let command = copied(model.update(key(KeyCode::Char('Y'))));
    assert_eq!(command, Some(format!("betr dump '{}' node n:2", path.display())));
    // No command can print an image in memory.
    let mut model = begin(&open(bytes_of(LAST)), Screen::Findings, (100, 30));
    assert_eq!(copied(model.update(key(KeyCode::Char('Y')))), None);
    assert!(frame(&model).contains("no command"), "{}", frame(&model));
}

#[test]
fn the_story_of_a_moment_begins_at_the_checkpoint_on_the_device() {
    let image = open(bytes_of(LOGGED));
    let mut model = begin(&image, Screen::Log, (132, 43));
    // The moment after the first record of the log, which wrote the file.
    press(&mut model, "t:/big@3\n");
    let text = frame(&model);
    assert!(text.contains("AS OF l:") && text.contains("NOT NOW"), "{text}");
    assert!(text.contains("bound late, in n:"), "{text}");
    let epoch = image.origin.as_ref().unwrap().birth.epoch.0;
    assert!(text.contains(&format!("checkpoint of epoch {epoch}")), "{text}");
    press(&mut model, "1");
    let text = frame(&model);
    assert!(text.contains(&format!("epoch {epoch} verifies")), "{text}");
    assert!(text.contains("[LOG]"), "{text}");
    // Findings are always about the image now; the screen says so.
    press(&mut model, "8");
    assert!(frame(&model).contains("not as of the moment"), "{}", frame(&model));
}

#[test]
fn a_late_filter_belongs_to_its_own_rows() {
    let mut model = begin(&open(bytes_of(LAST)), Screen::Zones, (100, 30));
    let mut effects = Vec::new();
    for letter in "fmany".chars() {
        effects.extend(model.update(key(KeyCode::Char(letter))));
    }
    effects.extend(model.update(key(KeyCode::Enter)));
    let filter = effects.into_iter().filter(|effect| matches!(effect, Effect::Filter { .. }));
    let late: Vec<Msg> = filter.filter_map(perform).collect();
    assert_eq!(late.len(), 1);
    // The user has left before the answer arrives.
    press(&mut model, "1");
    let before = frame(&model);
    for msg in late {
        happen(&mut model, msg);
    }
    assert_eq!(frame(&model), before);
}

#[test]
fn a_mark_leads_back_to_panes_that_work() {
    let mut model = begin(&open(bytes_of(LOGGED)), Screen::Log, (132, 43));
    press(&mut model, "maD\n1R'a");
    assert!(!model.is_busy());
    let text = frame(&model);
    assert!(!text.contains(" ..."), "{text}");
}

#[test]
fn what_is_not_there_is_said_not_to_be() {
    let image = open(bytes_of(LOGGED));
    for address in ["n:2/c99999", "n:2/p77", "z:4711", "f:N07.9", "l:1"] {
        let model = at(&image, Some(address.parse().unwrap()), None, (132, 43));
        let text = frame(&model);
        assert!(text.contains(&format!("there is no {address} here")), "{address}: {text}");
    }
}

#[test]
fn a_leaf_is_previewed_after_a_flush() {
    let mut model = at(&open(bytes_of(1)), Some("n:2".parse().unwrap()), None, (132, 43));
    press(&mut model, "\t");
    let children = model.panes[1].len();
    // Moves to the child that has pending messages.
    let waiting = (0..children)
        .find(|row| model.panes[1].sheet().unwrap().rows.row(*row).cells[2].text != "0")
        .unwrap();
    for _ in 0..waiting {
        happen(&mut model, key(KeyCode::Down));
    }
    assert!(frame(&model).contains("1 message, by key"), "{}", frame(&model));
    press(&mut model, "o");
    assert!(frame(&model).contains("newest last"), "{}", frame(&model));
    press(&mut model, "a/~\n");
    let text = frame(&model);
    assert!(text.contains("after this flush") || text.contains("is no leaf"), "{text}");
}

#[test]
fn what_is_given_up_is_asked_again_with_enter() {
    let (mut model, effects) =
        Model::begin(open(bytes_of(LAST)), None, Some(Screen::Findings), (100, 30));
    assert!(model.is_busy());
    assert!(!effects.is_empty());
    // Esc before the answer arrives.
    let more = model.update(key(KeyCode::Esc));
    assert!(more.is_empty());
    assert!(frame(&model).contains("given up"), "{}", frame(&model));
    // The late answer is dropped.
    settle(&mut model, effects);
    assert!(frame(&model).contains("given up"), "{}", frame(&model));
    press(&mut model, "\n");
    assert!(frame(&model).contains("sound"), "{}", frame(&model));
}

#[test]
fn the_mouse_selects_scrolls_and_drags() {
    use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
    let mouse = |kind, column, row| {
        Msg::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE })
    };
    let left = MouseButton::Left;
    let mut model = begin(&open(bytes_of(LAST)), Screen::Overview, (132, 43));
    // A click on a tab.
    happen(&mut model, mouse(MouseEventKind::Down(left), 16, 1));
    assert_eq!(model.screen, Screen::Space);
    happen(&mut model, mouse(MouseEventKind::Down(left), 10, 6));
    let block = model.map.cursor;
    assert!(block > 0);
    happen(&mut model, mouse(MouseEventKind::Drag(left), 20, 8));
    assert!(model.map.marked.is_some_and(|(from, to)| from == block && to > from));
    press(&mut model, "3");
    happen(&mut model, mouse(MouseEventKind::ScrollDown, 10, 10));
    assert_eq!(model.panes[0].cursor, 3);
    happen(&mut model, mouse(MouseEventKind::Down(left), 10, 6));
    assert_eq!((model.focus, model.panes[0].cursor), (0, 1));
}
