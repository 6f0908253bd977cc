//! The macros that declare ops.

/// Declares a family of ops: the enum, and the functions that give the properties of each op from
/// its columns.
///
/// Every op states its class, its mnemonic in the text form and its fields. The class is `pure` if
/// it computes a value and does nothing else, and `effect` otherwise. The following columns are
/// expressions over the fields:
///
/// - `reads`, `writes`: the tensors or addresses that it accesses on this PE
///   ([`here`](super::here)) or on others ([`there`](super::there)). A pure op has none.
/// - `order`: its memory order, and the orders that it can have. A pure op has none.
/// - `group`: the threads that must all reach it. A pure op has none.
/// - `teams`: the teams that it names.
/// - `name`: its name in the source language.
/// - `spread`: how its result differs between threads.
/// - `result`: its typing rule.
macro_rules! family {
    ($(#[$fmeta:meta])* $family:ident {
        $($(#[$meta:meta])* $class:ident $name:ident = $mnemonic:literal {
            $($(#[$ftmeta:meta])* $field:ident : $ty:ty),* $(,)?
        }
        $(reads [$($reads:expr),*], writes [$($writes:expr),*], order $order:expr, group $group:expr,)?
        teams [$($team:expr),*], name $called:expr, spread $spread:expr, result |$t:ident| $result:expr;)*
    }) => {
        $(#[$fmeta])*
        #[derive(Clone, PartialEq, Debug)]
        pub enum $family { $($(#[$meta])* $name { $($(#[$ftmeta])* $field: $ty),* }),* }

        impl $family {
            /// The mnemonic of every op, and whether it is pure.
            pub const TABLE: &'static [(&'static str, bool)] = &[$(($mnemonic, family!(@pure $class))),*];
        }

        impl $crate::op::Family for $family {
            fn mnemonic(&self) -> &'static str {
                match self { $($family::$name { .. } => $mnemonic),* }
            }

            fn is_pure(&self) -> bool {
                match self { $($family::$name { .. } => family!(@pure $class)),* }
            }

            fn operands(&self, visit: &mut dyn FnMut($crate::kernel::Value)) {
                match self { $($family::$name { $($field),* } => { $($crate::text::Field::operands($field, visit);)* let _ = visit; })* }
            }

            fn map_operands(&mut self, map: &mut dyn FnMut($crate::kernel::Value) -> $crate::kernel::Value) {
                match self { $($family::$name { $($field),* } => { $($crate::text::Field::map($field, map);)* let _ = map; })* }
            }

            fn blocks<'a>(&'a self, out: &mut Vec<&'a $crate::kernel::Block>) {
                match self { $($family::$name { $($field),* } => { $($crate::text::Field::blocks($field, out);)* let _ = out; })* }
            }

            fn blocks_mut<'a>(&'a mut self, out: &mut Vec<&'a mut $crate::kernel::Block>) {
                match self { $($family::$name { $($field),* } => { $($crate::text::Field::blocks_mut($field, out);)* let _ = out; })* }
            }

            fn reads(&self) -> Vec<$crate::op::AccessedMemory> {
                match self { $($family::$name { $($field),* } => { $(let _ = $field;)*
                    let places: &[Option<$crate::op::AccessedMemory>] = &[$($($reads),*)?];
                    places.iter().copied().flatten().collect()
                })* }
            }

            fn writes(&self) -> Vec<$crate::op::AccessedMemory> {
                match self { $($family::$name { $($field),* } => { $(let _ = $field;)*
                    let places: &[Option<$crate::op::AccessedMemory>] = &[$($($writes),*)?];
                    places.iter().copied().flatten().collect()
                })* }
            }

            fn order(&self) -> Option<$crate::op::Order> {
                match self { $($family::$name { $($field),* } => {
                    $(let _ = $field;)*
                    let order: Option<$crate::op::Order> = family!(@effect $class $($order)?);
                    order
                })* }
            }

            fn group(&self) -> Option<$crate::names::Group> {
                match self { $($family::$name { $($field),* } => {
                    $(let _ = $field;)*
                    let group: Option<$crate::names::Group> = family!(@effect $class $($group)?);
                    group.filter(|g| *g != $crate::names::Group::Thread)
                })* }
            }

            fn teams(&self) -> Vec<$crate::kernel::TeamRef> {
                match self { $($family::$name { $($field),* } => { $(let _ = $field;)* vec![$(*$team),*] })* }
            }

            fn name(&self) -> std::borrow::Cow<'static, str> {
                match self { $($family::$name { $($field),* } => { $(let _ = $field;)* ($called).into() })* }
            }

            fn spread(&self) -> $crate::op::Spread {
                match self { $($family::$name { $($field),* } => { $(let _ = $field;)* $spread })* }
            }

            fn result_type<L: $crate::level::Level>(
                &self,
                k: &$crate::kernel::Kernel<L>,
                given: &L::Type,
            ) -> Result<L::Type, $crate::typing::TypeError> {
                let typing = &$crate::typing::Typing { k, given, name: self.name() };
                match self { $($family::$name { $($field),* } => { $(let _ = $field;)* let $t = typing; $result })* }
            }

            fn print_fields<L: $crate::level::Level>(&self, p: &mut $crate::text::Printer<'_, L>) {
                match self { $($family::$name { $($field),* } => { $(p.field($field);)* let _ = p; })* }
            }

            fn read_fields<L: $crate::level::Level>(
                mnemonic: &str,
                r: &mut $crate::text::Reader<'_, L>,
            ) -> Option<Result<Self, $crate::text::ParseError>> {
                $(if mnemonic == $mnemonic {
                    $(let $field = match r.field::<$ty>() {
                        Ok(field) => field,
                        Err(e) => return Some(Err(e)),
                    };)*
                    return Some(Ok($family::$name { $($field),* }));
                })*
                let _ = r;
                None
            }
        }
    };
    (@pure pure) => { true };
    (@pure effect) => { false };
    (@effect pure) => { None };
    (@effect effect $column:expr) => { $column };
}

/// Declares the op of a level: an enum over the families that the level has.
macro_rules! level_ops {
    ($(#[$meta:meta])* $module:ident: $($(#[$vmeta:meta])* $family:ident),* $(,)?) => {
        pub(crate) mod $module {
            use crate::op::{self, Family, FamilyRef, Operation};

            $(#[$meta])*
            #[derive(Clone, PartialEq, Debug)]
            pub enum Op { $($(#[$vmeta])* $family(op::$family)),* }

            $(impl From<op::$family> for Op {
                fn from(op: op::$family) -> Op {
                    Op::$family(op)
                }
            })*

            impl Operation for Op {
                fn family(&self) -> FamilyRef<'_> {
                    match self { $(Op::$family(op) => FamilyRef::$family(op)),* }
                }

                fn operands(&self, visit: &mut dyn FnMut(crate::kernel::Value)) {
                    match self { $(Op::$family(op) => op.operands(visit)),* }
                }

                fn map_operands(&mut self, map: &mut dyn FnMut(crate::kernel::Value) -> crate::kernel::Value) {
                    match self { $(Op::$family(op) => op.map_operands(map)),* }
                }

                fn blocks(&self) -> Vec<&crate::kernel::Block> {
                    let mut out = Vec::new();
                    match self { $(Op::$family(op) => op.blocks(&mut out)),* }
                    out
                }

                fn blocks_mut(&mut self) -> Vec<&mut crate::kernel::Block> {
                    let mut out = Vec::new();
                    match self { $(Op::$family(op) => op.blocks_mut(&mut out)),* }
                    out
                }

                fn result_type<L: crate::level::Level>(
                    &self,
                    k: &crate::kernel::Kernel<L>,
                    given: &L::Type,
                ) -> Result<L::Type, crate::typing::TypeError> {
                    match self { $(Op::$family(op) => op.result_type(k, given)),* }
                }

                fn print_fields<L: crate::level::Level>(&self, p: &mut crate::text::Printer<'_, L>) {
                    match self { $(Op::$family(op) => op.print_fields(p)),* }
                }

                fn read_fields<L: crate::level::Level>(
                    mnemonic: &str,
                    r: &mut crate::text::Reader<'_, L>,
                ) -> Option<Result<Op, crate::text::ParseError>> {
                    $(if let Some(op) = op::$family::read_fields(mnemonic, r) {
                        return Some(op.map(Op::$family));
                    })*
                    None
                }
            }
        }
    };
}
