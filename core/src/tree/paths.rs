//! The paths to nodes of a tree whose nodes are shared: each shows the keys of a node in another range.

use std::collections::HashMap;
use std::sync::Arc;

use super::descent::PathLens;
use crate::error::Result;
use crate::format::Bounds;
use crate::ids::*;
use crate::node::{Internal, Node};

/// 256 paths: enough to be told. A node may have any number.
pub const NODE_PATHS_MAX: usize = 256;
/// 65,536 edges are followed upwards from a node: all of 256 paths, and of others that end below the root.
const STEPS_MAX: usize = 1 << 16;

/// The edges of a tree, by the nodes that they lead to.
pub struct Parents {
    root: NodeId,
    edges: HashMap<NodeId, Vec<(Arc<Node>, usize)>>,
}

impl Parents {
    /// Reads each internal node that `load` finds below the root once.
    pub fn of(tree: TreeId, load: &dyn Fn(NodeId) -> Result<Option<Arc<Node>>>) -> Result<Parents> {
        let root = tree.root();
        let mut parents = Parents { root, edges: HashMap::new() };
        let mut waiting: Vec<Arc<Node>> = load(root)?.into_iter().collect();
        while let Some(node) = waiting.pop() {
            let Some(internal) = node.internal() else { continue };
            for (at, child) in internal.children().iter().enumerate() {
                let known = parents.edges.entry(child.id).or_default();
                let is_new = known.is_empty();
                known.push((node.clone(), at));
                // Leaves are not read.
                if is_new
                    && internal.height > Height(1)
                    && let Some(below) = load(child.id)?
                    && below.height().0 + 1 == internal.height.0
                {
                    waiting.push(below);
                }
            }
        }
        Ok(parents)
    }

    /// Some keys of a node, as each path from the root shows them, up to [`NODE_PATHS_MAX`] ranges.
    pub fn shown(&self, id: NodeId, height: Height, keys: &Bounds) -> Result<Vec<Bounds>> {
        let mut found = Vec::new();
        // Edges from the node upwards; the lowest first.
        let mut waiting = vec![(id, height, Vec::<(&Internal, usize)>::new())];
        let mut steps = 0;
        while let Some((id, height, path)) = waiting.pop() {
            if id == self.root {
                let mut lens = PathLens::default();
                for (internal, at) in path.iter().rev() {
                    lens = lens.through(internal, *at)?;
                }
                found.push(lens.bounds_up(keys.clone()));
            }
            for (parent, at) in self.edges.get(&id).into_iter().flatten() {
                let Some(internal) = parent.internal() else { continue };
                // The heights end a cycle.
                if internal.height.0 != height.0 + 1 || steps == STEPS_MAX {
                    continue;
                }
                steps += 1;
                let path = path.iter().copied().chain([(internal, *at)]).collect();
                waiting.push((internal.id, internal.height, path));
            }
            if found.len() == NODE_PATHS_MAX {
                break;
            }
        }
        Ok(found)
    }
}
