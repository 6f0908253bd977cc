//! PTX exactly as LLVM 22's NVPTX back end printed it for small programs.

use weft_sim::{Arg, Config, Launch, Machine, Module};

fn machine(n_pes: usize) -> Machine {
    Machine::new(Config { n_pes, ..Config::default() }).unwrap()
}

/// A call of a device function, vprintf, shared memory, shuffles, a constant table, atomics, a multimem block of
/// inline assembly and a jump table.
#[test]
fn everything_at_once() {
    let module = Module::parse(include_str!("ptx/llvm_everything.ptx")).unwrap();
    let mut m = machine(2);
    let x = m.alloc_symmetric("x", 512 * 4, 16).unwrap();
    let team = m.team(&[0, 1]).unwrap();
    for pe in 0..2 {
        let data: Vec<u8> = (0..512).flat_map(|i| (i as f32 + pe as f32).to_le_bytes()).collect();
        let addr = m.local_addr(pe, x).unwrap();
        m.write(pe, addr, &data).unwrap();
    }
    let arg = m.multicast_addr(0, x, team).unwrap();
    let agg: Vec<u8> = (0..4_u64).flat_map(|v| (v + 1).to_le_bytes()).collect();
    let args = vec![Arg::U64(arg), Arg::U32(512), Arg::U16(0x3c00), Arg::U8(0xff), Arg::Bytes(agg)];
    let launch = Launch { pe: 0, grid: [1, 1, 1], block: [512, 1, 1], dynamic_shared: 0, args };
    // The kernel also reads x by plain loads, which a multicast address does not allow.
    let e = m.launch(&module, "k", &[launch]).unwrap_err();
    assert_eq!(e.code, "S005", "{e}");
    assert!(e.to_string().contains("ld.global.b32"), "{e}");
}
