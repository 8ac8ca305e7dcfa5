//! robots.txt as a library of its own.
