//! How the ops are declared.

/// Declares the ops: the enum, mnemonics, operand walk, printing and parsing.
macro_rules! ops {
    ($($(#[$meta:meta])* $class:ident $name:ident = $mnemonic:literal {
        $($(#[$fmeta:meta])* $field:ident : $ty:ty),* $(,)?
    })*) => {
        /// One operation.
        #[derive(Clone, PartialEq, Debug)]
        pub enum Op { $($(#[$meta])* $name { $($(#[$fmeta])* $field: $ty),* }),* }

        impl Op {
            /// (mnemonic, is pure) of every op.
            pub const TABLE: &'static [(&'static str, bool)] = &[$(($mnemonic, ops!(@pure $class))),*];

            /// Its name in the text form.
            pub fn mnemonic(&self) -> &'static str {
                match self { $(Op::$name { .. } => $mnemonic),* }
            }

            /// Computes a value and does nothing else: may be moved, shared, dropped.
            pub fn is_pure(&self) -> bool {
                match self { $(Op::$name { .. } => ops!(@pure $class)),* }
            }

            /// Calls `visit` with every value it uses directly (not those of nested blocks).
            pub fn operands(&self, visit: &mut dyn FnMut(Value)) {
                match self { $(Op::$name { $($field),* } => { $($field.operands(visit);)* let _ = visit; })* }
            }

            /// Replaces every value it uses directly.
            pub fn map_operands(&mut self, map: &mut dyn FnMut(Value) -> Value) {
                match self { $(Op::$name { $($field),* } => { $($field.map(map);)* let _ = map; })* }
            }

            /// Its nested blocks.
            pub fn blocks(&self) -> Vec<&Block> {
                let mut out = Vec::new();
                match self { $(Op::$name { $($field),* } => { $($field.blocks(&mut out);)* })* }
                out
            }

            /// Its nested blocks.
            pub fn blocks_mut(&mut self) -> Vec<&mut Block> {
                let mut out = Vec::new();
                match self { $(Op::$name { $($field),* } => { $($field.blocks_mut(&mut out);)* })* }
                out
            }

            pub(crate) fn print_fields(&self, p: &mut Printer<'_>) {
                match self { $(Op::$name { $($field),* } => { $(p.field($field);)* let _ = p; })* }
            }

            pub(crate) fn read_fields(mnemonic: &str, r: &mut Reader<'_>) -> Result<Op, ParseError> {
                match mnemonic {
                    $($mnemonic => Ok(Op::$name { $($field: r.field::<$ty>()?),* }),)*
                    _ => Err(r.error(format!("unknown op `{mnemonic}`"))),
                }
            }
        }
    };
    (@pure pure) => { true };
    (@pure effect) => { false };
}
