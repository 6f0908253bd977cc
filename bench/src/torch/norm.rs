//! FlashInfer's allreduce with residual and RMSNorm behind it.

use super::{ANSWER, Ask, BUILD, Checked, Prepared, Result, Timings, Torch, agreed_first, ask};
use crate::BenchError;
use crate::fused::{Form, Wrong};
use crate::times::Blocks;
use serde::Serialize;
use weft_ir::Scalar;
use weft_runtime::World;

/// An allreduce of `(tokens, hidden)` with residual and norm behind it.
#[derive(Serialize)]
pub struct Norm {
    /// The number of tokens.
    pub tokens: u32,
    /// The number of elements of a token.
    pub hidden: u32,
    /// The form of the result, by FlashInfer's name in `engines.py`.
    pub form: &'static str,
    /// The number that is added to the mean of squares.
    pub eps: f32,
    /// The scale of results that are quantised without a scale for each token.
    pub scale: f32,
}

impl Norm {
    /// The name of a form of results, if FlashInfer has it.
    pub fn form(form: &Form) -> Option<&'static str> {
        match (form.out == Scalar::E4M3, form.per_token, form.both) {
            _ if form.group > 0 || form.layer => None,
            (false, ..) => Some("plain"),
            (true, false, false) => Some("tensor"),
            (true, false, true) => Some("tensor+norm"),
            (true, true, false) => Some("token"),
            (true, true, true) => Some("token+norm"),
        }
    }
}

impl Torch {
    /// Makes the operands, and the first call. This call is *collective*.
    ///
    /// # Errors
    ///
    /// Fails if a process has ended, or if FlashInfer rejects the call.
    pub fn normalise(&self, world: &World, norm: Norm) -> Result<()> {
        let answer: Prepared = ask(&self.child, &Ask::Normalise(norm), BUILD)?;
        let refused =
            |why| BenchError::Request(format!("FlashInfer: {why}; leave flashinfer out of --against"));
        agreed_first(world, answer)?.map(drop).map_err(refused)
    }

    /// The microseconds of each block. This call is *collective*.
    ///
    /// # Errors
    ///
    /// Fails if a process has ended.
    pub fn norm_blocks(&self, blocks: Blocks) -> Result<Vec<f64>> {
        Ok(self.ask::<Timings>(&Ask::Time(blocks))?.us)
    }

    /// Makes calls with new data each, and returns what is wrong in this PE's results. This call is
    /// *collective*.
    ///
    /// # Errors
    ///
    /// Fails if a process has ended.
    pub fn compare_norms(&self, rounds: u32) -> Result<Option<Wrong>> {
        Ok(ask::<Checked<Wrong>>(&self.child, &Ask::Compare { rounds }, ANSWER)?.wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::super::PEER;
    use super::*;

    #[test]
    fn forms_are_known_to_the_process() {
        let plain = Form::plain(Scalar::BF16);
        for (per_token, both) in [(false, false), (false, true), (true, false), (true, true)] {
            let quantised = Form { out: Scalar::E4M3, per_token, both, ..plain };
            for form in [plain, quantised] {
                let name = Norm::form(&form).unwrap();
                assert!(PEER.contains(&format!("\"{name}\": \"kARResidualRMSNorm")), "{name}");
            }
        }
        assert_eq!(Norm::form(&Form { layer: true, ..plain }), None);
        assert_eq!(Norm::form(&Form { out: Scalar::E4M3, group: 128, ..plain }), None);
    }

    #[test]
    fn wrong_elements_may_be_no_numbers() {
        let answer = r#"{"wrong": {"elements": 2, "tensor": "norm", "index": 1, "found": null, "expected": 1.5, "bound": 0.1}}"#;
        let found = serde_json::from_str::<Checked<Wrong>>(answer).unwrap().wrong.unwrap();
        assert!(found.found.is_nan() && found.elements == 2);
    }
}
