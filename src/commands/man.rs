//! `man`: the manual page, made from the same words as the help.
//!
//! One page for all subcommands, since that is how people look things up: roff of the command itself, then the description and the
//! options of each subcommand under a heading of its own.

use std::io::Write;
use std::process::ExitCode;

use clap_mangen::Man;

pub(crate) fn run(command: clap::Command) -> anyhow::Result<ExitCode> {
    let mut page = Vec::new();
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let man = Man::new(command.clone());
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    for subcommand in command.get_subcommands() {
        chapter(subcommand, &mut page)?;
    }
    page.extend_from_slice(ENVIRONMENT.as_bytes());
    man.render_extra_section(&mut page)?;
    std::io::stdout().write_all(&page)?;
    Ok(ExitCode::SUCCESS)
}

const ENVIRONMENT: &str = ".SH ENVIRONMENT
.TP
\\fBROBOTS_PROXY_CONFIG\\fR
The configuration file, where --config names none.
.TP
\\fBROBOTS_PROXY_LOG\\fR
What the log on standard error tells, such as robots_proxy=debug.
";

/// A subcommand and those below it.
fn chapter(command: &clap::Command, page: &mut Vec<u8>) -> anyhow::Result<()> {
    let name = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
    writeln!(page, ".SH \"{}\"", name.to_uppercase())?;
    // Told once, at the top.
    let told = ["help", "config"];
    let own = command.clone().mut_args(|option| match told.contains(&option.get_id().as_str()) {
        true => option.hide(true),
        false => option,
    });
    let man = Man::new(own);
    for render in [Man::render_synopsis_section, Man::render_description_section, Man::render_options_section] {
        let mut section = Vec::new();
        render(&man, &mut section)?;
        // One level down: sections become subsections.
        page.extend(String::from_utf8_lossy(&section).replace("\n.SH ", "\n.SS ").bytes());
    }
    for below in command.get_subcommands() {
        chapter(below, page)?;
    }
    Ok(())
}
