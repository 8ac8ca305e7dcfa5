//! Fetches pages with reqwest, as its users do.

use std::io::Write;

use reqwest::header::{HeaderMap, HeaderName};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let header = words.next().ok_or("usage: fetch HEADER URL...")?;
    let (name, value) = header.split_once(": ").ok_or("a header is NAME: VALUE")?;
    let headers = HeaderMap::from_iter([(HeaderName::try_from(name)?, value.parse()?)]);
    let client = reqwest::Client::builder().default_headers(headers).build()?;
    for url in words {
        let answer = client.get(url).send().await?;
        if let Err(error) = answer.error_for_status_ref() {
            println!("{error}");
        }
        std::io::stdout().write_all(&answer.bytes().await?)?;
    }
    Ok(())
}
