//! Tests of NVSHMEM's device bitcode: its version, linking with it, and objects of its functions.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod link;
mod version;

use inkwell::context::Context;
use inkwell::memory_buffer::MemoryBuffer;
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

/// The bitcode of a module.
fn bitcode(text: &str) -> Vec<u8> {
    // This opens LLVM's library.
    weft_llvm::version().unwrap();
    let context = Context::create();
    let buffer = MemoryBuffer::create_from_memory_range_copy(format!("{text}\0").as_bytes(), "text");
    let module = context.create_module_from_ir(buffer).unwrap();
    module.write_bitcode_to_memory().as_slice().to_vec()
}

fn file(folder: &TempDir, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join("libnvshmem_device.bc");
    fs::write(&path, bytes).unwrap();
    path
}
