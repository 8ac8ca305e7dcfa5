//! `demo`.
use crate::cli::Demo;
use std::process::ExitCode;
pub(crate) async fn run(_: Demo) -> anyhow::Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}
