//! Whole launches whose results on a GPU are known: what is launched, on which data, and how the package for the GPU
//! is written (`golden/run_launches.py` executes it there).

pub mod copies;
pub mod data;
pub mod matrix;
pub mod others;
pub mod scalar;
pub mod warpgroup;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

/// An argument of a kernel, in the order of its parameters.
#[derive(Debug, Clone)]
pub enum Item {
    /// The address of these bytes in global memory.
    In(Vec<u8>),
    /// The address of so many bytes that are zero before, and part of the result.
    Out(usize),
    /// The address of bytes that are part of the result.
    InOut(Vec<u8>),
    I32(i32),
    I64(i64),
    F32(f32),
    /// The address of so many zero bytes for the kernel's own use.
    Scratch(usize),
    /// The address 0, of memory that the kernel does not use.
    Null,
    /// A tensor map of these bytes.
    Map(Box<Map>),
}

/// What `cuTensorMapEncodeTiled` is given, of a tensor of these bytes. The innermost dimension is the first.
#[derive(Debug, Clone)]
pub struct Map {
    pub data: Vec<u8>,
    /// `CUtensorMapDataType`
    pub data_type: u32,
    pub dims: Vec<u64>,
    /// In bytes, of all dimensions but the innermost.
    pub strides: Vec<u64>,
    pub boxes: Vec<u32>,
    pub steps: Vec<u32>,
    /// `CUtensorMapSwizzle`: none, 32, 64, 128 bytes.
    pub swizzle: u32,
    /// `CUtensorMapFloatOOBfill`: zeros or NaN.
    pub nan: bool,
    /// Whether the kernel writes to the tensor, which then is part of the result.
    pub written: bool,
}

#[derive(Debug, Clone)]
pub struct Job {
    pub name: String,
    pub ptx: String,
    pub entry: String,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    pub args: Vec<Item>,
    /// How many bytes of the result are wanted as they are, beside the hash of all.
    pub raw: usize,
}

impl Job {
    /// A kernel `k(out, in)` of its own module.
    pub fn simple(name: &str, ptx: String, [grid, block]: [u32; 2], input: Vec<u8>, out: usize) -> Job {
        Job {
            name: name.into(),
            ptx,
            entry: "k".into(),
            grid: [grid, 1, 1],
            block: [block, 1, 1],
            shared: 0,
            args: vec![Item::Out(out), Item::In(input)],
            raw: 1024,
        }
    }
    pub fn raw(mut self, bytes: usize) -> Job {
        self.raw = bytes;
        self
    }
}

pub const HEADER: &str = ".version 8.7\n.target sm_90a\n.address_size 64\n";

/// All launches.
pub fn jobs() -> Vec<Job> {
    [matrix::jobs(), warpgroup::jobs(), copies::jobs(), scalar::jobs(), others::jobs()].concat()
}

fn list<T: ToString>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(",")
}

/// Writes `index.tsv`, `data.bin` and a PTX file for each job.
pub fn dump(dir: &Path, jobs: &[Job]) -> std::io::Result<()> {
    std::fs::create_dir_all(dir.join("ptx"))?;
    let mut blob = std::io::BufWriter::new(std::fs::File::create(dir.join("data.bin"))?);
    let mut at = 0;
    let mut store = |data: &[u8]| -> std::io::Result<String> {
        blob.write_all(data)?;
        at += data.len();
        Ok(format!("{}+{}", at - data.len(), data.len()))
    };
    let mut index = String::new();
    for (i, job) in jobs.iter().enumerate() {
        // Line numbers may name sections that are not there.
        let ptx = job.ptx.lines().filter(|l| !l.trim_start().starts_with(".loc"));
        let ptx = ptx.fold(String::new(), |text, line| text + line + "\n");
        std::fs::write(dir.join(format!("ptx/{i}.ptx")), ptx)?;
        let mut args = Vec::new();
        for item in &job.args {
            args.push(match item {
                Item::In(d) => format!("in:{}", store(d)?),
                Item::InOut(d) => format!("inout:{}", store(d)?),
                Item::Out(n) => format!("out:{n}"),
                Item::I32(v) => format!("i32:{v}"),
                Item::I64(v) => format!("i64:{v}"),
                Item::Scratch(n) => format!("scratch:{n}"),
                Item::F32(v) => format!("i32:{}", v.to_bits()),
                Item::Null => "null:0".into(),
                Item::Map(m) => format!(
                    "map:{}:{}:{}:{}:{}:{}:{}:{}:{}",
                    store(&m.data)?,
                    m.data_type,
                    list(&m.dims),
                    list(&m.strides),
                    list(&m.boxes),
                    list(&m.steps),
                    m.swizzle,
                    u8::from(m.nan),
                    u8::from(m.written)
                ),
            });
        }
        let Job { name, entry, grid, block, shared, raw, .. } = job;
        let _ = writeln!(
            index,
            "{i}\t{name}\t{entry}\t{}\t{}\t{shared}\t{raw}\t{}",
            list(grid),
            list(block),
            args.join(" ")
        );
    }
    std::fs::write(dir.join("index.tsv"), index)
}
