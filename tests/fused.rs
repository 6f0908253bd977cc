//! Tests `weft::allreduce_rms_norm` on simulated PEs against float64: every output, team, shape and
//! lowering, and consecutive launches.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use half::bf16;
use std::path::{Path, PathBuf};
use weft::gpu::{Grid, Kernel};
use weft::ir::Scalar;
use weft::layout::Layout;
use weft::runtime::cuda::{AnyDeviceTensor, Stream};
use weft::runtime::launch::{self, Argument, ArgumentValue, AsArgument, Checked, Elements};
use weft::runtime::{DType, DeviceTensor, IntoLayout, SimConfig, World};
use weft::{Define, KernelFile, Lowering, Options};
use weft_bench::fused::{self, Contender, Form, Fused, Outputs, Plan, Workspace};
use weft_check::{CheckOptions, check_file};
use weft_run::array::{Array, Number, write_number};
use weft_run::{RunOptions, run_file};

const EPS: f64 = 1e-5;
const SCALE: f64 = 0.021;

const BF16: Form = Form::plain(Scalar::BF16);
const FORMS: [Form; 6] = [
    BF16,
    Form { dtype: Scalar::F16, out: Scalar::F16, ..BF16 },
    Form { out: Scalar::E4M3, ..BF16 },
    Form { out: Scalar::E4M3, per_token: true, ..BF16 },
    Form { out: Scalar::E4M3, both: true, ..BF16 },
    Form { dtype: Scalar::F16, out: Scalar::E4M3, per_token: true, both: true, ..BF16 },
];
/// The additional outputs of kernels that distribute rows.
const SPREAD: [Form; 7] = [
    Form { layer: true, ..BF16 },
    Form { out: Scalar::E4M3, group: 8, both: true, ..BF16 },
    Form { out: Scalar::E4M3, group: 16, layer: true, ..BF16 },
    Form { out: Scalar::E4M3, per_token: true, both: true, layer: true, ..BF16 },
    Form { out: Scalar::E4M3, layer: true, ..BF16 },
    Form { out: Scalar::E4M3, group: 8, columns: 4, ..BF16 },
    Form { out: Scalar::E4M3, group: 16, columns: 1, layer: true, ..BF16 },
];

/// A kernel with a shape.
#[derive(Clone, Copy, Debug)]
struct Case {
    plan: Option<Plan>,
    form: Form,
    lowering: Lowering,
    pes: usize,
    tokens: usize,
    hidden: usize,
    launches: u32,
}

/// The name and the file of a plan's kernel, or of the kernel that is not fused.
fn code(plan: Option<&Plan>) -> (&'static str, KernelFile) {
    let (name, text) = plan.map_or(("allreduce_rms_norm.weft", Fused::TEXT), |plan| plan.kernel.file());
    (plan.map_or("add_rms_norm", |plan| plan.kernel.kernel()), KernelFile::parse(name, text).unwrap())
}

/// A number from -1 to 1 that is exact in `T`. It depends on the purpose `what`, the PE and the
/// index.
fn datum(dtype: Scalar, what: u64, pe: u64, i: usize) -> f64 {
    let mut x = (i as u64) << 20 ^ what << 8 ^ pe;
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let unit = ((x ^ (x >> 31)) >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
    round(dtype, unit)
}

fn round(dtype: Scalar, x: f64) -> f64 {
    let mut bytes = Vec::new();
    write_number(dtype, Number::Float(x), &mut bytes);
    weft_run::array::read_number(dtype, &bytes).as_f64()
}

impl Case {
    /// Whether a token consists of zeros, for which the norm and the scale must also be defined.
    fn is_zero(&self, i: usize) -> bool {
        i / self.hidden == 2
    }

    fn x(&self, pe: u32, i: usize) -> f64 {
        if self.is_zero(i) { 0.0 } else { datum(self.form.dtype, 1, pe.into(), i) }
    }

    fn residual(&self, i: usize) -> f64 {
        if self.is_zero(i) { 0.0 } else { datum(self.form.dtype, 2, 0, i) * 4.0 }
    }

    fn weight(&self, c: usize) -> f64 {
        round(self.form.dtype, 1.0 + datum(self.form.dtype, 3, 0, c) / 4.0)
    }

    fn bias(&self, c: usize) -> f64 {
        datum(self.form.dtype, 4, 0, c)
    }

    /// Runs the case, and returns the outputs of every PE.
    fn run(&self, folder: &Path) -> Vec<Outputs> {
        let Case { form, pes, tokens, hidden, .. } = *self;
        let (kernel, file) = code(self.plan.as_ref());
        let mut compile = Options::new("sm_90a".parse().unwrap());
        compile.kernel = Some(kernel.into());
        compile.lowering = self.lowering;
        let defines = self.plan.map(|plan| plan.defines(form, hidden, pes as u32));
        for (name, value) in defines.unwrap_or(form.defines(hidden).to_vec()) {
            compile.defines.insert(name.into(), value);
        }
        let mut options = RunOptions::new(compile, pes);
        options.grid = Some([self.plan.map_or(2, |plan| plan.ctas), 1, 1]);
        options.launches = self.launches;
        options.back_to_back = self.launches > 1;
        options.args.insert("tokens".into(), Define::Int(tokens as i64).into());
        options.args.insert("eps".into(), Define::Float(EPS).into());

        let all = |of: &dyn Fn(u32, usize) -> f64, dtype: Scalar, shape: &[usize]| {
            let mut data = Vec::new();
            for pe in 0..pes as u32 {
                for i in 0..shape.iter().product() {
                    write_number(dtype, Number::Float(of(pe, i)), &mut data);
                }
            }
            let shape = std::iter::once(&pes).chain(shape).map(|n| *n as u64).collect();
            Array { dtype, shape, data }
        };
        let spreads = self.plan.is_some_and(|plan| plan.kernel.spreads());
        // Kernels that distribute rows can have several scales for each token.
        let scales: &[usize] = match (form.scales(hidden), spreads) {
            (0, true) => &[1, 1],
            (0, false) => &[1],
            (_, false) => &[tokens],
            (scales, true) => &[tokens, scales],
        };
        let biases = if form.layer { hidden } else { 1 };
        let given = [
            ("x", all(&|pe, i| self.x(pe, i), form.dtype, &[tokens, hidden])),
            ("residual", all(&|_, i| self.residual(i), form.dtype, &[tokens, hidden])),
            ("weight", all(&|_, c| self.weight(c), form.dtype, &[hidden])),
            ("scale", all(&|_, _| SCALE, Scalar::F32, scales)),
            ("bias", all(&|_, c| self.bias(c), form.dtype, &[biases])),
        ];
        let given = given.into_iter().filter(|(name, _)| spreads || *name != "bias");
        for (name, array) in given {
            let path = folder.join(format!("{name}.npy"));
            array.write(&path).unwrap();
            options.inputs.push((name.into(), path));
        }
        let to = |name: &str| folder.join(format!("{name}-after.npy"));
        let outputs = ["residual", "out", "scale", "norm"];
        options.outputs = outputs.iter().map(|name| ((*name).into(), to(name))).collect();
        run_file(&file, &options).unwrap_or_else(|e| panic!("{self:?}: {e}"));

        let read = |path: PathBuf, dtype: Scalar| -> Vec<Vec<f64>> {
            let array = Array::read(&path).unwrap().reinterpret(dtype).unwrap();
            let values: Vec<f64> = (0..array.len() as usize).map(|i| array.get(i).as_f64()).collect();
            values.chunks(values.len() / pes).map(<[f64]>::to_vec).collect()
        };
        let types = [form.dtype, form.out, Scalar::F32, form.dtype];
        let [residual, out, scale, norm] = [0, 1, 2, 3].map(|i| read(to(outputs[i]), types[i]));
        (0..pes)
            .map(|pe| Outputs {
                residual: residual[pe].clone(),
                out: out[pe].clone(),
                scale: scale[pe].clone(),
                norm: norm[pe].clone(),
            })
            .collect()
    }

    fn check(&self, folder: &Path) -> Vec<Outputs> {
        let got = self.run(folder);
        // A second launch adds its sum to the residual again, so the last launch is checked against
        // the one before it.
        let x = |pe: u32, i: usize| self.x(pe, i);
        let before = |i: usize| match self.launches {
            1 => self.residual(i),
            launches => {
                let sum = round(self.form.dtype, (0..self.pes as u32).map(|pe| self.x(pe, i)).sum());
                (1..launches).fold(self.residual(i), |r, _| round(self.form.dtype, r + sum))
            }
        };
        let given = fused::Inputs {
            form: self.form,
            n_pes: self.pes as u32,
            tokens: self.tokens,
            hidden: self.hidden,
            eps: EPS,
            scale: f64::from(SCALE as f32),
            acc: Scalar::F32,
            x: &x,
            residual: &before,
            weight: &|c| self.weight(c),
            bias: &|c| self.bias(c),
        };
        for (pe, got) in got.iter().enumerate() {
            if let Some(wrong) = given.wrong(got) {
                panic!("{self:?}, PE {pe}: {wrong}");
            }
        }
        got
    }
}

fn kernel(name: &str) -> &'static Fused {
    Fused::ALL.iter().find(|k| k.name == name).unwrap()
}

/// Runs the cases on a GPU with 8 multiprocessors, so that CTAs share rows, have one row each, or
/// have several.
fn sweep(name: &str, cases: &[Case]) {
    let folder = tempfile::tempdir().unwrap();
    for case in cases {
        let plan = Plan::of(kernel(name), case.tokens as u32, 2 * case.hidden, 8);
        let switch = plan.kernel.packets() && case.lowering == Lowering::Multimem;
        Case { plan: Some(Plan { switch, ..plan }), ..*case }.check(folder.path());
    }
    assert!(cases.len() > 5);
}

/// The ways in which a plan's kernel can exchange rows: with and without flags, and with CTAs that
/// process one row or several.
fn exchanges(plan: Plan) -> Vec<Plan> {
    let of = |(flags, loops)| Plan { flags, loops, ctas: if loops { plan.split } else { plan.ctas }, ..plan };
    match plan.kernel.spreads() {
        true => [(false, false), (false, true), (true, false), (true, true)].map(of).to_vec(),
        false => vec![plan],
    }
}

fn case(form: Form, lowering: Lowering, pes: usize, tokens: usize, hidden: usize) -> Case {
    Case { plan: None, form, lowering, pes, tokens, hidden, launches: 1 }
}

const LOWERINGS: [Lowering; 2] = [Lowering::Unicast, Lowering::Multimem];

/// Every output with every team, for rows that are not a multiple of a vector, of a warp, or of the
/// number of PEs.
fn outputs() -> Vec<Case> {
    let mut cases = Vec::new();
    for (i, form) in FORMS.into_iter().enumerate() {
        for lowering in LOWERINGS {
            for pes in 1..=8 {
                let (tokens, hidden) = [(1, 64), (3, 100), (5, 33), (2, 1)][(pes + i) % 4];
                cases.push(case(form, lowering, pes, tokens, hidden));
            }
        }
    }
    cases
}

/// Tests LayerNorm and scales of groups, with one row per CTA and with rows that eight CTAs share.
#[test]
fn forms_of_kernels_that_spread_rows() {
    let mut cases = Vec::new();
    for (i, form) in SPREAD.into_iter().enumerate() {
        for (tokens, hidden) in [(3, 64), (1, 2048), (2, 528)] {
            cases.push(case(form, LOWERINGS[i % 2], 2 + i, tokens, hidden));
        }
    }
    sweep("one_flight", &cases);
    sweep("two_flights", &cases);
}

/// Shapes that inference engines use.
fn shapes() -> Vec<Case> {
    [(1, 8192), (3, 8192), (64, 64), (2, 2048), (1, 4096), (2, 5120), (1, 8200)]
        .into_iter()
        .enumerate()
        .map(|(i, (tokens, hidden))| {
            case(FORMS[i % FORMS.len()], LOWERINGS[i % 2], 2 + i % 3, tokens, hidden)
        })
        .collect()
}

/// Launches that only the streams order.
fn back_to_back() -> Vec<Case> {
    let launches = |c: Case| Case { launches: 4, ..c };
    let shape =
        |pes| case(FORMS[pes % FORMS.len()], LOWERINGS[pes % 2], pes, if pes % 3 == 0 { 17 } else { 3 }, 200);
    (1..=8).map(shape).map(launches).collect()
}

macro_rules! kernels {
    ($($kernel:ident),*) => {
        $(mod $kernel {
            #[test]
            fn outputs() {
                super::sweep(stringify!($kernel), &super::outputs());
            }

            #[test]
            fn shapes() {
                super::sweep(stringify!($kernel), &super::shapes());
            }

            #[test]
            fn back_to_back() {
                super::sweep(stringify!($kernel), &super::back_to_back());
            }
        })*

        #[test]
        fn every_kernel_is_tested() {
            let names: Vec<_> = Fused::ALL.iter().map(|k| k.name).collect();
            assert_eq!(names, [$(stringify!($kernel)),*]);
        }
    };
}

kernels!(one_flight, two_flights, low_latency, one_shot, two_shot);

/// Checks that all PEs get the same bits from a kernel, and that all kernels compute the same
/// residual. Kernels whose CTAs read whole rows add the squares in one order, and kernels that
/// spread rows in another, so the results of each kind are also the same bits. The kernel that is
/// not fused reads whole rows.
#[test]
fn kernels_agree() {
    let folder = tempfile::tempdir().unwrap();
    for form in FORMS {
        for (pes, tokens, hidden) in [(1, 3, 200), (3, 4, 200), (8, 2, 1032)] {
            let shape = case(form, Lowering::Unicast, pes, tokens, hidden);
            let plans = Fused::ALL.iter().map(|k| Plan::of(k, tokens as u32, 2 * hidden, 8));
            let plans = plans.flat_map(|plan| if pes == 3 { exchanges(plan) } else { vec![plan] }).map(Some);
            let (mut residual, mut alike): (_, [Option<Outputs>; 2]) = (None, [None, None]);
            for plan in plans.chain((pes == 1).then_some(None)) {
                let all = (Case { plan, ..shape }).run(folder.path()).into_iter();
                let norm = |got: Outputs| if form.both { got.norm } else { Vec::new() };
                let all: Vec<_> = all.map(|got| Outputs { norm: norm(got.clone()), ..got }).collect();
                assert!(all.iter().all(|got| *got == all[0]), "{plan:?} with {form:?}");
                let first = residual.get_or_insert_with(|| all[0].residual.clone());
                assert!(*first == all[0].residual, "{plan:?} with {form:?}");
                let kind = usize::from(plan.is_some_and(|plan| plan.kernel.spreads()));
                let first = alike[kind].get_or_insert_with(|| all[0].clone());
                assert!(*first == all[0], "{plan:?} with {form:?}");
            }
        }
    }
}

fn tensor(dtype: Scalar, layout: &Layout) -> ArgumentValue<'_> {
    ArgumentValue::Tensor { address: 0x1000, dtype, extent: Elements::Layout(layout), symmetric: true }
}

/// Checks that the launchers' arguments fit the kernels' heads: rows in C order, workspaces as
/// lines, and one element for outputs that are not requested. (The addresses are made up.)
#[test]
fn arguments_fit() {
    let layout = |shape: &[usize]| shape.into_layout().unwrap();
    for (i, form) in FORMS.into_iter().enumerate() {
        let (tokens, hidden) = [(1, 8192), (5, 200), (300, 5120)][i % 3];
        let rows = layout(&[tokens, hidden]);
        let (weight, one) = (layout(&[hidden]), layout(&[1, 1]));
        let scale = layout(&[if form.per_token { tokens } else { 1 }]);
        let eps = ArgumentValue::Scalar { dtype: DType::F32, value: launch::Number::Float(EPS) };
        let norm = if form.both { &rows } else { &one };
        let common = [
            ArgumentValue::Scalar { dtype: DType::I64, value: launch::Number::Int(tokens as i128) },
            tensor(form.dtype, &rows),
            tensor(form.dtype, &rows),
            tensor(form.dtype, &weight),
            eps,
            tensor(form.out, &rows),
            tensor(Scalar::F32, &scale),
            tensor(form.dtype, norm),
        ];
        let team = ArgumentValue::Team { my_pe: 1, n_pes: 8, handle: 0 };
        for plan in Fused::ALL.iter().map(|k| Some(Plan::of(k, tokens as u32, 2 * hidden, 132))).chain([None])
        {
            let (name, file) = code(plan.as_ref());
            let mut options = Options::new("sm_90a".parse().unwrap());
            options.lowering = Lowering::Unicast;
            options.kernel = Some(name.into());
            let defines = plan.map_or(form.defines(hidden).to_vec(), |plan| plan.defines(form, hidden, 8));
            options.defines = defines.into_iter().map(|(n, d)| (n.to_owned(), d)).collect();
            let info = file.compile(&options).unwrap().describe().unwrap();
            let mut given = common.to_vec();
            if plan.is_some_and(|plan| plan.kernel.spreads()) {
                given.insert(4, tensor(form.dtype, &one));
            }
            let size = plan.map(|plan| Workspace::of(&plan, 2 * hidden, 8));
            let packets = size.iter().flat_map(|s| s.packets.iter().map(|n| layout(&[*n])));
            let packets: Vec<_> = packets.collect();
            let epoch = layout(&[size.as_ref().map_or(1, |s| s.epoch)]);
            given.extend(packets.iter().map(|p| tensor(Scalar::U64, p)));
            match plan {
                Some(plan) if plan.kernel.packets() => given.extend([tensor(Scalar::U32, &epoch), team]),
                Some(_) => given.extend([ArgumentValue::Barrier { address: 0x2000, ctas: 132 }, team]),
                None => {}
            }
            Checked::new(&info.kernels[0], None, &given)
                .unwrap_or_else(|e| panic!("{plan:?}, {form:?}: {e}"));
        }
    }
}

/// Checks that there is no race, no deadlock, and no read of unwritten memory in launches in which
/// PEs run ahead, also for packets through the switch.
#[test]
fn checks_find_nothing() {
    let form = Form { out: Scalar::E4M3, per_token: true, both: true, ..BF16 };
    for (tokens, sms, varied) in [(3, 8, false), (5, 2, true)] {
        let switched = ["one_flight", "two_flights", "low_latency"].map(|name| (kernel(name), true));
        let all = Fused::ALL.iter().map(|k| (k, false)).chain(switched);
        let all = all.map(|(fused, switch)| Plan { switch, ..Plan::of(fused, tokens, 144, sms) });
        for plan in all.flat_map(|plan| if varied { exchanges(plan) } else { vec![plan] }) {
            let mut options = CheckOptions::new("sm_90a".parse().unwrap());
            let (name, file) = code(Some(&plan));
            options.compile.kernel = Some(name.into());
            let defines = plan.defines(form, 72, 3);
            options.compile.defines = defines.into_iter().map(|(n, d)| (n.to_owned(), d)).collect();
            options.args = [("tokens".into(), i64::from(tokens).into()), ("eps".into(), EPS.into())].into();
            (options.pes, options.seeds, options.grid) = (vec![3], 4, Some([plan.ctas, 1, 1]));
            (options.launches, options.overlap) = (3, true);
            if plan.switch {
                options.compile.lowering = Lowering::Multimem;
            }
            let report = check_file(&file, &options).unwrap();
            assert!(report.is_clean(), "{plan:?}: {:?}", report.findings);
            // Packets have the same code under both lowerings.
            assert_eq!(report.cases.len(), if plan.kernel.packets() { 1 } else { 2 });
        }
    }
}

/// An element that depends on PE, launch and index. Sums of all PEs' elements are exact in bf16.
fn small(pe: u32, launch: usize, i: usize) -> f64 {
    ((i * 7 + launch * 5) % 16) as f64 - 8.0 + f64::from(pe)
}

/// Consecutive launches with other numbers of rows and of CTAs use one workspace. No packet is
/// lost or taken for one of another launch, and the checks find nothing.
#[test]
fn launches_of_other_sizes_share_a_workspace() {
    let (pes, hidden, of_one) = (3u32, 100usize, [3u32, 1, 4, 2, 1, 4, 3].map(|n| (n as usize, n)));
    let of_several = [(7, 2), (1, 3), (5, 1), (2, 2), (6, 3), (1, 1), (4, 2)];
    for (seed, name) in ["one_flight", "two_flights"].into_iter().enumerate() {
        for plan in exchanges(Plan::spread(kernel(name), 1, 2 * hidden, 8, (2, Some(32)))) {
            let sizes = if plan.loops { of_several } else { of_one };
            let job = World::simulated_with(&SimConfig::new(pes).checked().seed(seed as u64)).unwrap();
            let run = |world: &World| launches(world, (&plan, BF16, hidden), &sizes, &small);
            let results = job.run(run).unwrap_or_else(|e| panic!("{plan:?}: {e}"));
            for (pe, launches) in results.iter().enumerate() {
                for (i, (got, _)) in launches.iter().enumerate() {
                    let want: Vec<f64> = (0..sizes[i].0 * hidden)
                        .map(|at| (0..pes).map(|pe| small(pe, i, at)).sum::<f64>() + small(0, i + 1, at))
                        .collect();
                    assert_eq!(*got, want, "{plan:?}: PE {pe}, launch {i}");
                }
            }
            let findings = job.simulation().findings();
            assert!(findings.is_empty(), "{plan:?}: {findings:#?}");
        }
    }
}

/// The residual and the memory of the scales after a launch.
type Launched = (Vec<f64>, Vec<f32>);

/// Launches a plan's kernel with each number of rows and of clusters. `datum` is an element of a PE
/// in a launch; residuals are those of PE 0 in the next launch.
fn launches(
    world: &World,
    (plan, form, hidden): (&Plan, Form, usize),
    sizes: &[(usize, u32)],
    datum: &(dyn Fn(u32, usize, usize) -> f64 + Sync),
) -> Result<Vec<Launched>, Box<dyn std::error::Error + Send + Sync>> {
    let (stream, me, n_pes) = (world.stream(), world.my_pe(), world.n_pes());
    let (name, file) = code(Some(plan));
    let mut options = Options::new("sm_90a".parse()?);
    options.kernel = Some(name.into());
    options.lowering = Lowering::Unicast;
    options.defines = plan.defines(form, hidden, n_pes).into_iter().map(|(n, d)| (n.to_owned(), d)).collect();
    let kernel = Kernel::with(world, file, options)?;
    let size = Workspace::of(plan, 2 * hidden, n_pes);
    let (packets, epoch) =
        (world.zeros::<u64>(size.packets[0])?, DeviceTensor::<u32>::zeros(size.epoch, stream)?);
    let tensor =
        |shape: [usize; 2], of: &dyn Fn(usize) -> f64| -> weft::runtime::Result<DeviceTensor<bf16>> {
            let x = DeviceTensor::zeros(shape, stream)?;
            let data = (0..shape[0] * shape[1]).map(|i| bf16::from_f64(of(i)));
            x.copy_from(&data.collect::<Vec<_>>(), stream)?;
            Ok(x)
        };
    let weight = DeviceTensor::from_slice(&vec![bf16::ONE; hidden], stream)?;
    let (bias, norm) =
        (DeviceTensor::<bf16>::zeros(1, stream)?, DeviceTensor::<bf16>::zeros([1, 1], stream)?);
    let mut operands = Vec::new();
    for (i, (tokens, clusters)) in sizes.iter().enumerate() {
        let shape = [*tokens, hidden];
        let x = tensor(shape, &|at| datum(me, i, at))?;
        let residual = tensor(shape, &|at| datum(0, i + 1, at))?;
        let out = AnyDeviceTensor::alloc(world.device(), form.out, shape.into_layout()?)?;
        let scales = vec![UNWRITTEN; form.scale_elements(*tokens, hidden).max(1)];
        let scale = Memory(DeviceTensor::from_slice(&scales, stream)?);
        operands.push((*tokens as i64, *clusters, x, residual, out, scale));
    }
    world.barrier()?;
    for (tokens, clusters, x, residual, out, scale) in &operands {
        let (eps, team) = (EPS as f32, world.team());
        let arguments: [&dyn AsArgument; 12] =
            [tokens, x, residual, &weight, &bias, &eps, out, scale, &norm, &packets, &epoch, &team];
        kernel.launch(stream, Grid::of(clusters * plan.split), arguments.to_vec())?;
    }
    let results = operands.iter().map(|(_, _, _, residual, _, scale)| {
        let residual = residual.to_vec(stream)?.iter().map(|v| v.to_f64()).collect();
        Ok((residual, scale.0.to_vec(stream)?))
    });
    let results = results.collect::<weft::runtime::Result<Vec<_>>>()?;
    world.barrier()?;
    Ok(results)
}

/// Scales of groups in columns are those of rows, at the places that the form says. Padding is not
/// written. Every launch has other tokens, and so columns of another length.
#[test]
fn scales_in_columns() {
    let (pes, hidden) = (2u32, 512usize);
    let element = |pe: u32, launch: usize, i: usize| datum(Scalar::BF16, launch as u64, pe.into(), i);
    for name in ["one_flight", "two_flights"] {
        for plan in exchanges(Plan::spread(kernel(name), 1, 2 * hidden, 8, (2, Some(32)))) {
            let sizes = [5u32, 4, 3].map(|n| (n as usize, if plan.loops { 2 } else { n }));
            let of = |form: Form| {
                let run = |world: &World| launches(world, (&plan, form, hidden), &sizes, &element);
                let results = World::simulated(pes).unwrap().run(run);
                let results = results.unwrap_or_else(|e| panic!("{plan:?}, {form}: {e}")).into_iter();
                results.map(|pe| pe.into_iter().map(|(_, scales)| scales).collect()).collect()
            };
            let rows = Form { out: Scalar::E4M3, group: 128, ..BF16 };
            let all: Vec<Vec<Vec<f32>>> = of(rows);
            for scales in &all[0] {
                let unique: std::collections::BTreeSet<_> = scales.iter().map(|s| s.to_bits()).collect();
                assert!(unique.len() > scales.len() / 2 && scales.iter().all(|s| *s > 0.0), "{scales:?}");
            }
            for columns in [1, 4] {
                let form = Form { columns, ..rows };
                let got: Vec<Vec<Vec<f32>>> = of(form);
                for (i, (tokens, _)) in sizes.into_iter().enumerate() {
                    let mut want = vec![UNWRITTEN; form.scale_elements(tokens, hidden)];
                    for at in 0..tokens * 4 {
                        want[form.scale_at((at / 4, at % 4), tokens, hidden)] = all[0][i][at];
                    }
                    assert_eq!([&got[0][i], &got[1][i]], [&want; 2], "{plan:?}, {form}, launch {i}");
                }
            }
        }
    }
}

/// The number in memory for scales before a launch.
const UNWRITTEN: f32 = -1.0;

/// Memory without a shape, as callers of engines pass it.
struct Memory(DeviceTensor<f32>);

impl AsArgument for Memory {
    fn argument<'a>(&'a self, stream: &'a Stream) -> Argument<'a> {
        self.0.argument(stream).flat()
    }
}

/// PEs that prepare different calls all get an error that says what two of them prepare. The last
/// PE differs in one property at a time.
#[test]
fn pes_prepare_the_same_calls() {
    let groups = Form { out: Scalar::E4M3, group: 128, ..BF16 };
    let said = |all: [(Form, usize, usize); 3]| -> Vec<String> {
        let agree = |world: &World| -> Result<String, weft::runtime::Error> {
            let (form, hidden, tokens) = all[world.my_pe() as usize];
            Ok(form.agree(world, hidden, tokens).err().map_or(String::new(), |e| e.to_string()))
        };
        World::simulated(3).unwrap().run(agree).unwrap()
    };
    for form in FORMS.into_iter().chain(SPREAD).chain([groups]) {
        assert_eq!(said([(form, 1024, 8); 3]), ["", "", ""], "{form}");
    }
    let same = (groups, 1024, 8);
    let others = [
        (Form { group: 64, ..groups }, 1024, 8),
        (Form { layer: true, ..groups }, 1024, 8),
        (Form { both: true, ..groups }, 1024, 8),
        (Form { columns: 4, ..groups }, 1024, 8),
        (Form { group: 0, ..groups }, 1024, 8),
        (Form { group: 0, per_token: true, ..groups }, 1024, 8),
        (Form { dtype: Scalar::F16, ..groups }, 1024, 8),
        (groups, 2048, 8),
        (groups, 1024, 9),
    ];
    for other in others {
        for e in said([same, same, other]) {
            let (first, last) = (format!("PE 0 {groups} with rows of 1024"), format!("PE 2 {}", other.0));
            assert!(e.contains("R0507") && e.contains(&first) && e.contains(&last), "{e}");
        }
    }
}

/// Checks that names of variants read back, and that others are refused.
#[test]
fn variants_have_names() {
    for name in ["two_flights:4x128", "one_flight:8x64:late", "two_flights:1x352:flags", "one_flight", "auto"]
    {
        assert_eq!(Contender::ours(name).unwrap()[0].name(), name);
    }
    for name in ["two_flights:4", "one_flight:8x64:soon", "low_latency:8x64", "one_flight:0x32"] {
        assert!(Contender::ours(name).unwrap_err().contains("is not a"), "{name}");
    }
}

/// Groups that lanes cannot divide are refused, and so are CTAs that are not whole warps.
#[test]
fn what_the_kernel_cannot_compute_is_refused() {
    let file = KernelFile::parse("allreduce_norm.weft", kernel("one_flight").file().1).unwrap();
    let compile = |h: i64, more: &[(&str, i64)]| {
        let mut options = Options::new("sm_90a".parse().unwrap());
        let all = [("H", h), ("P", 2), ("C", 1), ("THREADS", 32), ("FLIGHTS", 1)];
        let ints = all.iter().chain(more).map(|(name, value)| ((*name).to_owned(), Define::Int(*value)));
        options.defines.extend(ints);
        options.defines.insert("OUT".into(), Define::Dtype(Scalar::E4M3));
        file.compile(&options).map(drop).map_err(|e| e.to_string())
    };
    for (h, group) in [(192, 96), (64, 4), (520, 260), (1024, 512), (192, 24), (256, 192)] {
        let e = compile(h, &[("GROUP", group)]).unwrap_err();
        assert!(e.contains("E0120") && e.contains("GROUP is H, or divides H"), "{h}, {group}: {e}");
    }
    for (name, value, why) in [("THREADS", 33, "whole warps"), ("FLIGHTS", 3, "one flight or two")] {
        let e = compile(256, &[("GROUP", 0), (name, value)]).unwrap_err();
        assert!(e.contains("E0120") && e.contains(why), "{name}: {e}");
    }
    for group in [0, 8, 128, 256] {
        assert_eq!(compile(256, &[("GROUP", group)]), Ok(()), "{group}");
    }
}
