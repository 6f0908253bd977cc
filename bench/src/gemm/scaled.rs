//! warpweft's product of operands with scales: a kernel of the library's parts, by plans of its GEMM.

use super::measure::Result;
use super::scales::{self, BLOCK};
use super::{Own, report};
use crate::BenchError;
use weft::KernelFile;
use weft::gemm::tuning::{By, Selector};
use weft::gemm::{BlockTiles, Machine, Param, Plan, Problem, Scales};
use weft::gpu::GpuError;
use weft_runtime::{Device, Error, error};

/// The text of the kernel.
const TEXT: &str = include_str!("scaled.weft");
/// Parameters of plans that the kernel does not have.
const ABSENT: [&str; 2] = ["SPLIT", "SWAP"];
/// The bytes of shared memory of a CTA on Hopper.
const SHARED: u64 = 227 << 10;
/// The bytes of shared memory for barriers and for the alignment of tiles.
const BARRIERS: u64 = 2 << 10;
/// The numbers of columns of tiles that lie in several blocks of scales.
const WIDE: [u32; 2] = [160, 192];

/// The kernel with a plan.
pub(super) fn kernel(plan: &Plan) -> Result<Own> {
    let file = KernelFile::parse("bench-gemm-scaled.weft", TEXT).map_err(GpuError::from)?;
    let defines = plan.defines().filter(|(name, _)| !ABSENT.contains(&name.as_str()));
    Own::new(report::OURS, file, None, defines.collect()).map_err(BenchError::Request)
}

/// The plan that a selector chooses, or the model's first plan that the kernel can compute. With
/// scales of blocks, tiles of 128 columns make way for wider ones where these take less time.
pub(super) fn chosen(
    device: &Device,
    problem: &Problem,
    scales: Scales,
    selector: &Selector,
) -> Result<(Plan, By)> {
    let (plan, by) = selector.plan(problem)?;
    if by == By::Caller {
        fits(problem, scales, &plan)?;
        return Ok((plan, by));
    }
    let machine = Machine::of(device)?;
    let found = match suits(problem, scales, &plan) {
        true => Some((plan, by)),
        false => {
            machine.plans(problem).into_iter().find(|p| suits(problem, scales, p)).map(|p| (p, By::Model))
        }
    };
    let none = || {
        let message =
            format!("no plan of the model has tiles for {problem} with scales of {}", scales::name(scales));
        Error::new(error::GEMM, message).help("give a plan")
    };
    let (plan, by) = found.ok_or_else(none)?;
    let wide = if scales == Scales::Blocks { widened(problem, &plan, machine) } else { None };
    Ok(wide.map_or((plan, by), |wide| (wide, By::Model)))
}

/// Whether a plan is chosen without being asked for. With scales of blocks, [`widened`] chooses among
/// wider tiles and clusters, which the model does not rank.
fn suits(problem: &Problem, scales: Scales, plan: &Plan) -> bool {
    let narrow = plan.get(Param::Ctas) == 1 && u64::from(plan.get(Param::Bn)) <= BLOCK;
    (scales != Scales::Blocks || narrow) && fits(problem, scales, plan).is_ok()
}

/// For a plan whose tiles have the columns of one block of scales: the plan with wider tiles that is
/// likely to take less time, if there is one.
fn widened(problem: &Problem, plan: &Plan, machine: Machine) -> Option<Plan> {
    if u64::from(plan.get(Param::Bn)) != BLOCK {
        return None;
    }
    let with = |BlockTiles { columns, ctas }| {
        if u64::from(columns) == BLOCK {
            return Ok(*plan);
        }
        let stages = Machine::STAGES_WITH_BLOCKS;
        let values = [(Param::Bn, columns), (Param::Stages, stages), (Param::Ctas, ctas)];
        values.into_iter().try_fold(*plan, |plan, (param, value)| plan.with(param, value))
    };
    let usable = |plan: &Plan| plan.check(problem).is_ok() && fits(problem, Scales::Blocks, plan).is_ok();
    let all = machine.tiles_with_blocks(problem.shape).into_iter();
    let best = all.filter_map(|tiles| with(tiles).ok()).find(usable)?;
    (best != *plan).then_some(best)
}

/// Checks that the kernel can be compiled with a plan of the library's GEMM.
///
/// # Errors
///
/// Fails with the property of the plan that the kernel does not support (R0505).
pub(super) fn fits(problem: &Problem, scales: Scales, plan: &Plan) -> std::result::Result<(), Error> {
    let of = |param| plan.get(param);
    let turns = of(Param::Turns) == 1;
    let rows = if turns { of(Param::Bm) } else { of(Param::Bm) / 2 };
    let blocks = scales == Scales::Blocks;
    let wide = of(Param::Bn);
    let columns = BLOCK.is_multiple_of(wide.into()) || WIDE.contains(&wide);
    let tiles = of(Param::Bm) == 128 && !turns && u64::from(of(Param::Bk)) == BLOCK;
    let cases = [
        (of(Param::Swap) == 1, "computes the transpose of D", "choose swap=0"),
        (of(Param::Split) > 1, "has several CTAs for each tile", "choose split=1"),
        (rows < 64, "has one role that multiplies", "choose bm=128, or turns=1"),
        (
            scales == Scales::Rows && rows > 64 && !turns,
            "has no registers for the scales of the 128 rows of a role",
            "choose bm=128, or turns=1",
        ),
        (
            blocks && !(tiles && columns),
            "has stages or columns of several blocks of scales",
            "choose bm=128,bk=128,turns=0, and bn=128, bn=160 or bn=192",
        ),
        (
            blocks && block_bytes(problem, plan) > SHARED,
            "has no shared memory for scales of blocks",
            "choose fewer stages",
        ),
    ];
    let Some((_, what, help)) = cases.into_iter().find(|(fails, ..)| *fails) else { return Ok(()) };
    let message = format!("the plan {plan} {what}, with scales of {}", scales::name(scales));
    Err(Error::new(error::GEMM, message).help(help))
}

/// Bytes of shared memory with scales of blocks: stages of A, B and scales, and two strips of results.
/// Rows have a scale for all columns of a tile, or for groups of columns in one block of each tile.
fn block_bytes(problem: &Problem, plan: &Plan) -> u64 {
    let of = |param| u64::from(plan.get(param));
    let (bm, bn) = (of(Param::Bm), of(Param::Bn));
    let groups = if bn <= BLOCK { 1 } else { bn >> bn.trailing_zeros().min(BLOCK.trailing_zeros()) };
    let stage = (bm + bn) * of(Param::Bk) * u64::from(problem.dtype.bytes()) + bm * groups * 4;
    of(Param::Stages) * stage + bm * bn.min(64) * 2 * u64::from(problem.out.bytes()) + BARRIERS
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft::gemm::Shape;
    use weft::{Define, Options};
    use weft_runtime::DType;

    fn h200() -> Machine {
        Machine { target: "sm_90a".parse().unwrap(), sms: 132, memory_gbps: Device::H200_MEMORY_GBPS }
    }

    #[test]
    fn plans_that_the_kernel_does_not_support() {
        let problem = Problem::new(Shape::new(256, 256, 256), DType::E4M3);
        let fits = |scales, plan: &str| {
            fits(&problem, scales, &plan.parse().unwrap()).map_err(|e| (e.code, e.message))
        };
        let cases = [
            (Scales::Matrices, "bm=64,swap=1", "the transpose of D"),
            (Scales::Matrices, "split=2", "several CTAs"),
            (Scales::Matrices, "bm=64", "one role"),
            (Scales::Rows, "bm=256,bn=128", "no registers"),
            (Scales::Blocks, "bn=256,bk=128", "several blocks"),
            (Scales::Blocks, "bn=128,bk=64", "several blocks"),
            (Scales::Blocks, "bn=128,bk=128,turns=1", "several blocks"),
            (Scales::Blocks, "bn=176,bk=128", "several blocks"),
            (Scales::Blocks, "bn=192,bk=64", "several blocks"),
            (Scales::Blocks, "bn=128,bk=128,stages=6", "no shared memory"),
            (Scales::Blocks, "bn=192,bk=128,stages=5", "no shared memory"),
        ];
        for (scales, plan, why) in cases {
            let (code, message) = fits(scales, plan).unwrap_err();
            assert!(code == error::GEMM && message.contains(why), "{plan}: {message}");
        }
        for (scales, plan) in [
            (Scales::Matrices, "bm=128,bn=168,bk=128,turns=1"),
            (Scales::Matrices, "bm=256,bn=128,bk=128,stages=3"),
            (Scales::Rows, "bn=256,bk=128,stages=3,ctas=2"),
            (Scales::Rows, "bn=160,turns=1"),
            (Scales::Blocks, "bn=128,bk=128,stages=5"),
            (Scales::Blocks, "bn=160,bk=128,stages=5"),
            (Scales::Blocks, "bn=192,bk=128,stages=4"),
        ] {
            assert_eq!(fits(scales, plan), Ok(()), "{plan}");
        }
    }

    /// Tiles of more columns take less time for a column, most of all in pairs, and the last wave can
    /// take longer.
    #[test]
    fn blocks_have_the_widest_tiles_that_gain() {
        let plan: Plan = "bn=128,bk=128,stages=5".parse().unwrap();
        let columns = |shape: (u64, u64, u64), out, sms| {
            let problem = Problem { out, ..Problem::new(Shape::new(shape.0, shape.1, shape.2), DType::E4M3) };
            let wide = widened(&problem, &plan, Machine { sms, ..h200() });
            wide.map(|wide| [Param::Bn, Param::Stages, Param::Ctas].map(|param| wide.get(param)))
        };
        let cases = [
            // Waves of tiles of 128, 160 and 192 columns: 8, 7 and 6; 32, 26 and 21; 16, 13 and 11.
            ((4096, 4096, 4096), DType::BF16, 132, Some([192, 4, 2])),
            ((8192, 8192, 8192), DType::BF16, 132, Some([192, 4, 2])),
            ((4096, 8192, 4096), DType::BF16, 132, Some([192, 4, 2])),
            // 1, 1 and 1; 2, 1 and 1; 2, 2 and 1, where a pair would have rows for one CTA.
            ((1024, 1024, 4096), DType::BF16, 132, None),
            ((2048, 1280, 4096), DType::BF16, 132, Some([160, 4, 1])),
            ((128, 25088, 4096), DType::BF16, 132, Some([192, 4, 1])),
            // Results of 32 bits leave shared memory for four stages of 160 columns, and not of 192.
            ((8192, 8192, 8192), DType::F32, 132, Some([160, 4, 1])),
        ];
        for (shape, out, sms, expected) in cases {
            assert_eq!(columns(shape, out, sms), expected, "{shape:?} {out}");
        }
        let narrow: Plan = "bn=64,bk=128,stages=5".parse().unwrap();
        let problem = Problem::new(Shape::new(8192, 8192, 8192), DType::E4M3);
        assert_eq!(
            widened(&problem, &narrow, h200()),
            None,
            "tiles of 64 columns were chosen for their number"
        );
    }

    /// Every plan that fits has a kernel whose parameters have the plan's values.
    #[test]
    fn plans_make_kernels() {
        let own = kernel(&"bn=128,bk=128".parse().unwrap()).unwrap();
        assert!(own.takes_scales());
        assert_eq!(own.defines(), "BK=128,BM=128,BN=128,CTAS=1,STAGES=4,TURNS=0");
    }

    /// The kernel has strips for all widths of tiles. Each kind of strip occurs in one of these widths.
    #[test]
    fn widths_compile() {
        let problem = Problem::new(Shape::new(256, 256, 256), DType::E4M3);
        let file = KernelFile::parse("bench-gemm-scaled.weft", TEXT).unwrap();
        let widths = [256, 232, 224, 200, 192, 168, 160, 136, 128, 88, 64, 40, 16];
        let mut compiled = 0;
        for (width, turns) in widths.into_iter().flat_map(|width| [(width, 0), (width, 1)]) {
            let plan: Plan = format!("bn={width},bk=128,stages=2,turns={turns}").parse().unwrap();
            for (scales, number) in [(Scales::Matrices, 1), (Scales::Rows, 2), (Scales::Blocks, 3)] {
                if plan.check(&problem).is_err() || fits(&problem, scales, &plan).is_err() {
                    continue;
                }
                let mut options = Options::new("sm_90a".parse().unwrap());
                options.defines.extend(plan.defines().filter(|(name, _)| !ABSENT.contains(&name.as_str())));
                options.defines.insert("SCALES".into(), Define::Int(number));
                file.compile(&options).unwrap_or_else(|e| panic!("{plan}, {scales:?}: {e}"));
                compiled += 1;
            }
        }
        assert!(compiled > 20, "{compiled}");
    }
}
