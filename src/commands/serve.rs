//! `serve`: runs the proxy until it is told to stop.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use crate::app;
use crate::config::Loaded;

/// `serve`.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Listen here, instead of where the configuration says; may be given more than once
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Vec<SocketAddr>,
    /// Decide and record, but never refuse or delay
    #[arg(long)]
    pub(crate) observe: bool,
}

pub(crate) async fn run(config: Option<&Path>, options: Serve) -> anyhow::Result<ExitCode> {
    let mut settings = Loaded::load(config)?.settings();
    if !options.listen.is_empty() {
        settings.listen = options.listen;
    }
    settings.observe |= options.observe;
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let audit = settings.audit.path.clone();
    let observe = settings.observe;
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
    let listening: Vec<String> = proxy.addresses().iter().map(|address| format!("http://{address}")).collect();
    let Some(first) = proxy.addresses().first() else { return };
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
    println!("\nTry it:\n  curl --proxy http://{} --cacert {certificate} https://example.com/", reachable(*first));
    println!("\nOr for everything you start from this shell:");
    println!("  export HTTPS_PROXY=http://{0} https_proxy=http://{0} http_proxy=http://{0}", reachable(*first));
    println!(
        "  export CURL_CA_BUNDLE={certificate} REQUESTS_CA_BUNDLE={certificate} NODE_EXTRA_CA_CERTS={certificate}"
    );
}

/// An address that a client on this machine can connect to.
fn reachable(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => SocketAddr::from(([127, 0, 0, 1], address.port())),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], address.port())),
        other => other,
    }
}
