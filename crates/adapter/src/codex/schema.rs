//! Tool schemas as the program can carry them. It rewrites each schema on its way to the model: keywords it does not know are dropped
//! (`pattern`, `maximum`, `default` …), some are made false (`const: 1` becomes the *string* 1), and of a long one only the bones arrive.
//! So it is given only what it carries unchanged, and a schema that says more is told to the model whole, beside it: nothing is dropped.

use serde_json::{Map, Value, json};

use crate::tools::ToolSpec;

/// Past about 5000 bytes the program leaves out descriptions, then more.
const CARRIED_BYTES: usize = 4000;
/// Keywords that arrive as they are.
const KEPT: [&str; 5] = ["type", "description", "required", "$ref", "minItems"];
/// Keywords that say nothing of a value.
const SILENT: [&str; 4] = ["$schema", "$id", "$comment", "title"];

/// A tool's schema for the program, and what the model must be told beside it: `None` when the schema arrives whole.
pub(super) fn carried(spec: &ToolSpec) -> (Value, Option<String>) {
    let mut whole = true;
    let mut schema = narrow(&spec.input_schema, &mut whole);
    if schema.to_string().len() > CARRIED_BYTES {
        whole = false;
        schema = outline(&schema);
    }
    let told =
        || format!("The arguments of the tool `{}` must fit this JSON Schema:\n{}", spec.name, spec.input_schema);
    (schema, (!whole).then(told))
}

/// The names of the first level alone.
fn outline(schema: &Value) -> Value {
    let names = schema.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::keys);
    let mut outline = json!({
        "type": "object",
        "properties": names.map(|name| (name.clone(), json!({}))).collect::<Map<_, _>>(),
    });
    for name in ["required", "additionalProperties"] {
        if let (Some(fields), Some(value)) = (outline.as_object_mut(), schema.get(name)) {
            fields.insert(name.to_owned(), value.clone());
        }
    }
    outline
}

/// What of a schema arrives as it is. It allows at least what the schema allows; `whole` is put out when it allows more, or says less.
fn narrow(schema: &Value, whole: &mut bool) -> Value {
    let Value::Object(fields) = schema else {
        // `true` would be made a string.
        *whole &= *schema == Value::Bool(true);
        return json!({});
    };
    let mut kept = Map::new();
    for (name, value) in fields {
        let narrowed = match (name.as_str(), value) {
            (name, _) if KEPT.contains(&name) => value.clone(),
            ("additionalProperties", Value::Bool(_)) => value.clone(),
            ("additionalProperties" | "items", Value::Object(_)) => narrow(value, whole),
            ("anyOf" | "oneOf" | "allOf", Value::Array(each)) => each.iter().map(|it| narrow(it, whole)).collect(),
            ("properties" | "$defs", Value::Object(each)) => {
                Value::Object(each.iter().map(|(name, it)| (name.clone(), narrow(it, whole))).collect())
            }
            ("enum", Value::Array(values)) => match listed(fields, values) {
                Some(typed) => {
                    kept.extend(typed);
                    continue;
                }
                None => {
                    *whole = false;
                    continue;
                }
            },
            ("const", _) => match listed(fields, std::slice::from_ref(value)) {
                Some(typed) => {
                    kept.extend(typed);
                    continue;
                }
                None => {
                    *whole = false;
                    continue;
                }
            },
            (name, _) => {
                *whole &= SILENT.contains(&name);
                continue;
            }
        };
        kept.insert(name.clone(), narrowed);
    }
    if kept.get("type").and_then(Value::as_str) == Some("array") {
        // Without it the items are made strings.
        kept.entry("items").or_insert_with(|| json!({}));
    }
    if kept.len() == 1 && kept.contains_key("description") {
        // A schema of nothing else arrives empty.
        *whole = false;
    }
    Value::Object(kept)
}

/// A list of values with the type it needs: without one each value is made a string. Lists and objects are not carried.
fn listed(schema: &Map<String, Value>, values: &[Value]) -> Option<Map<String, Value>> {
    let mut kinds: Vec<&str> = values.iter().map(kind).collect::<Option<_>>()?;
    kinds.sort_unstable();
    kinds.dedup();
    let kind = match (schema.get("type"), kinds.as_slice()) {
        (Some(said), _) => said.clone(),
        (None, [one]) => json!(one),
        (None, several) => json!(several),
    };
    let list = [("type".to_owned(), kind), ("enum".to_owned(), Value::from(values))];
    Some(list.into_iter().collect())
}

fn kind(value: &Value) -> Option<&'static str> {
    match value {
        Value::Null => Some("null"),
        Value::Bool(_) => Some("boolean"),
        Value::Number(number) if number.is_f64() => Some("number"),
        Value::Number(_) => Some("integer"),
        Value::String(_) => Some("string"),
        Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carry(schema: Value) -> (Value, Option<String>) {
        carried(&ToolSpec { name: "t".to_owned(), description: String::new(), input_schema: schema })
    }

    #[test]
    fn b72_what_the_program_carries_unchanged_is_given_to_it_and_nothing_is_told_beside_it() {
        let schema = json!({
            "type": "object",
            "properties": {
                "value": { "$ref": "#/properties/value/$defs/x", "$defs": { "x": { "type": "string", "enum": ["a"] } } },
                "list": { "type": "array", "items": { "anyOf": [{ "type": "string" }, { "type": ["integer", "null"] }] }, "minItems": 1 },
                "free": {},
            },
            "required": ["value"],
            "additionalProperties": false,
        });
        assert_eq!(carry(schema.clone()), (schema, None));
    }

    #[test]
    fn b72_a_keyword_the_program_would_drop_is_told_whole_and_never_only_dropped() {
        for keyword in
            [json!({"pattern": "^a"}), json!({"maximum": 3}), json!({"not": {}}), json!({"prefixItems": [true]})]
        {
            let schema = json!({ "type": "object", "properties": { "a": keyword } });
            let (given, told) = carry(schema.clone());
            assert_eq!(given, json!({ "type": "object", "properties": { "a": {} } }));
            assert!(told.unwrap().contains(&schema.to_string()));
        }
    }

    #[test]
    fn b72_a_value_is_never_given_another_type() {
        let (given, told) =
            carry(json!({ "oneOf": [{ "const": 1 }, { "const": true }, { "enum": ["x", null] }, true] }));
        let integer = json!({ "type": "integer", "enum": [1] });
        let boolean = json!({ "type": "boolean", "enum": [true] });
        let either = json!({ "type": ["null", "string"], "enum": ["x", null] });
        assert_eq!((given, told), (json!({ "oneOf": [integer, boolean, either, {}] }), None));
        assert_eq!(carry(json!({ "type": "array" })).0, json!({ "type": "array", "items": {} }));
    }

    #[test]
    fn b72_a_long_schema_is_told_whole_and_given_in_outline() {
        let described = json!({ "type": "string", "description": "x".repeat(CARRIED_BYTES) });
        let schema = json!({ "type": "object", "properties": { "a": described }, "required": ["a"] });
        let (given, told) = carry(schema.clone());
        assert_eq!(given, json!({ "type": "object", "properties": { "a": {} }, "required": ["a"] }));
        assert!(told.unwrap().contains(&schema.to_string()));
    }
}
