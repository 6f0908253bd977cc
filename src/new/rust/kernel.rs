//! Runs the kernel on simulated PEs with several sizes and schedules, and looks for races, deadlocks and wrong results.

use weft::KernelFile;
use weft_check::{CheckOptions, check_file};

#[test]
fn the_kernel_is_correct() -> Result<(), Box<dyn std::error::Error>> {
    let file = KernelFile::parse("my_kernel.weft", include_str!("../my_kernel.weft"))?;
    let mut options = CheckOptions::new("sm_90a".parse()?);
    options.pes = vec![1, 2, 3];
    options.seeds = 3;
    let report = check_file(&file, &options)?;
    assert!(report.is_clean(), "{}", report.text(weft::lang::render::Color::Never));
    Ok(())
}
