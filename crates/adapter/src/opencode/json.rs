//! Reading and writing members of JSON values whose form is the program's: what is not there reads as null, and what is no object is not
//! written to.

use serde_json::Value;

static NULL: Value = Value::Null;

/// The value at a pointer (`/info/time/created`), or null.
pub(super) fn at<'a>(value: &'a Value, pointer: &str) -> &'a Value {
    value.pointer(pointer).unwrap_or(&NULL)
}

/// Sets a member of an object.
pub(super) fn set(value: &mut Value, name: &str, to: Value) {
    if let Some(object) = value.as_object_mut() {
        object.insert(name.to_owned(), to);
    }
}
