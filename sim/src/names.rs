//! The names of threads in reports.

use std::sync::Arc;

/// A group of threads of a CTA with a name in reports, such as those of a role.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Named {
    /// The number of the first thread.
    pub first: u32,
    /// The number of threads.
    pub threads: u32,
    /// The name of the threads.
    pub name: Arc<str>,
}

impl Named {
    /// The name of a thread of a CTA.
    pub(crate) fn of(names: &[Named], thread: u32) -> Option<&Named> {
        names.iter().find(|n| (n.first..n.first.saturating_add(n.threads)).contains(&thread))
    }
}
