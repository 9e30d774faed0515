//! What becomes of the windows of threads when checkpoints begin and end.

use super::*;

const ME: usize = 1;
const OTHER: usize = 65;

/// Seats, and memory that their windows may name; nobody touches it.
struct Model {
    seats: Seats,
    memory: Box<[u8]>,
}

impl Model {
    fn new() -> Self {
        Self { seats: Seats::new(), memory: vec![0; 4096].into() }
    }

    /// Makes `start..end` of the memory the window of a thread.
    fn set(&self, number: usize, start: usize, end: usize) {
        let base = self.memory.as_ptr().cast_mut();
        self.seats.taken(number).0.window.set(base.wrapping_add(start), base.wrapping_add(end));
    }

    /// The window of a thread, or `None` where it is empty and nowhere.
    fn window(&self, number: usize) -> Option<(usize, usize)> {
        let (cursor, limit) = self.seats.window(number * STRIDE).get();
        let base = self.memory.as_ptr().addr();
        (!cursor.is_null()).then(|| (cursor.addr() - base, limit.addr() - base))
    }

    fn both(&self) -> [Option<(usize, usize)>; 2] {
        [self.window(ME), self.window(OTHER)]
    }
}

#[test]
fn every_number_has_a_seat_of_its_own() {
    let seats = Seats::new();
    let mut at: Vec<_> =
        (0..=NUMBERS).map(|number| core::ptr::from_ref(seats.window(number * STRIDE))).collect();
    assert!((0..=NUMBERS).all(|number| at[number] == core::ptr::from_ref(&seats.seat(number).window)));
    at.dedup();
    assert_eq!(at.len(), NUMBERS + 1);
}

#[test]
fn who_is_alone_is_told_so_until_another_comes() {
    let seats = Seats::new();
    assert!(seats.taken(OTHER).1 && seats.taken(OTHER).1);
    assert!(!seats.taken(ME).1 && !seats.taken(OTHER).1);
    assert!(!seats.taken(7).1 && !seats.taken(OTHER).1);
    seats.start_over(ME);
    assert!(seats.taken(ME).1);
    seats.start_over(ME);
    assert!(!seats.taken(OTHER).1, "who resets what it alone has used keeps its seat");
    seats.start_over(NOBODY);
    assert!(seats.taken(OTHER).1);
    seats.start_over(ME);
    assert!(seats.taken(ME).1);
}

#[test]
fn starting_over_empties_the_windows_that_were_used() {
    let model = Model::new();
    model.set(ME, 0, 8);
    model.set(OTHER, 8, 16);
    let used = || {
        let mut used = Vec::new();
        model.seats.each(|number, seat| used.push((number, seat.window.room())));
        used
    };
    assert_eq!(used(), [(ME, 8), (OTHER, 8)]);
    model.seats.start_over(ME);
    assert_eq!((model.both(), used()), ([None, None], vec![]));
    model.set(ME, 0, 8);
    assert_eq!(used(), [(ME, 8)]);
    model.seats.start_over(ME);
    assert_eq!((model.both(), used()), ([None, None], vec![(ME, 0)]));
}

#[test]
fn windows_go_on_inside_a_checkpoint_and_are_put_back_after_it() {
    let model = Model::new();
    model.set(ME, 0, 100);
    // Each time it is another thread's checkpoint.
    let outer = model.seats.enter(7);
    assert_eq!(model.both(), [Some((0, 100)), None]);
    model.set(ME, 8, 100);
    model.set(OTHER, 200, 300);
    let inner = model.seats.enter(7);
    model.set(ME, 300, 400);
    model.set(OTHER, 400, 500);
    model.seats.back(inner, 7);
    assert_eq!(model.both(), [Some((8, 100)), Some((200, 300))]);
    // As after a checkpoint that was forgotten.
    model.seats.enter(7);
    model.set(OTHER, 500, 600);
    model.seats.back(outer, 7);
    assert_eq!(model.both(), [Some((0, 100)), None], "who came inside had nothing before");
}

#[test]
fn the_window_of_the_caller_is_left_to_it() {
    let model = Model::new();
    model.set(ME, 0, 100);
    let depth = model.seats.enter(ME);
    model.set(ME, 8, 100);
    model.set(OTHER, 200, 300);
    model.seats.back(depth, ME);
    assert_eq!(model.both(), [Some((8, 100)), None]);
}

#[test]
fn a_seat_used_first_inside_has_nothing_of_older_checkpoints() {
    let model = Model::new();
    model.set(OTHER, 0, 8);
    for _ in 0..DEPTH {
        model.seats.enter(ME);
    }
    model.seats.start_over(ME);
    let depths = [(); DEPTH].map(|()| model.seats.enter(ME));
    model.set(OTHER, 8, 16);
    for depth in depths.into_iter().rev() {
        model.seats.back(depth, ME);
        assert_eq!(model.window(OTHER), None);
    }
}

#[test]
fn inside_of_too_many_checkpoints_only_the_callers_window_goes_on() {
    let model = Model::new();
    model.set(ME, 0, 100);
    model.set(OTHER, 100, 200);
    let depths = [(); DEPTH + 2].map(|()| model.seats.enter(ME));
    assert_eq!(model.both(), [Some((0, 100)), None]);
    model.set(OTHER, 200, 300);
    model.seats.back(depths[DEPTH + 1], ME);
    assert_eq!(model.window(OTHER), None);
    model.seats.back(depths[DEPTH], ME);
    assert_eq!(model.window(OTHER), None);
    model.seats.back(depths[DEPTH - 1], ME);
    assert_eq!(model.both(), [Some((0, 100)), Some((100, 200))]);
}

#[test]
fn chunks_double_up_to_the_most() {
    let seats = Seats::new();
    let seat = seats.taken(ME).0;
    let steps: Vec<usize> = (0..5).map(|_| seat.next_step(1 << 10)).collect();
    assert_eq!(steps, [256, 512, 1024, 1024, 1024]);
    assert_eq!(seats.taken(OTHER).0.next_step(256), 256);
    seats.start_over(NOBODY);
    assert_eq!(seats.taken(ME).0.next_step(1 << 10), 256);
}
