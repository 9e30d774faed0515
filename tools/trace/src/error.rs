//! What goes wrong, in a line.

use std::fmt;

/// A sentence that says what could not be done, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(String);

impl Error {
    /// Makes an error of a sentence.
    #[must_use]
    pub fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }

    /// Makes an error of what was being done, and what stopped it.
    #[must_use]
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
