//! Setters for option structs.

/// Declares a method for each public field of an option struct, which sets the field and returns
/// the struct. Option structs are `#[non_exhaustive]`, so that they can get new fields. Other
/// crates use the setters to write them in one expression: `Config::default().n_pes(4).seed(1)`.
///
/// The crates of this workspace share the macro. It is not part of the interface.
#[doc(hidden)]
#[macro_export]
macro_rules! setters {
    ($name:ident { $($field:ident: $ty:ty),* $(,)? }) => {
        impl $name {
            $(
                #[doc = concat!("Sets [`", stringify!($field), "`](field@Self::", stringify!($field), ").")]
                #[must_use]
                pub fn $field(mut self, $field: $ty) -> Self {
                    self.$field = $field;
                    self
                }
            )*
        }
    };
}
