//! The only place that puts the parts together: what `serve`, `run`, `demo` and the tests call.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admin::{self, Admin};
use crate::audit::{self, Audit};
use crate::auth::{self, Auth};
use crate::ca::{self, Ca, Leaves};
use crate::clock;
use crate::control::Socket;
use crate::lookup::fetch::{self, RobotsFetch};
use crate::lookup::store::{self, Store};
use crate::lookup::{self, Lookup};
use crate::policy::enforcement::{Exception, Mode};
use crate::policy::{identity, pacing};
use crate::proxy::limits::{self, Limits};
use crate::proxy::listener::Proxy;
use crate::proxy::pipeline::Pipeline;
use crate::proxy::socket::{Listen, Listener};
use crate::proxy::terms::Terms;
use crate::proxy::tls::Interception;
use crate::queue::{Journal, Queue};
use crate::upstream::{self, Upstream};

/// All that a proxy is told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where clients connect.
    pub listen: Vec<Listen>,
    /// Whether decisions are put into practice.
    pub mode: Mode,
    /// Started for one command, beside whatever runs with the same folders: without a control socket.
    pub private: bool,
    /// Where copies of robots.txt are kept.
    pub state_dir: PathBuf,
    /// The certificate authority.
    pub ca: ca::Settings,
    /// Who may use the proxy.
    pub auth: auth::Settings,
    /// Which bot is asking.
    pub identity: identity::Settings,
    /// Sites whose rules are not enforced.
    pub exceptions: Vec<Exception>,
    /// How robots.txt is kept.
    pub lookup: lookup::Settings,
    /// How robots.txt is asked for.
    pub fetch: fetch::Settings,
    /// How requests are paced.
    pub pace: pacing::Settings,
    /// What is recorded.
    pub audit: audit::Settings,
    /// How origins are reached.
    pub upstream: upstream::Settings,
    /// The view inside; `None` is off.
    pub admin: Option<admin::Settings>,
    /// Ceilings.
    pub limits: limits::Settings,
}

/// For the disk to open the audit log; requests go on meanwhile.
const REOPEN_TIMEOUT: Duration = Duration::from_secs(10);

impl Settings {
    /// What cannot change while the proxy runs, by its key.
    fn fixed(&self) -> [(&'static str, String); 6] {
        [
            ("listen", format!("{:?}", self.listen)),
            ("state_dir", format!("{:?}", self.state_dir)),
            ("ca.dir", format!("{:?}", self.ca.dir)),
            ("robots.max_copies", self.lookup.max_copies.to_string()),
            ("pace.shared", format!("{:?}", self.pace.shared)),
            ("admin.listen", format!("{:?}", self.admin.as_ref().map(|admin| &admin.listen))),
        ]
    }

    /// Enforces nothing, on no bot, whatever its entry in the map says.
    pub fn observe_everything(&mut self) {
        self.mode = Mode::Observe;
        self.identity.map.iter_mut().for_each(|entry| entry.mode = None);
    }
}

/// Why a proxy does not start. Each message says what to do next.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}; stop what uses it, or choose another address with --listen")]
    Listen {
        /// Where.
        address: Listen,
        /// The system's words.
        source: io::Error,
    },
    /// The certificate authority cannot be used.
    #[error(transparent)]
    Ca(#[from] ca::Error),
    /// The audit log cannot be written.
    #[error(transparent)]
    Audit(#[from] audit::OpenError),
    /// Others could look in.
    #[error("admin.listen: {0}")]
    Admin(#[from] admin::Unguarded),
    /// The users cannot be read.
    #[error(transparent)]
    Auth(#[from] auth::OpenError),
    /// The way to origins cannot be set up.
    #[error(transparent)]
    Upstream(#[from] upstream::SetupError),
    /// TLS towards clients cannot be set up.
    #[error("TLS towards clients cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
}

/// A proxy at work.
pub struct Running {
    listening: Vec<Listen>,
    addresses: Vec<SocketAddr>,
    ca: Arc<Ca>,
    audit: Arc<Audit>,
    admin: Option<(Arc<Admin>, Listen)>,
    stopping: CancellationToken,
    /// Cancelled when everything has finished.
    stopped: CancellationToken,
    tasks: TaskTracker,
    proxy: Arc<Proxy>,
    journal: Option<Journal>,
    /// What was set at the start and stays.
    fixed: [(&'static str, String); 6],
}

/// Starts a proxy: when this returns, its listeners are open.
///
/// # Errors
/// A part cannot be set up; nothing is left behind.
pub async fn start(settings: Settings) -> Result<Running, StartError> {
    let fixed = settings.fixed();
    let (mut listeners, mut listening) = (Vec::new(), Vec::new());
    for listen in &settings.listen {
        let failed = |source| StartError::Listen { address: listen.clone(), source };
        let listener = Listener::open(listen).await.map_err(failed)?;
        listening.push(listener.place().map_err(failed)?);
        listeners.push(listener);
    }
    let addresses: Vec<SocketAddr> = listening.iter().filter_map(Listen::address).collect();
    // A private proxy is for one command, and the view may be that of another proxy with this configuration.
    let admin = match settings.admin.as_ref().filter(|_| !settings.private) {
        Some(admin) => Some(open_admin(admin).await?),
        None => None,
    };
    let admin_address = admin.as_ref().and_then(|(_, _, place)| place.address());
    let ca = Arc::new(Ca::open(&settings.ca, clock::wall())?);
    if let Some(difference) = ca.constraints_differ(&settings.ca) {
        tracing::warn!("{difference}");
    }
    if let Some(warning) = ca.ends_soon(clock::wall()) {
        tracing::warn!("{warning}");
    }
    let leaves = Leaves::new(Arc::clone(&ca), &settings.ca)?;
    let auth = Auth::reopen(None, &settings.auth)?;
    let audit = Audit::open(&settings.audit)?;
    let upstream = Upstream::new(&settings.upstream)?;
    upstream.listening_on(addresses.iter().copied().chain(admin_address).collect());
    let store = open_store(&settings.state_dir, settings.lookup.max_copies);
    let terms = terms(&settings, auth);
    let queue = Queue::new(settings.pace);
    let journal = open_journal(&settings.state_dir, &queue);
    let fetch = RobotsFetch::new(settings.fetch, Arc::clone(&upstream), Some(Arc::clone(&queue)));
    let (stopping, tasks) = (CancellationToken::new(), TaskTracker::new());
    let pipeline = Pipeline {
        terms: ArcSwap::from_pointee(terms),
        lookup: Lookup::new(settings.lookup, Arc::new(fetch), store),
        queue,
        upstream,
        audit: Arc::clone(&audit),
        ca: Arc::clone(&ca),
        limits: Limits::new(settings.limits),
        stopping: stopping.clone(),
        tasks: tasks.clone(),
    };
    let interception = Interception::new(leaves)?;
    let proxy = Arc::new(Proxy { pipeline, interception });
    if !settings.private {
        open_window(&settings.state_dir, &proxy);
    }
    for listener in listeners {
        tokio::spawn(Arc::clone(&proxy).listen(listener));
    }
    let stopped = CancellationToken::new();
    let admin = admin.map(|(settings, listener, place)| {
        audit.keep_latest();
        let admin = Admin::new(settings, Arc::clone(&proxy), listening.clone());
        tokio::spawn(Arc::clone(&admin).serve(listener, stopped.clone()));
        (admin, place)
    });
    Ok(Running { listening, addresses, ca, audit, admin, stopping, stopped, tasks, proxy, journal, fixed })
}

async fn open_admin(settings: &admin::Settings) -> Result<(admin::Settings, Listener, Listen), StartError> {
    settings.check()?;
    let failed = |source| StartError::Listen { address: settings.listen.clone(), source };
    let listener = Listener::open(&settings.listen).await.map_err(failed)?;
    let place = listener.place().map_err(failed)?;
    Ok((settings.clone(), listener, place))
}

/// The commands that look into a proxy ask through its control socket.
fn open_window(folder: &Path, proxy: &Arc<Proxy>) {
    match Socket::open(folder) {
        Ok(socket) => drop(tokio::spawn(socket.serve(Arc::clone(proxy)))),
        Err(error) => {
            tracing::warn!(%error, "no control socket: the commands that look into this proxy will not find it")
        }
    }
}

fn terms(settings: &Settings, auth: Option<Arc<Auth>>) -> Terms {
    let Settings { identity, mode, exceptions, .. } = settings;
    Terms { auth, identity: identity.clone(), mode: *mode, exceptions: exceptions.clone() }
}

fn open_journal(folder: &Path, queue: &Queue) -> Option<Journal> {
    let failed = |error: &io::Error| tracing::warn!(%error, "a restart will not know when hosts were asked");
    Journal::open(folder, queue).inspect_err(failed).ok().flatten()
}

/// Two proxies may be told to keep their copies in one folder; the second does without until it is free.
fn open_store(folder: &Path, copies: u64) -> Option<Store> {
    let limits = store::Limits { copies, body_bytes: store::Limits::BODY_BYTES };
    Store::open(folder, limits).inspect_err(|error| tracing::warn!(%error, "robots.txt copies stay in memory")).ok()
}

impl Running {
    /// Where clients can connect.
    pub fn listening(&self) -> &[Listen] {
        &self.listening
    }

    /// The addresses among these.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The certificate authority.
    pub fn ca(&self) -> &Ca {
        &self.ca
    }

    /// Where the view inside is.
    pub fn admin(&self) -> Option<&Listen> {
        self.admin.as_ref().map(|(_, place)| place)
    }

    /// The audit log.
    pub fn audit(&self) -> &Audit {
        &self.audit
    }

    /// Tells how many TLS handshakes clients broke off, as those do that do not trust the CA; also when the proxy has stopped, since the
    /// last of them may be noticed on the way.
    pub fn broken_handshakes(&self) -> impl Fn() -> u64 + use<> {
        let proxy = Arc::clone(&self.proxy);
        move || proxy.interception.broken_handshakes()
    }

    /// Goes by other settings from now on: all at once, or, where a part cannot be set up, not at all. Connections, tunnels, lines, copies
    /// and running requests stay; each request goes by the settings that it began with. Returns the keys of what has changed and needs a
    /// restart; that stays as it was.
    ///
    /// # Errors
    /// A part cannot be set up.
    pub async fn reload(&self, settings: Settings) -> Result<Vec<&'static str>, StartError> {
        let Proxy { pipeline, interception } = &*self.proxy;
        let auth = Auth::reopen(pipeline.terms.load().auth.as_ref(), &settings.auth)?;
        let upstream = pipeline.upstream.prepare(&settings.upstream)?;
        let audit = pipeline.audit.prepare(&settings.audit).await?;
        // Nothing below can fail, or wait.
        let (queue, upstream_now) = (Arc::clone(&pipeline.queue), Arc::clone(&pipeline.upstream));
        let terms = terms(&settings, auth);
        let kept = settings.fixed().into_iter().zip(&self.fixed).filter(|(new, old)| new != *old);
        let kept = kept.map(|((key, _), _)| key).collect();
        let fetch = RobotsFetch::new(settings.fetch, upstream_now, Some(queue));
        pipeline.audit.adopt(audit);
        pipeline.upstream.adopt(upstream);
        pipeline.lookup.reload(settings.lookup, Arc::new(fetch));
        pipeline.queue.reload(settings.pace);
        pipeline.limits.reload(settings.limits);
        interception.reload(&settings.ca);
        if let (Some((admin, _)), Some(settings)) = (&self.admin, settings.admin) {
            admin.reload(settings);
        }
        if let Some(difference) = self.ca.constraints_differ(&settings.ca) {
            tracing::warn!("{difference}");
        }
        pipeline.terms.store(Arc::new(terms));
        Ok(kept)
    }

    /// Opens the audit log's file anew, which may be another one by now.
    ///
    /// # Errors
    /// It cannot be opened; records go on to the old one.
    pub async fn reopen_audit(&self) -> io::Result<()> {
        let reopened = clock::timeout(REOPEN_TIMEOUT, self.audit.reopen()).await;
        reopened.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Accepts nobody any more, lets running requests finish for as long as `limits.drain` says, and writes the last records.
    /// Returns whether all of them finished.
    pub async fn stop(self) -> bool {
        self.stopping.cancel();
        let drain = self.proxy.pipeline.limits.settings().drain;
        self.tasks.close();
        let finished = clock::timeout(drain, self.tasks.wait()).await.is_some();
        self.audit.flush().await;
        if let Some(Err(error)) = self.journal.map(|journal| journal.close(&self.proxy.pipeline.queue)) {
            tracing::warn!(%error, "cannot write down when hosts were asked");
        }
        self.stopped.cancel();
        finished
    }
}
