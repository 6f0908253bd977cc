//! The functions that libcuda must have. `cudarc` looks each function up at its first call, and
//! panics if it is missing.

/// The functions that this module calls, directly or through `cudarc`. Drivers of CUDA 12 have all
/// of them; a stub library or an emulator may not.
const NEEDED: &[&str] = &[
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuDeviceCanAccessPeer",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceGetP2PAttribute",
    "cuDeviceGetPCIBusId",
    "cuDeviceGetUuid",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDeviceTotalMem_v2",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventElapsedTime",
    "cuEventQuery",
    "cuEventRecord",
    "cuEventRecordWithFlags",
    "cuEventSynchronize",
    "cuFuncGetAttribute",
    "cuFuncSetAttribute",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuGraphUpload",
    "cuInit",
    "cuIpcCloseMemHandle",
    "cuIpcGetMemHandle",
    "cuIpcOpenMemHandle_v2",
    "cuLaunchKernelEx",
    "cuLinkAddData_v2",
    "cuLinkComplete",
    "cuLinkCreate_v2",
    "cuLinkDestroy",
    "cuMemAddressFree",
    "cuMemAddressReserve",
    "cuMemAlloc_v2",
    "cuMemCreate",
    "cuMemExportToShareableHandle",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemGetAddressRange_v2",
    "cuMemGetAllocationGranularity",
    "cuMemGetInfo_v2",
    "cuMemHostAlloc",
    "cuMemHostGetDevicePointer_v2",
    "cuMemImportFromShareableHandle",
    "cuMemMap",
    "cuMemRelease",
    "cuMemRetainAllocationHandle",
    "cuMemSetAccess",
    "cuMemUnmap",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD8Async",
    "cuMemsetD8_v2",
    "cuModuleGetFunction",
    "cuModuleLoadDataEx",
    "cuModuleUnload",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    "cuOccupancyMaxActiveClusters",
    "cuStreamBeginCapture_v2",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamEndCapture",
    "cuStreamQuery",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
    "cuTensorMapEncodeTiled",
    "cuThreadExchangeStreamCaptureMode",
];

/// Returns the functions that a library lacks; `has` tells whether it has one.
pub fn missing(has: impl Fn(&[u8]) -> bool) -> Vec<&'static str> {
    NEEDED.iter().copied().filter(|name| !has(name.as_bytes())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn what_a_library_lacks_is_named() {
        assert_eq!(missing(|_| true), [""; 0]);
        assert_eq!(missing(|name| name != b"cuInit"), ["cuInit"]);
    }

    /// Collects the words after `sys::` in this module's sources that are functions of the driver.
    fn called(folder: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                called(&path, found);
            } else {
                let text = std::fs::read_to_string(&path).unwrap();
                let word = |rest: &str| -> String {
                    rest.chars().take_while(|c| *c == '_' || c.is_alphanumeric()).collect()
                };
                let words = text.split("sys::").skip(1).map(word);
                found.extend(words.filter(|w| w.starts_with("cu") && w[2..].starts_with(char::is_uppercase)));
            }
        }
    }

    #[test]
    fn every_function_that_is_called_by_name_is_needed() {
        let mut found = Vec::new();
        called(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
        assert!(found.len() > 10);
        let forgotten: Vec<_> = found.iter().filter(|name| !NEEDED.contains(&name.as_str())).collect();
        assert!(forgotten.is_empty(), "{forgotten:?}");
    }
}
