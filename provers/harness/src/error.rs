//! What stops a comparison, as one line for the person who started it.
//!
//! Why it is here: nobody recovers from these errors by kind; they are read. So the type is its sentence.

use std::fmt;

/// A reason to stop, in one line.
#[derive(Debug)]
pub struct Error(String);

impl Error {
    /// Makes an error of its sentence.
    pub fn new(sentence: impl Into<String>) -> Self {
        Self(sentence.into())
    }

    /// Makes an error that says what was being done when `cause` came.
    pub fn doing(what: impl fmt::Display, cause: impl fmt::Display) -> Self {
        Self(format!("{what}: {cause}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}
