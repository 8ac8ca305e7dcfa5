//! The robots engine against its cases, real files, a slow model of itself and a count of its steps.

mod cases;
mod linear;
mod memory;
mod model;
mod properties;
