//! The whole road with real parts: real sockets, real TLS, real curl, a real Chromium, the real program.
//!
//! One file a subject; each test is named for the rule that it shows. What the tests share is in [`support`].

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

mod admin;
mod answers;
mod audit;
mod browser;
mod bypass;
mod client_certificates;
mod clients;
mod command_line;
mod connects;
mod copies;
mod dashboard;
mod deploy;
mod enforcement;
mod exchanges;
mod failures;
mod faithful;
mod flat;
mod floods;
mod forwarding;
mod handshakes;
mod holds;
mod identity;
mod idle;
mod instructions;
mod line;
mod listeners;
mod malformed;
mod memory;
mod metrics;
mod off_limits;
mod own_pages;
mod pacing;
mod package;
mod pages;
mod parents;
mod passthrough;
mod passwords;
mod permitted;
mod questions;
mod readings;
mod recipes;
mod records;
mod reload;
mod reports;
mod run;
mod run_signals;
mod run_trust;
mod scrapy;
mod status_table;
mod trust;
mod tunnels;
mod uploads;
mod websockets;
