//! A hand-over between two CTAs in which the flag is relaxed, and what the race detector says of it.

use weft_sim::{Arg, Check, Config, Launch, Machine, Module};

const PTX: &str = "
.version 8.0 .target sm_90 .address_size 64
.visible .entry hand_over(.param .u64 data, .param .u64 flag, .param .u64 out) {
    .reg .pred %p<2>; .reg .b32 %r<4>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [data];
    ld.param.u64 %rd2, [flag];
    ld.param.u64 %rd3, [out];
    mov.u32 %r1, %ctaid.x;
    setp.ne.u32 %p0, %r1, 0;
    @%p0 bra wait;
    st.global.u32 [%rd1], 42;
    st.relaxed.gpu.global.u32 [%rd2], 1;
    ret;
wait:
    ld.acquire.gpu.global.u32 %r2, [%rd2];
    setp.eq.u32 %p1, %r2, 0;
    @%p1 bra wait;
    ld.global.u32 %r3, [%rd1];
    st.global.u32 [%rd3], %r3;
    ret;
}";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let module = Module::parse(PTX)?;
    let mut machine = Machine::new(Config::default().check(Some(Check::default())).explore(true))?;
    let mut args = Vec::new();
    for name in ["data", "flag", "out"] {
        let address = machine.alloc(0, name, 4, 4)?;
        machine.write(0, address, &[0; 4])?;
        args.push(Arg::U64(address));
    }
    machine.launch(&module, "hand_over", &[Launch::default().grid([2, 1, 1]).args(args)])?;
    for finding in machine.take_findings() {
        println!("{finding}");
    }
    Ok(())
}
