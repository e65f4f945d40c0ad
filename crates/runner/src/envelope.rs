//! The injected submit tool: `{value: <the node's schema>}`, nothing else, the same for every harness. The node's schema moves one level
//! down, so its local references are relocated, and only those: a sub-schema with an `$id` of its own resolves against itself.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use agentrun_adapter::ToolSpec;
use agentrun_kernel::Digest;
use serde_json::{Map, Value, json};

use crate::node::SUBMIT;

/// Most problems named to the model at once: the first few are what it can act on.
const PROBLEMS: usize = 8;

/// The compiled envelope.
pub(crate) struct Envelope {
    spec: ToolSpec,
    validator: Arc<jsonschema::Validator>,
}

/// A schema that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the schema at {path} cannot be used: {what}")]
pub struct SchemaError {
    /// JSON pointer into the schema; empty is the whole.
    pub path: String,
    /// What is wrong with it.
    pub what: String,
}

impl Envelope {
    /// The envelope around `schema`.
    pub(crate) fn new(schema: &Value) -> Result<Self, SchemaError> {
        let input_schema = json!({
            "type": "object",
            "properties": { "value": relocate(schema) },
            "required": ["value"],
            "additionalProperties": false,
        });
        // What is wrong in the envelope is wrong in the schema alone too, and told by its place there.
        let validator = compile(&input_schema).or_else(|error| compile(schema).and(Err(error)))?;
        let spec = ToolSpec {
            name: SUBMIT.to_owned(),
            description: "Delivers the result of your task. Call it exactly once, when the work is done, with the whole result in `value`. Plain \
                          text delivers nothing. If the answer names problems, correct the value and call it again."
                .to_owned(),
            input_schema,
        };
        Ok(Self { spec, validator })
    }

    /// The tool as the model sees it.
    pub(crate) const fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// The value in it, or what is wrong with it, in words for the model.
    pub(crate) fn open(&self, arguments: &Value) -> Result<Value, String> {
        let problems = problems(&self.validator, arguments);
        if problems.is_empty() {
            Ok(arguments.get("value").cloned().unwrap_or(Value::Null))
        } else {
            Err(format!(
                "Not accepted: the submitted value does not fit its schema.\n{}\nCorrect it and call submit again.",
                problems.join("\n")
            ))
        }
    }
}

/// Schemas of the last nodes, compiled, the newest last. A host runs the same few nodes again and again, and compiling takes longer than all
/// that a node appends.
static COMPILED: Mutex<VecDeque<(Digest, Arc<jsonschema::Validator>)>> = Mutex::new(VecDeque::new());
/// How many are kept.
const KEPT: usize = 64;

/// Compiles a JSON Schema with remote and file references off.
///
/// # Errors
/// [`SchemaError`] with the place in the schema.
pub fn compile(schema: &Value) -> Result<Arc<jsonschema::Validator>, SchemaError> {
    let digest = Digest::of(schema.to_string().as_bytes());
    let compiled = || COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, known)) = compiled().iter().find(|(of, _)| *of == digest) {
        return Ok(known.clone());
    }
    if let Some(found) = outside_reference(schema, &mut String::new()) {
        return Err(found);
    }
    let validator = jsonschema::options()
        .with_retriever(NoRetriever)
        .build(schema)
        .map_err(|error| SchemaError { path: error.instance_path().to_string(), what: error.to_string() })?;
    let validator = Arc::new(validator);
    let mut compiled = compiled();
    if compiled.len() >= KEPT {
        compiled.pop_front();
    }
    compiled.push_back((digest, validator.clone()));
    Ok(validator)
}

/// What is wrong with `instance`, a line each.
pub fn problems(validator: &jsonschema::Validator, instance: &Value) -> Vec<String> {
    let mut lines: Vec<String> = validator
        .iter_errors(instance)
        .take(PROBLEMS)
        .map(|error| {
            let path = error.instance_path().to_string();
            let place = if path.is_empty() { "(the whole)".to_owned() } else { path };
            format!("- {place}: {error}")
        })
        .collect();
    lines.dedup();
    lines
}

struct NoRetriever;

impl jsonschema::Retrieve for NoRetriever {
    fn retrieve(&self, uri: &jsonschema::Uri<String>) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        Err(format!("`{uri}` is outside the schema; only references within it (`#/…`) are followed").into())
    }
}

/// Members whose values are schemas.
const ONE: &[&str] = &[
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "items",
    "additionalItems",
    "unevaluatedItems",
    "contains",
    "not",
    "if",
    "then",
    "else",
    "contentSchema",
];
/// Members whose values are arrays of schemas.
const MANY: &[&str] = &["allOf", "anyOf", "oneOf", "prefixItems", "items"];
/// Members whose values are objects of schemas.
const NAMED: &[&str] = &["properties", "patternProperties", "dependentSchemas", "$defs", "definitions", "dependencies"];

/// Moves `#…` references to where the schema now stands.
fn relocate(schema: &Value) -> Value {
    let Value::Object(members) = schema else { return schema.clone() };
    // An `$id` starts a resource of its own: references below it are relative to it and stay as they are.
    if members.contains_key("$id") {
        return schema.clone();
    }
    let mut moved = Map::new();
    for (name, value) in members {
        let value = match value {
            Value::String(reference) if name == "$ref" => Value::String(relocated(reference)),
            Value::Array(items) if MANY.contains(&name.as_str()) => Value::Array(items.iter().map(relocate).collect()),
            Value::Object(named) if NAMED.contains(&name.as_str()) => {
                Value::Object(named.iter().map(|(name, schema)| (name.clone(), relocate(schema))).collect())
            }
            one if ONE.contains(&name.as_str()) => relocate(one),
            other => other.clone(),
        };
        moved.insert(name.clone(), value);
    }
    Value::Object(moved)
}

fn relocated(reference: &str) -> String {
    match reference.strip_prefix('#') {
        Some("") => "#/properties/value".to_owned(),
        Some(pointer) if pointer.starts_with('/') => format!("#/properties/value{pointer}"),
        _ => reference.to_owned(),
    }
}

/// The first reference that leaves the schema, with its place.
fn outside_reference(schema: &Value, path: &mut String) -> Option<SchemaError> {
    match schema {
        Value::Object(members) => members.iter().find_map(|(name, value)| {
            let length = path.len();
            path.push('/');
            path.push_str(&name.replace('~', "~0").replace('/', "~1"));
            let found = match value {
                Value::String(reference)
                    if matches!(name.as_str(), "$ref" | "$dynamicRef") && is_outside(reference) =>
                {
                    Some(SchemaError {
                        path: path.clone(),
                        what: format!(
                            "the reference `{reference}` leaves the schema; write what it names under `$defs`"
                        ),
                    })
                }
                other => outside_reference(other, path),
            };
            path.truncate(length);
            found
        }),
        Value::Array(items) => items.iter().enumerate().find_map(|(place, item)| {
            let length = path.len();
            path.push_str(&format!("/{place}"));
            let found = outside_reference(item, path);
            path.truncate(length);
            found
        }),
        _ => None,
    }
}

fn is_outside(reference: &str) -> bool {
    reference.contains("://") || reference.starts_with("file:") || reference.starts_with('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b04_submit_takes_value_alone_and_value_is_required() {
        let envelope = Envelope::new(&json!({"type": "integer"})).unwrap();
        assert_eq!(envelope.open(&json!({"value": 3})), Ok(json!(3)));
        for bad in [json!({}), json!({"value": "x"}), json!({"value": 1, "more": 2}), json!(3)] {
            let told = envelope.open(&bad).unwrap_err();
            assert!(told.contains("does not fit its schema"), "{told}");
        }
    }

    #[test]
    fn b04_local_references_are_relocated_and_only_in_schema_positions() {
        let schema = json!({
            "$defs": {"name": {"type": "string"}, "tree": {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#"}}}}},
            "type": "object",
            "properties": {"who": {"$ref": "#/$defs/name"}, "$ref": {"type": "string"}, "kids": {"items": {"$ref": "#"}}},
            "default": {"$ref": "#/untouched"}
        });
        let envelope = Envelope::new(&schema).unwrap();
        let spec = &envelope.spec().input_schema;
        assert_eq!(
            spec.pointer("/properties/value/properties/who/$ref"),
            Some(&json!("#/properties/value/$defs/name"))
        );
        assert_eq!(spec.pointer("/properties/value/properties/kids/items/$ref"), Some(&json!("#/properties/value")));
        assert_eq!(spec.pointer("/properties/value/default/$ref"), Some(&json!("#/untouched")));
        assert!(envelope.open(&json!({"value": {"who": "x", "kids": [{"who": "y"}]}})).is_ok());
        assert!(envelope.open(&json!({"value": {"who": 1}})).is_err());
        assert!(envelope.open(&json!({"value": {"kids": [{"who": 1}]}})).is_err());
    }

    #[test]
    fn a_reference_that_leaves_the_schema_is_refused_with_its_place() {
        for reference in ["https://example.com/s.json", "file:///etc/passwd", "/etc/s.json"] {
            let error = Envelope::new(&json!({"properties": {"a": {"$ref": reference}}})).err().unwrap();
            assert_eq!(error.path, "/properties/a/$ref");
        }
    }
}
