//! What the three policies read of a request on its way through the strict check, against the same read off a tree: whatever stands in a body,
//! in whatever order and spelling, both see the same facts in it or both refuse it.

use agentrun_cap::RequestFacts;
use agentrun_host::{Provider, Route, RouteKind, shape};
use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Map, Value};

use crate::changed::{changed, changes, corpus, fuzz};
use crate::written::written;
use crate::{json, tree};

/// What a request is made of where it matters.
const WORDS: &[&[u8]] = &[
    b"\"cache_control\":{\"ttl\":\"1h\"},",
    b"{\"type\":\"image\",\"source\":{\"type\":\"url\"}},",
    b"{\"type\":\"input_image\",\"image_url\":\"\\u0064ata:\"},",
    b"{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:\"}},",
    b"\"\\u0074ype\":\"\\u0069nput_audio\",",
    b"{\"type\":\"web_search_20250305\",\"max_uses\":3},",
    b"\"max_tokens\":1e3,",
    b"\"max_tokens\":64000,",
    b"\"max\\u005ftokens\":2,",
    b"\"service_tier\":null,",
    b"\"store\":true,",
    b"\"n\":2,",
    b"\"context_management\":[{\"type\":\"compaction\"}],",
    b"\"fallbacks\":[],",
    b"\"content\":null,",
    b"\"content\":{\"content\":[{\"content\":[{\"content\":\"x\"}]}]},",
    b"\"\\ud83d\\ude00\":1,",
    b"\"\\ud83d\":1,",
    b"null",
    b"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
    b"]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]",
    b"{\"content\":[{\"content\":[{\"content\":[{\"content\":[",
    b"]}]}]}]}",
    b"}}",
    b"\"",
    b",",
];

const APIS: [Provider; 3] = [Provider::Anthropic, Provider::OpenAi, Provider::OpenAiChat];

fn paid(api: Provider) -> Vec<Route> {
    api.policy().routes().iter().filter(|route| route.kind == RouteKind::Paid).copied().collect()
}

/// Their order in the body is of no account.
fn sorted(mut facts: RequestFacts) -> RequestFacts {
    facts.escapes.sort();
    facts.server_tools.sort_by(|one, other| one.kind.cmp(&other.kind).then(one.max_uses.cmp(&other.max_uses)));
    facts
}

/// Whether the body is a request. What is read off it is what the tree says, and what is sent is what came, but for what is set.
fn agrees(api: Provider, body: &[u8]) -> Result<bool, TestCaseError> {
    let bytes = Bytes::copy_from_slice(body);
    let text = String::from_utf8_lossy(body);
    let mut is_request = false;
    for route in paid(api) {
        let shaped = shape(&*api.policy(), &route, &bytes);
        let tree: Option<Map<String, Value>> =
            json::reference(body).then(|| serde_json::from_slice(body).expect("it is an object"));
        let Some(tree) = tree.and_then(|tree| tree::read(api, route.path, tree)) else {
            prop_assert!(shaped.is_err(), "{api} {}: read, the tree is not: {text}", route.path);
            continue;
        };
        let shaped = shaped.map_err(|error| TestCaseError::fail(format!("{api} {}: {error}: {text}", route.path)))?;
        prop_assert_eq!(shaped.facts.body_bytes, shaped.body.len() as u64);
        let facts = RequestFacts { body_bytes: 0, ..sorted(shaped.facts) };
        prop_assert_eq!(facts, sorted(tree.facts), "{} {}: {}", api, route.path, text);
        prop_assert!(json::reference(&shaped.body), "{text}");
        let sent: Map<String, Value> = serde_json::from_slice(&shaped.body).unwrap();
        prop_assert_eq!(&sent, &tree.sent, "{}", text);
        is_request = true;
    }
    Ok(is_request)
}

#[test]
fn b86_fuzz_the_facts_that_are_read_on_the_way_are_those_of_the_tree() {
    let all = corpus("requests");
    for (name, body) in &all {
        let taken: Vec<String> = APIS
            .into_iter()
            .filter(|api| agrees(*api, body).unwrap_or_else(|failed| panic!("{name}: {failed}")))
            .map(|api| api.to_string())
            .collect();
        // Each file is named after the API whose request it is.
        let api = name.split('.').next().unwrap().to_owned();
        assert_eq!(taken.contains(&api), api != "no", "{name}: {taken:?}");
    }
    fuzz("facts", &changes(), |(which, changes)| {
        let body = changed(&all, WORDS, &which, &changes);
        APIS.into_iter().try_fold(false, |any, api| Ok(agrees(api, &body)? | any))
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn b86_requests_of_any_make_are_read_as_the_tree_reads_them(choices in prop::collection::vec(any::<u8>(), 0..700)) {
        for api in APIS {
            agrees(api, written(api, &choices).as_bytes())?;
        }
    }
}

/// Most of what is written is a request, or the test above says nothing.
#[test]
fn what_is_written_for_the_tests_is_mostly_a_request() {
    let mut dice = 0x2545_f491_4f6c_dd1d_u64;
    for api in APIS {
        let requests = (0..400)
            .filter(|_| {
                let choices: Vec<u8> = (0..400)
                    .map(|_| {
                        dice ^= dice << 13;
                        dice ^= dice >> 7;
                        dice ^= dice << 17;
                        dice.to_le_bytes()[3]
                    })
                    .collect();
                agrees(api, written(api, &choices).as_bytes()).unwrap()
            })
            .count();
        println!("{api}: {requests} of 400 are requests");
        assert!((100..390).contains(&requests), "{api}: {requests}");
    }
}
