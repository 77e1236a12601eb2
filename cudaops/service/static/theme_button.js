// The button that goes round: as the system has it, light, dark.

const THEMES = ["auto", "light", "dark"];

/** @param {HTMLButtonElement} button */
export function themeButton(button) {
  const root = document.documentElement;
  const show = () => {
    button.textContent = `Theme: ${root.dataset.theme ?? "auto"}`;
  };
  button.addEventListener("click", () => {
    const now = THEMES.indexOf(root.dataset.theme ?? "auto");
    const next = THEMES[(now + 1) % THEMES.length];
    if (next === "auto") delete root.dataset.theme;
    else root.dataset.theme = next;
    try {
      localStorage.setItem("cudaops-theme", next);
    } catch {
      // Not kept: the choice holds for this page.
    }
    show();
  });
  show();
}
