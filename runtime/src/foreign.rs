//! Functions of foreign libraries, which are found by their names when a library is opened.

/// Declares the functions of a library: first those that it must have, then those that only later
/// versions have. Defines a structure with all of them, a list of their signatures, and a function
/// that finds them.
macro_rules! functions {
    (
        $(#[$doc:meta])*
        { $($name:ident($($arg:ty),* $(,)?) $(-> $ret:ty)?;)* }
        { $($late:ident($($late_arg:ty),*) -> $late_ret:ty;)* }
    ) => {
        $(#[$doc])*
        #[allow(missing_docs, reason = "each is documented under its name in the library's header")]
        #[allow(non_snake_case, reason = "the library's names")]
        pub struct Functions {
            $(pub $name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
            $(pub $late: Option<unsafe extern "C" fn($($late_arg),*) -> $late_ret>,)*
        }

        /// The name of each function, and the types of its parameters in these calls.
        pub const SIGNATURES: &[(&str, &[&str])] = &[
            $((stringify!($name), &[$(stringify!($arg)),*]),)*
            $((stringify!($late), &[$(stringify!($late_arg)),*]),)*
        ];

        impl Functions {
            /// Finds all functions, including those of later versions if they exist.
            ///
            /// # Errors
            /// Fails with the name of the first function that the library lacks.
            ///
            /// # Safety
            /// The library is the one that these functions belong to, and it is never unloaded.
            pub unsafe fn load(library: &libloading::Library) -> std::result::Result<Functions, &'static str> {
                // SAFETY: the signatures are those of the library's header.
                unsafe {
                    Ok(Functions {
                        $($name: *library.get(stringify!($name).as_bytes()).map_err(|_| stringify!($name))?,)*
                        $($late: library.get(stringify!($late).as_bytes()).ok().map(|f| *f),)*
                    })
                }
            }
        }
    };
}
pub(crate) use functions;
