//! Seats under all interleavings: `RUSTFLAGS="--cfg loom" cargo test -p zk-nalloc --release --lib loom`.

use super::*;
use loom::sync::Arc;
use loom::thread;

/// Takes the seat of `number` twice, as a thread that allocates does, and leaves a window of as many bytes there. Says whether it
/// was alone at last.
fn used(seats: &Seats, number: usize) -> bool {
    let mut alone = false;
    for _ in 0..2 {
        let seat;
        (seat, alone) = seats.taken(number);
        seat.window.set(core::ptr::null_mut(), core::ptr::without_provenance_mut(number));
    }
    alone
}

/// What is in the seats that were used, and in the others.
fn rooms(seats: &Seats) -> [Option<usize>; NUMBERS] {
    let mut rooms = [None; NUMBERS];
    seats.each(|number, seat| rooms[number - 1] = Some(seat.window.room()));
    rooms
}

/// Lets two threads use their seats at once.
fn both(seats: Seats) -> Seats {
    let seats = Arc::new(seats);
    let other = Arc::clone(&seats);
    let there = thread::spawn(move || used(&other, 2));
    let here = used(&seats, 1);
    // What another thread reads meanwhile is a number.
    let seen = rooms(&seats);
    assert!(seen[0] == Some(1) && matches!(seen[1], None | Some(0 | 2)));
    let there = there.join().unwrap();
    assert!(!(here && there), "both cannot be alone");
    Arc::try_unwrap(seats).ok().unwrap()
}

#[test]
fn loom_all_who_have_used_their_seats_are_known() {
    loom::model(|| {
        let seats = both(Seats::new());
        assert_eq!(rooms(&seats), [Some(1), Some(2)]);
        seats.start_over(1);
        assert_eq!(rooms(&seats), [None, None]);
        assert!(used(&seats, 2));
    });
}

#[test]
fn loom_what_was_used_inside_a_checkpoint_is_put_back() {
    loom::model(|| {
        let seats = Seats::new();
        used(&seats, 1);
        let depth = seats.enter(2);
        let seats = both(seats);
        seats.back(depth, NOBODY);
        assert_eq!(rooms(&seats), [Some(1), Some(0)]);
    });
}
