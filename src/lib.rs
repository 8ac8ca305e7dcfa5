//! A forward proxy that makes any web client obey robots.txt.

pub mod ca;
pub mod clock;
pub mod policy;
pub mod robots;
