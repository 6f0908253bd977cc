//! Runs the numbered examples unchanged. Each of them checks its own results.

#![allow(dead_code, reason = "their `main` is used only when they run alone")]

use crate::check::Case;

#[path = "../../examples/05_allreduce_one_shot.rs"]
mod allreduce_one_shot;
#[path = "../../examples/15_allreduce_rms_norm.rs"]
mod allreduce_rms_norm;
#[path = "../../examples/06_allreduce_two_shot.rs"]
mod allreduce_two_shot;
#[path = "../../examples/07_cuda_graph.rs"]
mod cuda_graph;
#[path = "../../examples/08_dlpack.rs"]
mod dlpack;
#[path = "../../examples/19_gemm_in_rust.rs"]
mod gemm_in_rust;
#[path = "../../examples/17_moe.rs"]
mod moe;
#[path = "../../examples/02_put_signal.rs"]
mod put_signal;
#[path = "../../examples/04_register_memory.rs"]
mod register_memory;
#[path = "../../examples/01_ring_put_get.rs"]
mod ring_put_get;
#[path = "../../examples/03_team_split.rs"]
mod team_split;
#[path = "../../examples/18_tensor_parallel_mlp.rs"]
mod tensor_parallel_mlp;

pub const CASES: &[Case] = &[
    Case::new("examples::01_ring_put_get", ring_put_get::ring),
    Case::new("examples::02_put_signal", put_signal::put_signal),
    Case::new("examples::03_team_split", team_split::split),
    Case::new("examples::04_register_memory", register_memory::register),
    Case::new("examples::05_allreduce_one_shot", allreduce_one_shot::allreduce),
    Case::new("examples::06_allreduce_two_shot", allreduce_two_shot::allreduce),
    Case::new("examples::07_cuda_graph", cuda_graph::graph),
    Case::new("examples::08_dlpack", dlpack::dlpack),
    Case::new("examples::15_allreduce_rms_norm", allreduce_rms_norm::allreduce_rms_norm),
    Case::new("examples::17_moe", moe::moe),
    Case::new("examples::18_tensor_parallel_mlp", tensor_parallel_mlp::mlp),
    Case::new("examples::19_gemm_in_rust", gemm_in_rust::gemm),
];
