//! In what order allocators take their turns.
//!
//! Why this order: every second turn runs them backwards (A B C, C B A), so that a machine that warms up or gets busier favours
//! nobody; each two turns begin with another, as whoever is last of one and first of the next runs at half as many moments as
//! others (docs/EXPERIMENTS.md, "A host of two speeds").

/// The contenders in the order of this turn. Each two turns begin about a third of them further on than the two before.
#[must_use]
pub fn order<T>(contenders: &[T], turn: u32) -> Vec<&T> {
    let mut order: Vec<&T> = contenders.iter().collect();
    let (pair, count) = (turn as usize / 2, contenders.len().max(1));
    order.rotate_left(pair * (count / 3 + 1) % count);
    if turn % 2 == 1 {
        order.reverse();
    }
    order
}

#[cfg(test)]
mod tests {
    use super::order;

    #[test]
    fn every_second_turn_runs_backwards() {
        assert_eq!([order(&["a", "b"], 0), order(&["a", "b"], 1)].concat(), [&"a", &"b", &"b", &"a"]);
        let all: Vec<usize> = (0..14).collect();
        for turn in [0, 2, 4] {
            let backwards: Vec<_> = order(&all, turn).into_iter().rev().collect();
            assert_eq!(order(&all, turn + 1), backwards);
        }
    }

    /// Ours was the last of the list, and so at the end of one turn and the beginning of the next, every time: of patterns first,
    /// then of provers.
    #[test]
    fn nobody_runs_twice_in_a_row_in_each_two_turns() {
        for count in 2..=14 {
            let all: Vec<usize> = (0..count).collect();
            let twice = |pair: u32| *order(&all, 2 * pair).last().expect("there are some");
            assert_ne!(twice(0), twice(1), "{count}");
            assert_ne!(twice(1), twice(2), "{count}");
        }
        assert!(order::<u8>(&[], 3).is_empty());
    }
}
