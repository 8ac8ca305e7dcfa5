//! The client of the comparison, light enough to leave the other core's limit to the proxy; and the names that it asks for.
//!
//! It sends to loopback only, on one thread, and prints one JSON object.

mod connection;
mod hold;
mod names;
mod processes;
mod requests;
mod route;

use std::net::{Ipv4Addr, SocketAddr};

use clap::Parser;

use crate::requests::Plan;
use crate::route::Route;

type Error = Box<dyn std::error::Error + Send + Sync>;

#[derive(Parser)]
enum Command {
    /// Sends requests as fast as they are answered, and prints what that took
    Requests {
        #[command(flatten)]
        route: Route,
        #[command(flatten)]
        plan: Plan,
    },
    /// Makes a request on each of many connections, and holds them until standard input ends
    Hold {
        #[command(flatten)]
        route: Route,
        #[arg(long)]
        connections: usize,
    },
    /// Answers every question for a name with one address
    Names {
        #[arg(long)]
        listen: SocketAddr,
        #[arg(long)]
        address: Ipv4Addr,
    },
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    match Command::parse() {
        Command::Requests { route, plan } => println!("{}", requests::run(route.checked()?, plan).await?),
        Command::Hold { route, connections } => hold::run(route.checked()?, connections).await?,
        Command::Names { listen, address } => names::answer(listen, address).await?,
    }
    Ok(())
}
