//! PTX is read, or rejected with its line. PTX that was read runs for a while with all checks, on
//! two PEs that can access each other's memory.
#![no_main]

use weft_sim::{Arg, Check, Config, Launch, Machine, Module, Param, SimError};

fn run(module: &Module, seed: u64) -> Result<(), SimError> {
    let config = Config::default()
        .n_pes(2)
        .seed(seed)
        .explore(seed % 2 == 1)
        .step_limit(20_000)
        .memory_limit(64 << 20)
        .sms(1)
        .print_limit(1 << 12)
        .check(Some(Check::default()));
    for kernel in module.kernels() {
        let mut m = Machine::new(config.clone())?;
        let x = m.alloc_symmetric("x", 4096, 16)?;
        let team = m.team(&[0, 1])?;
        let mut grids = Vec::new();
        for pe in 0..2 {
            let pointers =
                [m.local_addr(pe, x)?, m.peer_addr(pe, x, 1 - pe)?, m.multicast_addr(pe, x, team)?];
            let arg = |(i, p): (usize, &Param)| {
                let word = if p.size == 8 { pointers[i % 3] } else { 40 };
                let mut bytes = word.to_le_bytes().to_vec();
                bytes.resize(p.size, 0);
                Arg::Bytes(bytes)
            };
            let args = kernel.params.iter().enumerate().map(arg).collect();
            let block = kernel.reqntid.unwrap_or([40, 1, 1]);
            grids.push(Launch::default().pe(pe).grid([2, 1, 1]).block(block).args(args));
        }
        m.launch(module, &kernel.name, &grids)?;
    }
    Ok(())
}

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(module) = Module::parse(text) {
        let _ = run(&module, text.len() as u64);
    }
});
