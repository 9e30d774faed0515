//! Scratch memory that dies together. (First form; see the type.)

use crate::MapFailed;

/// Scratch memory.
#[derive(Debug)]
pub struct Arena(());

impl Arena {
    /// Maps `bytes` bytes.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn with_capacity(bytes: usize) -> Result<Self, MapFailed> {
        if bytes > isize::MAX as usize { Err(MapFailed::absurd(bytes)) } else { Ok(Self(())) }
    }
}
