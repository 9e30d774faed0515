//! A container with little memory: a load that survives there without us survives with us.
//!
//! Processes of their own, because each joins a cgroup that may have it killed.

#[path = "support/choice.rs"]
mod choice;
#[path = "support/container.rs"]
mod container;
#[expect(dead_code, reason = "no test uses all that the tests share")]
mod support;

use choice::{Choice, SYSTEM};
use container::Container;
use support::load::{Load, load};
use support::{child, skip};

#[global_allocator]
static GLOBAL: Choice = Choice::new();

/// Up to 240 MiB live, and as much as a block more while one grows by copying.
const FITS: Load = Load { threads: 2, most: 50 << 20, budget: 120 << 20 };

const LIMIT: usize = 400 << 20;

#[test]
fn a_load_that_fits_without_us_fits_with_us() {
    const TEST: &str = "a_load_that_fits_without_us_fits_with_us";
    let modes = [("system", SYSTEM), support::MODES[0], support::MODES[1]];
    let mut fits = false;
    for (mode, environment) in modes {
        let container = match Container::new(mode, LIMIT) {
            Ok(container) => container,
            Err(why) => return skip(TEST, &format!("no cgroup with a limit of memory can be made: {why}")),
        };
        let ended = child(TEST, mode, environment, || {
            container.join();
            load(&FITS, 120);
        });
        let Some(ended) = ended else { continue };
        if mode == "system" {
            fits = ended.output.status.success();
        } else if fits {
            ended.assert_well();
        }
    }
    assert!(
        fits || std::env::var_os("ZK_NALLOC_TEST_CHILD").is_some(),
        "the load is too large without us too"
    );
}
