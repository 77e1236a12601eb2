// The report's markup made inert. The service escapes what is not its own; this is the second lock.

const FORBIDDEN = "script, style, link, meta, base, iframe, frame, object, embed, form, template, portal";
const ADDRESSES = ["href", "src", "action", "formaction", "xlink:href", "poster", "srcset"];

/** @param {string} markup @returns {Node[]} nodes without script, without handlers */
export function inert(markup) {
  const parsed = new DOMParser().parseFromString(markup, "text/html");
  for (const element of parsed.body.querySelectorAll(FORBIDDEN)) element.remove();
  for (const element of parsed.body.querySelectorAll("*")) clean(element);
  const holder = document.createElement("div");
  holder.addEventListener("click", jump);
  holder.append(...parsed.body.childNodes);
  return [holder];
}

/** @param {Element} element */
function clean(element) {
  for (const { name, value } of [...element.attributes]) {
    const address = ADDRESSES.includes(name) && !/^(https?:\/\/|#|\/)/i.test(value.trim());
    if (name.startsWith("on") || name === "style" || name === "srcdoc" || address) {
      element.removeAttribute(name);
    }
  }
}

/** An anchor within the report: the address stays the job's. @param {Event} event */
function jump(event) {
  const link = event.target instanceof Element ? event.target.closest("a[href^='#']") : null;
  if (!link) return;
  event.preventDefault();
  const place = document.getElementById(decodeURIComponent(link.getAttribute("href").slice(1)));
  if (!place) return;
  place.setAttribute("tabindex", "-1");
  place.focus({ preventScroll: true });
  place.scrollIntoView();
}
