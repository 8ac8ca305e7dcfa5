//! A forward proxy that makes any web client obey robots.txt.

pub mod policy;
pub mod robots;

pub mod audit;
pub mod ca;
pub mod clock;
pub mod lookup;
pub mod queue;
pub mod upstream;
