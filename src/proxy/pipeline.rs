//! The road of one request, top to bottom.
//!
//! read target → authenticate → identify → look up the standing → decide → pace → forward. [`Pipeline::serve`] always produces an answer and a
//! record; its `walk` is the steps, any of which may end the request with a [`Refusal`]. A client that hangs up makes the server
//! drop the future at whatever step it is: the place in the line and the record are values that act when they are dropped, so
//! nothing is left behind and nothing goes unrecorded.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bytes::Bytes;
use futures_util::future::FutureExt;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::ext::ReasonPhrase;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::body::Body;
use super::error::Refusal;
use super::http1::Switch;
use super::limits::{Connection, Limits};
use super::socket::Listen;
use super::terms::{Asked, Terms};
use super::{own, websocket};
use crate::audit::{self, Audit, Record, Via};
use crate::ca::Ca;
use crate::clock;
use crate::http1::Malformed;
use crate::lookup::Lookup;
use crate::policy::answer::{Accept, Rendering};
use crate::policy::decision::{self, Decision};
use crate::policy::enforcement::Mode;
use crate::policy::hints::Hints;
use crate::policy::hold::Sign;
use crate::policy::identity::{self, Identity, LastUserAgent};
use crate::policy::reason::Reason;
use crate::policy::requisite::{self, Load};
use crate::policy::standing::Standing;
use crate::policy::target::{Target, Tunnel};
use crate::queue::{Arrival, Place, Queue, Visitor};
use crate::upstream::{self, RequestBody, SentAgain, Speech, Upstream};

/// Everything that a request meets on its road.
pub struct Pipeline {
    /// What the operator has set about requests, as it is now.
    pub terms: ArcSwap<Terms>,
    /// The standings of origins.
    pub lookup: Lookup,
    /// The line of each host.
    pub queue: Arc<Queue>,
    /// The way to origins.
    pub upstream: Arc<Upstream>,
    /// The log.
    pub audit: Arc<Audit>,
    /// The certificate that clients have to trust.
    pub ca: Arc<Ca>,
    /// Ceilings for clients.
    pub limits: Limits,
    /// Cancelled when the proxy stops.
    pub stopping: CancellationToken,
    /// Connections, tunnels and WebSockets, so that a stop can wait for them.
    pub tasks: TaskTracker,
}

/// What a request comes to, where it is not refused.
enum Answered {
    /// The origin's answer.
    ByOrigin(Response<upstream::Body>),
    /// A page of the proxy itself.
    ByUs(Response<Bytes>),
}

/// What was decided about a request, and by which standing: by none about robots.txt itself.
struct Decided {
    decision: Decision,
    standing: Option<Arc<Standing>>,
}

/// Where a request comes from.
#[derive(Clone, Debug)]
pub struct Client {
    /// The client's socket.
    pub address: SocketAddr,
    /// Where it came in.
    pub entrance: Arc<Listen>,
    /// The tunnel that it comes through.
    pub tunnel: Option<Arc<OpenTunnel>>,
    /// Counts the connection for as long as anything of it lives, a tunnel included.
    pub connection: Arc<Connection>,
    /// What its requests said of themselves.
    pub last: Arc<LastUserAgent>,
}

/// An intercepted CONNECT.
#[derive(Debug)]
pub struct OpenTunnel {
    /// Where it goes.
    pub tunnel: Tunnel,
    /// The header fields of the CONNECT, which hold for all requests inside.
    pub headers: HeaderMap,
}

impl Client {
    /// Begins the record of a request of this client.
    pub fn record(&self, audit: &Arc<Audit>, terms: &Terms, method: &http::Method) -> Record {
        let via = if self.tunnel.is_some() { Via::Connect } else { Via::Plain };
        Record::begin(audit, self.address.ip(), via, method, terms.mode)
    }

    pub(super) fn connect_headers(&self) -> Option<&HeaderMap> {
        self.tunnel.as_ref().map(|open| &open.headers)
    }

    /// The user name that the client gave to the proxy, with the CONNECT or with the request.
    pub(super) fn user(&self, headers: &HeaderMap) -> Option<Arc<str>> {
        self.connect_headers().and_then(identity::basic_user).or_else(|| identity::basic_user(headers)).map(Arc::from)
    }
}

impl Pipeline {
    /// Serves a request: the origin's answer, or the proxy's own, and a record in any case.
    pub async fn serve(&self, client: &Client, mut request: Box<Request<RequestBody>>) -> Response<Body> {
        let terms = self.terms.load_full();
        let mut record = client.record(&self.audit, &terms, request.method());
        let accept = Accept::of(request.headers());
        let websocket = websocket::is_asked(&mut request);
        match self.walk(&terms, client, request, &mut record).await {
            Ok(Answered::ByOrigin(response)) => match response.status() {
                StatusCode::SWITCHING_PROTOCOLS if websocket => self.switch(client, response, record),
                _ => response.map(|body| Body::Forwarded { body, record }),
            },
            Ok(Answered::ByUs(page)) => {
                record.own_page(page.status(), page.body().len() as u64);
                page.map(|body| Body::Own(body.into()))
            }
            Err(refusal) => Box::pin(refuse(refusal, accept.rendering(), record)).await,
        }
    }

    async fn walk(
        &self,
        terms: &Terms,
        client: &Client,
        mut request: Box<Request<RequestBody>>,
        record: &mut Record,
    ) -> Result<Answered, Refusal> {
        let target = self.read(client, &request, record)?;
        terms.authenticate(client, request.headers()).await?;
        if own::is_meant(&target) {
            return Ok(Answered::ByUs(own::page(&self.ca, &client.entrance, &request, &target)?));
        }
        let asked = terms.identify(client, request.headers(), target, record)?;
        let speech = Speech::of(&request);
        let standing = self.look_up(&asked.target, speech).await;
        let mut decided = self.decide(&asked, standing, record)?;
        let arrival = self.arrival(client, &request, &asked, &decided.decision);
        self.prepare(&mut request, terms, &asked.identity);
        let mut may_be_lost = true;
        loop {
            let mut place = self.line_up(&arrival, &asked, record)?;
            let connection = self.wait_for_turn(&mut place, &asked, speech, &mut decided, record).await?;
            match self.forward(connection, place, &asked.target, request, record).await {
                // The origin may have seen it start, so it goes to the end of the line.
                Err(upstream::Error::Lost(lost)) if std::mem::take(&mut may_be_lost) => request = lost,
                ended => return Ok(Answered::ByOrigin(ended?)),
            }
        }
    }

    /// What is asked for: one target, which everything after this line goes by.
    fn read(&self, client: &Client, request: &Request<RequestBody>, record: &mut Record) -> Result<Target, Refusal> {
        let tunnel = client.tunnel.as_ref().map(|open| &open.tunnel);
        let target = Target::of(request.uri(), request.version(), request.headers(), tunnel);
        record.asked(match &target {
            Ok(target) => audit::Asked::Target(target.clone()),
            Err(_) => audit::Asked::Line(request.uri().clone()),
        });
        self.limits.request(client.address.ip())?;
        self.can_be_recorded()?;
        if self.upstream.pseudonym().is_in(request.headers()) {
            return Err(Refusal::new(Reason::Loop, "this request has been through this proxy before"));
        }
        let target = target?;
        record.stripped(upstream::headers::rerouting(request.headers()));
        has_one_reading(request)?;
        Ok(target)
    }

    /// Whether there would be a record of it, where the operator wants no request without one.
    pub(super) fn can_be_recorded(&self) -> Result<(), Refusal> {
        if self.audit.admits() { Ok(()) } else { Err(Refusal::unrecorded()) }
    }

    /// What holds at the origin. robots.txt itself needs no permission, so nothing is asked for it.
    async fn look_up(&self, target: &Target, speech: Speech) -> Option<Arc<Standing>> {
        match target.is_robots_txt() {
            true => None,
            false => Some(self.lookup.standing(&target.origin, speech).await),
        }
    }

    /// Allow or refuse.
    fn decide(&self, asked: &Asked, standing: Option<Arc<Standing>>, record: &mut Record) -> Result<Decided, Refusal> {
        let Some(standing) = &standing else {
            let decision = Decision::of(Reason::RobotsTxt);
            record.allowed(decision.reason);
            return Ok(Decided { decision, standing });
        };
        let Asked { identity, target, .. } = asked;
        let now = clock::now();
        let decision = decision::decide(identity.token.as_str(), target.path_bytes(), standing, now);
        let decision = self.follow(asked, decision, standing, now, record)?;
        Ok(Decided { decision, standing: Some(Arc::clone(standing)) })
    }

    /// Does what was decided: goes on, or refuses.
    pub(super) fn follow(
        &self,
        asked: &Asked,
        decision: Decision,
        standing: &Arc<Standing>,
        now: Instant,
        record: &mut Record,
    ) -> Result<Decision, Refusal> {
        record.decided(&decision, standing, now);
        if !decision.reason.allows() {
            let (token, robots_url) = (asked.identity.token.as_str(), &standing.evidence.robots_url);
            let refusal = Refusal::by_rules(&decision, token, robots_url, standing.failure.as_deref());
            asked.enforce(refusal, record)?;
        }
        Ok(decision)
    }

    /// The request as the line sees it.
    fn arrival(&self, client: &Client, request: &Request<RequestBody>, asked: &Asked, decision: &Decision) -> Arrival {
        let (headers, target) = (request.headers(), &asked.target);
        let hints = Hints::of(headers);
        let load = requisite::load(&hints, target.origin.scheme);
        Arrival {
            visitor: Visitor::new(asked.user.as_deref(), client.address.ip(), &asked.identity.token),
            host: target.origin.host.clone(),
            gap: self.gap(decision),
            patience: self.queue.settings().patience(&hints),
            page: (load == Load::Navigation).then(|| requisite::page(target)),
            load,
        }
    }

    /// A place in the line of the host, if it is asked slowly. Observe mode only tells how long the wait would be.
    fn line_up(&self, arrival: &Arrival, asked: &Asked, record: &mut Record) -> Result<Place, Refusal> {
        if asked.enforcement.mode == Mode::Enforce {
            return Ok(self.queue.arrive(arrival)?);
        }
        // Who would have been refused would not have stood in line.
        if !record.is_waived() {
            match self.queue.watch(arrival) {
                Ok(wait) => record.would_wait(wait),
                Err(refused) => asked.enforce(refused.into(), record)?,
            }
        }
        Ok(self.queue.free(arrival))
    }

    /// The delay in force for a decision; robots.txt itself is not paced.
    fn gap(&self, decision: &Decision) -> Option<Duration> {
        let is_paced = decision.reason != Reason::RobotsTxt;
        is_paced.then(|| self.queue.settings().delay(decision.delay()).gap)
    }

    /// Waits for the request's slot, and opens the connection that it will start on. What was decided on arrival is decided again
    /// when robots.txt has changed meanwhile, and a host that was held while the connection was opened is waited for once more.
    async fn wait_for_turn(
        &self,
        place: &mut Place,
        asked: &Asked,
        speech: Speech,
        decided: &mut Decided,
        record: &mut Record,
    ) -> Result<upstream::Connection, Refusal> {
        loop {
            let gap = self.gap(&decided.decision).unwrap_or_default();
            tokio::select! {
                biased;
                ready = place.ready(gap) => ready?,
                () = self.stopping.cancelled() => return Err(Refusal::stopping()),
            }
            if let Some(paced) = place.is_paced() {
                record.paced(paced, paced && self.queue.settings().delay(decided.decision.delay()).capped);
                let latest = self.look_up(&asked.target, speech).await;
                if !same(latest.as_ref(), decided.standing.as_ref()) {
                    *decided = self.decide(asked, latest, record)?;
                    continue;
                }
            }
            let connection = self.upstream.connect(&asked.target.origin, speech).await?;
            if place.may_start(gap) {
                return Ok(connection);
            }
        }
    }

    /// Takes from the request what is for the proxy alone.
    fn prepare(&self, request: &mut Request<RequestBody>, terms: &Terms, identity: &Identity) {
        request.headers_mut().remove(&terms.identity.header);
        if let Some(user_agent) = &identity.send_user_agent {
            request.headers_mut().insert(header::USER_AGENT, user_agent.clone());
        }
        let version = request.version();
        self.upstream.pseudonym().add_via(request.headers_mut(), version);
    }

    /// Starts the request on its connection, and returns when the head of the answer has come.
    async fn forward(
        &self,
        connection: upstream::Connection,
        place: Place,
        target: &Target,
        request: Box<Request<RequestBody>>,
        record: &mut Record,
    ) -> Result<Response<upstream::Body>, upstream::Error> {
        let is_paced = place.is_paced() == Some(true);
        let websocket = Speech::of(&request) == Speech::WebSocket;
        let start = place.start();
        let waited = Some(start.waited()).filter(|wait| is_paced || wait.as_millis() > 0);
        record.waited(waited);
        let mut response = connection.send(target, request, start.at()).await?;
        let sent_again = response.extensions().get::<SentAgain>().map(|again| again.0);
        start.answered(Sign::read(response.status(), response.headers(), clock::wall), sent_again);
        record.answered(response.status());
        let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if switches && !(websocket && websocket::is_granted(response.headers())) {
            return Err(upstream::Error::Protocol("it switches to a protocol that was not asked for".into()));
        }
        self.upstream.pseudonym().towards_client(&mut response);
        if let Some(waited) = waited {
            let waited = format!("robots-proxy; wait_ms={}", waited.as_millis());
            response
                .headers_mut()
                .append("proxy-status", HeaderValue::try_from(waited).expect("digits are a header value"));
        }
        Ok(response)
    }

    /// The answer that switches to a WebSocket which the origin has granted; what goes on with it writes the record.
    fn switch(&self, client: &Client, mut response: Response<upstream::Body>, record: Record) -> Response<Body> {
        upstream::headers::switch_to_websocket(response.headers_mut());
        let (client, stopping) = (client.clone(), self.stopping.clone());
        response.map(|body| {
            let switch = |stream| match body.into_switched() {
                Some(origin) => websocket::serve(stream, origin, record, stopping, client).boxed(),
                None => std::future::ready(()).boxed(),
            };
            Body::Switched(Some(Switch::to(switch)))
        })
    }
}

/// Whether a request ends at one place, and its method is not TRACE, which would send credentials back to a script.
fn has_one_reading(request: &Request<RequestBody>) -> Result<(), Refusal> {
    match request.extensions().get::<Malformed>() {
        Some(malformed) => Err(Refusal::new(Reason::BadRequest, malformed.to_string())),
        _ if request.method() == Method::TRACE => Err(Refusal::new(Reason::MethodNotAllowed, "TRACE is not passed on")),
        _ => Ok(()),
    }
}

fn same(one: Option<&Arc<Standing>>, other: Option<&Arc<Standing>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.says_the_same(other),
        (one, other) => one.is_none() && other.is_none(),
    }
}

/// Answers a request that goes no further. The record is on disk before the client has its answer.
pub async fn refuse(refusal: Refusal, rendering: Rendering, mut record: Record) -> Response<Body> {
    let Refusal { reason, detail, retry_after } = refusal;
    let answer = record.answer(reason, detail).retry_after(retry_after);
    let mut response = answer.render(rendering);
    if let Ok(phrase) = ReasonPhrase::try_from(answer.phrase()) {
        response.extensions_mut().insert(phrase);
    }
    record.refuse(reason, answer.detail(), response.status(), response.body().len() as u64).await;
    response.map(Body::own)
}
