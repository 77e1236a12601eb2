// Routes and the frame around the views. A view is {element, title, destroy}.

import { askForToken, getJson, token } from "./api.js";
import { announce, fill, h, problemBox, setText, themeButton } from "./dom.js";
import { formView } from "./form_view.js";
import { jobView } from "./job_view.js";
import { jobsView } from "./jobs_view.js";

/** @typedef {{element: HTMLElement, title: string, destroy: () => void}} View */

const main = /** @type {HTMLElement} */ (document.getElementById("main"));
/** @type {View | null} */
let shown = null;

/** @param {string} hash @returns {{name: string, make: () => View}} */
function routeOf(hash) {
  const path = hash.replace(/^#/, "") || "/";
  const job = /^\/jobs\/([0-9a-fA-F-]{1,64})$/.exec(path);
  if (job) return { name: "job", make: () => jobView(job[1]) };
  if (path === "/new") return { name: "new", make: formView };
  if (path === "/") return { name: "jobs", make: jobsView };
  return { name: "", make: nowhere };
}

/** @returns {View} */
function nowhere() {
  const element = h(
    "div",
    {},
    h("h1", { tabindex: -1 }, "No such page"),
    h("p", {}, h("a", { href: "#/" }, "All jobs")),
  );
  return { element, title: "No such page", destroy: () => {} };
}

/** @param {boolean} moved by the reader, so that the focus follows */
function show(moved) {
  const route = routeOf(location.hash);
  shown?.destroy();
  shown = route.make();
  fill(main, shown.element);
  document.title = `${shown.title} · cudaops`;
  for (const link of document.querySelectorAll("nav [data-route]")) {
    if (link.dataset.route === route.name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (!moved) return;
  scrollTo(0, 0);
  main.querySelector("h1")?.focus({ preventScroll: true });
  announce(shown.title);
}

function tokenButton() {
  const button = document.getElementById("token-button");
  const label = () => setText(button, token() ? "Token: set" : "Token");
  button.addEventListener("click", () => askForToken("The token that this page sends."));
  document.addEventListener("token-changed", label);
  label();
}

async function version() {
  try {
    const told = await getJson("/version");
    setText(document.getElementById("version"), `cudaops ${told.version}`);
  } catch {
    // The footer goes without; the view says what is the matter.
  }
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address is the route's
  main.focus();
});
addEventListener("hashchange", () => show(true));
addEventListener("unhandledrejection", (event) => {
  if (event.reason?.name !== "AbortError") main.prepend(problemBox(event.reason));
});
themeButton(/** @type {HTMLButtonElement} */ (document.getElementById("theme-button")));
tokenButton();
show(false);
version();
