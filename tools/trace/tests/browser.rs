//! The page in a browser, where there is one: its script runs, the pointer is told where it is, and text can be read in
//! light and in dark.

use std::path::Path;
use std::process::Command;

use zk_nalloc_trace::{Story, Trace, picture};

/// What is put at the end of the page: moves the pointer to the middle of the chart, and leaves what is seen in the title.
const LOOK: &str = r#"<script>
{
  const chart = document.getElementById("chart"), box = chart.getBoundingClientRect();
  chart.dispatchEvent(new PointerEvent("pointermove",
    { clientX: box.left + box.width / 2, clientY: box.top + box.height / 2 }));
  const channels = (colour) => colour.match(/[0-9.]+/g).slice(0, 3).map(Number);
  const luminance = (colour) => channels(colour).map((c) => c / 255)
    .map((c) => 0.03928 >= c ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const style = getComputedStyle(document.body);
  const [a, b] = [style.color, style.backgroundColor].map(luminance);
  const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  document.title = ["seen", b > a ? "light" : "dark", contrast.toFixed(1),
    document.getElementById("tip").textContent.replaceAll("\n", ";")].join("|");
}
</script>"#;

fn browser() -> Option<&'static str> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    names
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success()))
}

/// Opens the page with a preference for dark or light, and gives the title that it came to.
fn title(browser: &str, page: &Path, scheme: &str) -> String {
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", "--virtual-time-budget=2000"])
        .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
        .arg(format!("--user-data-dir={}", page.with_extension("profile").display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .expect("the browser starts");
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    let title = dom.split_once("<title>").and_then(|(_, rest)| rest.split_once("</title>"));
    title.map(|(title, _)| title.to_owned()).unwrap_or_default()
}

#[test]
fn the_page_works_in_a_browser() {
    let Some(browser) = browser() else {
        return eprintln!("skipped: the_page_works_in_a_browser: no chromium here");
    };
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/traces");
    let trace = Trace::read(&traces.join("plonky3-keccak.trace.gz")).expect("a trace");
    let page = picture::page("a proof", &trace, &Story::of(&trace));
    let looked = page.replacen("</body>", &format!("{LOOK}</body>"), 1);
    assert_ne!(looked, page, "the page has an end");
    let file = std::env::temp_dir().join(format!("zk-nalloc-picture-{}.html", std::process::id()));
    std::fs::write(&file, looked).expect("a temporary file");
    let titles = [("1", "light"), ("0", "dark")].map(|(scheme, name)| (title(browser, &file, scheme), name));
    let _ = std::fs::remove_dir_all(file.with_extension("profile"));
    std::fs::remove_file(&file).expect("was written");
    for (title, name) in titles {
        let parts: Vec<&str> = title.split('|').collect();
        assert_eq!(parts.first(), Some(&"seen"), "{title:?}");
        assert_eq!(parts[1], name);
        assert!(parts[2].parse::<f64>().expect("a contrast") >= 7.0, "{title}");
        assert!(parts[3].contains("live") && parts[3].contains("MiB"), "{title}");
    }
}
