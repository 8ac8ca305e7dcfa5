//! Every outcome of a request, in one table.
//!
//! A reason's code is the same word in the answer's problem document, in the audit record, in the metric and in the README, so
//! it is written down once, here, beside the HTTP status and the RFC 9209 error type that go with it. Refusals by policy are
//! `http_request_denied`; failures name the step that failed, so that an operator sees whose fault it was.

use http::StatusCode;

/// Why a request ended as it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The rules in force let the request through.
    Allowed,
    /// The origin has no robots.txt, so there are no rules.
    NoRules,
    /// The request is for `/robots.txt` itself, which is always allowed (RFC 9309 §2.2.2).
    RobotsTxt,
    /// The request is for a page of the proxy itself, by its own name.
    OwnPage,
    /// A rule disallows the URL.
    Disallowed,
    /// robots.txt was answered 401, 403 or 429 and no copy is left.
    RobotsUnavailable,
    /// robots.txt could not be had, and no copy is left (RFC 9309 §2.3.1.4).
    RobotsUnreachable,
    /// It cannot be told which bot asks, and must be; or the bot is one that a client may not claim to be.
    Unidentified,
    /// The target has an address that `upstream.private_addresses` bars.
    PrivateAddress,
    /// The target has a port that no page is on.
    PortBlocked,
    /// The CA may not sign for the host, so that its tunnel cannot be looked into.
    NotPermitted,
    /// More requests wait for the host than `pace.max_queue`.
    QueueFull,
    /// The request's turn would come after `pace.max_wait`.
    WaitTooLong,
    /// The client sends more than `limits.per_client`.
    ClientLimit,
    /// The client gave no user name and password for the proxy, or wrong ones.
    AuthenticationRequired,
    /// Host or `:authority` inside a tunnel is not the tunnel's target (RFC 9110 §15.5.20).
    AuthorityMismatch,
    /// The request is malformed, or can be read in two ways.
    BadRequest,
    /// TRACE, or a CONNECT inside a CONNECT.
    MethodNotAllowed,
    /// The head of the request is larger than `limits.header_bytes`.
    HeaderTooLarge,
    /// The body of the request stopped coming for `limits.body_timeout`.
    RequestTimeout,
    /// A tunnel carries neither TLS nor HTTP.
    NotHttp,
    /// The proxy was asked to fetch from itself.
    Loop,
    /// The proxy is stopping.
    Stopping,
    /// The audit log takes no records, and `audit.on_failure` is `"stop"`.
    AuditUnavailable,
    /// The client went away before it had its answer.
    ClientGone,
    /// The origin's name cannot be resolved.
    UpstreamDns,
    /// Resolving the origin's name took longer than `upstream.connect_timeout`.
    UpstreamDnsTimeout,
    /// Nothing accepts connections at the origin's address.
    UpstreamRefused,
    /// Connecting to the origin failed in another way.
    UpstreamConnect,
    /// Connecting to the origin took longer than `upstream.connect_timeout`.
    UpstreamConnectTimeout,
    /// The origin's certificate is not trusted.
    UpstreamCertificate,
    /// The TLS handshake with the origin failed.
    UpstreamTls,
    /// The origin ended the TLS handshake with an alert.
    UpstreamTlsAlert,
    /// The parent proxy cannot be reached, or lets nobody through.
    UpstreamProxy,
    /// The origin was silent for longer than `upstream.idle_timeout`.
    UpstreamTimeout,
    /// The origin closed the connection before its answer.
    UpstreamClosed,
    /// The origin's answer is not valid HTTP.
    UpstreamProtocol,
}

/// One line of the table.
struct Row {
    code: &'static str,
    status: u16,
    error: &'static str,
    title: &'static str,
}

const fn row(code: &'static str, status: u16, error: &'static str, title: &'static str) -> Row {
    Row { code, status, error, title }
}

/// RFC 9209 §2.3.20: the intermediary's policy refuses the request.
const DENIED: &str = "http_request_denied";

impl Reason {
    fn row(self) -> Row {
        use Reason::*;
        match self {
            Allowed => row("allowed", 200, "", "Allowed"),
            NoRules => row("no-rules", 200, "", "No rules"),
            RobotsTxt => row("robots-txt", 200, "", "robots.txt itself"),
            OwnPage => row("own-page", 200, "", "A page of the proxy itself"),
            Disallowed => row("disallowed", 403, DENIED, "Disallowed by robots.txt"),
            RobotsUnavailable => row("robots-unavailable", 403, DENIED, "The site withholds its robots.txt"),
            RobotsUnreachable => row("robots-unreachable", 403, DENIED, "robots.txt cannot be reached"),
            Unidentified => row("unidentified", 403, DENIED, "Which bot asks cannot be told"),
            PrivateAddress => row("private-address", 403, DENIED, "The address is off limits"),
            PortBlocked => row("port-blocked", 403, DENIED, "The port is off limits"),
            NotPermitted => row("ca-not-permitted", 403, DENIED, "The proxy's CA may not sign for this host"),
            QueueFull => row("queue-full", 429, DENIED, "Too many requests wait for this host"),
            WaitTooLong => row("wait-too-long", 429, DENIED, "The host's pace makes the wait too long"),
            ClientLimit => row("client-limit", 429, DENIED, "This client sends too many requests"),
            AuthenticationRequired => {
                row("authentication-required", 407, DENIED, "This proxy wants a user name and a password")
            }
            AuthorityMismatch => row("authority-mismatch", 421, DENIED, "Not the host of this tunnel"),
            BadRequest => row("bad-request", 400, "http_request_error", "Bad request"),
            MethodNotAllowed => row("method-not-allowed", 405, DENIED, "This method is not passed on"),
            HeaderTooLarge => {
                row("header-too-large", 431, "http_request_error", "The head of the request is too large")
            }
            RequestTimeout => row("request-timeout", 408, "http_request_error", "The request did not come to its end"),
            NotHttp => row("not-http", 400, "http_request_error", "Neither TLS nor HTTP"),
            Loop => row("loop", 508, "proxy_loop_detected", "The proxy was asked to fetch from itself"),
            Stopping => row("stopping", 503, "connection_limit_reached", "The proxy is stopping"),
            AuditUnavailable => {
                row("audit-unavailable", 503, "proxy_internal_error", "The proxy's audit log takes no records")
            }
            ClientGone => row("client-gone", 499, "", "The client went away"),
            UpstreamDns => row("upstream-dns", 502, "dns_error", "The host's name cannot be resolved"),
            UpstreamDnsTimeout => {
                row("upstream-dns-timeout", 504, "dns_timeout", "Resolving the host's name took too long")
            }
            UpstreamRefused => row("upstream-refused", 502, "connection_refused", "The host refuses connections"),
            UpstreamConnect => {
                row("upstream-connect", 502, "destination_ip_unroutable", "The host cannot be connected to")
            }
            UpstreamConnectTimeout => {
                row("upstream-connect-timeout", 504, "connection_timeout", "Connecting to the host took too long")
            }
            UpstreamCertificate => {
                row("upstream-certificate", 502, "tls_certificate_error", "The host's certificate is not trusted")
            }
            UpstreamTls => row("upstream-tls", 502, "tls_protocol_error", "The TLS handshake with the host failed"),
            UpstreamTlsAlert => {
                row("upstream-tls-alert", 502, "tls_alert_received", "The host refuses the TLS handshake")
            }
            UpstreamProxy => {
                row("upstream-proxy", 502, "destination_unavailable", "The parent proxy does not lead there")
            }
            UpstreamTimeout => {
                row("upstream-timeout", 504, "http_response_timeout", "The host was silent for too long")
            }
            UpstreamClosed => row("upstream-closed", 502, "connection_terminated", "The host closed the connection"),
            UpstreamProtocol => row("upstream-protocol", 502, "http_protocol_error", "The host's answer is not HTTP"),
        }
    }

    /// The code, the same word everywhere.
    pub fn code(self) -> &'static str {
        self.row().code
    }

    /// The status of the answer that the proxy makes for this reason.
    pub fn status(self) -> StatusCode {
        StatusCode::from_u16(self.row().status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The error type of RFC 9209 §2.3; empty where the request was forwarded.
    pub fn proxy_error(self) -> &'static str {
        self.row().error
    }

    /// A few words for the head of an answer.
    pub fn title(self) -> &'static str {
        self.row().title
    }

    /// Whether the request goes on to the origin.
    pub fn allows(self) -> bool {
        matches!(self, Reason::Allowed | Reason::NoRules | Reason::RobotsTxt | Reason::OwnPage)
    }

    /// Whether robots.txt, or its absence, is what refuses.
    pub fn is_by_rules(self) -> bool {
        matches!(self, Reason::Disallowed | Reason::RobotsUnavailable | Reason::RobotsUnreachable)
    }

    /// Whether this is a refusal that the proxy decided on, and not a failure.
    pub fn is_refusal(self) -> bool {
        self.proxy_error() == DENIED
    }
}
