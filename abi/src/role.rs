//! The roles of parameters, which state what a kernel uses their memory for.

use crate::words;
use serde::{Deserialize, Serialize};

words! {
    /// The use that a kernel makes of a tensor parameter's memory: what it contains before a
    /// launch, and whether it is of interest afterwards.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    Role {
        /// The kernel reads data that the caller has stored.
        Input = "input",
        /// The kernel writes its results, and reads nothing that it has not written in the same
        /// launch.
        Output = "output",
        /// The elements are 0 before the first launch. A later launch finds the data that the
        /// previous launch left.
        Zeroed = "zeroed",
        /// The kernel stores intermediate values. The memory holds no data before a launch, and is
        /// not read afterwards.
        Workspace = "workspace",
    }
}
