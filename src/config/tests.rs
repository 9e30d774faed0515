//! What is in force when code and environment say this and that.

use super::*;

/// Resolves against an environment, and gives the reported lines too.
fn resolved(config: Config, environment: &str) -> (Settings, Vec<String>) {
    let mut scan = Scan::new();
    scan.feed(environment.as_bytes());
    let mut lines = Vec::new();
    let settings = resolve(&config, &scan.finish(), &mut |_, parts| lines.push(parts.concat()));
    (settings, lines)
}

#[test]
fn the_large_side_begins_between_a_page_and_a_gib() {
    for (said, meant) in [
        (0, 4 << 10),
        (4095, 4 << 10),
        (4096, 4 << 10),
        (5000, 5000),
        (64 << 10, 64 << 10),
        (1 << 30, 1 << 30),
        (usize::MAX, 1 << 30),
    ] {
        assert_eq!(Config::new().large_from(said).begins_large(), meant, "{said}");
    }
    assert_eq!(Config::new().begins_large(), 64 << 10);
}

#[test]
fn an_empty_environment_leaves_the_word_to_the_code() {
    let config = Config::new()
        .cache_bytes(7)
        .thp(Thp::Never)
        .moves(Moves::Never)
        .tune_glibc(false)
        .checked(true)
        .wipe_on_free(true)
        .background(true);
    let (settings, lines) = resolved(config, "PATH=/bin\0");
    assert_eq!(
        settings,
        Settings {
            cache_bytes: Some(7),
            thp: Thp::Never,
            moves: Moves::Never,
            tune_glibc: false,
            checked: true,
            wipe_on_free: true,
            background: true,
        }
    );
    assert!(lines.is_empty());
}

#[test]
fn the_environment_wins_over_the_code() {
    let config = Config::new().cache_bytes(7).thp(Thp::Never).moves(Moves::Never);
    let (settings, lines) =
        resolved(config, "ZK_NALLOC_CACHE_BYTES=2g\0A=b\0ZK_NALLOC_THP=always\0ZK_NALLOC_MOVES=auto\0");
    assert_eq!(
        settings,
        Settings {
            cache_bytes: Some(2 << 30),
            thp: Thp::Always,
            moves: Moves::Auto,
            tune_glibc: true,
            checked: false,
            wipe_on_free: false,
            background: false,
        }
    );
    assert!(lines.is_empty());
}

#[test]
fn a_switch_of_the_environment_turns_on_what_is_off_and_off_what_is_on() {
    let all = Config::new().checked(true).wipe_on_free(true).background(true);
    let switches = |settings: Settings| [settings.checked, settings.wipe_on_free, settings.background];
    for (config, said, expected) in [(Config::new(), "1", true), (all, "0", false)] {
        let environment =
            format!("ZK_NALLOC_CHECKED={said}\0ZK_NALLOC_WIPE_ON_FREE={said}\0ZK_NALLOC_BACKGROUND={said}\0");
        assert_eq!(switches(resolved(config, &environment).0), [expected; 3]);
    }
    let (settings, lines) = resolved(all, "ZK_NALLOC_CHECKED=yes\0");
    assert!(settings.checked);
    assert_eq!(lines, ["zk-nalloc: ZK_NALLOC_CHECKED=\"yes\" is none of 0, 1; taken instead: 1"]);
}

#[test]
fn a_value_that_cannot_be_read_is_one_line_and_then_unset() {
    let (settings, lines) = resolved(Config::new(), "ZK_NALLOC_CACHE_BYTES=12cats\0");
    assert_eq!(settings.cache_bytes, None);
    assert_eq!(
        lines,
        ["zk-nalloc: ZK_NALLOC_CACHE_BYTES=\"12cats\" is not a number of bytes (digits, then K, M, G or \
          nothing); taken instead: the recent peak of live memory"]
    );
    let (settings, lines) = resolved(
        Config::new().cache_bytes(9).thp(Thp::Always).moves(Moves::Never),
        "ZK_NALLOC_CACHE_BYTES=\0ZK_NALLOC_THP=no\x1b[31m\n\0ZK_NALLOC_MOVES=perhaps\0",
    );
    assert_eq!((settings.cache_bytes, settings.thp, settings.moves), (Some(9), Thp::Always, Moves::Never));
    assert_eq!(lines.len(), 3);
    assert!(lines[0].ends_with("taken instead: the ceiling set in the program"), "{}", lines[0]);
    assert!(lines[1].contains("=\"no?[31m?\" is none of"), "{}", lines[1]);
    assert!(lines[1].ends_with("taken instead: always"), "{}", lines[1]);
    assert!(lines[2].ends_with("taken instead: never"), "{}", lines[2]);
}

#[test]
fn a_value_too_long_to_keep_is_cut_in_the_report_and_never_read() {
    let digits = "0".repeat(500) + "1";
    let (settings, lines) = resolved(Config::new(), &format!("ZK_NALLOC_CACHE_BYTES={digits}\0"));
    assert_eq!(settings.cache_bytes, None);
    assert!(lines[0].contains("0...\" is not a number"), "{}", lines[0]);
    assert!(lines[0].len() < 250);
}

#[test]
fn a_name_that_is_no_variable_is_one_line() {
    let (settings, lines) = resolved(Config::new(), "ZK_NALLOC_WIPE_ONFREE=1\0ZK_NALLOC_CACHE=4G\0");
    assert_eq!(settings, resolved(Config::new(), "").0);
    assert_eq!(lines, ["zk-nalloc: ZK_NALLOC_WIPE_ONFREE: there is no such variable; it changes nothing"]);
}

#[test]
fn glibc_is_tuned_beside_another_small_side_only_where_that_is_said() {
    let tunes = |config: Config| resolved(config, "").0.tune_glibc;
    let said = [Config::new(), Config::new().tune_glibc(true), Config::new().tune_glibc(false)];
    assert_eq!(said.map(tunes), [true, true, false]);
    assert_eq!(said.map(|config| tunes(config.beside_another())), [false, true, false]);
}
