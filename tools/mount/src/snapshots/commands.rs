//! Commands of `betr snapshot` to the server of a mount, with or without `-o snapshots`.

use betr_cli::snapshots::{Request, Snapshots};
use betr_cli::volume::clock_now;
use betr_core::fs::Fs;
use betr_core::store::CacheBudget;
use betr_core::volume::{HoldChange, Volume};
use serde_json::{Value, json};

use super::above;
use crate::options::CACHE_MIN;
use crate::server::Server;

impl Server {
    /// Carries out a command of `betr snapshot`. Returns the answer or the error, as JSON.
    pub(crate) fn look_after(&self, request: &Request) -> Value {
        if !request.only_reads() && self.is_read_only() {
            return json!({ "error": "the mount is read-only" });
        }
        if self.look_at_host().is_err() {
            return json!({ "error": "the file of the image is not what it was" });
        }
        // The lock keeps the snapshots unchanged between their lookup and the drop.
        let _changing = (!request.only_reads()).then(|| self.changing_snapshots.lock());
        let going = match (&self.snapshots, request) {
            (Some(snapshots), Request::Drop(names)) => snapshots.let_go(self, names).map(Some),
            (Some(_), Request::RollBack(name, _)) if self.has_name_in_the_way(name) => {
                Err("its root has an entry '.betr', which this mount would hide".to_owned())
            }
            (Some(snapshots), Request::RollBack(name, true)) => {
                let younger = self.look(|fs| younger_than(fs.volume(), name));
                snapshots.let_go(self, &younger).map(Some)
            }
            _ => Ok(None),
        };
        let going = match going {
            Ok(going) => going,
            Err(in_use) => return json!({ "error": in_use }),
        };
        match request.run_on(&mut OfMount(self)) {
            Ok(answer) => {
                if let Some(going) = going {
                    going.dropped();
                }
                // A later drop invalidates only the new name: an entry of the old one would keep the tree in the
                // kernel's cache.
                if let (Some(snapshots), Request::Rename(old, _)) = (&self.snapshots, request) {
                    snapshots.tell_gone(self, old);
                }
                json!({ "answer": answer })
            }
            Err(error) => {
                self.failed(&error);
                json!({ "error": error.to_string() })
            }
        }
    }
}

impl Server {
    /// Whether the root of a snapshot has an entry `.betr`. `false` for a snapshot that cannot be read: its rollback
    /// is refused anyway.
    fn has_name_in_the_way(&self, name: &str) -> bool {
        let found = self.shared.read(|fs| {
            let hold = fs.volume().hold(name)?;
            let cache = CacheBudget::of(CACHE_MIN as usize);
            let kept = Fs::open(fs.volume().open_hold(&hold, cache)?, Box::new(clock_now));
            kept.find(&kept.root()?, above::TOP_NAME.as_bytes())
        });
        found.is_ok_and(|found| found.is_some())
    }
}

/// The names of the snapshots that a rollback to `name` drops.
fn younger_than(volume: &Volume, name: &str) -> Vec<String> {
    // If they cannot be read, the rollback is refused later.
    let holds = volume.holds().unwrap_or_default();
    let behind = holds.into_iter().map(|hold| hold.name).skip_while(|other| other != name);
    behind.skip(1).collect()
}

/// Access to the snapshots through the server.
struct OfMount<'s>(&'s Server);

impl Snapshots for OfMount<'_> {
    fn look<T>(&self, look: impl FnOnce(&Volume) -> betr_core::Result<T>) -> betr_core::Result<T> {
        self.0.shared.read(|fs| look(fs.volume()))
    }

    fn change(&mut self, change: &HoldChange) -> betr_core::Result<()> {
        self.0.shared.change_now(|fs| {
            fs.volume_mut().note_time(clock_now());
            Ok(())
        })?;
        match change {
            HoldChange::RollBack { .. } => self.0.roll_back(change),
            _ => self.0.shared.change_holds(change),
        }
    }
}
