//! PyTorch's products fused with communication (`torch.ops.symm_mem.fused_*`).

use super::{ANSWER, Ask, Prepared, Result, START, Timings, Torch, agreed_first, ask, python};
use crate::BenchError;
use crate::rounds::Blocks;
use serde::Deserialize;
use weft::gemm::{Form, Shape};
use weft_runtime::{DType, World};

/// The variable that disables multicast addresses in PyTorch. Such calls do not use them.
const NO_MULTICAST: &str = "TORCH_SYMM_MEM_DISABLE_MULTICAST";

/// The function of `torch.ops.symm_mem` that computes a form.
///
/// # Errors
///
/// Fails if PyTorch has no such function.
pub fn function(form: Form) -> std::result::Result<&'static str, BenchError> {
    match form {
        Form::AllGather => Ok("fused_all_gather_matmul"),
        Form::ReduceScatter => Ok("fused_matmul_reduce_scatter"),
        Form::AllReduce | Form::AllToAll => Err(BenchError::Request(
            "PyTorch's symmetric memory has no fused matrix product and allreduce or all-to-all: leave torch out of \
             --against"
                .into(),
        )),
    }
}

#[derive(Deserialize)]
struct Sampled {
    elements: Vec<f64>,
}

impl Torch {
    /// Starts PyTorch on every PE, for calls that allocate their own operands. This call is
    /// *collective*.
    pub fn with_own_operands(world: &World, dtype: DType, graph: bool) -> Result<Torch> {
        /// The size in elements of the memory whose barrier lets the PEs begin together.
        const ELEMENTS: u64 = 1024;
        let mut python = python();
        if std::env::var_os(NO_MULTICAST).is_none() {
            python.env(NO_MULTICAST, "1");
        }
        Torch::with(world, (dtype, graph), (ELEMENTS, 1), python)
    }

    /// Makes the operands of a product, with `rows` rows of A, and makes its first call. This call
    /// is *collective*.
    ///
    /// # Errors
    ///
    /// Fails if a process has ended, or if PyTorch rejects the product.
    pub fn multiply(
        &self,
        world: &World,
        form: Form,
        (rows, Shape { n, k, .. }): (u64, Shape),
        seeds: [u32; 2],
    ) -> Result<()> {
        let question = Ask::Multiply { function: function(form)?, rows, n, k, seeds };
        let answer: Prepared = ask(&self.child, &question, START)?;
        let refused = |why| BenchError::Request(format!("PyTorch: {why}; leave torch out of --against"));
        agreed_first(world, answer)?.map(drop).map_err(refused)
    }

    /// Fills the operands, multiplies twice, and returns these elements of the result. This call is
    /// *collective*.
    ///
    /// # Errors
    ///
    /// Fails if a process has ended.
    pub fn sample(&self, whole: bool, places: &[(u64, u64)]) -> Result<Vec<f64>> {
        let question = Ask::Sample { whole, places: places.to_vec() };
        Ok(ask::<Sampled>(&self.child, &question, ANSWER)?.elements)
    }

    fn block(&self, question: &Ask) -> Result<f64> {
        let times: Timings = self.ask(question)?;
        let none = || BenchError::Local("PyTorch reported no time".into());
        times.us.first().copied().ok_or_else(none)
    }
}

impl Blocks for Torch {
    fn arrange(&self, calls: u32, before: u32) -> Result<f64> {
        self.block(&Ask::Arrange { calls, before })
    }

    fn again(&self) -> Result<f64> {
        self.block(&Ask::Again {})
    }
}

#[cfg(test)]
mod tests {
    use super::super::PEER;
    use super::*;

    #[test]
    fn each_function_is_known_to_the_process() {
        for form in [Form::AllGather, Form::ReduceScatter] {
            assert!(PEER.contains(&format!("\"{}\": lambda", function(form).unwrap())), "{form:?}");
        }
        let none = function(Form::AllReduce).unwrap_err().to_string();
        assert!(none.contains("leave torch out"), "{none}");
        let question = serde_json::to_value(Ask::Again {}).unwrap();
        assert_eq!(question, serde_json::json!({"ask": "again"}));
    }
}
