//! Remarks of the PTX assembler on code that it accepts.

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
        /// Registers are stored in memory.
        Spills = "spills",
        /// Roles do not get the registers that the code requests.
        Registers = "registers",
    }
}

/// A remark of the assembler on code that runs slowly for this reason.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Remark {
    /// The subject of the remark.
    pub kind: RemarkKind,
    /// The text that the assembler printed.
    pub text: String,
    /// The kernel that the remark is about, if the assembler named one.
    pub kernel: Option<String>,
    /// The line of the PTX.
    pub ptx_line: Option<u32>,
    /// The file, line and column of the kernel's text.
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
