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
    let loaded = Loaded::load(config)?;
    loaded.doubts().iter().for_each(|doubt| tracing::warn!("{doubt}"));
    let mut settings = loaded.settings();
    if !options.listen.is_empty() {
        settings.listen = options.listen;
    }
    if options.observe {
        settings.observe_everything();
    }
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let audit = settings.audit.path.clone();
    let observe = options.observe || settings.mode == Mode::Observe;
    let proxy = app::start(settings).await?;
    welcome(&proxy, audit.as_deref(), observe);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    tracing::info!("stopping: requests that run may finish");
    match proxy.stop().await {
        true => tracing::info!("stopped"),
        false => tracing::warn!("stopped, with requests cut off that took longer than limits.drain"),
    }
    Ok(ExitCode::SUCCESS)
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
