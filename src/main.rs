//! The `robots-proxy` command.

fn main() -> std::process::ExitCode {
    robots_proxy::cli::run()
}
