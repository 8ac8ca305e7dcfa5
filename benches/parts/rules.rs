//! The robots engine beside `robotxt` and `texting_robots`.
//!
//! `parse` reads a file, `verdict` asks a parsed one, `first` does both, which is what a new host costs. Both others parse for one bot and
//! forget the rest of the file; ours keeps all of it. They have no answer to the question which rule decided in which line, so they are
//! only asked whether the path is allowed.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput};
use robots_proxy::robots::RobotsTxt;

use super::AGENT;
use super::files::{self, Subject};

/// Every file, every question.
pub(super) fn measure(criterion: &mut Criterion) {
    for subject in files::all() {
        parse(criterion, &subject);
        verdict(criterion, &subject);
        first(criterion, &subject);
    }
}

fn parse(criterion: &mut Criterion, subject: &Subject) {
    let mut group = criterion.benchmark_group("parse");
    group.throughput(Throughput::Bytes(subject.body.len() as u64));
    let body = &subject.body;
    group.bench_function(BenchmarkId::new("ours", subject.name), |bencher| bencher.iter(|| RobotsTxt::parse(body)));
    group.bench_function(BenchmarkId::new("robotxt", subject.name), |bencher| {
        bencher.iter(|| robotxt::Robots::parse(body, AGENT));
    });
    group.bench_function(BenchmarkId::new("texting_robots", subject.name), |bencher| {
        bencher.iter(|| texting_robots::Robot::new(AGENT, body).is_ok());
    });
    group.finish();
}

fn verdict(criterion: &mut Criterion, subject: &Subject) {
    let mut group = criterion.benchmark_group("verdict");
    let body = &subject.body;
    let urls = subject.urls();
    // Paths in turn, so that no branch is learnt by heart.
    let next = |turn: &mut usize| {
        *turn = (*turn + 1) % subject.paths.len();
        *turn
    };
    group.bench_function(BenchmarkId::new("ours", subject.name), |bencher| {
        let robots = RobotsTxt::parse(body);
        let mut turn = 0;
        bencher.iter(|| black_box(robots.verdict(AGENT, subject.paths[next(&mut turn)].as_bytes())).allow);
    });
    group.bench_function(BenchmarkId::new("robotxt", subject.name), |bencher| {
        let robots = robotxt::Robots::parse(body, AGENT);
        let mut turn = 0;
        bencher.iter(|| robots.is_allowed(&subject.paths[next(&mut turn)]));
    });
    if let Ok(robots) = texting_robots::Robot::new(AGENT, body) {
        group.bench_function(BenchmarkId::new("texting_robots", subject.name), |bencher| {
            let mut turn = 0;
            bencher.iter(|| robots.allowed(&urls[next(&mut turn)]));
        });
    }
    group.finish();
}

fn first(criterion: &mut Criterion, subject: &Subject) {
    let mut group = criterion.benchmark_group("first");
    let (body, path, urls) = (&subject.body, &subject.paths[0], subject.urls());
    group.bench_function(BenchmarkId::new("ours", subject.name), |bencher| {
        bencher.iter(|| RobotsTxt::parse(body).verdict(AGENT, path.as_bytes()).allow);
    });
    group.bench_function(BenchmarkId::new("robotxt", subject.name), |bencher| {
        bencher.iter(|| robotxt::Robots::parse(body, AGENT).is_allowed(path));
    });
    group.bench_function(BenchmarkId::new("texting_robots", subject.name), |bencher| {
        bencher.iter(|| texting_robots::Robot::new(AGENT, body).map(|robots| robots.allowed(&urls[0])).ok());
    });
    group.finish();
}
