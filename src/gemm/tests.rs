//! Tests without a GPU.
