//! What differs from provider to provider, as data and small functions: routes, what a quote reads, where usage stands, how a refusal
//! looks. The order of the checks is the proxy's own and the same for all.

mod anthropic;
mod openai;
mod parts;

pub use anthropic::Anthropic;
pub use openai::{OpenAiChat, OpenAiResponses};

use agentrun_cap::RequestFacts;
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};

use crate::credential::Credential;
use crate::json::{Document, Unfit};
use crate::tap::Tap;

/// One provider API. Whoever adds a provider writes this and a [`Tap`], and gives it to [`crate::ProviderConfig`]; `tests/third_party.rs` has
/// a small one. What is here is data and pure functions: the order of the checks, the gate, the credential's scrubbing, time-outs and booking are
/// the proxy's own, and no policy can leave one out.
///
/// What a policy answers for:
///
/// * **Routes are closed.** A path that is not in [`routes`](Self::routes), letter by letter, is never forwarded. A route on which anything at
///   all is billed MUST be [`RouteKind::Paid`]; in doubt it is.
/// * **What is priced is what is sent.** The facts that [`shape`](Self::shape) gives MUST be those of the body it gives, byte for byte
///   (`facts.body_bytes` is its length). It gives the bytes that came unless it must add to them.
/// * **Nothing spends unseen.** Whatever a request can set off beyond what its own answer reports (work in the background, stored inputs,
///   tools that run at the provider, another model) MUST be in the facts, or an error. A member, a type or a tool that the policy does not know
///   goes to `facts.escapes`, which no quote takes.
/// * **A refusal ends it.** [`refused`](Self::refused) is a status that no harness of this API tries again.
/// * **Headers are lists.** What is not in [`request_headers`](Self::request_headers) stays here, and MUST NOT hold one that names who pays or
///   where the request goes. What is not in [`response_headers`](Self::response_headers) does not reach the harness.
/// * **The credential goes where [`authorize`](Self::authorize) puts it**, with [`Credential::put`], and nowhere else.
/// * **No figure is made up.** A [`Tap`] gives figures only for an answer that was said whole, and `None` for one that was not, or that it does
///   not wholly understand: the hold then counts in full. Answers come uncompressed, in any pieces.
pub trait ProviderPolicy: Send + Sync + 'static {
    /// Its name.
    fn name(&self) -> &'static str;
    /// Every route that exists; anything else is answered 404 and never forwarded.
    fn routes(&self) -> &'static [Route];
    /// A paid request as it will be sent, and what a quote looks at in exactly that. Its members are read as they pass the strict check
    /// ([`Document::members`]); a request that turns out not to be strict is refused whatever was made of it. Called once a request, before the
    /// gate.
    ///
    /// # Errors
    /// [`Unfit`] says what is wrong with the body; the harness is told it with a 400, and nothing is sent.
    fn shape(&self, route: &Route, request: &mut Document<'_>) -> Result<Shaped, Unfit>;
    /// The status of a refusal: one that no harness of this API tries again.
    fn refused(&self) -> StatusCode;
    /// The body of an answer the proxy makes itself, in the provider's error shape, as JSON. `message` holds no secret.
    fn error_body(&self, status: StatusCode, message: &str) -> Bytes;
    /// Puts the credential into the upstream request, whose headers are the listed ones and no more.
    fn authorize(&self, headers: &mut HeaderMap, credential: &Credential);
    /// Request headers that are passed on, in lower case; all others stay here.
    fn request_headers(&self) -> &'static [&'static str];
    /// Response headers that are passed on, in lower case.
    fn response_headers(&self) -> &'static [&'static str];
    /// Reads usage off a successful answer as it passes. `model` is the one asked for, for answers that name none; `content_type` is the answer's,
    /// empty without one.
    fn tap(&self, route: &Route, model: &str, content_type: &str) -> Box<dyn Tap>;
}

/// A paid request as it will be sent: the body that was read is the body that goes.
#[derive(Clone, Debug)]
pub struct Shaped {
    /// The bytes. Those that came, unless the policy had to add to them.
    pub body: Bytes,
    /// What a quote looks at, of these bytes.
    pub facts: RequestFacts,
}

/// Checks the body of a paid request and shapes it, in one pass.
///
/// # Errors
/// [`Unfit`]: the body is not strict JSON, or the policy takes no such request.
pub fn shape(policy: &dyn ProviderPolicy, route: &Route, body: &Bytes) -> Result<Shaped, Unfit> {
    let mut request = Document::new(body);
    let shaped = policy.shape(route, &mut request)?;
    request.end()?;
    Ok(shaped)
}

/// A route: method, exact path text and exact query.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// Its method.
    pub method: RouteMethod,
    /// Its path, compared as text.
    pub path: &'static str,
    /// Its query, compared as text; `None`: no query, not even an empty one.
    pub query: Option<&'static str>,
    /// What becomes of a request on it.
    pub kind: RouteKind,
}

/// The methods routes have; [`Method`] itself cannot stand in a constant table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteMethod {
    /// `GET`.
    Get,
    /// `HEAD`.
    Head,
    /// `POST`.
    Post,
}

impl RouteMethod {
    pub(crate) const fn as_http(self) -> Method {
        match self {
            Self::Get => Method::GET,
            Self::Head => Method::HEAD,
            Self::Post => Method::POST,
        }
    }
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteKind {
    /// The gate decides, and it is booked.
    Paid,
    /// Passed on without admission or booking: the provider does not bill it.
    Free,
    /// Answered here with this body; nothing is passed on.
    Answered(&'static str),
    /// The same, and no key is asked for: some programs probe the origin before they have one.
    Open(&'static str),
    /// Refused here with this status and this sentence, for programs that go another way when they are told so.
    Refused(StatusCode, &'static str),
}

/// The route of a request.
pub(crate) fn route(policy: &dyn ProviderPolicy, method: &Method, path: &str, query: Option<&str>) -> Option<Route> {
    policy
        .routes()
        .iter()
        .copied()
        .find(|route| route.method.as_http() == *method && route.path == path && route.query == query)
}
