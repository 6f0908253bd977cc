//! Four PEs add what each of them holds: every PE reads its peers' symmetric heaps.

use weft_sim::{Arg, Config, Launch, Machine, Module};

const PES: usize = 4;
const LENGTH: usize = 64;

const PTX: &str = "
.version 8.0 .target sm_90 .address_size 64
.visible .entry add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d, .param .u64 out) {
    .reg .f32 %f<5>; .reg .b32 %r<2>; .reg .b64 %rd<7>;
    ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c]; ld.param.u64 %rd4, [d];
    ld.param.u64 %rd5, [out];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd6, %r1, 4;
    add.s64 %rd1, %rd1, %rd6; add.s64 %rd2, %rd2, %rd6; add.s64 %rd3, %rd3, %rd6; add.s64 %rd4, %rd4, %rd6;
    add.s64 %rd5, %rd5, %rd6;
    ld.global.f32 %f1, [%rd1]; ld.global.f32 %f2, [%rd2]; ld.global.f32 %f3, [%rd3]; ld.global.f32 %f4, [%rd4];
    add.f32 %f1, %f1, %f2; add.f32 %f1, %f1, %f3; add.f32 %f1, %f1, %f4;
    st.global.f32 [%rd5], %f1;
    ret;
}";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let module = Module::parse(PTX)?;
    let mut machine = Machine::new(Config::default().n_pes(PES))?;
    let bytes = 4 * LENGTH as u64;
    let x = machine.alloc_symmetric("x", bytes, 16)?;
    let mut launches = Vec::new();
    for pe in 0..PES {
        let own: Vec<u8> = (0..LENGTH).flat_map(|i| ((pe * 100 + i) as f32).to_le_bytes()).collect();
        let address = machine.local_addr(pe, x)?;
        machine.write(pe, address, &own)?;
        let peers: Result<Vec<Arg>, _> =
            (0..PES).map(|peer| machine.peer_addr(pe, x, peer).map(Arg::U64)).collect();
        let out = machine.alloc(pe, "out", bytes, 16)?;
        let mut args = peers?;
        args.push(Arg::U64(out));
        launches.push((out, Launch::default().pe(pe).block([LENGTH as u32, 1, 1]).args(args)));
    }
    let grids: Vec<Launch> = launches.iter().map(|(_, launch)| launch.clone()).collect();
    machine.launch(&module, "add", &grids)?;
    for (pe, (out, _)) in launches.iter().enumerate() {
        let mut first = [0; 4];
        machine.read(pe, *out, &mut first)?;
        println!("PE {pe}: the first sum is {}", f32::from_le_bytes(first));
    }
    Ok(())
}
