//! A kernel's description is read and reads back, or is rejected. Arguments are laid out according
//! to it, or rejected.
#![no_main]

use weft::layout::Layout;
use weft::runtime::launch::{ArgumentValue, Checked, Elements, KernelInfo, ModuleInfo, Number, ParamKind};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(info) = serde_json::from_slice::<ModuleInfo>(bytes) else { return };
    let text = serde_json::to_string(&info).expect("JSON");
    assert_eq!(serde_json::from_str::<ModuleInfo>(&text).expect("its own text"), info);
    for kernel in &info.kernels {
        // There are as many arguments as it has, and they have the right kinds.
        let compact = Layout::new(1000, 1).expect("a layout");
        let given: Vec<_> = kernel.arguments().map(|(_, p)| argument(&p.kind, &compact)).collect();
        launch(kernel, &given);
        launch(kernel, &given[..given.len() / 2]);
    }
});

fn argument<'a>(kind: &ParamKind, layout: &'a Layout) -> ArgumentValue<'a> {
    match kind {
        ParamKind::Tensor { dtype, .. } => ArgumentValue::Tensor {
            address: 1 << 40,
            dtype: *dtype,
            extent: Elements::Layout(layout),
            symmetric: true,
        },
        ParamKind::Scalar { dtype, .. } => ArgumentValue::Scalar { dtype: *dtype, value: Number::Int(8) },
        ParamKind::Barrier => ArgumentValue::Barrier { address: 1 << 41, ctas: 4 },
        _ => ArgumentValue::Team { my_pe: 1, n_pes: 3, handle: 7 },
    }
}

fn launch(kernel: &KernelInfo, given: &[ArgumentValue<'_>]) {
    let Ok(checked) = Checked::new(kernel, Some(5), given) else { return };
    assert_eq!(checked.block.len(), kernel.param_bytes());
    for hidden in &checked.unfilled {
        let size = if hidden.base.is_some() { 8 } else { 4 };
        assert!(
            hidden.offset + size <= checked.block.len()
                && hidden.base.is_none_or(|base| base < given.len())
                && hidden.team.is_none_or(|team| team < given.len())
        );
    }
    if let Ok(Some(grid)) = checked.own_grid() {
        assert!(grid.iter().all(|n| *n > 0));
        let _ = checked.fits(grid);
    }
    let _ = checked.fits([4, 1, 1]);
}
