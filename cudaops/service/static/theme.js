// Loaded before the page is drawn, so that a chosen theme does not flash the other one first.
// Without a choice the system's own holds.
(() => {
  let chosen = "auto";
  try {
    chosen = localStorage.getItem("cudaops-theme") ?? "auto";
  } catch {
    // Storage can be switched off; the system's theme holds then.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
