//! A growing array with typed indices: a handle of one arena type does not index another.

use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// An arena of `T`, indexed by `H`.
#[derive(Clone, PartialEq, Debug)]
pub struct Arena<H, T> {
    items: Vec<T>,
    handle: PhantomData<H>,
}

/// A type that can index an [`Arena`].
pub trait Handle: Copy {
    /// Makes the handle of the item at position `index`.
    fn from_index(index: usize) -> Self;
    /// The position of the item that the handle names.
    fn index(self) -> usize;
}

impl<H, T> Default for Arena<H, T> {
    fn default() -> Self {
        Arena { items: Vec::new(), handle: PhantomData }
    }
}

impl<H: Handle, T> Arena<H, T> {
    /// Adds an item and returns its handle.
    pub fn push(&mut self, item: T) -> H {
        self.items.push(item);
        H::from_index(self.items.len() - 1)
    }

    /// Makes an arena with the same handles, each of whose items `make` computes from an item of
    /// this one.
    pub fn map<U>(self, make: impl FnMut(T) -> U) -> Arena<H, U> {
        Arena { items: self.items.into_iter().map(make).collect(), handle: PhantomData }
    }

    /// The number of items.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether the arena has no items.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The item that a handle names, if the handle belongs to this arena.
    pub fn get(&self, handle: H) -> Option<&T> {
        self.items.get(handle.index())
    }

    /// Iterates over all items for changes.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.items.iter_mut()
    }

    /// Iterates over all items with their handles.
    pub fn iter(&self) -> impl Iterator<Item = (H, &T)> {
        self.items.iter().enumerate().map(|(i, t)| (H::from_index(i), t))
    }
}

impl<H: Handle, T> Index<H> for Arena<H, T> {
    type Output = T;
    fn index(&self, handle: H) -> &T {
        &self.items[handle.index()]
    }
}

impl<H: Handle, T> IndexMut<H> for Arena<H, T> {
    fn index_mut(&mut self, handle: H) -> &mut T {
        &mut self.items[handle.index()]
    }
}

macro_rules! handle {
    ($(#[$meta:meta])* $name:ident, $sign:literal) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub struct $name(pub u32);

        impl $crate::arena::Handle for $name {
            fn from_index(index: usize) -> Self {
                $name(u32::try_from(index).unwrap_or(u32::MAX))
            }
            fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!($sign, "{}"), self.0)
            }
        }
    };
}
pub(crate) use handle;
