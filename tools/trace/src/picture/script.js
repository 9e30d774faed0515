"use strict";
// Follows the pointer over the first chart. No comparison that XML would take for a tag: this page is both.
{
  const columns = JSON.parse(document.getElementById("columns").textContent);
  const chart = document.getElementById("chart");
  const cursor = document.getElementById("cursor");
  const tip = document.getElementById("tip");
  const left = Number(chart.dataset.left), width = Number(chart.dataset.width);
  const mib = (kib) => (kib / 1024).toFixed(1).padStart(10) + " MiB";
  const hide = () => { tip.hidden = true; cursor.setAttribute("d", ""); };
  chart.addEventListener("pointermove", (event) => {
    const box = chart.getBoundingClientRect();
    const at = (event.clientX - box.left) * chart.viewBox.baseVal.width / box.width - left;
    if (0 > at || at >= width) { hide(); return; }
    const column = Math.min(Math.floor(at), columns.live.length - 1);
    cursor.setAttribute("d", "M" + (left + column + 0.5) + " " + chart.dataset.top + "V" + chart.dataset.bottom);
    tip.textContent = [
      (columns.width * column / 1e9).toFixed(3) + " s",
      "live     " + mib(columns.live[column]),
      "held     " + mib(columns.held[column]),
      "cached   " + mib(columns.cached[column]),
      "process  " + mib(columns.process[column]),
      "huge     " + mib(columns.huge[column]),
      "faults   " + String(columns.faults[column]).padStart(8),
    ].join("\n");
    tip.hidden = false;
    const beside = event.clientX + 16 + tip.offsetWidth > innerWidth;
    tip.style.left = (beside ? event.clientX - 16 - tip.offsetWidth : event.clientX + 16) + "px";
    tip.style.top = (event.clientY + 12) + "px";
    tip.style.fontFamily = "ui-monospace, monospace";
  });
  chart.addEventListener("pointerleave", hide);
}
