//! The answers that the proxy makes itself, in the form that the client asked for.
//!
//! A refusal is read by somebody who is annoyed: a person with a terminal, a person with a browser, or a program. So it names the
//! site, the bot, the rule and its line, and says what to do next, as plain text, as HTML without scripts, or as a problem document
//! (RFC 9457), whichever fits `Accept` (RFC 9110 §12.5.1); `Proxy-Status` (RFC 9209) tells it apart from an answer of the origin.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde::Serialize;

use super::pacing::retry_after_seconds;
use super::reason::Reason;

/// What an answer of the proxy tells. Fields that do not apply are left out of every rendering.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// A URI for the reason (RFC 9457 §3.1.1).
    #[serde(rename = "type")]
    kind: String,
    title: &'static str,
    status: u16,
    /// What happened, in a sentence.
    detail: String,
    reason: &'static str,
    /// The id of the audit record.
    instance: String,
    /// The URL asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The bot's product token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The group that applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The deciding rule as written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Its line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Where the rules stand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub robots_url: Option<String>,
    /// The status of robots.txt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub robots_status: Option<u16>,
    /// When robots.txt was asked for (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub robots_fetched_at: Option<String>,
    /// Seconds until asking again may help.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
    #[serde(skip)]
    of: Reason,
}

impl Answer {
    /// An answer for a reason, with what happened in a sentence and the id of its record.
    pub fn new(reason: Reason, detail: impl Into<String>, instance: impl Into<String>) -> Answer {
        Answer {
            kind: format!("urn:robots-proxy:{}", reason.code()),
            title: reason.title(),
            status: reason.status().as_u16(),
            detail: detail.into(),
            reason: reason.code(),
            instance: instance.into(),
            url: None,
            agent: None,
            group: None,
            rule: None,
            line: None,
            robots_url: None,
            robots_status: None,
            robots_fetched_at: None,
            retry_after: None,
            of: reason,
        }
    }

    /// What happened, in a sentence.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// Sets `Retry-After`.
    pub fn retry_after(mut self, wait: Option<Duration>) -> Answer {
        self.retry_after = wait.map(retry_after_seconds);
        self
    }

    /// What stands beside the status in HTTP/1.1: the one line of an answer that wget, git and most exceptions show.
    ///
    /// SECURITY: the rule is text of the site, so nothing but visible ASCII of it goes into the status line.
    pub fn phrase(&self) -> String {
        let phrase = match (&self.rule, self.line) {
            (Some(rule), Some(line)) => format!("{} (line {line}: {rule})", self.title),
            _ => self.title.to_owned(),
        };
        visible(&phrase).take(LONGEST_PHRASE).collect()
    }

    /// The response, in the rendering that fits the client's `Accept`.
    pub fn render(&self, accept: Rendering) -> Response<String> {
        let (media_type, body) = match accept {
            Rendering::Problem => ("application/problem+json", self.problem()),
            Rendering::Html => ("text/html; charset=utf-8", self.html()),
            Rendering::Text => ("text/plain; charset=utf-8", self.text()),
        };
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert("proxy-status", self.proxy_status());
        if accept == Rendering::Html {
            // SECURITY: the page holds text of the client and of the site; no script may run in it, whatever escapes us.
            headers.insert(
                header::CONTENT_SECURITY_POLICY,
                HeaderValue::from_static(
                    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'",
                ),
            );
        }
        match self.of {
            Reason::AuthenticationRequired => {
                headers.insert(header::PROXY_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"robots-proxy\""));
            }
            // RFC 9110 §15.5.6 wants the list; every other method is passed on as well.
            Reason::MethodNotAllowed => {
                let allowed = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
                headers.insert(header::ALLOW, allowed);
            }
            _ => {}
        }
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }

    /// `robots-proxy; error=…; details="…"` (RFC 9209 §2).
    fn proxy_status(&self) -> HeaderValue {
        let mut details = String::with_capacity(self.detail.len());
        for character in visible(&self.detail) {
            if matches!(character, '"' | '\\') {
                details.push('\\');
            }
            details.push(character);
        }
        let value = format!("robots-proxy; error={}; details=\"{details}\"", self.of.proxy_error());
        HeaderValue::from_str(&value).unwrap_or(HeaderValue::from_static("robots-proxy"))
    }

    fn problem(&self) -> String {
        let mut body = serde_json::to_string_pretty(self).unwrap_or_default();
        body.push('\n');
        body
    }

    fn text(&self) -> String {
        let mut body = format!("{}: {}\n\n", self.title, self.detail);
        let facts = self.facts();
        let width = facts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, value) in &facts {
            body.push_str(&format!("  {name:width$}  {value}\n"));
        }
        body.push_str(&format!("\n{}\n", self.next_step()));
        body
    }

    fn html(&self) -> String {
        let rows: String = self
            .facts()
            .iter()
            .map(|(name, value)| format!("<tr><th scope=\"row\">{name}</th><td>{}</td></tr>\n", escape(value)))
            .collect();
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title} – robots-proxy</title>\n\
             <style>{STYLE}</style>\n</head>\n<body>\n<main>\n<p class=\"status\">{status} · robots-proxy</p>\n<h1>{title}</h1>\n\
             <p>{detail}</p>\n<table>\n{rows}</table>\n<p>{next}</p>\n</main>\n</body>\n</html>\n",
            title = escape(self.title),
            status = self.status,
            detail = escape(&self.detail),
            next = escape(self.next_step()),
        )
    }

    /// The evidence, a name and a value each, in the order of a reader's questions.
    fn facts(&self) -> Vec<(&'static str, String)> {
        let robots = self.robots_url.as_ref().map(|url| {
            let answered = self.robots_status.map_or("no answer".to_owned(), |status| format!("answered {status}"));
            match &self.robots_fetched_at {
                Some(at) => format!("{url} ({answered}, asked at {at})"),
                None => format!("{url} ({answered})"),
            }
        });
        let rule = self.rule.as_ref().zip(self.line).map(|(rule, line)| format!("{rule} (line {line})"));
        let wait = self.retry_after.map(|seconds| format!("in {seconds} s"));
        [
            ("URL", self.url.clone()),
            ("bot", self.agent.clone()),
            ("group", self.group.as_ref().map(|group| format!("User-agent: {group}"))),
            ("rule", rule),
            ("robots.txt", robots),
            ("ask again", wait),
            ("reason", Some(self.reason.to_owned())),
            ("record", Some(self.instance.clone())),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
    }

    /// What the reader can do.
    fn next_step(&self) -> &'static str {
        match self.of {
            Reason::Disallowed => {
                "The request was not sent to the site. Leave this URL out, or ask the site's owner for permission. If the bot named \
                 above is not yours, tell the proxy which one you are: see \"identity\" in its manual."
            }
            Reason::AuthenticationRequired => {
                "Give them with the address of the proxy, as in http://NAME:PASSWORD@127.0.0.1:3128. Who runs the proxy knows them."
            }
            Reason::Unidentified => {
                "The request was not sent to the site. Say which bot you are, as told above; who runs the proxy can name you in \
                 identity.map, too."
            }
            Reason::RobotsUnavailable | Reason::RobotsUnreachable => {
                "The request was not sent to the site: without its robots.txt nobody knows what it permits. The proxy asks for the \
                 file again by itself; try again later."
            }
            Reason::QueueFull | Reason::WaitTooLong | Reason::ClientLimit => {
                "The request was not sent to the site. Send fewer requests at once, or try again after the time named above."
            }
            Reason::PrivateAddress => {
                "The request was not sent anywhere. If the host is yours, the operator of the proxy can lead to it with \
                 upstream.connect_to, or set upstream.private_addresses."
            }
            Reason::PortBlocked => {
                "The request was not sent anywhere. If there are pages on that port, the operator of the proxy can allow it with \
                 upstream.ports."
            }
            Reason::RequestTimeout => "Send the request again, and its body without a pause.",
            Reason::NotPermitted => {
                "The request was not sent to the site. The operator of the proxy can make a CA that may sign for this host \
                 (ca.permitted), or let it pass uninspected (upstream.passthrough)."
            }
            Reason::AuthorityMismatch => "Open a new connection for the other host.",
            Reason::BadRequest | Reason::MethodNotAllowed | Reason::HeaderTooLarge | Reason::NotHttp | Reason::Loop => {
                "The request was not sent anywhere. Correct it, and send it again."
            }
            Reason::UpstreamDns => "Check the host's name. If it is right, try again later.",
            Reason::UpstreamCertificate => {
                "The request was not sent to the site. If the site is yours, the operator of the proxy can trust its authority with \
                 upstream.ca_files; otherwise tell the site's owner."
            }
            Reason::UpstreamProxy => {
                "The operator of the proxy can mend upstream.proxy; the site itself was not asked."
            }
            Reason::Stopping => "Try again when the proxy is back.",
            Reason::AuditUnavailable => {
                "Tell the proxy's operator, whose disk may be full, and try again when it takes records."
            }
            _ => "robots.txt permits this page; the site itself could not be asked for it. Try again later.",
        }
    }
}

/// Chosen: a rule of usual length fits, and the line stays readable in an exception.
const LONGEST_PHRASE: usize = 120;

/// The text with `?` in place of all that is not visible ASCII or a space.
fn visible(text: &str) -> impl Iterator<Item = char> {
    text.chars().map(|character| if matches!(character, ' '..='~') { character } else { '?' })
}

const STYLE: &str = ":root{color-scheme:light dark}body{font:1rem/1.5 system-ui,sans-serif;margin:0}\
main{max-width:44rem;margin:3rem auto;padding:0 1rem}h1{font-size:1.6rem;margin:.2rem 0 1rem}.status{margin:0;opacity:.7}\
table{border-collapse:collapse;margin:1.5rem 0;width:100%}th,td{text-align:left;vertical-align:top;padding:.4rem .8rem .4rem 0;\
border-top:1px solid #8886}th{font-weight:600;white-space:nowrap}td{font-family:ui-monospace,monospace;overflow-wrap:anywhere}";

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            _ => escaped.push(character),
        }
    }
    escaped
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rendering {
    /// A problem document (RFC 9457).
    Problem,
    /// A page for browsers.
    Html,
    /// Plain text.
    Text,
}

/// What a client would like to read, kept until it is known whether there is anything to say.
#[derive(Clone, Debug)]
pub struct Accept {
    first: Option<HeaderValue>,
    /// Hardly ever any.
    others: Vec<HeaderValue>,
}

impl Accept {
    /// `Accept` as the client sent it.
    pub fn of(headers: &HeaderMap) -> Accept {
        let mut values = headers.get_all(header::ACCEPT).iter().cloned();
        Accept { first: values.next(), others: values.collect() }
    }

    /// The rendering that fits best; plain text where none of them is named.
    pub fn rendering(&self) -> Rendering {
        let values = self.first.iter().chain(&self.others);
        // Most programs send no more than that.
        if values.clone().all(|value| value == "*/*") {
            return Rendering::Text;
        }
        let ranges: Vec<(String, f32)> = values
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .map(media_range)
            .collect();
        let offers = [
            (Rendering::Text, "text/plain", "text/*", "text/*"),
            (Rendering::Html, "text/html", "application/xhtml+xml", "text/*"),
            (Rendering::Problem, "application/problem+json", "application/json", "application/*"),
        ];
        let mut best = (0.0, Rendering::Text);
        for (rendering, exact, alike, family) in offers {
            let quality = |name: &str| ranges.iter().find(|(range, _)| range == name).map(|(_, quality)| *quality);
            let found = [(exact, 3), (alike, 2), (family, 1), ("*/*", 0)]
                .into_iter()
                .find_map(|(name, rank)| Some((quality(name)?, rank)));
            // A later offer wins a tie, but not by a mere `*/*`: who names JSON or HTML means it.
            let Some((quality, rank)) = found else { continue };
            if quality > best.0 || (quality == best.0 && quality > 0.0 && rank > 0) {
                best = (quality, rendering);
            }
        }
        best.1
    }
}

/// `type/subtype;q=0.5` → the range in lower case and its quality.
fn media_range(text: &str) -> (String, f32) {
    let mut parts = text.split(';').map(str::trim);
    let range = parts.next().unwrap_or_default().to_ascii_lowercase();
    let quality = parts.find_map(|part| part.strip_prefix("q=")?.parse().ok()).unwrap_or(1.0);
    (range, quality)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal() -> Answer {
        let detail = "robots.txt of https://bazaar.nimbu.test disallows /prices/<b>\"x\" for NimbuBot";
        Answer {
            url: Some("https://bazaar.nimbu.test/prices/<b>\"x\"".into()),
            agent: Some("NimbuBot".into()),
            group: Some("NimbuBot".into()),
            rule: Some("Disallow: /prices/".into()),
            line: Some(10),
            robots_url: Some("https://bazaar.nimbu.test/robots.txt".into()),
            robots_status: Some(200),
            robots_fetched_at: Some("2026-11-30T10:00:00.000Z".into()),
            ..Answer::new(Reason::Disallowed, detail, "0193f0aa-0000-7000-8000-000000000000")
        }
    }

    #[test]
    fn the_three_renderings_of_a_refusal() {
        for (rendering, file) in [
            (Rendering::Text, "disallowed.txt"),
            (Rendering::Html, "disallowed.html"),
            (Rendering::Problem, "disallowed.json"),
        ] {
            let path = format!("{}/tests/golden/{file}", env!("CARGO_MANIFEST_DIR"));
            let body = refusal().render(rendering).into_body();
            // `GOLDEN=write cargo test` takes the new text; look at the difference before it is committed.
            if std::env::var_os("GOLDEN").is_some() {
                std::fs::write(&path, &body).unwrap();
            }
            assert_eq!(body, std::fs::read_to_string(&path).unwrap(), "{rendering:?}");
        }
    }

    #[test]
    fn rfc9209_details_are_a_quoted_ascii_string() {
        let mut answer = refusal();
        answer.detail = "a \"rule\" with \\ and é".into();
        let response = answer.render(Rendering::Text);
        let want = r#"robots-proxy; error=http_request_denied; details="a \"rule\" with \\ and ?""#;
        assert_eq!(response.headers()["proxy-status"], want);
    }

    #[test]
    fn the_phrase_names_rule_and_line_and_is_one_line_of_ascii() {
        let mut answer = refusal();
        assert_eq!(answer.phrase(), "Disallowed by robots.txt (line 10: Disallow: /prices/)");
        answer.rule = Some("Disallow: /é\r\nSet-Cookie: a=b".into());
        assert_eq!(answer.phrase(), "Disallowed by robots.txt (line 10: Disallow: /???Set-Cookie: a=b)");
        answer.rule = Some("/".repeat(5000));
        assert_eq!(answer.phrase().len(), LONGEST_PHRASE);
        assert_eq!(Answer::new(Reason::Loop, "", "").phrase(), Reason::Loop.title());
    }

    #[test]
    fn rfc9110_12_5_1_accept_chooses_the_rendering() {
        use Rendering::*;
        for (accept, want) in [
            ("", Text),
            ("*/*", Text),
            ("text/plain", Text),
            ("text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8", Html),
            ("application/json, text/plain, */*", Problem),
            ("application/problem+json", Problem),
            ("application/json;q=0.1, text/html;q=0.2", Html),
            ("text/html;q=0, */*", Text),
            ("image/png", Text),
            ("image/avif,image/webp,*/*;q=0.8", Text),
            ("text/*", Html),
            ("application/*", Problem),
        ] {
            let headers = HeaderMap::from_iter([(header::ACCEPT, accept.parse().unwrap())]);
            assert_eq!(Accept::of(&headers).rendering(), want, "{accept}");
        }
    }
}
