//! Who gets which stripe, and for how long.

use super::*;

const ME: u64 = SPACING;
/// A thread whose places begin where those of `ME` do.
const OTHER: u64 = (1 + STRIPES as u64) * SPACING;

fn address(stripe: &Stripe) -> *const Stripe {
    stripe
}

/// The stripe that a thread gets, whether it has one or not.
fn got(stripes: &Stripes, me: u64) -> Option<*const Stripe> {
    stripes.mine(me).or_else(|| stripes.claim_slow(me)).map(address)
}

#[test]
fn threads_have_stripes_of_their_own_and_keep_them_for_an_era() {
    let stripes = Stripes::new();
    assert!(stripes.mine(ME).is_none() && stripes.unused() == 0, "no table yet");
    let mine = got(&stripes, ME).unwrap();
    let other = got(&stripes, OTHER).unwrap();
    assert_ne!(mine, other);
    assert_eq!((got(&stripes, ME), got(&stripes, OTHER)), (Some(mine), Some(other)));
    stripes.start_over();
    assert!(stripes.mine(ME).is_none() && stripes.mine(OTHER).is_none());
    assert_eq!(got(&stripes, OTHER), Some(mine), "the first place is free again");
}

#[test]
fn an_era_inside_leaves_the_stripes_around_it_as_they_were() {
    let stripes = Stripes::new();
    let outer = got(&stripes, ME).unwrap();
    let depth = stripes.enter();
    assert!(stripes.mine(ME).is_none());
    let inner = got(&stripes, ME).unwrap();
    assert_ne!(outer, inner);
    let deeper = stripes.enter();
    assert!(![outer, inner].contains(&got(&stripes, ME).unwrap()));
    stripes.back(deeper);
    assert_eq!(stripes.mine(ME).map(address), Some(inner));
    stripes.enter();
    // As after a checkpoint that was forgotten.
    stripes.back(depth);
    assert_eq!(stripes.mine(ME).map(address), Some(outer));
    stripes.enter();
    assert_eq!(got(&stripes, ME), Some(inner), "an era that is over holds nothing");
}

#[test]
fn who_finds_no_place_has_none_and_so_has_who_is_too_deep() {
    let stripes = Stripes::new();
    let threads = (0..=PROBES as u64).map(|i| ME + i * STRIPES as u64 * SPACING);
    let places: Vec<_> = threads.map(|me| got(&stripes, me)).collect();
    assert_eq!(places.iter().flatten().count(), PROBES, "one thread too many");
    assert_eq!(places.last(), Some(&None));
    assert_eq!(got(&stripes, NEW), None);
    let other = ME + 20 * SPACING;
    let depths: Vec<usize> = (0..2 * DEPTH).map(|_| stripes.enter()).collect();
    assert_eq!(got(&stripes, other), None);
    stripes.back(depths[DEPTH - 1]);
    assert!(got(&stripes, other).is_some());
}

#[test]
fn chunks_double_up_to_the_most() {
    let stripes = Stripes::new();
    let stripe = stripes.claim_slow(ME).unwrap();
    let steps: Vec<usize> = (0..5).map(|_| stripe.next_step(1 << 10)).collect();
    assert_eq!(steps, [256, 512, 1024, 1024, 1024]);
    assert_eq!(stripes.claim_slow(OTHER).unwrap().next_step(256), 256);
}

#[test]
fn when_the_numbers_of_eras_are_used_up_there_are_no_stripes() {
    let stripes = Stripes::new();
    stripes.last.store(SPACING - 2, Ordering::Relaxed);
    stripes.start_over();
    assert!(got(&stripes, ME).is_some(), "the last era");
    for _ in 0..3 {
        stripes.start_over();
        assert_eq!(got(&stripes, ME), None);
    }
}
