//! Enums whose text form is one word for each variant.

/// Declares an enum whose text form is one word for each variant.
///
/// The enum gets `ALL`, `name`, `parse` and `Display`, all from the one list of words. Attributes of the enum and of
/// its variants pass through.
///
/// ```
/// weft_abi::words! {
///     /// A direction.
///     Way {
///         /// Towards the root.
///         Up = "up",
///         /// Away from it.
///         Down = "down",
///     }
/// }
/// assert_eq!(Way::parse("down"), Some(Way::Down));
/// assert_eq!(Way::ALL.iter().map(|w| w.name()).collect::<Vec<_>>(), ["up", "down"]);
/// ```
#[macro_export]
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $word:literal),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $name { $($(#[$vmeta])* $variant),* }

        impl $name {
            /// Every variant.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// The word of the variant.
            pub fn name(self) -> &'static str {
                match self { $($name::$variant => $word),* }
            }

            /// The variant with that word.
            pub fn parse(word: &str) -> Option<$name> {
                match word { $($word => Some($name::$variant),)* _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}
