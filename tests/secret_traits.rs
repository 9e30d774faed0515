//! The traits of `zeroize` and `subtle`, where their features are on.

#![cfg(all(feature = "zeroize", feature = "subtle"))]

use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop};
use zk_nalloc::secret::Protection;
use zk_nalloc::{Secret, SecretBuf};

const fn is_wiped_on_drop<T: ZeroizeOnDrop>() {}
const _: () = {
    is_wiped_on_drop::<SecretBuf>();
    is_wiped_on_drop::<Secret<[u64]>>();
};

#[test]
fn the_traits_do_what_the_methods_do() {
    for protection in [Protection::standard(), Protection::sealed()] {
        let mut a = Secret::<[u64]>::with_protection(3, protection).unwrap();
        let b = Secret::<[u64]>::new(3).unwrap();
        assert!(bool::from(a.ct_eq(&b)));
        a.expose_mut(|words| words[2] = 1);
        assert!(!bool::from(a.ct_eq(&b)));
        assert!(!bool::from(a.ct_eq(&Secret::<[u64]>::new(2).unwrap())));
        a.zeroize();
        assert!(bool::from(a.ct_eq(&b)));
        let mut bytes = a.into_buf();
        bytes.expose_mut(|bytes| bytes.fill(7));
        bytes.zeroize();
        assert!(bool::from(bytes.ct_eq(&SecretBuf::new(24).unwrap())));
    }
}
