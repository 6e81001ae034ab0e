//! The state of the inspector. Nothing here reads or writes: [`Model::update`] takes an event and returns the effects
//! that are to be carried out in other threads.

mod answers;
mod cursors;
mod keys;
mod map;
mod moments;
mod mouse;
mod pane;
mod places;
mod prompt;
mod search;
mod update;

use std::path::PathBuf;
use std::sync::Arc;

use betr_core::address::Address;
use betr_core::ids::{NodeId, TreeId};
use betr_core::volume::Moment;
use crossterm::event::{KeyEvent, MouseEvent};
use ratatui::layout::Rect;

use crate::action::Action;
use crate::image::{Image, Source};
use crate::query::{Content, Planned, Query, SpaceMode};
use crate::sheet::{Role, Row, Sheet};
use crate::spot::Spot;
use crate::tour::Tour;
use crate::work::Work;

pub(crate) use pane::Pane;
pub(crate) use prompt::{Kind, Prompt};

/// The screens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Screen {
    Overview,
    Space,
    Zones,
    Node,
    Key,
    Log,
    Refs,
    Findings,
    Hex,
}

impl Screen {
    pub(crate) const ALL: [Screen; 9] = [
        Screen::Overview,
        Screen::Space,
        Screen::Zones,
        Screen::Node,
        Screen::Key,
        Screen::Log,
        Screen::Refs,
        Screen::Findings,
        Screen::Hex,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Screen::Overview => "Overview",
            Screen::Space => "Space",
            Screen::Zones => "Zones",
            Screen::Node => "Node",
            Screen::Key => "Key",
            Screen::Log => "Log",
            Screen::Refs => "Refs",
            Screen::Findings => "Findings",
            Screen::Hex => "Hex",
        }
    }

    /// The position among all screens.
    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

/// An event.
pub(crate) enum Msg {
    Key(KeyEvent),
    Mouse(MouseEvent),
    Resize(u16, u16),
    /// The answer to a query.
    Answer(u64, Result<Content, String>),
    /// The result of a search: the row found, if any.
    Found(u64, Result<Option<usize>, String>),
    /// The rows of a pane that match a filter.
    Filtered(u64, String, Result<Arc<Sheet>, String>),
    /// An opened image: another moment or overlay, or the same image again.
    Opened(u64, Result<Arc<Image>, String>),
    /// Another process has changed this image.
    Moved(Arc<Image>),
    /// Pasted text.
    Paste(String),
    /// The result of writing a file.
    Wrote(Wrote, Result<PathBuf, String>),
    /// A clock tick.
    Tick,
}

/// The kind of a written file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrote {
    Json,
    Overlay,
}

/// An effect: work for another thread.
pub(crate) enum Effect {
    Ask {
        generation: u64,
        query: Query,
        image: Arc<Image>,
        work: Arc<Work>,
    },
    Find {
        generation: u64,
        sheet: Arc<Sheet>,
        text: String,
        from: usize,
        back: bool,
        work: Arc<Work>,
    },
    Filter {
        generation: u64,
        sheet: Arc<Sheet>,
        text: String,
        work: Arc<Work>,
    },
    Open {
        generation: u64,
        source: Source,
        moment: Option<Moment>,
        work: Arc<Work>,
    },
    Copy(String),
    Save {
        path: PathBuf,
        query: Query,
        sheet: Arc<Sheet>,
        spot: Spot,
    },
    WriteOverlay {
        planned: Arc<Planned>,
        path: PathBuf,
    },
    Quit,
}

/// A visited place, for going back and forward.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Visit {
    pub screen: Screen,
    pub spot: Spot,
    focus: usize,
    cursors: Vec<(usize, usize)>,
}

/// The state of the map of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Map {
    pub mode: SpaceMode,
    /// The first block shown, and the number of blocks per cell; 0 fits the whole device.
    pub first: u64,
    pub per_cell: u64,
    /// The block under the cursor.
    pub cursor: u64,
    /// The range of blocks marked by dragging.
    pub marked: Option<(u64, u64)>,
}

/// A running search or filter.
struct Aside {
    generation: u64,
    work: Arc<Work>,
    what: &'static str,
    pane: usize,
    /// The sheet whose rows are searched.
    sheet: Arc<Sheet>,
}

/// The whole state of the interface.
pub(crate) struct Model {
    pub image: Arc<Image>,
    pub size: (u16, u16),
    pub screen: Screen,
    pub spot: Spot,
    pub panes: Vec<Pane>,
    pub focus: usize,
    pub is_expanded: bool,
    pub prompt: Option<Prompt>,
    /// The scroll position of the help, if it is shown.
    pub help: Option<usize>,
    pub status: Option<(Role, String)>,
    pub map: Map,
    /// The byte under the cursor of the hex screen, and the first byte shown.
    pub byte: u64,
    pub first_byte: u64,
    pub tour: Option<Tour>,
    /// Whether another process has changed the image since it was opened.
    pub has_moved: bool,
    /// The numbers of errors and notes that a check has found.
    pub findings: Option<(usize, usize)>,
    pub is_ascii: bool,
    pub has_color: bool,
    by_msn: bool,
    is_flushed: bool,
    checks_data: bool,
    wants_repair: bool,
    planned: Option<Arc<Planned>>,
    compared: Option<Moment>,
    moments: Option<Arc<Vec<Moment>>>,
    /// Steps through time that wait until the list of moments is known.
    steps: i32,
    last_text: String,
    last_spots: [Option<Spot>; 9],
    back: Vec<Visit>,
    forward: Vec<Visit>,
    marks: Vec<(char, Visit)>,
    cache: Vec<(Query, Content)>,
    aside: Option<Aside>,
    opening: Option<(u64, Arc<Work>)>,
    /// The running query for the list of moments.
    looking: Option<(u64, Arc<Work>)>,
    /// The cursors of the panes at the place to which the user goes back.
    returning: Vec<Option<(usize, usize)>>,
    generation: u64,
}

/// The most places in the history.
const VISITS_MAX: usize = 256;
/// The most answers in the cache.
const CACHE_MAX: usize = 24;

impl Model {
    /// Starts at a spot or on a screen. Also returns the first effects.
    pub(crate) fn begin(
        image: Arc<Image>,
        spot: Option<Spot>,
        screen: Option<Screen>,
        size: (u16, u16),
    ) -> (Model, Vec<Effect>) {
        let mut model = Model {
            image,
            size,
            screen: Screen::Overview,
            spot: Spot::Image,
            panes: Vec::new(),
            focus: 0,
            is_expanded: false,
            prompt: None,
            help: None,
            status: None,
            map: Map { mode: SpaceMode::Owner, first: 0, per_cell: 0, cursor: 0, marked: None },
            byte: 0,
            first_byte: 0,
            tour: None,
            has_moved: false,
            findings: None,
            is_ascii: false,
            has_color: true,
            by_msn: false,
            is_flushed: false,
            checks_data: false,
            wants_repair: false,
            planned: None,
            compared: None,
            moments: None,
            steps: 0,
            last_text: String::new(),
            last_spots: Default::default(),
            back: Vec::new(),
            forward: Vec::new(),
            marks: Vec::new(),
            cache: Vec::new(),
            aside: None,
            opening: None,
            looking: None,
            returning: Vec::new(),
            generation: 0,
        };
        let mut effects = Vec::new();
        let screen = screen.or_else(|| spot.as_ref().map(Spot::screen)).unwrap_or(Screen::Overview);
        let spot = spot.unwrap_or_else(|| model.default_spot(screen));
        model.stand(screen, spot);
        model.sync(&mut effects);
        (model, effects)
    }

    /// Shows another image.
    pub(crate) fn look_at(&mut self, image: Arc<Image>, screen: Screen, spot: Spot) {
        self.take(image);
        (self.back, self.forward, self.last_spots) = Default::default();
        self.map.per_cell = 0;
        self.stand(screen, spot);
    }

    /// Takes another image and invalidates everything known of the old one.
    fn take(&mut self, image: Arc<Image>) {
        self.image = image;
        self.has_moved = false;
        self.moments = None;
        self.planned = None;
        self.wants_repair = false;
        self.findings = None;
        self.forget();
    }

    /// Moves to a spot on a screen, without a history entry.
    fn stand(&mut self, screen: Screen, spot: Spot) {
        if let Some(byte) = spot.as_byte() {
            self.byte = byte;
            self.first_byte = byte - byte % 16;
            self.map.cursor = byte / betr_core::ids::BLOCK_SIZE as u64;
        }
        self.last_spots[screen.index()] = Some(spot.clone());
        // The finding may be one that only a check with values reports.
        self.checks_data |= matches!(spot, Spot::Finding(..));
        self.returning.clear();
        (self.screen, self.spot) = (screen, spot);
        (self.focus, self.is_expanded) = (0, false);
        self.wants_repair &= screen == Screen::Findings;
        self.is_flushed = false;
    }

    /// The queries of the panes, in order.
    fn wanted(&self) -> Vec<Query> {
        match self.screen {
            Screen::Overview => vec![Query::Superblocks, Query::Facts, Query::Nodes],
            Screen::Space => {
                let byte = self.map.cursor.saturating_mul(betr_core::ids::BLOCK_SIZE as u64);
                vec![Query::Space { heads: self.map.mode.wants_heads() }, Query::Area(byte)]
            }
            Screen::Zones => {
                let zone = self.selected(0).and_then(|row| {
                    row.spots.iter().find_map(|spot| match spot {
                        Spot::At(Address::Zone(zone)) => Some(*zone),
                        _ => None,
                    })
                });
                vec![Query::Zones, zone.map_or(Query::Nothing, Query::Zone)]
            }
            Screen::Node => {
                let id = self.spot.as_node().unwrap_or(TreeId::Data.root());
                vec![Query::Way(id), Query::Node(id), self.inside(id)]
            }
            Screen::Key => {
                let spot = self.spot.clone();
                vec![Query::Story(spot.clone()), Query::Beside(spot.clone()), Query::Value(spot)]
            }
            Screen::Log => {
                let record = self.selected(0).and_then(|row| match row.spots.first() {
                    Some(Spot::At(Address::Record(lsn))) => Some(Query::Record(*lsn)),
                    _ => None,
                });
                let mut wanted = vec![Query::Records, record.unwrap_or(Query::Nothing)];
                let now = self.image.moment.clone().unwrap_or(Moment::Now);
                let query = |moment| Query::Difference(moment, now);
                wanted.extend(self.compared.clone().map(query));
                wanted
            }
            Screen::Refs => vec![Query::Refs(self.spot.clone())],
            Screen::Findings => {
                let is_any =
                    self.panes.first().and_then(Pane::sheet).is_some_and(|sheet| sheet.len() > 0);
                let index = self.panes.first().map_or(0, |pane| pane.real_cursor());
                let problem = if is_any { Query::Problem(index) } else { Query::Nothing };
                let mut wanted = vec![Query::Check { data: self.checks_data }, problem];
                wanted.extend(self.wants_repair.then_some(Query::Repair));
                wanted
            }
            Screen::Hex => {
                let block = self.first_byte - self.first_byte % betr_core::ids::BLOCK_SIZE as u64;
                let fields = match self.panes.get(1).map(|pane| (&pane.query, pane.content())) {
                    // The current fields are kept as long as they contain the byte.
                    Some((query, Some(Content::Fields(fields))))
                        if fields.row_of(self.byte).is_some() =>
                    {
                        query.clone()
                    }
                    _ => Query::Fields(self.byte),
                };
                vec![Query::Bytes(block), fields]
            }
        }
    }

    /// The query for the selected child or basement of a node.
    fn inside(&self, id: NodeId) -> Query {
        let selected = self.selected(1);
        let found = selected.iter().flat_map(|row| &row.spots).find_map(|spot| match spot {
            Spot::Buffer(node, child, _) if self.is_flushed => {
                Some(Query::Flushed { node: *node, child: *child })
            }
            Spot::Buffer(node, child, _) => {
                Some(Query::Messages { node: *node, child: *child, by_msn: self.by_msn })
            }
            Spot::Part(node, part) => {
                Some(Query::Basement { node: *node, basement: *part as usize })
            }
            _ => None,
        });
        let is_here = self.panes.get(1).is_some_and(|pane| pane.query == Query::Node(id));
        found.filter(|_| is_here).unwrap_or(Query::Nothing)
    }

    /// The selected row of a pane.
    pub(crate) fn selected(&self, pane: usize) -> Option<Row> {
        self.panes.get(pane)?.selected()
    }

    /// The spots of the selection in the focused pane; the current spot if the selection has none.
    pub(crate) fn spots(&self) -> Vec<Spot> {
        let row = match self.screen {
            Screen::Hex if self.focus == 0 => return vec![Spot::byte(self.byte)],
            Screen::Space if self.focus == 0 => {
                return vec![Spot::byte(
                    self.map.cursor.saturating_mul(betr_core::ids::BLOCK_SIZE as u64),
                )];
            }
            _ => self.selected(self.focus),
        };
        let mut spots = row.map(|row| row.spots).unwrap_or_default();
        spots.push(self.spot.clone());
        spots
    }

    /// The running queries, with names and progress.
    pub(crate) fn running(&self) -> Vec<(&'static str, &Work)> {
        let panes = self.panes.iter().filter_map(|pane| {
            let running = pane.running.as_ref().filter(|running| !running.work.is_cancelled())?;
            Some((running.query.title(), &*running.work))
        });
        let aside = self.aside.iter().map(|aside| (aside.what, &*aside.work));
        let opening = self.opening.iter().map(|(_, work)| ("the image is opened", &**work));
        let looking = self.looking.iter().map(|(_, work)| ("moments", &**work));
        panes.chain(aside).chain(opening).chain(looking).collect()
    }

    /// Whether an action is useful now and so belongs in the footer.
    pub(crate) fn offers(&self, action: Action) -> bool {
        match action {
            Action::Preview => self.findings.is_some_and(|(errors, notes)| errors + notes > 0),
            Action::Overlay => self.planned.is_some() && self.wants_repair,
            Action::Undo => self.image.source.overlay().is_some(),
            Action::Data => !self.checks_data,
            _ => true,
        }
    }

    /// Whether a query is running.
    pub(crate) fn is_busy(&self) -> bool {
        !self.running().is_empty()
    }

    /// The visible panes and their areas.
    pub(crate) fn layout(&self) -> Vec<(usize, Rect)> {
        crate::view::layout(self)
    }

    /// The spot for a screen: the one last shown there, or a default.
    fn default_spot(&self, screen: Screen) -> Spot {
        if let Some(spot) = &self.last_spots[screen.index()] {
            return spot.clone();
        }
        match screen {
            Screen::Node => Spot::node(TreeId::Data.root()),
            Screen::Key => Spot::At(Address::Path(b"/".to_vec())),
            Screen::Hex => Spot::byte(self.byte),
            Screen::Refs => Spot::node(TreeId::Data.root()),
            _ => Spot::Image,
        }
    }

    fn next_generation(&mut self) -> u64 {
        self.generation += 1;
        self.generation
    }
}
