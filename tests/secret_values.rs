//! What goes in comes out, and out of nothing else: construction, comparison, printing, typed secrets.

use std::io::{self, Read};

use zk_nalloc::secret::{PlainData, Protection};
use zk_nalloc::{MapFailed, Secret, SecretBuf, SecretPool};

const fn send_and_sync<T: Send + Sync>() {}
const _: () = {
    send_and_sync::<SecretBuf>();
    send_and_sync::<SecretPool>();
    send_and_sync::<Secret<[u64]>>();
    send_and_sync::<MapFailed>();
};

/// Whether a type has a trait: an inherent constant is found before one of a trait that every type has.
macro_rules! has {
    ($type:ty, $bound:path) => {{
        #[expect(clippy::allow_attributes, reason = "used for the types that lack the trait alone")]
        #[allow(dead_code, reason = "used for the types that lack the trait alone")]
        trait Otherwise {
            const HAS: bool = false;
        }
        impl<T: ?Sized> Otherwise for T {}
        struct Probe<T: ?Sized>(core::marker::PhantomData<T>);
        #[expect(clippy::allow_attributes, reason = "used for the types that have the trait alone")]
        #[allow(dead_code, reason = "used for the types that have the trait alone")]
        impl<T: ?Sized + $bound> Probe<T> {
            const HAS: bool = true;
        }
        Probe::<$type>::HAS
    }};
}

macro_rules! assert_lacks {
    ($type:ty: $($bound:path),*) => {
        $(assert!(!has!($type, $bound), concat!(stringify!($type), " has ", stringify!($bound)));)*
    };
}

#[test]
fn no_way_out_but_those_with_a_name() {
    use std::borrow::Borrow;
    use std::fmt::{Display, LowerHex};
    use std::hash::Hash;
    use std::ops::{Deref, DerefMut};
    assert!(has!(Vec<u8>, Clone) && has!(Box<u8>, Deref), "the question itself works");
    assert_lacks!(SecretBuf: Clone, Copy, Deref, DerefMut, Display, LowerHex, Hash, PartialOrd, AsRef<[u8]>,
        AsMut<[u8]>, Borrow<[u8]>, IntoIterator, Into<Vec<u8>>, Default);
    assert_lacks!(Secret<[u64; 4]>: Clone, Copy, Deref, DerefMut, Display, Hash, PartialOrd, AsRef<[u64; 4]>);
    assert_lacks!(Secret<[u64]>: Clone, Deref, DerefMut, Display, Hash, PartialOrd, AsRef<[u64]>);
}

#[test]
fn the_ways_to_make_one() {
    assert_eq!(SecretBuf::new_with(3, |b| b.copy_from_slice(b"abc")).unwrap().as_slice(), b"abc");
    let read = SecretBuf::try_new_with(3, |b| (&b"abcd"[..]).read_exact(b));
    assert_eq!(read.unwrap().as_slice(), b"abc");
    let short = SecretBuf::try_new_with(5, |b| (&b"abcd"[..]).read_exact(b)).unwrap_err();
    assert_eq!(short.kind(), io::ErrorKind::UnexpectedEof);

    let mut source = *b"abc";
    assert_eq!(SecretBuf::from_slice_wiping(&mut source).unwrap().as_slice(), b"abc");
    assert_eq!(source, [0; 3]);

    let random = SecretBuf::random(100_000).unwrap();
    let mut seen = [0_u32; 256];
    random.as_slice().iter().for_each(|&b| seen[usize::from(b)] += 1);
    assert!(seen.iter().all(|&n| n > 0), "a hundred thousand random bytes have every value");
    assert!(SecretBuf::random(0).unwrap().is_empty());
}

/// Gives a few bytes at a time, and is interrupted in between.
struct Trickle<'a>(&'a [u8], usize);

impl Read for Trickle<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.1 += 1;
        if self.1.is_multiple_of(3) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let most = into.len().min(1 + self.1 % 1000);
        self.0.read(&mut into[..most])
    }
}

#[test]
fn reading_to_the_end_is_exact() {
    for len in [0, 1, 100, 16_383, 16_384, 16_385, 100_000] {
        let input: Vec<u8> = (0..=250).cycle().take(len).collect();
        for most in [len, len + 1, usize::MAX] {
            let read = SecretBuf::read_to_end(Trickle(&input, 0), most).unwrap();
            assert_eq!(read.as_slice(), input, "{len} of {most}");
            let sealed = Protection::sealed();
            let read = SecretBuf::read_to_end_with_protection(Trickle(&input, 0), most, sealed).unwrap();
            assert!(read.expose(|bytes| bytes == input), "{len} of {most}");
            assert_eq!(read.protection(), sealed);
        }
        if len > 0 {
            let refused = SecretBuf::read_to_end(Trickle(&input, 0), len - 1).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge);
        }
    }
}

/// The sum wrapped around, and the secret was cut short.
#[test]
#[should_panic(expected = "the reader claims 18446744073709551615 bytes")]
fn a_reader_that_claims_more_than_it_was_given_room_for_is_a_panic() {
    struct Liar(bool);
    impl Read for Liar {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let first = std::mem::replace(&mut self.0, false);
            into[..5].fill(1);
            Ok(if first { 5 } else { usize::MAX })
        }
    }
    drop(SecretBuf::read_to_end(Liar(true), 100));
}

#[test]
fn comparison_is_of_bytes_and_lengths() {
    let of = |bytes: &[u8]| SecretBuf::new_with(bytes.len(), |b| b.copy_from_slice(bytes)).unwrap();
    assert_eq!(of(b""), of(b""));
    assert_eq!(of(b"0123456789"), of(b"0123456789"));
    assert_ne!(of(b"0123456789"), of(b"0123456788"));
    assert_ne!(of(b"0123456789"), of(b"1123456789"));
    assert_ne!(of(b"0123456789"), of(b"012345678"));
    assert!(of(b"key") == *b"key".as_slice());
    let mut sealed = SecretBuf::with_protection(3, Protection::sealed()).unwrap();
    sealed.expose_mut(|b| b.copy_from_slice(b"key"));
    assert_eq!(sealed, of(b"key"));
    assert_eq!(sealed, sealed);
}

#[test]
fn nothing_of_the_content_is_printed() {
    let secret = SecretBuf::new_with(3, |b| b.copy_from_slice(b"key")).unwrap();
    assert_eq!(format!("{secret:?}"), "SecretBuf(3 bytes, [secret])");
    assert_eq!(format!("{secret:#?}"), "SecretBuf(3 bytes, [secret])");
    let secret = Secret::<[u32; 2]>::new_with(|words| words.fill(77)).unwrap();
    assert_eq!(format!("{secret:?}"), "Secret<[u32; 2]>(8 bytes, [secret])");
}

#[derive(Clone, Copy, PartialEq, Debug)]
#[repr(C, align(4096))]
struct Page([u8; 4096]);
// SAFETY: bytes alone, as many as the size.
#[expect(unsafe_code, reason = "a marker")]
unsafe impl PlainData for Page {}

#[derive(Clone, Copy, PartialEq, Debug)]
#[repr(C, align(64))]
struct Line([u64; 8]);
// SAFETY: words alone, as many as the size.
#[expect(unsafe_code, reason = "a marker")]
unsafe impl PlainData for Line {}

#[test]
fn typed_secrets_are_aligned_wherever_they_lie() {
    fn aligned<T: PlainData>() {
        let is_aligned = |t: &T| core::ptr::from_ref(t).addr().is_multiple_of(align_of::<T>());
        assert!(is_aligned(Secret::<T>::new().unwrap().get()));
        let pool = SecretPool::new();
        let _odd = pool.secret(1).unwrap();
        assert!(is_aligned(Secret::<T>::in_pool(&pool).unwrap().get()));
        for len in [1, 3, 1000] {
            assert!(is_aligned(&Secret::<[T]>::new(len).unwrap().get()[len - 1]));
        }
    }
    aligned::<u8>();
    aligned::<u64>();
    aligned::<u128>();
    aligned::<[u128; 3]>();
    aligned::<[u16; 1025]>();
    aligned::<Line>();
    aligned::<[Line; 2]>();
    aligned::<Page>();
}

/// One that lies well by chance was taken, and its clone lay elsewhere.
#[test]
fn what_needs_more_than_a_pool_gives_is_not_taken_from_one() {
    let pool = SecretPool::new();
    for len in [0, size_of::<Line>()] {
        for _ in 0..8 {
            assert!(Secret::<[Line]>::from_buf(pool.secret(len).unwrap()).is_err());
        }
        let own = Secret::<[Line]>::from_buf(SecretBuf::new(len).unwrap()).unwrap();
        let twin = own.try_clone().unwrap();
        assert!(twin.get().as_ptr().addr().is_multiple_of(align_of::<Line>()));
    }
    assert!(Secret::<[u128]>::from_buf(pool.secret(48).unwrap()).is_ok());
}

#[test]
fn typed_secrets_hold_what_was_written() {
    let mut words = Secret::<[u64]>::new_with(1000, |w| (0..).zip(w).for_each(|(n, w)| *w = n)).unwrap();
    assert!((0..).zip(words.get()).all(|(n, &w)| n == w));
    words.get_mut()[999] = u64::MAX;
    let twin = words.try_clone().unwrap();
    assert_eq!(twin, words);
    words.wipe();
    assert_ne!(twin, words);
    assert_eq!(twin.into_buf().as_slice()[7992..], [255; 8]);

    let mut source = [Line([3; 8]); 2];
    assert_eq!(Secret::from_wiping(&mut source).unwrap().get(), &[Line([3; 8]); 2]);
    assert_eq!(source, [Line([0; 8]); 2]);
    assert_eq!(Secret::<[u64; 0]>::new().unwrap().get(), &[0; 0]);

    let bytes = SecretBuf::new_with(12, |b| b.fill(1)).unwrap();
    let bytes = Secret::<[u64]>::from_buf(bytes).unwrap_err();
    let words = Secret::<[u32]>::from_buf(bytes).unwrap();
    assert_eq!(words.get(), [0x0101_0101; 3]);
}
