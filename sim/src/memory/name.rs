//! The names that the owner of an allocation gives to it and to its elements.

use std::fmt;
use std::sync::Arc;

/// The elements of an allocation in the owner's numbering.
pub trait Elements: fmt::Debug + Send + Sync {
    /// The size of an element in bytes.
    fn size(&self) -> u64;
    /// The number of elements.
    fn count(&self) -> u64;
    /// The coordinate of the element at this offset from the beginning, counted in elements, or
    /// none if there is no such element.
    fn coordinate(&self, offset: u64) -> Option<Vec<u64>>;
}

/// The name of an allocation. With [`Elements`] messages show `m[3, 17]`, and without them `m` and
/// an offset in bytes.
#[derive(Debug, Clone, Default)]
pub struct Name {
    text: String,
    elements: Option<Arc<dyn Elements>>,
    kind: Kind,
}

/// The use of an allocation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// The data of a program.
    #[default]
    Data,
    /// A table with a row for each PE. An access outside it addresses a PE that does not exist.
    Peers,
    /// The state of waits that report themselves. A program does not wait for it.
    Reports,
}

/// The rows of a table.
#[derive(Debug)]
struct Rows {
    count: u64,
    bytes: u64,
}

impl Elements for Rows {
    fn size(&self) -> u64 {
        self.bytes
    }

    fn count(&self) -> u64 {
        self.count
    }

    fn coordinate(&self, offset: u64) -> Option<Vec<u64>> {
        (offset < self.count).then(|| vec![offset])
    }
}

impl Name {
    /// Creates a name with elements.
    pub fn of(text: &str, elements: Arc<dyn Elements>) -> Name {
        Name { text: text.to_owned(), elements: Some(elements), kind: Kind::Data }
    }

    /// The name of a table with a row of `bytes` bytes for each of `count` PEs.
    pub fn of_peers(count: u64, bytes: u64) -> Name {
        let elements = Arc::new(Rows { count, bytes });
        Name { text: "table of PEs".to_owned(), elements: Some(elements), kind: Kind::Peers }
    }

    /// The name of the memory in which kernels keep the state of waits that report themselves.
    /// Reports about waits do not mention this memory.
    pub fn of_reports() -> Name {
        Name { text: "reports of waits".to_owned(), elements: None, kind: Kind::Reports }
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns `` `m[3, 17]` `` for a byte at this offset, and the number of elements if the byte
    /// is outside the allocation; none if the elements are not known.
    pub(super) fn element(&self, offset: i64) -> Option<(String, Option<u64>)> {
        let elements = self.elements.as_ref()?;
        let size = elements.size().max(1) as i64;
        let (at, rest) = (offset.div_euclid(size), offset.rem_euclid(size));
        let behind = if rest == 0 { String::new() } else { format!("+{rest} bytes") };
        let text = &self.text;
        let known = u64::try_from(at).ok().and_then(|at| elements.coordinate(at));
        if let Some(coordinate) = known {
            let coordinate: Vec<String> = coordinate.iter().map(u64::to_string).collect();
            return Some((format!("`{text}[{}]`{behind}", coordinate.join(", ")), None));
        }
        let flat = elements.coordinate(0).is_none_or(|first| first.len() == 1);
        let name = if flat { format!("`{text}[{at}]`") } else { format!("element {at} of `{text}`") };
        Some((name + &behind, Some(elements.count())))
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Name {
        Name { text: text.to_owned(), elements: None, kind: Kind::Data }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of four.
    #[derive(Debug)]
    struct Fours(u64);
    impl Elements for Fours {
        fn size(&self) -> u64 {
            4
        }
        fn count(&self) -> u64 {
            self.0 * 4
        }
        fn coordinate(&self, offset: u64) -> Option<Vec<u64>> {
            (offset < self.count()).then(|| vec![offset / 4, offset % 4])
        }
    }

    #[test]
    fn bytes_are_named_by_their_elements() {
        let name = Name::of("m", Arc::new(Fours(2)));
        let element = |offset| name.element(offset);
        assert_eq!(element(20), Some(("`m[1, 1]`".into(), None)));
        assert_eq!(element(22), Some(("`m[1, 1]`+2 bytes".into(), None)));
        assert_eq!(element(32), Some(("element 8 of `m`".into(), Some(8))));
        assert_eq!(element(-4), Some(("element -1 of `m`".into(), Some(8))));
        assert_eq!(Name::from("m").element(0), None);
    }
}
