//! What a kernel uses the memory of a parameter for.

use crate::words;
use serde::{Deserialize, Serialize};

words! {
    /// What a kernel uses the memory of a tensor parameter for: what is there before a launch, and what is of interest
    /// after it.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    Role {
        /// The kernel reads what the caller has put there.
        Input = "input",
        /// The kernel writes its results there, and reads nothing that it has not written in the same launch.
        Output = "output",
        /// The elements are 0 before the first launch. Later launches find what the launch before has left.
        Zeroed = "zeroed",
        /// The kernel keeps intermediate values there. It holds nothing before a launch, and nobody reads it afterwards.
        Workspace = "workspace",
    }
}
