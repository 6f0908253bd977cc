//! The wheels that `weft setup` fetches, by version and hash. pip rejects a file that has another
//! hash, so neither the index nor the network decides what is installed.
//!
//! A new row comes from `pip install --dry-run --no-deps --report - PACKAGE==VERSION`, for each of
//! the two platforms.

/// A version of a package.
#[derive(Debug)]
pub struct Pinned {
    pub package: &'static str,
    pub version: &'static str,
    /// The SHA-256 hashes of the wheels for x86-64 and for AArch64 Linux, as far as they exist.
    hashes: &'static [&'static str],
}

impl Pinned {
    /// The line for pip's requirements.
    pub fn requirement(&self) -> String {
        let hashes: String = self.hashes.iter().map(|hash| format!(" --hash=sha256:{hash}")).collect();
        format!("{}=={}{hashes}", self.package, self.version)
    }
}

/// The versions of a package, newest first.
pub fn versions(package: &str) -> impl Iterator<Item = &'static Pinned> {
    WHEELS.iter().filter(move |wheel| wheel.package == package)
}

const fn wheel(package: &'static str, version: &'static str, hashes: &'static [&'static str]) -> Pinned {
    Pinned { package, version, hashes }
}

#[rustfmt::skip]
const WHEELS: &[Pinned] = &[
    wheel("nvidia-nvshmem-cu12", "3.8.0", &[
        "b2e5760d6158aefe7bb74348d5128bb1b46a7dd1fd4b7b1e6fe55b4b07888f70",
        "313ba41c8aacf03f9524ca83ddb2c62e7b3d82f71af815a35e3739f3d64452b2",
    ]),
    wheel("nvidia-nvshmem-cu12", "3.7.2", &[
        "02b6d3482d90ea8ba214bc400362297f573257763990a98c9846ec5c786a7227",
        "98495de30994f1401a12cc8158ffacbeada44579f54185d75665381468056faa",
    ]),
    wheel("nvidia-nvshmem-cu12", "3.7.1", &[
        "faca8717c321f088d3c17490fbfc682bac214986e80b97e232c5ae94f900c45c",
        "7de83f2aa2b58570b4058543fd3c3e992c19f96571380d46ec9b00e0062c6015",
    ]),
    wheel("nvidia-nvshmem-cu12", "3.7.0", &[
        "ca643cb87a214c0f7ad8396def747adcaa0c8dfb0cb7e5012338ac3b0d76404b",
        "06426cd421093a63529d90a95e57ddf884c9ca43f93016d7a27b903f0a0acaed",
    ]),
    wheel("nvidia-nvshmem-cu12", "3.6.5", &[
        "f86db35f1ced21a790fa255dcae7db8998bf8655a95e76c033a6574190b398e4",
        "7b38521ff84cdfc68da3360fe249cfbabfe05ee9aa271458857476124b03a420",
    ]),
    wheel("nvidia-nvshmem-cu12", "3.5.21", &[
        "0e51b52bbd78f8896a7667701ac40e3e7a4f0f80703ccce75b304c18f359d73f",
        "f9c815745f8a10567fbf25d5a1d5079f778d67e94276e585a3706fbda9b490bb",
    ]),
    wheel("nvidia-nvshmem-cu12", "3.5.19", &[
        "f29a23c5ee75461ec4342e17757f9e010369ada8eb0d441070049db787d9e51b",
        "333d91f68038539f20a591ef4d5cee25a85d440537b31809c4e42ae1700fccce",
    ]),
    wheel("nvidia-nvshmem-cu12", "3.4.5", &[
        "042f2500f24c021db8a06c5eec2539027d57460e1c1a762055a6554f72c369bd",
        "0b48363fc6964dede448029434c6abed6c5e37f823cb43c3bcde7ecfc0457e15",
    ]),
    wheel("nvidia-nvshmem-cu12", "3.3.24", &[
        "0032831c0ec4fdc64c3bd8daeae588f6647ee4afc3376c5871218546acac0e81",
        "f8666e4d2adffe846c264a836263b53fa5d7b725f0c508e36b40c3d4f9665e2a",
    ]),
    wheel("nvidia-nvshmem-cu12", "3.3.20", &[
        "d00f26d3f9b2e3c3065be895e3059d6479ea5c638a3f38c9fec49b1b9dd7c1e5",
        "0b0b960da3842212758e4fa4696b94f129090b30e5122fea3c5345916545cff0",
    ]),
    wheel("nvidia-nvshmem-cu12", "3.3.9", &[
        "95ba1e98189c056eb5372bd355ab714b3741a03e6de1e32f167f5240fd967c5f",
    ]),
    wheel("nvidia-nvshmem-cu13", "3.8.0", &[
        "81a4d1f666543e6d34df6d2ff940c7da1435e34e186aab6f3c2b48861b64ef38",
        "8120175024f52a64323cfc5d645e95ac7345f1ee243a998d140ce19163285294",
    ]),
    wheel("nvidia-nvshmem-cu13", "3.7.2", &[
        "b9a4f843c62b5dded8ad33fd6d220e007dcd39f06cee549292f5ba14ce4c235c",
        "0e748308b9e0a8a8d81859353f3e6c98fbe85a85f652a915a2ba60149a0bd124",
    ]),
    wheel("nvidia-nvshmem-cu13", "3.7.1", &[
        "d0ac6c34d77d7528c72f0e50ed6a03a19670a8c6d0dc8c67a06f768502698f9a",
        "23bd649aeb0518a380ed649bdbe090cbbac95aa24b8038890454dedd5cf51350",
    ]),
    wheel("nvidia-nvshmem-cu13", "3.7.0", &[
        "0d2405b559a8affd7ce4daeb7202e872cce6db14df2ab397894ea24edbf5473e",
        "3ca9a6dc205b6592840d294bead361e0136620a8c87f04466401057ccf0b95f2",
    ]),
    wheel("nvidia-nvshmem-cu13", "3.6.5", &[
        "4001aabc72ead32ecc3c9add3c6781befcb71adcbe286d7f5956042e68668c70",
        "94aa0149490be658cf95945ce9f16ba90a90edbd6a564366f996ead7496f2f22",
    ]),
    wheel("nvidia-nvshmem-cu13", "3.5.21", &[
        "17b376ca5f91726e3795aa888dc7a2b48e642d7bc210c71354114ddb8493da71",
        "b6c2f7dc8c8f3084e0a23e495b020a30c6cbaf4e1674500860bcb65c79a8cb3d",
    ]),
    wheel("nvidia-nvshmem-cu13", "3.5.19", &[
        "0f734285d3a04824c13e9e2c1169dbb818be9cb0819de69389aaa067b8d18c93",
        "53440ae98eadd3bd83fc875c793d737e2ce618632759942a32d4cfb1814c0a74",
    ]),
    wheel("nvidia-nvshmem-cu13", "3.4.5", &[
        "290f0a2ee94c9f3687a02502f3b9299a9f9fe826e6d0287ee18482e78d495b80",
        "6dc2a197f38e5d0376ad52cd1a2a3617d3cdc150fd5966f4aee9bcebb1d68fe9",
    ]),
    wheel("nvidia-nvshmem-cu13", "3.3.24", &[
        "c14d09571697d2e57cb079c8daec88ab1c68cb3586532bfbd4886125a08339b7",
        "28ae82a4d14b322b93409535de62df6b7b83f4f7672ca97fc89107c2d40ce2c2",
    ]),
    wheel("nvidia-nvshmem-cu13", "3.3.20", &[
        "e9d4bd6a01e6a2745903b5b7347fce5b0dddee0db95950fba313dd47c6990b5b",
        "d40818fd6f1267c306df06f943b66b4b95a554f1b8dc7da81e0232266f868945",
    ]),
    wheel("nvidia-cuda-nvcc", "13.5.37", &[
        "f5c4f7ead5d964fb4af42bbf1e6d3ec3c1e6e9d83b53749f691d387e7fcaa3a7",
        "588eda18eb5076ae859fe272844b526459228af22df0b117f54eec3aa82bc9c8",
    ]),
    wheel("nvidia-cuda-nvdisasm", "13.5.37", &[
        "d3fdbdd49fa53e2e4aacd3db8259d052bd2b049ececdcb69e92e083c6728e7ca",
        "a3a8248074edb9fba63b74c38a5416b712a91ab09e70b8ab37186c3d293fc605",
    ]),
    wheel("nvidia-nvjitlink", "13.5.37", &[
        "280d7cb9649704145f074b8dbde500de04ce02d0872e066e20a83c17bcaa93eb",
        "893f6f9a55b2720ed94913b5ba3332e972da8c78dfa2863d0244403dbd528ffc",
    ]),
    wheel("nvidia-nccl-cu12", "2.28.9", &[
        "485776daa8447da5da39681af455aa3b2c2586ddcf4af8772495e7c532c7e5ab",
        "50a36e01c4a090b9f9c47d92cec54964de6b9fcb3362d0e19b8ffc6323c21b60",
    ]),
    wheel("nvidia-nccl-cu13", "2.28.9", &[
        "e4553a30f34195f3fa1da02a6da3d6337d28f2003943aa0a3d247bbc25fefc42",
        "01c873ba1626b54caa12272ed228dc5b2781545e0ae8ba3f432a8ef1c6d78643",
    ]),
    wheel("nvidia-cublas-cu12", "12.9.3.13", &[
        "d7d51055f161b317c7105ddaae90e71eda059026074ffef93cf7cde2886bfe72",
        "918a8781956115d34b1db49e0e7b7befba8d101661c4b560ed4d42e0e17bebc3",
    ]),
    wheel("nvidia-cublas", "13.10.0.20", &[
        "dcc6d63884c53d07e267ce7e6feac17b2538cebaafec5db865736c3e28e4dc84",
        "c5f3418c0a845232a8cabc58f6fa52cfae7d8bd3680d94c3907aca710fd48d70",
    ]),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_hash_is_one_and_no_two_rows_are_of_one_wheel() {
        let mut seen = BTreeSet::new();
        for wheel in WHEELS {
            assert!(seen.insert(format!("{}=={}", wheel.package, wheel.version)), "{wheel:?}");
            assert!(!wheel.hashes.is_empty(), "{wheel:?}");
            for hash in wheel.hashes {
                let hex = hash.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
                assert!(hash.len() == 64 && hex && seen.insert((*hash).into()), "{wheel:?}");
            }
        }
    }
}
