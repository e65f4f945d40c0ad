//! A node's value as a type of the host's own. The node's schema stays what the model is held to; the type only reads what came through it.

use std::any::type_name;

use serde::de::DeserializeOwned;

use crate::error::{NodeError, NodeWord};
use crate::node::{Node, Step};
use crate::runner::{Delivered, HarnessRunner};

impl HarnessRunner {
    /// [`HarnessRunner::run_node`] with the value read as a `T`. The schema is the node's: the model is told of it, and a value that does
    /// not fit it is answered in the session; `T` should read all that it lets through.
    ///
    /// # Errors
    /// As [`HarnessRunner::run_node`], and as [`Delivered::typed`].
    pub async fn run_typed<T: DeserializeOwned>(&self, node: Node, step: Step) -> Result<Delivered<T>, NodeError> {
        self.run_node(node, step).await?.typed()
    }
}

impl Delivered {
    /// The same with its value read as a `T`.
    ///
    /// # Errors
    /// [`NodeWord::Mistyped`], final: the schema let through what `T` cannot read. The message names the place in the value. The session has
    /// delivered all the same; its value is in the records, and another `T` may read it there.
    pub fn typed<T: DeserializeOwned>(self) -> Result<Delivered<T>, NodeError> {
        let Self { session, value, spent, turns, from_records } = self;
        match serde_path_to_error::deserialize(value) {
            Ok(value) => Ok(Delivered { session, value, spent, turns, from_records }),
            Err(error) => {
                let place = match error.path().to_string().as_str() {
                    "." => "the value".to_owned(),
                    path => format!("`{path}`"),
                };
                let message = format!(
                    "the schema let through what `{}` cannot read: {place}: {}; narrow the node's schema or widen the type",
                    type_name::<T>(),
                    error.into_inner()
                );
                Err(NodeError::new(&session, NodeWord::Mistyped, message))
            }
        }
    }
}
