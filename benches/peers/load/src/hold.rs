//! Connections that do nothing: what they cost the proxy in memory.

use std::rc::Rc;

use futures_util::{StreamExt, stream};
use tokio::io::AsyncReadExt;

use crate::Error;
use crate::connection::{Connection, in_time};
use crate::route::Checked;

pub async fn run(route: Checked, connections: usize) -> Result<(), Error> {
    let route = Rc::new(route);
    let opened = stream::iter(0..connections).map(|_| {
        let route = Rc::clone(&route);
        async move {
            in_time(async {
                let mut connection = Connection::open(&route, &route.host(0)).await?;
                connection.request().await?;
                Ok(connection)
            })
            .await
        }
    });
    let opened: Vec<Result<Connection, Error>> = opened.buffer_unordered(16).collect().await;
    let error = opened.iter().find_map(|opened| opened.as_ref().err().map(ToString::to_string));
    let held: Vec<Connection> = opened.into_iter().flatten().filter(|held| !held.is_closed).collect();
    println!("{}", serde_json::json!({ "held": held.len(), "error": error }));
    tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
    Ok(())
}
