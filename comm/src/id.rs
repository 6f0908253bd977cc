//! The id on which the ranks of a communicator agree.

use crate::Error;

/// 128 bytes that identify a communicator and keep other processes out of it. One rank creates them
/// at random and sends them to the others by whatever means the engine has (a socket, a store, a
/// pipe).
#[derive(Clone, PartialEq, Eq)]
pub struct Id(pub [u8; 128]);

impl Id {
    /// Creates an id from random numbers.
    ///
    /// # Errors
    /// Fails if the system does not return random numbers ([`Error::Exchange`]).
    pub fn random() -> Result<Id, Error> {
        let mut bytes = [0; 128];
        getrandom::fill(&mut bytes).map_err(|e| Error::Exchange(e.to_string()))?;
        Ok(Id(bytes))
    }

    /// The id that rank 0 creates, sent through an exchange of the caller's. The exchange gets this
    /// rank's bytes and returns the bytes of all ranks in their order.
    ///
    /// # Errors
    /// Fails if the exchange fails or returns no id of rank 0 ([`Error::Exchange`]).
    pub fn exchanged<E: std::fmt::Display>(
        rank: u32,
        exchange: impl FnOnce(&[u8]) -> Result<Vec<Vec<u8>>, E>,
    ) -> Result<Id, Error> {
        let own = if rank == 0 { Id::random()?.0.to_vec() } else { Vec::new() };
        let all = exchange(&own).map_err(|e| Error::Exchange(e.to_string()))?;
        let first = all.into_iter().next().and_then(|bytes| bytes.try_into().ok());
        first.map(Id).ok_or_else(|| Error::Exchange("rank 0 did not send 128 bytes".into()))
    }
}

/// The id is a secret, so it is not shown.
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
