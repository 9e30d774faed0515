//! Buffers for secrets. (First form.)
