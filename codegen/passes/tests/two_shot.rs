//! The two-shot allreduce through all passes.

mod common;

use common::{module, options, two_shot};
use weft_ir::Scalar;
use weft_ir::text::print_module;
use weft_passes::{Lowering, run};

#[test]
fn show() {
    for (s, l) in [
        (Scalar::F32, Lowering::Multimem),
        (Scalar::BF16, Lowering::Multimem),
        (Scalar::BF16, Lowering::Unicast),
    ] {
        let m = module(two_shot(s, 4).unwrap());
        println!("{}", print_module(&m));
        let out = run(m, &options(l)).unwrap();
        println!("{}\n{:?}", print_module(&out.module), out.timings);
        for a in &out.report.accesses {
            println!("{a}");
        }
        println!("{:?}", out.report.instructions());
    }
}
