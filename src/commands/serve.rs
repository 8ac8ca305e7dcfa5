//! `serve`: runs the proxy until it is told to stop.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use crate::app;
use crate::config::Loaded;
use crate::policy::enforcement::Mode;
use crate::proxy::socket::Listen;

/// `serve`.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Listen here, instead of where the configuration says; may be given more than once: an address and port, `https://ADDR` for
    /// TLS, or unix:PATH
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Vec<Listen>,
    /// Decide and record, but never refuse or delay
    #[arg(long)]
    pub(crate) observe: bool,
}

pub(crate) async fn run(config: Option<&Path>, options: Serve) -> anyhow::Result<ExitCode> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    // A SIGHUP that comes while the proxy starts must not end it.
    let mut hangup = signal(SignalKind::hangup())?;
    let loaded = Loaded::load(config)?;
    let settings = options.apply(&loaded);
    let audit = settings.audit.path.clone();
    let observe = settings.mode == Mode::Observe;
    let proxy = app::start(settings).await?;
    welcome(&proxy, audit.as_deref(), observe);
    loop {
        tokio::select! {
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
            // The file that was found at the start, and no other one that may have come since.
            _ = hangup.recv() => reload(&proxy, loaded.file.as_deref().or(config), &options).await,
        }
    }
    tracing::info!("stopping: requests that run may finish");
    match proxy.stop().await {
        true => tracing::info!("stopped"),
        false => tracing::warn!("stopped, with requests cut off that took longer than limits.drain"),
    }
    Ok(ExitCode::SUCCESS)
}

impl Serve {
    /// The settings of a configuration, and what the command line says instead.
    fn apply(&self, loaded: &Loaded) -> app::Settings {
        loaded.doubts().iter().for_each(|doubt| tracing::warn!("{doubt}"));
        let mut settings = loaded.settings();
        if !self.listen.is_empty() {
            settings.listen = self.listen.clone();
        }
        if self.observe {
            settings.observe_everything();
        }
        settings
    }
}

/// SIGHUP: the configuration is read again, and the audit log's file opened anew, whatever becomes of the configuration.
async fn reload(proxy: &app::Running, config: Option<&Path>, options: &Serve) {
    if let Err(error) = proxy.reopen_audit().await {
        tracing::error!(%error, "the audit log's file cannot be opened anew, so records go on to the old one");
    }
    let loaded = match Loaded::load(config) {
        Ok(loaded) => loaded,
        Err(error) => {
            error.to_string().lines().for_each(|mistake| tracing::error!("{mistake}"));
            return tracing::error!("nothing is reloaded: correct the configuration, and send SIGHUP again");
        }
    };
    match proxy.reload(options.apply(&loaded)).await {
        Ok(kept) => {
            kept.iter().for_each(|key| tracing::warn!("{key} has changed, which needs a restart: it stays as it was"));
            let file = loaded.file.as_ref().map_or("the defaults".into(), |file| file.display().to_string());
            tracing::info!("reloaded {file}");
        }
        Err(error) => tracing::error!("nothing is reloaded: {error}"),
    }
}

/// What a person needs next, ready to paste.
fn welcome(proxy: &app::Running, audit: Option<&Path>, observe: bool) {
    let listening: Vec<String> = proxy.listening().iter().map(Listen::url).collect();
    let Some(first) = proxy.listening().first() else { return };
    let ca = proxy.ca();
    let certificate = ca.certificate_path().display();
    println!("robots-proxy {} listens on {}", env!("CARGO_PKG_VERSION"), listening.join(", "));
    if ca.was_made() {
        println!("made a certificate authority; its key, {}, is power over the traffic", ca.key_path().display());
        println!("of everything that trusts it: keep it to yourself");
    }
    println!("CA certificate  {certificate}");
    println!("CA public key   {} (sha256)", ca.spki_sha256_base64());
    if let Some(admin) = proxy.admin() {
        println!("view inside     {}", admin.url());
    }
    println!("audit log       {}", audit.map_or("standard output".into(), |path| path.display().to_string()));
    if observe {
        println!("observe mode    decides and records, but refuses and delays nothing");
    }
    let Some(url) = reachable(first) else {
        println!("\nClients connect to the socket; curl has no option for a proxy there.");
        return;
    };
    let trust =
        if matches!(first, Listen::Https(_)) { format!(" --proxy-cacert {certificate}") } else { String::new() };
    println!("\nTry it:\n  curl --proxy {url}{trust} --cacert {certificate} https://example.com/");
    println!("\nOr for everything you start from this shell:");
    println!("  export HTTPS_PROXY={url} https_proxy={url} http_proxy={url}");
    println!(
        "  export CURL_CA_BUNDLE={certificate} REQUESTS_CA_BUNDLE={certificate} NODE_EXTRA_CA_CERTS={certificate}"
    );
}

/// What a client on this machine is given as its proxy.
fn reachable(listen: &Listen) -> Option<String> {
    let here = |address: SocketAddr| match address {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => SocketAddr::from((Ipv4Addr::LOCALHOST, address.port())),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => SocketAddr::from((Ipv6Addr::LOCALHOST, address.port())),
        other => other,
    };
    match listen {
        Listen::Http(address) => Some(Listen::Http(here(*address)).url()),
        Listen::Https(address) => Some(Listen::Https(here(*address)).url()),
        Listen::Unix(_) => None,
    }
}
