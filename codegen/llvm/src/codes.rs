//! The codes E0600 to E0649, which the generation of PTX reports. (Forms of instructions that do
//! not exist have codes of their own, from the tables of `weft-isa`.)

weft_ir::codes! {
    /// The codes of the generation of PTX, in ascending order.
    LLVM Words:

    NO_FUNCTION = 601, "the function does not exist for this type", "`sin` of an f64",
    "PTX has sin, cos, tanh, exp and log for f32 only. The f64 versions are in NVIDIA's libdevice, which \
     warpweft does not link. Convert to f32 first: `.to<f32>()`.";

    NO_ACCESS = 602, "no instruction makes this access", "an atomic minimum of f64",
    "No PTX instruction makes this access on this target. The reason can be its type, width, order or memory \
     space. The help of the message says which accesses exist. Choose one of them.";

    OLD_PTX = 603, "a PTX version that is too low", "`--ptx-version 8.0` with `multimem.ld_reduce`",
    "The target or an instruction of the kernel needs a later version of PTX than the requested one. \
     Request the version that the message names, or leave `--ptx-version` out.";

    TOO_MUCH_SHARED = 604, "more shared memory than a kernel can declare", "two shared tensors of 128 KiB",
    "A CTA has at most 227 KiB of shared memory, or 99 KiB on sm_120 and sm_121. Use smaller tiles or fewer \
     stages.";

    BAD_NAME = 605, "the kernel's name is not possible in PTX", "two kernels with the same name",
    "PTX names each kernel of a module, so kernels that are compiled together need different names. \
     `vprintf`, `__assertfail`, `__nvvm_reflect`, `WARP_SZ` and `_` are reserved. Rename the kernel.";

    BAD_FORMAT = 606, "a print format that cannot be printed", "`print(\"%*d\", 4, n)`",
    "A conversion consists of `%`, flags (`-+ #0`), a width, `.` and a precision, and one of d i u x c e f \
     g. Width and precision must be digits. Correct the conversion, or print the value in another form.";

    LLVM_FAILED = 607, "an internal error of LLVM", "a module that LLVM's verifier rejects",
    "LLVM found a mistake in the code that warpweft made from the kernel. This is a bug in warpweft. Please \
     report it with the kernel's text.";

    BAD_LIBRARY = 608, "the device library cannot be read", "a truncated `libnvshmem_device.bc`",
    "The file is missing, is not LLVM bitcode, was made by a later LLVM than the one in use, or is not \
     NVSHMEM's device library. `weft doctor` shows which file is used and why. Run `weft setup --force` to \
     download NVSHMEM again.";

    NO_LIBRARY_FUNCTION = 609, "the device library does not have the function",
    "an atomic addition to another PE's `f32` with NVSHMEM 3.4.5",
    "The kernel needs a function that this version of NVSHMEM's device bitcode does not have, or has with \
     other parameters. The message says which version has it. `weft setup --nvshmem VERSION` fetches that \
     version, and NVSHMEM_HOME selects another installation.";

    NEW_LIBRARY = 610, "the device library is for later GPUs", "`libnvshmem_device_sm_100.bc` and \
         `--target sm_90a`",
    "NVSHMEM's device bitcode is compiled for one architecture and runs on that one and later ones. Compile \
     for a later target, or use a version of NVSHMEM that has bitcode for this target. NVSHMEM 3.7 and later \
     have one file per architecture.";

    NO_LLVM = 611, "LLVM's library was not found", "a program whose Rust toolchain was removed",
    "Kernels are compiled by LLVM 22. Its shared library is opened when the first kernel is compiled, and it \
     was not found. A program searches the folder where the library was when the program was built. It then \
     searches warpweft's cache folder, the toolchains of rustup, and the folders of the system. The \
     environment variable WEFT_LLVM names another file or folder. Commands that compile nothing, such as \
     `weft layout`, do not need LLVM.";

    SERIAL = 620, "matrix instructions run one by one", "an accumulator of 256 registers per thread",
    "This is a warning. The assembler of PTX (ptxas, or the driver's) waits for each matrix instruction \
     before the next one, and gives its reason with its own code, C7510 to C7519. The result is right, but \
     the kernel is much slower. The usual cause is a lack of registers. A thread has 255, and an accumulator \
     takes rows times columns, divided by the number of threads that share it. Use smaller tiles or more \
     threads. With WEFT_STRICT_PTXAS=1 in the environment, this is an error.";

    SPILLS = 621, "registers are stored in memory", "64 values of a thread in a role of 24 registers",
    "This is a warning. A thread needs more registers than it has, so the assembler stores some of them in \
     memory and loads them again. Give roles more registers, use smaller tiles, or unroll less. With \
     WEFT_STRICT_PTXAS=1 in the environment, this is an error.";

    REGISTERS_KEPT = 622, "roles do not get their registers", "roles in a kernel whose registers are not \
         known",
    "This is a warning. The assembler leaves out the instructions that give registers to roles (setmaxnreg), \
     and reports this with its code C7508. All threads keep the registers that they start with. The message \
     has the assembler's reason. With WEFT_STRICT_PTXAS=1 in the environment, this is an error.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_ascend_and_have_explanations() {
        assert!(LLVM.is_sorted_by(|a, b| a.code < b.code));
        for info in LLVM {
            assert!((600..650).contains(&info.code.0), "{}", info.code);
            assert!(!info.title.ends_with('.') && info.title.len() < 90, "{}", info.title);
            assert!(info.explanation.ends_with('.') && info.explanation.len() > 40, "{}", info.explanation);
        }
    }
}
