//! The traits of `zeroize` and `subtle`, for callers that are generic over them.
//!
//! Nothing here is needed for protection: wiping and comparing are the same as without these features.

#[cfg(feature = "zeroize")]
mod zeroized {
    use super::super::{Contents, Secret, SecretBuf};
    use zeroize::{Zeroize, ZeroizeOnDrop};

    /// As [`SecretBuf::wipe`].
    impl Zeroize for SecretBuf {
        fn zeroize(&mut self) {
            self.wipe();
        }
    }

    impl ZeroizeOnDrop for SecretBuf {}

    /// As [`Secret::wipe`].
    impl<T: Contents + ?Sized> Zeroize for Secret<T> {
        fn zeroize(&mut self) {
            self.wipe();
        }
    }

    impl<T: Contents + ?Sized> ZeroizeOnDrop for Secret<T> {}
}

#[cfg(feature = "subtle")]
mod compared {
    use super::super::{Contents, Secret, SecretBuf};
    use subtle::{Choice, ConstantTimeEq};

    /// As `==`, with an answer that no branch was made of yet.
    impl ConstantTimeEq for SecretBuf {
        fn ct_eq(&self, other: &Self) -> Choice {
            self.expose(|a| other.expose(|b| a.ct_eq(b)))
        }
    }

    /// As `==`, with an answer that no branch was made of yet.
    impl<T: Contents + ?Sized> ConstantTimeEq for Secret<T> {
        fn ct_eq(&self, other: &Self) -> Choice {
            self.buf().ct_eq(other.buf())
        }
    }
}
