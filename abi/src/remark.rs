//! What the assembler of PTX says of code that it assembles all the same.

use crate::words;
use serde::{Deserialize, Serialize};
use std::fmt;

words! {
    /// The subject of a remark.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    RemarkKind {
        /// Matrix instructions run one by one.
        Serial = "serial",
        /// Registers are kept in memory.
        Spills = "spills",
        /// Registers are not given to roles as the code asks.
        Registers = "registers",
    }
}

/// Something that the assembler says of code, which makes the code slow.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Remark {
    /// The subject of the remark.
    pub kind: RemarkKind,
    /// The text that the assembler printed.
    pub text: String,
    /// The kernel that the remark is about, if the assembler named one.
    pub kernel: Option<String>,
    /// Line of the PTX.
    pub ptx_line: Option<u32>,
    /// File, line and column of the kernel's text.
    pub source: Option<(String, u32, u32)>,
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((file, line, _)) = &self.source {
            write!(f, "{file}:{line}: ")?;
        }
        f.write_str(&self.text)
    }
}
