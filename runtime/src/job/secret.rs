//! The proofs by which a PE and PE 0 authenticate each other.
//!
//! Both sides prove that they know the job's key, which follows from the job's name and secret,
//! without sending it. Each sends a random number that is used once, and a hash of both numbers
//! that only a holder of the key can compute.

use std::fmt;
use std::path::Path;

use super::ProcessRank;
use crate::error::{Error, LAUNCHER, Result};
use crate::owned::{self, Trust};

/// The size of a hash and of a number that is used once, in bytes.
pub(super) const BYTES: usize = blake3::OUT_LEN;

/// A number that is used once, or a proof.
pub(super) type Bytes = [u8; BYTES];

/// The least number of characters of a secret that is given as text.
const MIN_LENGTH: usize = 16;

/// The variables for the secret, for a file with it, and for a job without one.
const SECRET: &str = "WEFT_SECRET";
const SECRET_FILE: &str = "WEFT_SECRET_FILE";
const INSECURE: &str = "WEFT_INSECURE";

/// The rule that says which processes can join a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Admission {
    /// Processes of this user on this host.
    SameUser,
    /// Processes that know this secret; through a local socket, only processes of this user.
    Secret(Secret),
    /// All processes that can reach PE 0 and know, or guess, the job's name.
    Anybody,
}

/// A job's secret, as a hash of what the user gave.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Bytes);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(not shown)")
    }
}

impl Secret {
    /// Derives a secret from these bytes, of which at least 128 bits must be unknown to others.
    pub fn new(bytes: &[u8]) -> Secret {
        Secret(blake3::derive_key("warpweft 2026-11 secret of a job", bytes))
    }

    /// Creates a secret from random numbers.
    ///
    /// # Errors
    /// Fails if the system gives no random numbers (R0201).
    pub fn random() -> Result<Secret> {
        Ok(Secret(once()?))
    }
}

impl Admission {
    /// Reads the rule from `WEFT_SECRET`, `WEFT_SECRET_FILE` (a file that only its owner can read)
    /// or `WEFT_INSECURE=1`. Without them, it admits processes of this user on this host.
    ///
    /// # Errors
    /// Fails for a secret of under 16 characters, and for a file that cannot be read or that other
    /// users can read (R0201).
    pub fn from_env() -> Result<Admission> {
        Admission::from_vars(&|name| std::env::var(name).ok())
    }

    pub(super) fn from_vars(var: &dyn Fn(&str) -> Option<String>) -> Result<Admission> {
        let set = |name: &str| var(name).filter(|value| !value.is_empty());
        if let Some(text) = set(SECRET) {
            return from_text(SECRET, text.as_bytes());
        }
        if let Some(file) = set(SECRET_FILE) {
            let bad = |why: String| {
                Error::new(LAUNCHER, format!("{SECRET_FILE}: {file}: {why}")).help(format!(
                    "make a file that only you can read: (umask 077; openssl rand -hex 32 > {file})"
                ))
            };
            let text = owned::read(Path::new(&file), 4096, Trust::Owner).map_err(|e| bad(e.to_string()))?;
            if owned::is_readable_by_others(Path::new(&file)) {
                return Err(bad("other users can read it".into()));
            }
            return from_text(SECRET_FILE, text.trim_ascii());
        }
        match set(INSECURE).as_deref() {
            None | Some("0") => Ok(Admission::SameUser),
            Some(_) => Ok(Admission::Anybody),
        }
    }
}

fn from_text(name: &str, text: &[u8]) -> Result<Admission> {
    if text.len() < MIN_LENGTH {
        return Err(Error::new(
            LAUNCHER,
            format!("{name} has {} characters, but it needs at least {MIN_LENGTH}", text.len()),
        )
        .help("set it to a random text that is the same for all PEs, such as the output of `openssl rand -hex 32`"));
    }
    Ok(Admission::Secret(Secret::new(text)))
}

/// Returns a random number that is used once.
///
/// # Errors
/// Fails if the system returns no random numbers (R0201).
pub(super) fn once() -> Result<Bytes> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes)
        .map_err(|e| Error::new(LAUNCHER, format!("the system returned no random numbers: {e}")))?;
    Ok(bytes)
}

/// The side that makes a proof.
#[derive(Clone, Copy)]
pub(super) enum Side {
    Hub,
    Pe { rank: u32, size: u32 },
}

/// The key of a job, which only its PEs know if they have a secret.
#[derive(Clone)]
pub(super) struct Key(Bytes);

impl Key {
    pub fn of(place: &ProcessRank) -> Key {
        let mut hash = blake3::Hasher::new_derive_key("warpweft 2026-11 key of a job");
        if let Admission::Secret(Secret(secret)) = &place.admission {
            hash.update(secret);
        }
        hash.update(place.job.as_bytes());
        Key(*hash.finalize().as_bytes())
    }

    /// The proof that a side knows the key, for one connection. `numbers` are the PE's and the hub's.
    pub fn proof(&self, side: Side, numbers: &[Bytes; 2]) -> Bytes {
        let mut hash = blake3::Hasher::new_keyed(&self.0);
        let (tag, rank, size) = match side {
            Side::Hub => (0, 0, 0),
            Side::Pe { rank, size } => (1u32, rank, size),
        };
        for number in [tag, rank, size] {
            hash.update(&number.to_le_bytes());
        }
        numbers.iter().for_each(|number| _ = hash.update(number));
        *hash.finalize().as_bytes()
    }

    /// Whether a side has proved that it knows the key.
    pub fn proves(&self, proof: &Bytes, side: Side, numbers: &[Bytes; 2]) -> bool {
        // blake3 compares in constant time.
        blake3::Hash::from_bytes(*proof) == blake3::Hash::from_bytes(self.proof(side, numbers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    fn with(vars: &[(&str, &str)]) -> Result<Admission> {
        Admission::from_vars(&|name| vars.iter().find(|v| v.0 == name).map(|v| v.1.to_owned()))
    }

    #[test]
    fn variables_say_who_may_come() {
        assert_eq!(with(&[]).unwrap(), Admission::SameUser);
        assert_eq!(with(&[(SECRET, ""), (INSECURE, "0")]).unwrap(), Admission::SameUser);
        assert_eq!(with(&[(INSECURE, "1")]).unwrap(), Admission::Anybody);
        let long = "0123456789abcdef";
        let secret = with(&[(SECRET, long), (INSECURE, "1")]).unwrap();
        assert_eq!(secret, Admission::Secret(Secret::new(long.as_bytes())));
        assert!(!format!("{secret:?}").contains("0123"), "{secret:?}");
        assert!(with(&[(SECRET, "short")]).unwrap_err().message.contains("at least 16"));

        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        let path = file.to_str().unwrap();
        assert!(with(&[(SECRET_FILE, path)]).is_err());
        fs::write(&file, format!("{long}\n")).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        assert!(with(&[(SECRET_FILE, path)]).unwrap_err().message.contains("other users can read it"));
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(with(&[(SECRET_FILE, path)]).unwrap(), secret);
    }

    #[test]
    fn a_proof_is_of_one_side_one_connection_and_one_key() {
        let keys = [Key([1; BYTES]), Key([2; BYTES])];
        let numbers = [[[3; BYTES], [4; BYTES]], [[4; BYTES], [3; BYTES]]];
        let sides = [Side::Hub, Side::Pe { rank: 0, size: 2 }, Side::Pe { rank: 1, size: 2 }];
        let mut seen = std::collections::BTreeSet::new();
        for key in &keys {
            for numbers in &numbers {
                for side in sides {
                    let proof = key.proof(side, numbers);
                    assert!(seen.insert(proof) && key.proves(&proof, side, numbers));
                }
            }
        }
    }
}
