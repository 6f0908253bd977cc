//! Compares the hot loops of the library's multimem kernels in SASS with those of
//! `benches/switch/hot_loops.cu`, compiled by nvcc: they have no more instructions for 16 bytes,
//! the same width, as many loads in flight, and no spills.
//!
//! It needs ptxas, nvcc and nvdisasm (`pip install nvidia-cuda-nvcc nvidia-cuda-nvdisasm`) and a
//! C++ compiler. Without them the test prints a message and passes, unless `WEFT_REQUIRE_PTXAS=1`.
//! `--nocapture` shows the table.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[path = "sass/listing.rs"]
#[allow(dead_code, reason = "shared with the test of matrix products")]
mod listing;

use listing::{HotLoop, Kernel, kernels};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use weft::collective::{Algorithm, Collective, Placement, Plan, Request};
use weft::runtime::DType;
use weft::tools::{Tool, assemble_ptx, disassemble};
use weft::{Define, KernelFile, Lowering, Options};
use weft_run::simulation;

const TYPES: [&str; 3] = ["f32", "bf16", "f16"];

/// The numbers of 16-byte vectors that a thread has in flight.
const UNROLLED: [usize; 2] = [4, 8];

/// The kernels: the name, the origin, and the hand-written kernel with the same work and order.
const KERNELS: [(&str, From, &str); 5] = [
    ("allreduce_one_shot", From::Example, "strided_one_shot"),
    ("allreduce_two_shot", From::Example, "strided_in_place"),
    ("one_shot", From::Library(Placement::OutOfPlace), "strided_one_shot"),
    ("two_shot", From::Library(Placement::OutOfPlace), "strided_two_shot"),
    ("two_shot", From::Library(Placement::InPlace), "strided_in_place"),
];

#[derive(Clone, Copy)]
enum From {
    /// A file of the examples.
    Example,
    /// An allreduce of the library.
    Library(Placement),
}

/// A loop with the figures that are compared.
struct Loop {
    instructions: usize,
    loads: usize,
    in_flight: usize,
    registers: usize,
}

impl Loop {
    fn of(name: &str, kernel: &Kernel) -> Loop {
        let hot: HotLoop = kernel.hot_loop().unwrap_or_else(|| panic!("{name} has no loop with LDGMC"));
        for spill in ["STL", "LDL"] {
            assert_eq!(kernel.count(spill), 0, "{name} spills");
        }
        let loads = hot.count("LDGMC");
        for i in hot.insts.iter().filter(|i| i.is("LDGMC")) {
            let wide = ["F32x4", "BF16x8", "F16x8"].iter().any(|w| i.opcode.contains(w));
            assert!(wide, "{name}: {} is no access of 16 bytes", i.opcode);
        }
        let stores: Vec<_> = hot.insts.iter().filter(|i| i.is("STG") || i.is("STGMC")).collect();
        assert_eq!(stores.len(), loads, "{name}: a store for each load");
        assert!(stores.iter().all(|i| i.opcode.contains(".128")), "{name}: stores of 16 bytes");
        let highest = kernel.insts.iter().flat_map(|i| listing::registers(&i.operands)).max();
        Loop {
            instructions: hot.insts.len(),
            loads,
            in_flight: hot.loads_in_flight(),
            registers: highest.unwrap_or(0) as usize + 1,
        }
    }

    fn per_vector(&self) -> f64 {
        self.instructions as f64 / self.loads as f64
    }
}

/// The paths of the tools, or the reason why they are missing.
fn tools() -> Result<PathBuf, String> {
    let ptxas = Tool::Ptxas.find().map_err(|e| e.to_string())?;
    Tool::Nvdisasm.find().map_err(|e| e.to_string())?;
    let nvcc = ptxas.with_file_name("nvcc");
    if nvcc.is_file() { Ok(nvcc) } else { Err(format!("there is no nvcc beside {}", ptxas.display())) }
}

/// The hand-written kernels in SASS.
fn hand_written(nvcc: &Path) -> BTreeMap<String, Kernel> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/switch/hot_loops.cu");
    let cubin =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("hot_loops.{}.cubin", std::process::id()));
    let out = Command::new(nvcc)
        .args(["-cubin", "-arch=sm_90a", "-O3", "-o"])
        .args([&cubin, &source])
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let listing = disassemble(&std::fs::read(&cubin).unwrap()).unwrap();
    std::fs::remove_file(&cubin).unwrap();
    kernels(&listing)
}

/// A kernel of the library or the examples in SASS.
fn ours(name: &str, from: From, dtype: &str, unroll: usize) -> Kernel {
    let target = "sm_90a".parse().unwrap();
    let (file, options) = match from {
        From::Example => {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("examples/{name}.weft"));
            let text = std::fs::read_to_string(path).unwrap();
            assert_eq!(text.matches("unroll(4)").count(), 1, "{name} has one loop");
            let text = text.replace("unroll(4)", &format!("unroll({unroll})"));
            let text = text.replace("block(256)", "block(512)");
            let mut options = Options::new(target);
            for (parameter, value) in [("T", dtype), ("N", "16777216")] {
                options.defines.insert(parameter.into(), Define::parse(value).unwrap());
            }
            (KernelFile::parse(name, &text).unwrap(), options)
        }
        From::Library(place) => {
            let algorithm = Algorithm::find(Collective::AllReduce, name).unwrap();
            let request = Request::new(Collective::AllReduce, DType::parse(dtype).unwrap(), 1 << 24, 8);
            let request = Request { place, multicast: true, ..request };
            let plan = Plan { threads: 512, unroll: unroll as u32, ..Plan::of(algorithm, &request, 132) };
            let (file, run) = simulation(&plan, &request, target).unwrap();
            (file, run.compile)
        }
    };
    let compiled = file.compile(&options.lowering(Lowering::Multimem)).unwrap();
    let listing = disassemble(&assemble_ptx(&compiled.ptx, target).unwrap()).unwrap();
    kernels(&listing).into_values().next().unwrap()
}

#[test]
fn no_more_instructions_than_by_hand() {
    let nvcc = match tools() {
        Ok(nvcc) => nvcc,
        Err(missing) => {
            assert!(std::env::var_os("WEFT_REQUIRE_PTXAS").is_none_or(|v| v != "1"), "{missing}");
            writeln!(std::io::stdout().lock(), "skipped: {missing}").unwrap();
            return;
        }
    };
    let by_hand = hand_written(&nvcc);
    let hand = |form: &str, dtype: &str, unroll: usize| {
        let name = format!("{form}_{}_{unroll}", dtype.to_uppercase());
        Loop::of(&name, by_hand.get(&name).unwrap_or_else(|| panic!("there is no {name}")))
    };
    println!("instructions of the hot loop for each 16 bytes; registers of the kernel");
    println!(
        "{:20}{:>6}{:>8}{:>8}{:>10}{:>10}{:>8}{:>6}",
        "", "type", "loads", "ours", "strided", "tiled", "regs", "hand"
    );
    let mut more = Vec::new();
    for (kernel, from, form) in KERNELS {
        for dtype in TYPES {
            for unroll in UNROLLED {
                let own = Loop::of(kernel, &ours(kernel, from, dtype, unroll));
                let (strided, tiled) =
                    (hand(form, dtype, unroll), hand(&form.replace("strided", "tiled"), dtype, unroll));
                let kernel = match from {
                    From::Library(Placement::InPlace) => format!("{kernel}_in_place"),
                    _ => kernel.to_owned(),
                };
                println!(
                    "{kernel:20}{dtype:>6}{unroll:>8}{:>8.2}{:>10.2}{:>10.2}{:>8}{:>6}",
                    own.per_vector(),
                    strided.per_vector(),
                    tiled.per_vector(),
                    own.registers,
                    strided.registers
                );
                for l in [&own, &strided, &tiled] {
                    assert_eq!(
                        (l.loads, l.in_flight),
                        (unroll, unroll),
                        "{kernel} {dtype}: loads before the first use"
                    );
                }
                if own.instructions > strided.instructions {
                    more.push(format!(
                        "{kernel} {dtype} {unroll}: {} > {}",
                        own.instructions, strided.instructions
                    ));
                }
            }
        }
    }
    assert!(more.is_empty(), "more instructions than by hand: {more:#?}");
}

/// Kernels of the library that multiply and communicate, and kernels of experts, with parameters
/// other than the number of PEs.
const COMMUNICATING: [(&str, &str); 30] = [
    ("gemm_reduce_scatter", ""),
    ("gemm_reduce_scatter", "BN=128 CTAS=2 SEND=2"),
    ("gemm_reduce_scatter_uneven", ""),
    ("gemm_reduce_scatter_add", ""),
    ("gemm_reduce_scatter_add_uneven", ""),
    ("gemm_allreduce", ""),
    ("gemm_allreduce", "BN=128 CTAS=2 SEND=2"),
    ("gemm_allreduce_switch", ""),
    ("all_gather_gemm", ""),
    ("all_gather_gemm", "T=e4m3 OUT=e4m3 BN=128 BK=128 STRIP=32 SCALES=2 BIAS=1 ACT=4 QUANTIZE=448"),
    ("all_gather_gemm", "T=e4m3 OUT=e4m3 BN=128 BK=128 STRIP=32 SCALES=3 QUANTIZE=448"),
    ("all_gather_gemm_uneven", ""),
    ("gemm_allreduce_decode", ""),
    ("gemm_allreduce_rms_norm", ""),
    ("gemm_all_to_all", ""),
    ("gemm_all_to_all", "T=e4m3 BN=128 BK=128 STRIP=32 SCALES=2 BIAS=1 ACT=2 RESIDUAL=1"),
    ("gemm_all_to_all_uneven", ""),
    ("gemm_all_to_all_uneven", "T=e4m3 BN=128 BK=128 STRIP=32 SCALES=2 BIAS=1 ACT=2 RESIDUAL=1"),
    ("moe_dispatch", "EXPERTS=64 K=8"),
    ("moe_dispatch_scaled", "EXPERTS=64 K=8"),
    ("moe_experts", "EXPERTS=64 K=8"),
    ("moe_experts", "EXPERTS=64 K=8 T=e4m3 BN=128 BK=128 STAGES=4 SCALES=1"),
    ("moe_layer", "EXPERTS=64 K=8 OUTS=4 PACE=3000"),
    ("moe_layer", "EXPERTS=64 K=8 T=e4m3 BN=128 BK=128 STAGES=4 SCALES=1"),
    ("moe_products", "EXPERTS=64"),
    ("moe_sum", "K=8"),
    ("moe_combine", "EXPERTS=64 K=8"),
    ("moe_combine_once", "EXPERTS=64 K=8"),
    ("moe_ll_dispatch", "EXPERTS=64 K=8"),
    ("moe_ll_combine", "EXPERTS=64 K=8"),
];

/// Checks that no thread spills registers to memory, on two PEs and on eight. Without multicast,
/// eight PEs have eight addresses.
#[test]
fn kernels_that_communicate_do_not_spill() {
    if let Err(missing) = tools() {
        assert!(std::env::var_os("WEFT_REQUIRE_PTXAS").is_none_or(|v| v != "1"), "{missing}");
        writeln!(std::io::stdout().lock(), "skipped: {missing}").unwrap();
        return;
    }
    let target = "sm_90a".parse().unwrap();
    let mut spilled = Vec::new();
    for ((part, parameters), pes) in COMMUNICATING.into_iter().flat_map(|case| [2, 8].map(|pes| (case, pes)))
    {
        let file = KernelFile::parse(part, weft::library::part(part).unwrap()).unwrap();
        let mut options = Options::new(target).lowering(Lowering::Unicast);
        options.defines.insert("P".into(), Define::Int(pes));
        for word in parameters.split_whitespace() {
            let (name, value) = word.split_once('=').unwrap();
            options.defines.insert(name.into(), Define::parse(value).unwrap());
        }
        let compiled = file.compile(&options).unwrap();
        let listing = disassemble(&assemble_ptx(&compiled.ptx, target).unwrap()).unwrap();
        let all = kernels(&listing);
        assert_eq!(all.len(), 1, "{part}");
        let count = |name: &str| all.values().map(|kernel| kernel.count(name)).sum::<usize>();
        let [stores, loads] = ["STL", "LDL"].map(count);
        if stores + loads > 0 {
            spilled.push(format!("{part} {parameters} on {pes} PEs: {stores} stores, {loads} loads"));
        }
    }
    assert!(spilled.is_empty(), "{spilled:#?}");
}

#[test]
fn the_hot_loop_is_found() {
    // The text has a loop with a slow path, inside a loop that has no LDGMC of its own, followed by
    // a loop with fewer.
    let text = "
        .text.k:
        /*0000*/                   MOV R1, c[0x0][0x28] ;
        .L_x_0:
        /*0010*/                   ISETP.NE.AND P1, PT, R2, RZ, PT ;
        .L_x_1:
        /*0020*/               @P0 BRA `(.L_x_2) ;
        /*0030*/                   LDGMC.E.ADD.F32x4.RN.STRONG.SYS R4, [R2.64+URZ] ;
        /*0040*/                   LDGMC.E.ADD.F32x4.RN.STRONG.SYS R8, [R2.64+URZ+0x10] ;
        /*0050*/                   IADD3 R2, R2, R20, RZ ;
        /*0060*/                   STG.E.128 desc[UR4][R2.64], R4 ;
        /*0070*/                   BRA `(.L_x_3) ;
        .L_x_2:
        /*0080*/                   LDGMC.E.ADD.F32x4.RN.STRONG.SYS R4, [R2.64+URZ] ;
        /*0090*/                   STG.E.128 desc[UR4][R2.64], R4 ;
        .L_x_3:
        /*00a0*/              @!P2 BRA `(.L_x_1) ;
        /*00b0*/                   BRA P1, `(.L_x_0) ;
        .L_x_4:
        /*00c0*/                   LDGMC.E.ADD.F32x4.RN.STRONG.SYS R4, [R2.64+URZ] ;
        /*00d0*/              @!P2 BRA `(.L_x_4) ;
        /*00e0*/                   EXIT ;
        .L_x_5:
        /*00f0*/                   BRA `(.L_x_5);
        .section .nv";
    let all = kernels(text);
    let hot = all["k"].hot_loop().unwrap();
    let opcodes: Vec<_> = hot.insts.iter().map(|i| i.opcode.split('.').next().unwrap()).collect();
    assert_eq!(opcodes, ["BRA", "LDGMC", "LDGMC", "IADD3", "STG", "BRA", "BRA"]);
    assert_eq!(hot.loads_in_flight(), 2);
    assert_eq!((all["k"].count("LDGMC"), all["k"].count("STL")), (4, 0));
}

/// Checks the allreduce with one packet per thread, whose time is that of its instructions, one
/// load and one flight. All loads are issued early, few instructions follow them until the first
/// packet is stored, and few follow the last packet.
#[test]
fn a_small_allreduce_has_few_instructions() {
    if let Err(missing) = Tool::Ptxas.find().and_then(|_| Tool::Nvdisasm.find()) {
        assert!(std::env::var_os("WEFT_REQUIRE_PTXAS").is_none_or(|v| v != "1"), "{missing}");
        writeln!(std::io::stdout().lock(), "skipped: {missing}").unwrap();
        return;
    }
    let target = "sm_90a".parse().unwrap();
    let algorithm = Algorithm::find(Collective::AllReduce, "ll").unwrap();
    let request = Request::new(Collective::AllReduce, DType::BF16, 512, 2);
    let (file, run) = simulation(&Plan::of(algorithm, &request, 132), &request, target).unwrap();
    let compiled = file.compile(&run.compile.lowering(Lowering::Unicast)).unwrap();
    let listing = disassemble(&assemble_ptx(&compiled.ptx, target).unwrap()).unwrap();
    let kernel = kernels(&listing).into_values().next().unwrap();
    let at = |wanted: &dyn Fn(&listing::Inst) -> bool| -> Vec<usize> {
        let all = kernel.insts.iter().enumerate();
        all.filter(|(_, i)| wanted(i)).map(|(n, _)| n).collect()
    };
    let (loads, stores) = (at(&|i| i.is("LDG")), at(&|i| i.is("STG")));
    let packets = at(&|i| i.opcode.starts_with("STG.E.128"));
    let exits = at(&|i| i.is("EXIT"));
    let before: Vec<_> = loads.iter().filter(|n| **n < packets[0]).collect();
    let polls = loads.iter().filter(|n| **n > packets[0]).max().unwrap();
    let (last, result) = (*exits.last().unwrap(), *stores.last().unwrap());
    let figures = format!("loads {loads:?}, stores {stores:?}, exits {exits:?}");
    assert_eq!(before.len(), 3, "the address of the peer, the round and the data: {figures}");
    assert!(before.iter().all(|n| **n < 40), "{figures}");
    assert!(packets[0] - **before.last().unwrap() < 40, "{figures}");
    assert!(result - polls < 24 && last > result, "{figures}");
    assert!(last < 125, "{figures}");
}
