//! Requests of `betr snapshot`, to an image or to the server of a mount, and their answers.

use betr_core::format::Hold;
use betr_core::ids::BLOCK_SIZE;
use betr_core::volume::{HoldChange, Volume};
use betr_core::{Error, Result};
use serde_json::{Value, json};

/// A request about snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Create a snapshot with this name.
    Create(String),
    /// List all snapshots, the oldest first.
    List,
    /// Show what a snapshot refers to, and how much space dropping it would free.
    Show(String),
    /// Rename a snapshot from the first name to the second.
    Rename(String, String),
    /// Set whether pruning keeps a snapshot.
    Keep(String, bool),
    /// Drop all of these snapshots.
    Drop(Vec<String>),
    /// Roll the volume back to a snapshot; the flag allows dropping younger ones.
    RollBack(String, bool),
}

/// A volume whose snapshots can be read and changed.
pub trait Snapshots {
    /// Calls `look` with the volume, for reading.
    fn look<T>(&self, look: impl FnOnce(&Volume) -> Result<T>) -> Result<T>;

    /// Applies a change to snapshots and makes it durable.
    fn change(&mut self, change: &HoldChange) -> Result<()>;
}

impl Snapshots for Volume {
    fn look<T>(&self, look: impl FnOnce(&Volume) -> Result<T>) -> Result<T> {
        look(self)
    }

    fn change(&mut self, change: &HoldChange) -> Result<()> {
        self.change_holds(change)
    }
}

impl Request {
    /// The request as JSON, as it is sent to a server.
    pub fn value(&self) -> Value {
        match self {
            Request::Create(name) => json!({ "snapshot": "create", "name": name }),
            Request::List => json!({ "snapshot": "list" }),
            Request::Show(name) => json!({ "snapshot": "show", "name": name }),
            Request::Rename(name, new) => {
                json!({ "snapshot": "rename", "name": name, "new": new })
            }
            Request::Keep(name, kept) => json!({ "snapshot": "keep", "name": name, "kept": kept }),
            Request::Drop(names) => json!({ "snapshot": "drop", "names": names }),
            Request::RollBack(name, drop_younger) => {
                json!({ "snapshot": "rollback", "name": name, "drop_younger": drop_younger })
            }
        }
    }

    /// Parses a request from JSON; `None` if it is not one.
    pub fn of(value: &Value) -> Option<Request> {
        let text = |field: &str| Some(value[field].as_str()?.to_owned());
        let name = || text("name");
        Some(match value["snapshot"].as_str()? {
            "create" => Request::Create(name()?),
            "list" => Request::List,
            "show" => Request::Show(name()?),
            "rename" => Request::Rename(name()?, text("new")?),
            "keep" => Request::Keep(name()?, value["kept"].as_bool()?),
            "rollback" => Request::RollBack(name()?, value["drop_younger"].as_bool()?),
            "drop" => {
                let names = value["names"].as_array()?.iter();
                Request::Drop(
                    names.map(|name| Some(name.as_str()?.to_owned())).collect::<Option<_>>()?,
                )
            }
            _ => return None,
        })
    }

    /// Whether the request changes nothing.
    pub fn only_reads(&self) -> bool {
        matches!(self, Request::List | Request::Show(_))
    }

    /// Carries out the request; returns the answer as JSON.
    pub fn run_on(&self, on: &mut impl Snapshots) -> Result<Value> {
        let change = match self {
            Request::List => {
                return on.look(|volume| {
                    let holds: Vec<Value> = volume.holds()?.iter().map(value_of).collect();
                    Ok(json!({ "snapshots": holds }))
                });
            }
            Request::Show(name) => {
                return on.look(|volume| {
                    let mut value = value_of(&volume.hold(name)?);
                    value["frees_bytes"] = json!(bytes(volume.dropping_frees(name)?));
                    Ok(value)
                });
            }
            Request::Drop(names) => return drop_all(on, names),
            Request::RollBack(name, drop_younger) => return roll_back(on, name, *drop_younger),
            Request::Create(name) => HoldChange::Take(name.clone()),
            Request::Rename(name, new) => HoldChange::Rename(name.clone(), new.clone()),
            Request::Keep(name, kept) => HoldChange::Keep(name.clone(), *kept),
        };
        on.change(&change).map(|()| json!({}))
    }
}

/// Drops all named snapshots, or none if one of them does not exist.
fn drop_all(on: &mut impl Snapshots, names: &[String]) -> Result<Value> {
    let mut sorted: Vec<&String> = names.iter().collect();
    sorted.sort();
    if let Some(twice) = sorted.windows(2).find(|two| two[0] == two[1]) {
        return Err(Error::Input(format!("snapshot '{}' is named twice", twice[0])));
    }
    let before = on.look(|volume| {
        names.iter().try_for_each(|name| volume.hold(name).map(drop))?;
        Ok(volume.superblock().used_blocks)
    })?;
    for name in names {
        on.change(&HoldChange::Drop(name.clone()))?;
        while on.look(|volume| Ok(volume.can_drop()))? {
            on.change(&HoldChange::SOME)?;
        }
    }
    let after = on.look(|volume| Ok(volume.superblock().used_blocks))?;
    Ok(json!({ "freed_bytes": bytes(before.saturating_sub(after)) }))
}

/// Rolls back; the answer lists the snapshots that were dropped.
fn roll_back(on: &mut impl Snapshots, name: &str, drop_younger: bool) -> Result<Value> {
    let before = on.look(Volume::holds)?;
    on.change(&HoldChange::RollBack { to: name.into(), drop_younger })?;
    let after = on.look(Volume::holds)?;
    let dropped = before.iter().filter(|hold| !after.iter().any(|left| left.name == hold.name));
    Ok(json!({ "dropped": dropped.map(|hold| &*hold.name).collect::<Vec<_>>() }))
}

fn bytes(blocks: u64) -> u64 {
    blocks.saturating_mul(BLOCK_SIZE as u64)
}

fn value_of(hold: &Hold) -> Value {
    json!({
        "name": hold.name, "epoch": hold.epoch.0, "seconds": hold.wall.secs, "nanoseconds": hold.wall.nanos,
        "kept": hold.kept, "refers_bytes": bytes(hold.used_blocks), "nodes": hold.nodes,
        "root": hold.table.page.hash.to_string(), "root_block": hold.table.page.block.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_understood() {
        let name = || "a \u{1b} day".to_owned();
        for request in [
            Request::Create(name()),
            Request::List,
            Request::Show(name()),
            Request::Rename(name(), "b".into()),
            Request::Keep(name(), true),
            Request::Drop(vec![name(), "c".into()]),
            Request::RollBack(name(), true),
        ] {
            assert_eq!(Request::of(&request.value()), Some(request));
        }
        for wrong in
            [json!({}), json!({ "snapshot": "eat" }), json!({ "snapshot": "keep", "name": "a" })]
        {
            assert_eq!(Request::of(&wrong), None, "{wrong}");
        }
    }
}
