//! Differences at a path, as a line of text and as JSON.

use betr_core::text::{Printable, printable};
use betr_offline::compare::{Aspect, Change, What};
use serde_json::{Value, json};

use crate::json;

/// One line: `+` for an added path, `-` for a removed one, `~` for a changed one.
pub fn line(change: &Change) -> String {
    let path = Printable(&change.path);
    match &change.what {
        What::Added(kind) => format!("+ {path}  {}", kind.name()),
        What::Removed(kind) => format!("- {path}  {}", kind.name()),
        What::Changed(aspects) => {
            let aspects: Vec<String> = aspects.iter().map(aspect).collect();
            format!("~ {path}  {}", aspects.join(", "))
        }
    }
}

fn aspect(aspect: &Aspect) -> String {
    match aspect {
        Aspect::Type(a, b) => format!("type {} to {}", a.name(), b.name()),
        Aspect::Mode(a, b) => format!("mode {a:04o} to {b:04o}"),
        Aspect::Owner(a, b) => format!("owner {}:{} to {}:{}", a.0, a.1, b.0, b.1),
        Aspect::Links(a, b) => format!("links {a} to {b}"),
        Aspect::Size(a, b) => format!("size {a} to {b}"),
        Aspect::Modified => "modified".into(),
        Aspect::Device(a, b) => format!("device {}:{} to {}:{}", a.0, a.1, b.0, b.1),
        Aspect::Target => "target".into(),
        Aspect::Xattr(name) => format!("attribute {}", Printable(name)),
        Aspect::Contents { first, blocks } => {
            format!("contents from byte {first} on, in {blocks} blocks")
        }
    }
}

/// The difference as JSON.
pub fn object(change: &Change) -> Value {
    let path = json::text(&change.path, &printable(&change.path));
    match &change.what {
        What::Added(kind) => json!({ "change": "added", "path": path, "type": kind.name() }),
        What::Removed(kind) => json!({ "change": "removed", "path": path, "type": kind.name() }),
        What::Changed(aspects) => {
            let aspects: Value = aspects.iter().map(aspect_object).collect();
            json!({ "change": "changed", "path": path, "aspects": aspects })
        }
    }
}

fn aspect_object(aspect: &Aspect) -> Value {
    let pair = |what: &str, before: Value, after: Value| json!({ "what": what, "before": before, "after": after });
    match aspect {
        Aspect::Type(a, b) => pair("type", a.name().into(), b.name().into()),
        Aspect::Mode(a, b) => pair("mode", (*a).into(), (*b).into()),
        Aspect::Owner(a, b) => pair("owner", json!([a.0, a.1]), json!([b.0, b.1])),
        Aspect::Links(a, b) => pair("links", (*a).into(), (*b).into()),
        Aspect::Size(a, b) => pair("size", (*a).into(), (*b).into()),
        Aspect::Modified => json!({ "what": "modified" }),
        Aspect::Device(a, b) => pair("device", json!([a.0, a.1]), json!([b.0, b.1])),
        Aspect::Target => json!({ "what": "target" }),
        Aspect::Xattr(name) => {
            json!({ "what": "xattr", "name": json::text(name, &printable(name)) })
        }
        Aspect::Contents { first, blocks } => {
            json!({ "what": "contents", "first": first, "blocks": blocks })
        }
    }
}
