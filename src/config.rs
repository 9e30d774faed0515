//! What the environment says about huge pages. (First form.)

use crate::os::Huge;

/// The huge-page advice for mappings that stand outside the page heap.
pub(crate) fn huge() -> Huge {
    Huge::Advise
}
