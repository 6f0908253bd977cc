//! Values that are stored as text.

/// Implements serialization as text by `Display` and `FromStr` for types.
#[macro_export]
macro_rules! stored_as_text {
    ($($name:ident),*) => {$(
        impl ::serde::Serialize for $name {
            fn serialize<S: ::serde::Serializer>(&self, s: S) -> ::std::result::Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D>(d: D) -> ::std::result::Result<$name, D::Error>
            where
                D: ::serde::Deserializer<'de>,
            {
                <::std::string::String as ::serde::Deserialize>::deserialize(d)?
                    .parse()
                    .map_err(::serde::de::Error::custom)
            }
        }
    )*};
}
