//! The `robots-proxy` command.

fn main() {}
