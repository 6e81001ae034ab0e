//! Clones of files and directories, in an image or by the server of a mount.

use betr_core::error::{Error, Refusal};
use betr_core::fs::{Fs, LastLink, Object, Slot};
use betr_core::path::{Last, Operand};
use serde_json::{Value, json};

/// A request to the server of a mount: both paths are those of the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloneRequest {
    /// What to clone.
    pub source: Vec<u8>,
    /// The new name, or the directory for it.
    pub dest: Vec<u8>,
}

impl CloneRequest {
    /// The request as JSON, as it is sent to a server.
    pub fn value(&self) -> Value {
        json!({ "clone": { "source": self.source, "dest": self.dest } })
    }

    /// Parses a request from JSON; `None` if it is not one.
    pub fn of(value: &Value) -> Option<CloneRequest> {
        let bytes = |field: &str| -> Option<Vec<u8>> {
            let numbers = value["clone"][field].as_array()?.iter();
            numbers.map(|byte| u8::try_from(byte.as_u64()?).ok()).collect()
        };
        Some(CloneRequest { source: bytes("source")?, dest: bytes("dest")? })
    }
}

/// Why nothing was cloned, and the path that is to blame.
pub struct CloneFailed {
    /// The path.
    pub path: Operand,
    /// The error.
    pub error: Error,
}

/// A clone that can be made.
pub struct Planned {
    original: Object,
    /// Where it will be.
    pub slot: Slot,
    dest: Operand,
}

/// Prepares a clone of what is at `source`. If `dest` is a directory, the clone goes into it under the last name of the
/// source.
pub fn plan(fs: &Fs, source: &Operand, dest: &Operand) -> Result<Planned, CloneFailed> {
    let original = fs.look_up(source, LastLink::Keep).map_err(at(source))?.object;
    let dest = match fs.look_up(dest, LastLink::Follow) {
        Ok(found) if found.object.is_directory() => match source.last() {
            Last::Name(name) => Operand::new([dest.bytes(), b"/", name].concat()),
            _ => return Err(at(source)(Refusal::Invalid.into())),
        },
        Ok(_) | Err(Error::Refused(_)) => dest.clone(),
        Err(error) => return Err(at(dest)(error)),
    };
    let slot = fs.slot(&dest).map_err(at(&dest))?;
    slot.vacant(original.kind()).map_err(at(&dest))?;
    Ok(Planned { original, slot, dest })
}

impl Planned {
    /// Makes the clone. After an error nothing has its name.
    pub fn make(&self, fs: &mut Fs) -> Result<(), CloneFailed> {
        let Planned { original, slot, dest } = self;
        clone_object(fs, original, &slot.directory, &slot.name).map_err(at(dest))
    }

    /// An error that forbids the clone.
    pub fn refused(&self, refusal: Refusal) -> CloneFailed {
        at(&self.dest)(refusal.into())
    }
}

/// Clones an object to a name that nothing has. After an error nothing has it either.
pub fn clone_object(
    fs: &mut Fs,
    original: &Object,
    directory: &Object,
    name: &[u8],
) -> betr_core::Result<()> {
    fs.clone_object(original, directory, name).inspect_err(|_| {
        // A file is copied piece by piece.
        if !original.is_directory() {
            let _ = fs.unlink(directory, name);
        }
    })
}

fn at(path: &Operand) -> impl Fn(Error) -> CloneFailed + use<> {
    let path = path.clone();
    move |error| CloneFailed { path: path.clone(), error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_understood() {
        let request = CloneRequest { source: b"/a \xff".to_vec(), dest: vec![] };
        assert_eq!(CloneRequest::of(&request.value()), Some(request));
        for wrong in [json!({}), json!({ "clone": { "source": [256], "dest": [] } })] {
            assert_eq!(CloneRequest::of(&wrong), None, "{wrong}");
        }
    }
}
