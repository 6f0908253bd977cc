//! The constants of the machine model that all layers use.

/// The number of threads of a warp.
pub(crate) const LANES: usize = 32;

/// The number of barriers of a CTA.
pub(crate) const BARRIERS: usize = 16;

/// One register of a warp: a value for each lane, zero-extended to 64 bits.
pub(crate) type Lanes = [u64; LANES];

/// The lanes whose bit is set, lowest first.
#[inline]
pub(crate) fn lanes(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lane = mask.trailing_zeros();
        (lane < 32).then(|| {
            mask &= mask - 1;
            lane as usize
        })
    })
}

/// Declares number types that cannot be confused with each other.
macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident($number:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub(crate) struct $name(pub $number);

        impl Id for $name {
            #[inline(always)]
            fn index(self) -> usize {
                self.0 as usize
            }

            fn of(index: usize) -> $name {
                $name(index as $number)
            }
        }
    )*};
}

/// The number of an element of a [`Table`].
pub(crate) trait Id: Copy {
    fn index(self) -> usize;
    fn of(index: usize) -> Self;
}

ids! {
    /// The position of a resident warp in the runner's table, which is reused when the warp has
    /// ended.
    WarpSlot(usize);
    /// The position of a resident CTA in the runner's table, which is reused when the CTA has
    /// ended.
    CtaSlot(usize);
    /// The number of a warp, or of a stream of one, among all of a run in the order of their start.
    WarpId(u32);
    /// The number of a CTA among all of a run in the order of their start.
    CtaId(u32);
}

impl CtaId {
    /// A number that no CTA has.
    pub(crate) const NONE: CtaId = CtaId(u32::MAX);
}

/// Elements that are named by ids of one kind.
#[derive(Debug, Clone)]
pub(crate) struct Table<I, T> {
    list: Vec<T>,
    ids: std::marker::PhantomData<I>,
}

impl<I, T> Default for Table<I, T> {
    fn default() -> Table<I, T> {
        Table { list: Vec::new(), ids: std::marker::PhantomData }
    }
}

impl<I: Id, T> Table<I, T> {
    /// Adds an element and returns its id.
    pub(crate) fn push(&mut self, element: T) -> I {
        self.list.push(element);
        I::of(self.list.len() - 1)
    }

    #[inline]
    pub(crate) fn get(&self, id: I) -> Option<&T> {
        self.list.get(id.index())
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: I) -> Option<&mut T> {
        self.list.get_mut(id.index())
    }

    /// Returns the element of an id, and creates missing elements up to it.
    pub(crate) fn entry(&mut self, id: I, new: impl FnMut() -> T) -> &mut T {
        if self.list.len() <= id.index() {
            self.list.resize_with(id.index() + 1, new);
        }
        &mut self.list[id.index()]
    }

    /// The id of the next element.
    pub(crate) fn next_id(&self) -> I {
        I::of(self.list.len())
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, T> {
        self.list.iter()
    }

    /// All ids, in order.
    pub(crate) fn ids(&self) -> impl Iterator<Item = I> + use<I, T> {
        (0..self.list.len()).map(I::of)
    }
}

impl<I: Id, T> std::ops::Index<I> for Table<I, T> {
    type Output = T;

    #[inline(always)]
    fn index(&self, id: I) -> &T {
        &self.list[id.index()]
    }
}

impl<I: Id, T> std::ops::IndexMut<I> for Table<I, T> {
    #[inline(always)]
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.list[id.index()]
    }
}
