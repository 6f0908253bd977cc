//! Asynchronous copies and reductions, clusters.
use super::Job;
pub fn jobs() -> Vec<Job> { Vec::new() }
