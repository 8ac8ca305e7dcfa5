//! Each module of `src/` imports only from rings above its own, and the innermost ring touches nothing of the world.
//!
//! The rings are those in the header of `src/lib.rs`. The text of the sources is read, so that a path in the middle of an expression
//! counts as an import, too; unit tests at the foot of a file may do more than its code, and are left out.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The rings in steps, innermost first: a module imports from earlier steps, and from itself.
const STEPS: [&[&str]; 15] = [
    &["robots"],
    &["policy"],
    &["clock", "hex"],
    &["http1"],
    &["metrics"],
    &["ca", "upstream", "audit", "auth"],
    &["queue"],
    &["lookup"],
    &["proxy"],
    &["control"],
    &["admin"],
    &["app"],
    &["config"],
    &["commands"],
    &["cli"],
];

/// A source file, without its unit tests and comments.
struct Source {
    path: PathBuf,
    /// The top module that it belongs to, such as `proxy`.
    module: String,
    code: String,
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs")
                && path.file_stem().unwrap() != "tests"
            {
                let inside = path.strip_prefix(&root).unwrap();
                let first = inside.components().next().unwrap().as_os_str().to_str().unwrap();
                let module = first.trim_end_matches(".rs").to_owned();
                let code = code_of(&std::fs::read_to_string(&path).unwrap());
                found.push(Source { path: inside.to_owned(), module, code });
            }
        }
    }
    found
}

/// The text without comments, and without unit tests, which stand at the foot.
fn code_of(text: &str) -> String {
    let code = text.split("\n#[cfg(test)]\nmod tests").next().unwrap();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.map(|line| line.split(" // ").next().unwrap()).collect::<Vec<_>>().join("\n")
}

/// The top modules that a file names: `crate::x…`, `crate::{x…, y…}`, and `super::x` where `super` is the crate itself.
fn imports(source: &Source) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let inside_a_folder = source.path.components().count() == 2;
    let opens_a_folder = source.path.file_name().unwrap() == "mod.rs";
    let the_crate = if inside_a_folder && !opens_a_folder { "super::super::" } else { "super::" };
    for root in ["crate::", the_crate] {
        for (at, _) in source.code.match_indices(root) {
            let before = source.code[..at].chars().next_back();
            if before.is_some_and(|letter| letter.is_alphanumeric() || letter == '_' || letter == ':') {
                continue;
            }
            let rest = &source.code[at + root.len()..];
            match rest.strip_prefix('{') {
                Some(list) => names.extend(top_names(list)),
                None => names.extend(word(rest)),
            }
        }
    }
    names
}

/// The first names of a list of imports, up to its closing brace: `a::{b, c}, d}` gives a and d.
fn top_names(list: &str) -> Vec<String> {
    let (mut depth, mut begins, mut names) = (0, true, Vec::new());
    for (at, letter) in list.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => begins = true,
            letter if begins && !letter.is_whitespace() => {
                names.extend(word(&list[at..]));
                begins = false;
            }
            _ => {}
        }
    }
    names
}

fn word(text: &str) -> Option<String> {
    let end = text.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(text.len());
    let word = &text[..end];
    (!word.is_empty() && word != "self").then(|| word.to_owned())
}

fn step_of(module: &str) -> Option<usize> {
    STEPS.iter().position(|ring| ring.contains(&module))
}

#[test]
fn every_module_is_in_a_ring() {
    for source in sources().iter().filter(|source| !["lib", "main"].contains(&source.module.as_str())) {
        assert!(step_of(&source.module).is_some(), "{}: put its module into a step of its ring", source.path.display());
    }
}

#[test]
fn each_module_imports_only_from_rings_above_its_own() {
    let mut wrong = Vec::new();
    for source in sources() {
        let Some(own) = step_of(&source.module) else { continue };
        for import in imports(&source) {
            let above = step_of(&import).is_none_or(|step| step < own);
            if import != source.module && !above {
                wrong.push(format!("src/{} ({}) imports {import}", source.path.display(), source.module));
            }
        }
    }
    assert!(wrong.is_empty(), "against the rings:\n{}", wrong.join("\n"));
}

#[test]
fn the_rules_touch_nothing_of_the_world() {
    let mut wrong = Vec::new();
    for source in sources().iter().filter(|source| ["robots", "policy"].contains(&source.module.as_str())) {
        for word in [
            ".await",
            "async ",
            "tokio",
            "std::fs",
            "std::io",
            "std::process",
            "std::env",
            "std::thread",
            "TcpStream",
            "UdpSocket",
            "TcpListener",
            "ToSocketAddrs",
            "Instant::now",
            "SystemTime::now",
            ".elapsed()",
            "File::",
            "println!",
        ] {
            if source.code.contains(word) {
                wrong.push(format!("src/{}: {word}", source.path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "ring 1 has no await, socket, file or clock:\n{}", wrong.join("\n"));
}

#[test]
fn the_engine_imports_nothing_of_ours() {
    for source in sources().iter().filter(|source| source.module == "robots") {
        let others: Vec<String> = imports(source).into_iter().filter(|import| import != "robots").collect();
        assert!(others.is_empty(), "src/{} imports {others:?}", source.path.display());
    }
}

#[test]
fn imports_are_found_however_they_are_written() {
    for (path, code, found) in [
        ("proxy/tunnel.rs", "use crate::queue::{Place, Queue};", "queue"),
        ("proxy/tunnel.rs", "use crate::{ca, lookup::{self, fetch}, robots};", "ca lookup robots"),
        ("proxy/tunnel.rs", "let x = crate::audit::open(); // crate::app", "audit"),
        ("proxy/tunnel.rs", "// use crate::app;\nuse super::body::Body;", ""),
        ("proxy/tunnel.rs", "use super::super::config::read;", "config"),
        ("proxy/mod.rs", "use super::app;", "app"),
        ("queue.rs", "use super::cli;", "cli"),
        ("queue.rs", "fn a() {}\n#[cfg(test)]\nmod tests {\n    use crate::app;", ""),
        ("queue.rs", "pub(crate) fn a() { mycrate::app() }", ""),
    ] {
        let source = Source { path: path.into(), module: String::new(), code: code_of(code) };
        let names: Vec<String> = imports(&source).into_iter().collect();
        assert_eq!(names.join(" "), found, "{code}");
    }
}
