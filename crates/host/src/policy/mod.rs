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
use crate::tap::Tap;

/// One provider API.
pub trait ProviderPolicy: Send + Sync + 'static {
    /// Its name.
    fn name(&self) -> &'static str;
    /// Every route that exists; anything else is answered 404 and never forwarded.
    fn routes(&self) -> &'static [Route];
    /// A paid request whose body passed [`crate::strict`], as it will be sent, and what a quote looks at in exactly that.
    ///
    /// # Errors
    /// One sentence on what is wrong with the body.
    fn shape(&self, route: &Route, body: Bytes) -> Result<Shaped, String>;
    /// The same where the proxy has an outline of the body at hand: the same document with every text value longer than [`crate::LONG`] bytes
    /// empty. A policy whose facts hang on no such text reads them off the outline, which is a fraction of the body. The facts, and what is
    /// refused, must be those of `shape`.
    ///
    /// # Errors
    /// As `shape`.
    fn shape_by(&self, route: &Route, body: Bytes, outline: &[u8]) -> Result<Shaped, String> {
        let _ = outline;
        self.shape(route, body)
    }
    /// The status of a refusal: one that no harness of this API tries again.
    fn refused(&self) -> StatusCode;
    /// The body of an answer the proxy makes itself, in the provider's error shape.
    fn error_body(&self, status: StatusCode, message: &str) -> Bytes;
    /// Puts the credential into the upstream request.
    fn authorize(&self, headers: &mut HeaderMap, credential: &Credential);
    /// Request headers that are passed on, in lower case; all others stay here.
    fn request_headers(&self) -> &'static [&'static str];
    /// Response headers that are passed on.
    fn response_headers(&self) -> &'static [&'static str];
    /// Reads usage off a response as it passes. `model` is the one asked for, for answers that name none.
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
