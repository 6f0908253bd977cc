//! The description of compiled code, which the compiler writes and a launch reads.

use crate::extent::{Extent, Extents};
use crate::watch::WaitInfo;
use crate::{Hidden, Lowering, NvshmemVersion, Remark, Role, Scalar, Space};
use serde::{Deserialize, Deserializer, Serialize, de};
use std::fmt;

/// The facts that a launch needs about compiled code. They are stored next to the code.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ModuleInfo {
    /// The target, as in PTX's `.target`: `sm_90a`.
    pub target: String,
    /// The version of PTX, as in PTX's `.version`: `8.1`.
    pub ptx_version: String,
    /// The way in which in-switch operations are carried out.
    pub lowering: Lowering,
    /// NVSHMEM's device functions that the code calls and does not contain. The code can only be
    /// loaded after it is joined with an object that contains them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub external: Vec<String>,
    /// The version of NVSHMEM whose device functions are in the code. The host library must have the same
    /// version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvshmem: Option<NvshmemVersion>,
    /// The remarks of the assembler, if the code was assembled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<Remark>,
    /// The entry points of the module.
    pub kernels: Vec<KernelInfo>,
}

/// A role, which is a group of warps of a CTA that run code of their own.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RoleInfo {
    /// The name of the role in the text.
    pub name: String,
    /// The index of its first thread in the CTA.
    pub first: u32,
    /// The number of threads of the role.
    pub threads: u32,
}

/// The facts that a launch needs about one entry point.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KernelInfo {
    /// The name of the kernel in the PTX.
    pub name: String,
    /// The number of threads of a CTA (x, y, z).
    pub block: [u32; 3],
    /// The number of CTAs of a cluster, if the code states it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<[u32; 3]>,
    /// The number of CTAs, if the kernel states it. Otherwise the caller chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grid: Option<[Extent; 3]>,
    /// The number of bytes of dynamic shared memory that a launch gives each CTA.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub shared: u32,
    /// Whether the kernel distinguishes CTAs by y and z. Otherwise a grid has only x.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub planes: bool,
    /// Whether the kernel itself waits for the launches before it, so that it can begin before they
    /// have ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dependent: bool,
    /// The roles of the kernel. Reports use their names for threads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<RoleInfo>,
    /// The waits of the entry point, by number, if they report themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<WaitInfo>,
    /// The parameters: the caller's in the order of the text, followed by those that the launch
    /// fills in.
    pub params: Vec<ParamInfo>,
}

/// A parameter that the caller passes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ParamInfo {
    /// The name of the parameter.
    pub name: String,
    /// The offset from the start of the parameters in bytes.
    pub offset: u32,
    /// The size in bytes. It is 0 for a team, which the code knows only through hidden parameters.
    pub size: u32,
    /// The kind of the parameter.
    #[serde(flatten)]
    pub kind: ParamKind,
}

/// The kind of a parameter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ParamKind {
    /// The address of a tensor.
    Tensor {
        /// The type of the elements.
        dtype: Scalar,
        /// The shape and the strides, in elements.
        layout: Extents,
        /// The memory that the tensor must be in: symmetric memory, or any memory of this GPU
        /// (`Global`).
        #[serde(deserialize_with = "passed")]
        space: Space,
        /// The alignment of its address in bytes, a power of two.
        align: u32,
        /// The role of the parameter, if the text declares one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        role: Option<Role>,
    },
    /// A number, which is passed by value.
    Scalar {
        /// The type of the number.
        dtype: Scalar,
        /// A number of which the argument must be a positive multiple. It is 0 if any number is
        /// allowed.
        #[serde(default, skip_serializing_if = "is_zero")]
        multiple_of: i64,
    },
    /// The address of a barrier's counters.
    Barrier,
    /// A team, which is not passed.
    Team,
    /// A parameter that the launch fills in.
    #[serde(untagged)]
    Hidden(Hidden),
}

impl ParamKind {
    /// Whether the launch fills in the parameter.
    pub fn is_hidden(&self) -> bool {
        matches!(self, ParamKind::Hidden(_))
    }
}

impl fmt::Display for ParamKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParamKind::Tensor { dtype, layout, space, .. } => write!(f, "{space}<{dtype}, {layout}>"),
            ParamKind::Scalar { dtype, .. } => dtype.fmt(f),
            ParamKind::Barrier => f.write_str("barrier"),
            ParamKind::Team => f.write_str("team"),
            ParamKind::Hidden(hidden) => hidden.fmt(f),
        }
    }
}

impl ModuleInfo {
    /// The entry point with that name, if there is one.
    pub fn kernel(&self, name: &str) -> Option<&KernelInfo> {
        self.kernels.iter().find(|k| k.name == name)
    }
}

impl KernelInfo {
    /// The number of threads of a CTA.
    pub fn threads(&self) -> u32 {
        self.block.iter().fold(1, |n, b| n.saturating_mul(*b))
    }

    /// The parameters that the caller passes, in order.
    pub fn arguments(&self) -> impl Iterator<Item = (usize, &ParamInfo)> {
        self.params.iter().enumerate().filter(|(_, p)| !p.kind.is_hidden())
    }

    /// Whether its CTAs wait for those of other PEs. In that case all of them must be on the GPU at
    /// once.
    pub fn has_barrier(&self) -> bool {
        self.params.iter().any(|p| p.kind == ParamKind::Barrier)
    }

    /// The size of all parameters in bytes.
    pub fn param_bytes(&self) -> usize {
        self.params.iter().map(|p| p.offset.saturating_add(p.size) as usize).max().unwrap_or(0)
    }
}

/// Reads the space of a tensor that a launch passes.
fn passed<'de, D: Deserializer<'de>>(d: D) -> Result<Space, D::Error> {
    match Space::deserialize(d)? {
        space @ (Space::Global | Space::Symmetric) => Ok(space),
        other => Err(de::Error::custom(format!("a launch cannot pass a tensor in `{other}`"))),
    }
}

fn is_zero<T: Default + PartialEq>(n: &T) -> bool {
    *n == T::default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WORLD;

    /// Each kind of parameter, with its JSON and its text.
    fn kinds() -> Vec<(ParamKind, &'static str, &'static str)> {
        let layout: Extents = "(%1,4):(4,1)".parse().unwrap();
        let tensor = |space, align, role| {
            let (dtype, layout) = (Scalar::BF16, layout.clone());
            ParamKind::Tensor { dtype, layout, space, align, role }
        };
        let hidden = ParamKind::Hidden;
        vec![
            (
                tensor(Space::Symmetric, 16, None),
                r#""kind":"tensor","dtype":"bf16","layout":"(%1,4):(4,1)","space":"symm","align":16"#,
                "symm<bf16, (%1,4):(4,1)>",
            ),
            (
                tensor(Space::Global, 2, Some(Role::Workspace)),
                r#""kind":"tensor","dtype":"bf16","layout":"(%1,4):(4,1)","space":"global","align":2,"role":"workspace""#,
                "global<bf16, (%1,4):(4,1)>",
            ),
            (
                ParamKind::Scalar { dtype: Scalar::F32, multiple_of: 0 },
                r#""kind":"scalar","dtype":"f32""#,
                "f32",
            ),
            (
                ParamKind::Scalar { dtype: Scalar::I64, multiple_of: 8 },
                r#""kind":"scalar","dtype":"i64","multiple_of":8"#,
                "i64",
            ),
            (ParamKind::Barrier, r#""kind":"barrier""#, "barrier"),
            (ParamKind::Team, r#""kind":"team""#, "team"),
            (
                hidden(Hidden::Multicast { base: 0, team: 3 }),
                r#""kind":"multicast","base":0,"team":3"#,
                "multicast(%0, %3)",
            ),
            (
                hidden(Hidden::Peers { base: 0, team: WORLD }),
                r#""kind":"peers","base":0,"team":4294967295"#,
                "peers(%0, world)",
            ),
            (
                hidden(Hidden::Reach { base: 2, team: 3 }),
                r#""kind":"reach","base":2,"team":3"#,
                "reach(%2, %3)",
            ),
            (hidden(Hidden::TeamHandle { team: 3 }), r#""kind":"team_handle","team":3"#, "team(%3)"),
            (hidden(Hidden::MyPe { team: 3 }), r#""kind":"my_pe","team":3"#, "my_pe(%3)"),
            (hidden(Hidden::NPes { team: WORLD }), r#""kind":"n_pes","team":4294967295"#, "n_pes(world)"),
            (hidden(Hidden::Watch {}), r#""kind":"watch""#, "watch(world)"),
        ]
    }

    #[test]
    fn parameters_read_back_from_json() {
        for (kind, json, text) in kinds() {
            assert_eq!(kind.to_string(), text);
            let param = ParamInfo { name: "p".into(), offset: 24, size: 8, kind };
            let stored = serde_json::to_string(&param).unwrap();
            assert_eq!(stored, format!(r#"{{"name":"p","offset":24,"size":8,{json}}}"#));
            assert_eq!(serde_json::from_str::<ParamInfo>(&stored).unwrap(), param);
        }
    }

    #[test]
    fn a_damaged_parameter_is_rejected() {
        for json in [
            r#""kind":"tensor","dtype":"bf16","layout":"4:1","space":"peer","align":2"#,
            r#""kind":"tensor","dtype":"bf16","layout":"4:1","space":"symm","align":2,"role":"spare""#,
            r#""kind":"tensor","dtype":"bf17","layout":"4:1","space":"symm","align":2"#,
            r#""kind":"tensor","dtype":"bf16","layout":"(4,2):1","space":"symm","align":2"#,
            r#""kind":"peers","base":0"#,
            r#""kind":"pointer""#,
            r#""align":2"#,
        ] {
            let stored = format!(r#"{{"name":"p","offset":0,"size":8,{json}}}"#);
            assert!(serde_json::from_str::<ParamInfo>(&stored).is_err(), "{json}");
        }
    }

    #[test]
    fn a_module_reads_back_and_names_its_kernels() {
        let module = ModuleInfo {
            target: "sm_90a".into(),
            ptx_version: "8.3".into(),
            lowering: Lowering::Unicast,
            external: vec!["nvshmem_quiet".into()],
            nvshmem: Some(NvshmemVersion::new(3, 4, 5)),
            remarks: Vec::new(),
            kernels: vec![KernelInfo {
                shared: 0,
                name: "k".into(),
                block: [128, 2, 1],
                cluster: None,
                grid: Some(["ceil_div(%2,8)", "1", "%world"].map(|e| e.parse().unwrap())),
                planes: true,
                dependent: true,
                roles: Vec::new(),
                waits: Vec::new(),
                params: kinds()
                    .into_iter()
                    .map(|(kind, ..)| ParamInfo { name: "p".into(), offset: 0, size: 8, kind })
                    .collect(),
            }],
        };
        let stored = serde_json::to_string(&module).unwrap();
        assert!(stored.contains(r#""grid":["ceil_div(%2,8)","1","%world"],"planes":true"#), "{stored}");
        assert!(!stored.contains("cluster"), "{stored}");
        assert_eq!(serde_json::from_str::<ModuleInfo>(&stored).unwrap(), module);
        assert_eq!(module.kernel("k").map(KernelInfo::threads), Some(256));
        assert_eq!(module.kernel("q"), None);
    }
}
