//! The number that the ranks of a communicator agree on.

use crate::Error;

/// 128 bytes that name a communicator, and keep others out of it: one rank makes them at random, and tells the others
/// by whatever the engine has (a socket, a store, a pipe).
#[derive(Clone, PartialEq, Eq)]
pub struct Id(pub [u8; 128]);

impl Id {
    /// Creates an id from random numbers.
    ///
    /// # Errors
    /// Fails if the system gives no random numbers ([`Error::Exchange`]).
    pub fn random() -> Result<Id, Error> {
        let mut bytes = [0; 128];
        getrandom::fill(&mut bytes).map_err(|e| Error::Exchange(e.to_string()))?;
        Ok(Id(bytes))
    }

    /// The one that rank 0 makes, through an exchange of the caller's: it is given this rank's bytes, and returns the
    /// bytes of all ranks in their order.
    ///
    /// # Errors
    /// Fails if it fails, or gives no id of rank 0 ([`Error::Exchange`]).
    pub fn exchanged<E: std::fmt::Display>(
        rank: u32,
        exchange: impl FnOnce(&[u8]) -> Result<Vec<Vec<u8>>, E>,
    ) -> Result<Id, Error> {
        let own = if rank == 0 { Id::random()?.0.to_vec() } else { Vec::new() };
        let all = exchange(&own).map_err(|e| Error::Exchange(e.to_string()))?;
        let first = all.into_iter().next().and_then(|bytes| bytes.try_into().ok());
        first.map(Id).ok_or_else(|| Error::Exchange("rank 0 sent no 128 bytes".into()))
    }
}

/// It is a secret.
impl std::fmt::Debug for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Id(not shown)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exchange_gives_all_ranks_the_id_of_rank_0() {
        let mut sent = Vec::new();
        let first = Id::exchanged(0, |own| {
            sent = vec![own.to_vec(), Vec::new()];
            Ok::<_, String>(sent.clone())
        });
        let second = Id::exchanged(1, |own| {
            assert!(own.is_empty());
            Ok::<_, String>(sent.clone())
        });
        assert!(first.is_ok_and(|first| second.is_ok_and(|second| first == second && first.0 != [0; 128])));
        assert!(matches!(Id::exchanged(1, |_| Ok::<_, String>(vec![vec![1]])), Err(Error::Exchange(_))));
        assert!(matches!(Id::exchanged(1, |_| Err("gone")), Err(Error::Exchange(why)) if why == "gone"));
    }
}
