//! A pool against a naive model of it, from one thread and from many: nothing is lost, shared or stale.

use std::collections::HashMap;
use std::thread;

use zk_nalloc::secret::Protection;
use zk_nalloc::{Secret, SecretBuf, SecretPool};

/// A small generator of operations: the same for a seed, everywhere.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

fn is(secret: &SecretBuf, stamp: u64, len: usize) -> bool {
    secret.expose(|bytes| bytes.len() == len && bytes.iter().all(|&b| b == stamp as u8))
}

/// Makes, checks and drops secrets of one pool at random, against a map of what each must hold.
fn churn(pool: &SecretPool, seed: u64, rounds: u64) -> Vec<SecretBuf> {
    let mut dice = Dice(seed);
    let mut model: HashMap<u64, (SecretBuf, u64, usize)> = HashMap::new();
    for stamp in 0..rounds {
        if dice.below(100) < 55 {
            let len = dice.below(100) as usize + if dice.below(10) == 0 { 2000 } else { 0 };
            let mut secret = pool.secret(len).unwrap();
            assert!(is(&secret, 0, len), "a new secret is zero");
            secret.expose_mut(|bytes| bytes.fill(stamp as u8));
            model.insert(stamp, (secret, stamp, len));
        } else if let Some(&key) = model.keys().nth(dice.below(model.len().max(1) as u64) as usize) {
            let (secret, stamp, len) = model.remove(&key).unwrap();
            assert!(is(&secret, stamp, len), "nobody else wrote to it");
        }
    }
    assert!(model.values().all(|(secret, stamp, len)| is(secret, *stamp, *len)));
    model.into_values().map(|(secret, ..)| secret).collect()
}

#[test]
fn a_pool_is_its_model() {
    for seed in 1..20 {
        let pool = SecretPool::new();
        let left = churn(&pool, seed, 2000);
        let pooled = left.iter().filter(|secret| secret.len() <= SecretPool::SLOT_MAX).count();
        assert_eq!(pool.live(), pooled);
        drop(left);
        assert_eq!(pool.live(), 0);
    }
}

#[test]
fn threads_share_a_pool() {
    for protection in [Protection::standard(), Protection::sealed()] {
        let pool = SecretPool::with_protection(protection);
        thread::scope(|scope| {
            let threads: Vec<_> = (1..=4)
                .map(|seed| {
                    scope.spawn({
                        let pool = &pool;
                        move || churn(pool, seed, 2000)
                    })
                })
                .collect();
            // Dropped by another thread than the one that made them.
            threads.into_iter().for_each(|thread| drop(thread.join().unwrap()));
        });
        assert_eq!(pool.live(), 0, "no slot was lost");
    }
}

#[test]
fn a_slot_is_used_again_before_the_pool_grows() {
    let pool = SecretPool::new();
    let secrets: Vec<_> = (0..1000).map(|_| pool.secret(32).unwrap()).collect();
    let bytes = pool.page_bytes();
    drop(secrets);
    for _ in 0..10 {
        drop((0..1000).map(|_| pool.secret(32).unwrap()).collect::<Vec<_>>());
    }
    for _ in 0..100_000 {
        drop(pool.secret(32).unwrap());
    }
    assert_eq!(pool.page_bytes(), bytes);
}

#[test]
fn secrets_outlive_their_pool() {
    let pool = SecretPool::new();
    let mut secret = pool.secret(32).unwrap();
    let twin = secret.try_clone().unwrap();
    assert_eq!(pool.live(), 2);
    drop(pool);
    secret.as_mut_slice().fill(1);
    assert_eq!(twin.as_slice(), [0; 32]);
    assert_eq!(secret.try_clone().unwrap().as_slice(), [1; 32], "and can still be copied");
}

#[test]
fn large_secrets_have_pages_of_their_own() {
    let pool = SecretPool::new();
    drop(pool.secret(SecretPool::SLOT_MAX).unwrap());
    let bytes = pool.page_bytes();
    let large = pool.secret(SecretPool::SLOT_MAX + 1).unwrap();
    let wide = Secret::<[u64; 1000]>::in_pool(&pool).unwrap();
    assert_eq!((pool.page_bytes(), pool.live()), (bytes, 0));
    drop((large, wide));
    assert_eq!(format!("{pool:?}"), format!("SecretPool(0 secrets on {bytes} bytes)"));
}
