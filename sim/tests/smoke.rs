//! Small complete kernels.
use weft_sim::{Arg, Config, Launch, Machine, Module};

const TWO_SHOT: &str = include_str!("ptx/two_shot.ptx");

fn run(n_pes: usize, n: u32, ctas: u32, seed: u64) -> (Vec<Vec<f32>>, weft_sim::Stats) {
    let module = Module::parse(TWO_SHOT).unwrap_or_else(|e| panic!("{e}"));
    let mut m = Machine::new(Config { n_pes, seed, ..Config::default() }).unwrap();
    let x = m.alloc_symmetric("x", u64::from(n) * 4, 16).unwrap();
    let sync = m.alloc_symmetric("sync", 4 * u64::from(ctas), 128).unwrap();
    let pes: Vec<usize> = (0..n_pes).collect();
    let team = m.team(&pes).unwrap();
    let mut launches = Vec::new();
    for pe in 0..n_pes {
        let data: Vec<u8> = (0..n).flat_map(|i| ((i % 1000) as f32 + pe as f32).to_le_bytes()).collect();
        let local = m.local_addr(pe, x).unwrap();
        m.write(pe, local, &data).unwrap();
        let flags = m.local_addr(pe, sync).unwrap();
        m.write(pe, flags, &vec![0; 4 * ctas as usize]).unwrap();
        let args = vec![
            Arg::U64(m.multicast_addr(pe, x, team).unwrap()),
            Arg::U64(m.multicast_addr(pe, sync, team).unwrap()),
            Arg::U64(flags),
            Arg::U32(n),
            Arg::U32(pe as u32),
            Arg::U32(n_pes as u32),
        ];
        launches.push(Launch { pe, grid: [ctas, 1, 1], block: [512, 1, 1], dynamic_shared: 0, args });
    }
    let stats = m.launch(&module, "two_shot", &launches).unwrap_or_else(|e| panic!("{e}"));
    let out = (0..n_pes)
        .map(|pe| {
            let mut bytes = vec![0; n as usize * 4];
            m.read(pe, m.local_addr(pe, x).unwrap(), &mut bytes).unwrap();
            bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
        })
        .collect();
    (out, stats)
}

#[test]
fn two_shot_with_tails() {
    for (n_pes, n, ctas) in [(1, 4, 1), (2, 37, 1), (3, 1000, 2), (8, 4099, 2), (5, 1, 1)] {
        let (out, _) = run(n_pes, n, ctas, 42);
        let offsets: f32 = (0..n_pes).map(|p| p as f32).sum();
        for (pe, values) in out.iter().enumerate() {
            for (i, &v) in values.iter().enumerate() {
                assert_eq!(v, (i % 1000) as f32 * n_pes as f32 + offsets, "PE {pe} element {i} of {n}");
            }
        }
    }
}
