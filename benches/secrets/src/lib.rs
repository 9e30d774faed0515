//! Secret buffers of several libraries behind one interface, so that each is asked the same questions.
//!
//! Needs libsodium with its headers (`libsodium-dev`): `secrets` links to it, and so does the row for
//! `sodium_malloc` itself.

#![expect(unsafe_code, reason = "libsodium and memsec are called as C is")]

use core::ffi::{c_int, c_void};

use secrecy::{ExposeSecret, ExposeSecretMut, SecretBox};
use zk_nalloc::secret::{Measure, Policy, Protection, State};
use zk_nalloc::{SecretBuf, SecretPool};

/// A secret, whoever keeps it. Dropping it is what the library makes of that.
pub trait Kept {
    /// Calls `use_it` with the bytes, open for writing.
    fn with(&mut self, use_it: &mut dyn FnMut(&mut [u8]));
    /// Calls `use_it` with the bytes, open for reading.
    fn read(&self, use_it: &mut dyn FnMut(&[u8]));
    /// What the library says of protection that the kernel refused.
    fn complaint(&self) -> Option<String> {
        None
    }
}

/// A library, or a way to use it.
pub struct Keeper {
    /// What it is called in tables.
    pub name: &'static str,
    /// Makes a secret of so many bytes, content as the library leaves it.
    pub make: Make,
}

/// Makes secrets; an error is the library's own text.
pub type Make = Box<dyn Fn(usize) -> Result<Box<dyn Kept>, String>>;

fn ours(make: impl Fn(usize) -> Result<SecretBuf, zk_nalloc::MapFailed> + 'static) -> Make {
    Box::new(move |len| match make(len) {
        Ok(secret) => Ok(Box::new(secret)),
        Err(refused) => Err(refused.to_string()),
    })
}

/// All of them: ours first.
pub fn keepers() -> Vec<Keeper> {
    // SAFETY: libsodium asks for this call before any other, from one thread.
    assert!(unsafe { sodium_init() } >= 0);
    let (pool, sealed) = (SecretPool::new(), SecretPool::with_protection(Protection::sealed()));
    vec![
        Keeper { name: "zk-nalloc", make: ours(SecretBuf::new) },
        Keeper {
            name: "zk-nalloc, sealed",
            make: ours(|n| SecretBuf::with_protection(n, Protection::sealed())),
        },
        Keeper {
            name: "zk-nalloc, strict",
            make: ours(|n| SecretBuf::with_protection(n, Protection::standard().with_policy(Policy::Strict))),
        },
        Keeper {
            name: "zk-nalloc, memfd_secret",
            make: ours(|n| SecretBuf::with_protection(n, Protection::standard().with_memfd_secret())),
        },
        Keeper { name: "zk-nalloc, pool", make: ours(move |n| pool.secret(n)) },
        Keeper { name: "zk-nalloc, sealed pool", make: ours(move |n| sealed.secret(n)) },
        Keeper { name: "libsodium sodium_malloc", make: Box::new(Sodium::make) },
        Keeper {
            name: "secrets SecretVec",
            make: Box::new(|n| Ok(Box::new(secrets::SecretVec::<u8>::new(n, |_| ())))),
        },
        Keeper { name: "memsec malloc", make: Box::new(Memsec::make) },
        Keeper {
            name: "secrecy + zeroize",
            make: Box::new(|n| Ok(Box::new(SecretBox::new(vec![0_u8; n].into_boxed_slice())))),
        },
        Keeper { name: "Vec<u8>", make: Box::new(|n| Ok(Box::new(vec![0_u8; n]))) },
    ]
}

impl Kept for SecretBuf {
    fn with(&mut self, use_it: &mut dyn FnMut(&mut [u8])) {
        self.expose_mut(|bytes| use_it(bytes));
    }
    fn read(&self, use_it: &mut dyn FnMut(&[u8])) {
        self.expose(|bytes| use_it(bytes));
    }
    fn complaint(&self) -> Option<String> {
        let refused = self.status().iter().find(|(_, state)| matches!(state, State::Refused(_)));
        refused.map(|(measure, state): (Measure, State)| format!("{measure:?} {state}"))
    }
}

impl Kept for Vec<u8> {
    fn with(&mut self, use_it: &mut dyn FnMut(&mut [u8])) {
        use_it(self);
    }
    fn read(&self, use_it: &mut dyn FnMut(&[u8])) {
        use_it(self);
    }
}

impl Kept for SecretBox<[u8]> {
    fn with(&mut self, use_it: &mut dyn FnMut(&mut [u8])) {
        use_it(self.expose_secret_mut());
    }
    fn read(&self, use_it: &mut dyn FnMut(&[u8])) {
        use_it(self.expose_secret());
    }
}

impl Kept for secrets::SecretVec<u8> {
    fn with(&mut self, use_it: &mut dyn FnMut(&mut [u8])) {
        use_it(&mut self.borrow_mut());
    }
    fn read(&self, use_it: &mut dyn FnMut(&[u8])) {
        use_it(&self.borrow());
    }
}

unsafe extern "C" {
    fn sodium_init() -> c_int;
    fn sodium_malloc(size: usize) -> *mut c_void;
    fn sodium_free(p: *mut c_void);
}

struct Sodium(*mut u8, usize);

impl Sodium {
    fn make(len: usize) -> Result<Box<dyn Kept>, String> {
        // SAFETY: initialised in `keepers`.
        let p: *mut u8 = unsafe { sodium_malloc(len) }.cast();
        if p.is_null() { Err("null".to_owned()) } else { Ok(Box::new(Self(p, len))) }
    }
}

impl Kept for Sodium {
    fn with(&mut self, use_it: &mut dyn FnMut(&mut [u8])) {
        // SAFETY: libsodium gave as many bytes, filled, and they are ours.
        use_it(unsafe { core::slice::from_raw_parts_mut(self.0, self.1) });
    }
    fn read(&self, use_it: &mut dyn FnMut(&[u8])) {
        // SAFETY: as above.
        use_it(unsafe { core::slice::from_raw_parts(self.0, self.1) });
    }
}

impl Drop for Sodium {
    fn drop(&mut self) {
        // SAFETY: it came from `sodium_malloc`, and is not used after this.
        unsafe { sodium_free(self.0.cast()) };
    }
}

struct Memsec(core::ptr::NonNull<[u8]>);

impl Memsec {
    fn make(len: usize) -> Result<Box<dyn Kept>, String> {
        // SAFETY: any size may be asked for.
        match unsafe { memsec::malloc_sized(len) } {
            Some(p) => Ok(Box::new(Self(p))),
            None => Err("none".to_owned()),
        }
    }
}

impl Kept for Memsec {
    fn with(&mut self, use_it: &mut dyn FnMut(&mut [u8])) {
        // SAFETY: memsec gave the bytes, filled, and they are ours.
        use_it(unsafe { self.0.as_mut() });
    }
    fn read(&self, use_it: &mut dyn FnMut(&[u8])) {
        // SAFETY: as above.
        use_it(unsafe { self.0.as_ref() });
    }
}

impl Drop for Memsec {
    fn drop(&mut self) {
        // SAFETY: it came from `malloc_sized`, and is not used after this.
        unsafe { memsec::free(self.0) };
    }
}
